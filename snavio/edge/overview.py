"""The first words of a running edge: where it listens, and what it does with which requests.

Never a secret, and never more lines than somebody reads.
"""

from __future__ import annotations

from typing import Final

from snavio.edge.kinds import SocketAddress
from snavio.edge.plan import EdgePlan, EdgeRoute, ListenerTls, RouteChannel, RouteMode

MOST_ROUTES_SHOWN: Final = 20


def overview(plan: EdgePlan) -> list[str]:
    """One line for each listener, then one for each route."""
    listeners: list[tuple[str, str]] = []
    if any(each.channel is RouteChannel.INBOUND for each in plan.routes):
        listeners.append(("ingress", _url(plan.ingress.listen, plan.ingress.tls)))
    for name, api in (("pull_api", plan.pull_api), ("admin_api", plan.admin_api)):
        if api is not None:
            listeners.append((name, _url(api.listen, api.tls) + api.prefix))
    if (metrics := plan.observability.metrics) is not None:
        listeners.append(("metrics", _url(metrics.listen, None) + metrics.prefix))
    lines = [f"  {name:<10} {url}" for name, url in listeners]
    shown = plan.routes[:MOST_ROUTES_SHOWN]
    width = max((len(_asked(each)) for each in shown), default=0)
    lines += [f"  {_asked(each):<{min(width, 60)}}  {_becomes(each, plan)}" for each in shown]
    if (more := len(plan.routes) - len(shown)) > 0:
        lines.append(f"  and {more:,} more routes; `snavio edge ls` has them all")
    return lines


def _asked(route: EdgeRoute) -> str:
    if route.channel is not RouteChannel.INBOUND:
        return f"{route.channel.value} {route.path}"
    return f"{','.join(sorted(route.methods))} {route.path}"


def _becomes(route: EdgeRoute, plan: EdgePlan) -> str:
    parts = []
    if route.channel is RouteChannel.INBOUND:
        parts.append(_who(route))
    match route.mode:
        case RouteMode.COMMAND if route.command is not None:
            parts.append(f"command {route.command.target} {route.command.name}")
        case RouteMode.DELIVER:
            parts.append("stored; `deliver` does not run yet")
        case _ if route.pull is not None and plan.pull_api is not None:
            api = plan.pull_api
            parts.append(f"workers POST {_url(api.listen, api.tls)}{api.prefix}{route.pull.path}/dequeue")
    return "; ".join(parts)


def _who(route: EdgeRoute) -> str:
    auth = route.auth
    found = [
        name
        for name, said in (("mtls", auth.identities), ("basic", auth.basic), ("forward", auth.forward))
        if said
    ]
    if auth.hmac is not None:
        found.append(f"hmac {auth.hmac.provider}" if auth.hmac.provider else "hmac")
    return f"auth {' and '.join(found)}" if found else "NO AUTH: everybody may send"


def _url(listen: SocketAddress, tls: ListenerTls | None) -> str:
    host = "localhost" if listen.everywhere else f"[{listen.host}]" if ":" in listen.host else listen.host
    return f"{'https' if tls else 'http'}://{host}:{listen.port}"
