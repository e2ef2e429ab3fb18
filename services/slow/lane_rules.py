"""The directory's current entries for each lane: the right to send, the route and its limits.

Never allows a command because Registry could not be asked, and never uses an answer that does not fit the request.
"""

from __future__ import annotations

from collections.abc import Sequence

from services.slow.arbitration_job import Lane
from snavio.domain.directory import Fairness
from snavio.domain.quota import LimitRule
from snavio.domain.verdict import Verdict
from snavio.errors import SnavioError
from snavio.native import format_timestamp
from snavio.rpc.channel import MeshChannel
from snavio.v1.registry_pb2 import (
    DEDUPE_MODE_STRICT,
    Resolution,
    ResolveKey,
    ResolveRequest,
    ResolveResponse,
    Route,
    SourceQuota,
)
from snavio.v1.slow_pb2 import ESCALATION_REASON_WARM_BANNED

RETRY_AFTER_MS = 500
FROZEN = "Frozen: an operator has stopped this command for everybody."
RESOLVE_KEYS = 1000

Key = tuple[str, str, str]
Refused = tuple[Verdict, int, str, int]
"""Verdict, pause before another attempt in milliseconds, a sentence, and the end of the cause in Unix nanoseconds."""


class LaneRules:
    """Asks Registry."""

    def __init__(
        self, *, registry: MeshChannel, timeout_ms: int, instance: str = "", bound_ms: int = 0
    ) -> None:
        self._registry = registry
        self._timeout_ms = timeout_ms
        self._instance = instance
        self._bound_ms = bound_ms

    async def report(self) -> None:
        """Report to Registry that this Slow exists: an operator who freezes a route sees it although it is idle."""
        await self._ask((), timeout_ms=self._timeout_ms)

    async def rule(self, lanes: Sequence[Lane], *, timeout_ms: int) -> list[Lane]:
        """Refuse lanes that the directory refuses; the others carry its resolution."""
        keys = list(dict.fromkeys((lane.source, lane.target, lane.name) for lane in lanes))
        found = await self.resolve(keys, timeout_ms=timeout_ms)
        left = []
        for lane in lanes:
            answer = found[lane.source, lane.target, lane.name]
            refused = answer if isinstance(answer, tuple) else _refusal(answer)
            if refused is not None:
                lane.refuse(*refused)
            elif isinstance(answer, Resolution):
                lane.resolution = answer
                left.append(lane)
        return left

    async def resolve(self, keys: Sequence[Key], *, timeout_ms: int) -> dict[Key, Resolution | Refused]:
        """The directory's resolution of each key, or a refusal where Registry could not be asked."""
        found: dict[Key, Resolution | Refused] = {}
        for start in range(0, len(keys), RESOLVE_KEYS):
            asked = keys[start : start + RESOLVE_KEYS]
            closed: Refused
            try:
                answer = await self._ask(asked, timeout_ms=timeout_ms)
            except SnavioError:
                closed = (Verdict.DELIVERY_FAILURE, RETRY_AFTER_MS, "Registry could not be asked.", 0)
                found.update(dict.fromkeys(asked, closed))
                continue
            # An answer of another length speaks of other keys; believing it could allow the wrong one.
            if len(answer.resolution) != len(asked):
                closed = (Verdict.DELIVERY_FAILURE, RETRY_AFTER_MS, "Registry's answer does not fit.", 0)
                found.update(dict.fromkeys(asked, closed))
                continue
            found.update(zip(asked, answer.resolution, strict=True))
        return found

    async def _ask(self, keys: Sequence[Key], *, timeout_ms: int) -> ResolveResponse:
        return await self._registry.call(
            "/snavio.v1.Registry/Resolve",
            ResolveRequest(
                key=[ResolveKey(source=source, target=target, name=name) for source, target, name in keys],
                instance=self._instance,
                bound_ms=self._bound_ms,
            ),
            ResolveResponse,
            timeout_s=min(self._timeout_ms, timeout_ms) / 1000,
        )


def _refusal(resolution: Resolution) -> Refused | None:
    if resolution.suspended:
        return (Verdict.SUSPENDED, 0, "The source is suspended.", 0)
    if not resolution.HasField("route"):
        return (Verdict.ROUTE_MISSING, 0, "No route is registered for this target and name.", 0)
    if not resolution.allowed:
        return (Verdict.ACL_DENY, 0, "The target's owner has not allowed this.", 0)
    if resolution.frozen:
        end = resolution.frozen_until_unix_ns
        until = f" It ends at {format_timestamp(end)}." if end else ""
        return (Verdict.FROZEN, 0, FROZEN + until, end)
    return None


def is_strict(resolution: Resolution) -> bool:
    """True if each id is to be delivered once."""
    return bool(resolution.route.dedupe_mode == DEDUPE_MODE_STRICT)


def is_banned(lane: Lane) -> bool:
    """True if the source has lost the warm path of this route: by Fast's own count, or in the directory."""
    banned = lane.resolution is not None and lane.resolution.warm_banned
    return banned or lane.reason == ESCALATION_REASON_WARM_BANNED


def rule_of(route: Route) -> LimitRule | None:
    """The route's limit; None when it has none."""
    if not route.HasField("limit"):
        return None
    limit = route.limit
    return LimitRule(
        max=limit.max,
        interval_ms=limit.interval_seconds * 1000,
        burst=limit.burst,
        cooldown_ms=limit.cooldown_seconds * 1000,
        shadow=limit.shadow,
    )


def source_rule_of(resolution: Resolution) -> LimitRule | None:
    """The limit of the source alone that always counts; None when it has none."""
    quota = resolution.source_quota
    if not resolution.HasField("source_quota") or not quota.always:
        return None
    return quota_rule(quota)


def quota_rule(quota: SourceQuota) -> LimitRule:
    """The quota in the form that the store needs."""
    return LimitRule(
        max=quota.max,
        interval_ms=quota.interval_seconds * 1000,
        burst=quota.burst,
        cooldown_ms=quota.cooldown_seconds * 1000,
        shadow=quota.shadow,
    )


def fairness_of(route: Route) -> Fairness:
    """The route's fairness rule; a field that the route leaves open has its default."""
    given = {field.name: value for field, value in route.fairness.ListFields()}
    return Fairness(**given)
