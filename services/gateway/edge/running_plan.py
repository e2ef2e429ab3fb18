"""The plan in force: routes with their topics, buckets and keys, made as a whole and swapped as one reference.

Never changed once it is made: a request that began under one plan ends under it.
"""

from __future__ import annotations

import hashlib
import ipaddress
from dataclasses import dataclass, field

from services.gateway.edge.buckets import RouteBucket, RouteBuckets
from services.gateway.edge.secrets import Keys, SecretTable, keys_of
from snavio.edge.matching import RouteTable
from snavio.edge.plan import EdgePlan, EdgeRoute, RouteChannel
from snavio.edge.requests import Network
from snavio.edge.signatures import PROVIDERS
from snavio.edge.topics import RouteTopic, topics_of

INGRESS_BUCKET = "ingress"


@dataclass(frozen=True, slots=True)
class RunningRoute:
    """One route, with what judging a request needs at hand."""

    route: EdgeRoute
    topics: tuple[RouteTopic, ...]
    bucket: RouteBucket | None
    credentials: dict[bytes, bytes] = field(repr=False)
    """SHA-256 of `user:password` by SHA-256 of the user."""
    keys: Keys | None
    delivery_ids: tuple[str, ...]
    """Headers with the sender's own id, in lower case."""
    covers_time: bool
    """Its signature covers a time, so that the verified tag is the replay key."""
    open: bool
    """It asks for nothing."""


@dataclass(frozen=True, slots=True)
class RunningPlan:
    """Everything that requests are judged by."""

    plan: EdgePlan
    table: RouteTable
    routes: tuple[RunningRoute, ...]
    trusted: tuple[Network, ...]
    secrets: SecretTable
    generation: int
    loaded_unix_ns: int


def run_plan(
    plan: EdgePlan, *, secrets: SecretTable, buckets: RouteBuckets, generation: int, now_unix_ns: int
) -> RunningPlan:
    """Make a plan ready; its buckets take over the level of those before."""
    rates = {f"route {each.path}": each.rate_limit for each in plan.routes if each.rate_limit}
    if plan.ingress.rate_limit is not None:
        rates[INGRESS_BUCKET] = plan.ingress.rate_limit
    adopted = buckets.adopt(rates)
    named = {each.name: each for each in plan.secrets}
    running = []
    for route in plan.routes:
        hmac = route.auth.hmac
        form = PROVIDERS.get(hmac.provider) if hmac and hmac.provider else None
        ids = form.delivery_ids if form else ()
        if route.sender_ids is not None:
            ids = (route.sender_ids.header.lower(),)
        if route.command is not None and route.command.id_header:
            ids = (route.command.id_header.lower(),)
        inbound = route.channel is RouteChannel.INBOUND
        auth = route.auth
        running.append(
            RunningRoute(
                route=route,
                topics=topics_of(plan.tenant, route),
                bucket=adopted.get(f"route {route.path}")
                or (adopted.get(INGRESS_BUCKET) if inbound else None),
                credentials={
                    hashlib.sha256(each.user.encode()).digest(): hashlib.sha256(
                        f"{each.user}:{each.password}".encode()
                    ).digest()
                    for each in auth.basic
                },
                keys=keys_of(secrets, hmac.secrets, [named[name] for name in hmac.secret_names])
                if hmac
                else None,
                delivery_ids=ids,
                covers_time=hmac is not None and (form is None or form.covers_time),
                open=not (auth.basic or hmac or auth.forward or auth.identities),
            )
        )
    return RunningPlan(
        plan=plan,
        table=RouteTable(plan.routes),
        routes=tuple(running),
        trusted=tuple(ipaddress.ip_network(each) for each in plan.ingress.trusted_proxies),
        secrets=secrets,
        generation=generation,
        loaded_unix_ns=now_unix_ns,
    )
