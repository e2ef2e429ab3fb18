"""Tells the mesh what a plan says of its topics, and which routes this gateway runs.

Never a rule for a topic of another tenant, and never a part of a plan that the mesh would refuse as a whole: all of it
is tried before any of it is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from snavio.admin.directory import DirectoryClient
from snavio.domain.directory import Endpoint, EndpointMode, TopicRule, Value, WhenFull
from snavio.domain.directory.topic_rule import BOUNDS
from snavio.edge.kinds import SECOND_NS
from snavio.edge.plan import DeliveryTarget, EdgePlan, EdgeRoute, RouteMode
from snavio.edge.topics import PULL_TARGET, target_name, topics_of

AT_ONCE: Final = 500
PULL_ATTEMPTS: Final = 1000
REASON: Final = "snavio edge"
_MODES: Final = {
    RouteMode.PULL: EndpointMode.PULL,
    RouteMode.DELIVER: EndpointMode.DELIVER,
    RouteMode.COMMAND: EndpointMode.COMMAND,
}


class Registering:
    """Writes under the gateway's principal."""

    def __init__(self, registry: str, *, principal: Path, trust_domain: str) -> None:
        self._client = DirectoryClient(registry, certificates=principal, trust_domain=trust_domain)
        self._routes: dict[str, Endpoint] = {}

    async def apply(self, plan: EdgePlan) -> None:
        """Write the rules and routes of a plan; raises what the mesh has against it, with nothing written."""
        endpoints = {each.path: endpoint(plan, each) for each in plan.routes}
        gone = [each for path, each in self._routes.items() if path not in endpoints]
        values: list[Value] = [*topic_rules(plan), *endpoints.values()]
        for dry_run in (True, False):
            for place in range(0, len(values), AT_ONCE):
                await self._client.apply(values[place : place + AT_ONCE], reason=REASON, dry_run=dry_run)
        if gone:
            for place in range(0, len(gone), AT_ONCE):
                await self._client.apply([], deleted=gone[place : place + AT_ONCE], reason=REASON)
        self._routes = endpoints

    async def close(self) -> None:
        """Let go of the connection."""
        await self._client.close()


def topic_rules(plan: EdgePlan) -> list[TopicRule]:
    """One rule for each topic of the plan."""
    found = []
    for route in plan.routes:
        targets: Sequence[DeliveryTarget | None] = route.targets or (None,)
        by_name = {PULL_TARGET if each is None else target_name(each): each for each in targets}
        for topic in topics_of(plan.tenant, route):
            found.append(_rule(plan, topic.topic, by_name.get(topic.target)))
    return found


def _rule(plan: EdgePlan, topic: str, target: DeliveryTarget | None) -> TopicRule:
    waiting = plan.waiting
    delivered = waiting.delivered_max_age_ns
    return TopicRule(
        tenant=plan.tenant,
        topic=topic,
        capacity=_within("capacity", waiting.max_depth),
        when_full=WhenFull.BURY_OLDEST if waiting.bury_oldest else WhenFull.REFUSE,
        # `retry max` counts retries; the first attempt is none.
        max_attempts=PULL_ATTEMPTS
        if target is None
        else _within("max_attempts", target.retry.max_retries + 1),
        ready_s=_within("ready_s", waiting.max_age_ns // SECOND_NS),
        # A worker extends a lease for as long as it works.
        inflight_visibilities=BOUNDS["inflight_visibilities"][1],
        delivered_s=0 if delivered is None else _within("delivered_s", delivered // SECOND_NS),
        dlq_s=_within("dlq_s", waiting.dead_max_age_ns // SECOND_NS),
        dlq_messages=_within("dlq_messages", waiting.dead_max_depth or BOUNDS["dlq_messages"][1]),
    )


def _within(name: str, number: int) -> int:
    least, most = BOUNDS[name]
    return min(most, max(least, number))


def endpoint(plan: EdgePlan, route: EdgeRoute) -> Endpoint:
    """The route as the directory knows it: hosts without their paths, in which tokens hide."""
    hosts = []
    for target in route.targets:
        if target.url is not None:
            parts = urlsplit(target.url)
            hosts.append(f"{parts.hostname}:{parts.port}" if parts.port else str(parts.hostname))
    command = route.command
    return Endpoint(
        tenant=plan.tenant,
        route=route.path[:1024],
        mode=_MODES[route.mode],
        targets=(f"{command.target}:{command.name}",) if command else tuple(dict.fromkeys(hosts))[:64],
        application=route.labels.application if route.labels else "",
        endpoint_name=route.labels.endpoint_name if route.labels else "",
        publish=route.publish.direct or route.publish.managed,
        publish_direct=route.publish.direct,
        publish_managed=route.publish.managed,
        topics=tuple(each.topic for each in topics_of(plan.tenant, route))[:64],
        fingerprint=plan.fingerprint,
    )
