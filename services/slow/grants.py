"""Permits of limited routes for Fast, ahead of demand.

Never issues a permit that was not debited first, and none when Registry or the store cannot be asked.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from services.slow.lane_rules import Key, LaneRules, rule_of, source_rule_of
from snavio.domain.quota import LimitRule, Permits
from snavio.errors import BadRequest, Unavailable
from snavio.ports.coordination import Coordination, PermitAsk, PermitReturn
from snavio.rpc.server import Call
from snavio.v1 import slow_pb2 as wire
from snavio.v1.registry_pb2 import DISPATCH_MODE_COLD_ONLY, Resolution

MOST = 1000
_INSTANCE = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")


class Grants:
    """Issues and takes back."""

    def __init__(self, *, lane_rules: LaneRules, store: Coordination, leases: int, timeout_ms: int) -> None:
        self._lane_rules = lane_rules
        self._store = store
        self._leases = leases
        self._timeout_ms = timeout_ms
        self._counts: Counter[str] = Counter()

    def counters(self) -> dict[str, int]:
        """Wishes and permits."""
        return dict(self._counts)

    async def issue(self, request: wire.GrantsRequest, _call: Call) -> wire.GrantsResponse:
        """One answer per wish."""
        _require_count(len(request.wish), "wish")
        if not _INSTANCE.fullmatch(request.instance):
            raise BadRequest("instance: must be the name of a process.", reason="bad-field")
        found = await self._resolved([(wish.source, wish.target, wish.name) for wish in request.wish])
        answer: list[wire.Grant] = []
        by_leases: dict[int, list[tuple[int, PermitAsk]]] = {}
        for place, wish in enumerate(request.wish):
            resolution = found[wish.source, wish.target, wish.name]
            rule = source_rule_of(resolution) if wish.source else rule_of(resolution.route)
            answer.append(_without_store(resolution, rule) or wire.Grant())
            if not answer[-1].state and rule is not None:
                ask = PermitAsk(_key(wish), rule, max(1, wish.permits))
                leases = resolution.route.limit.leases or self._leases
                by_leases.setdefault(leases, []).append((place, ask))
            answer[-1].source = wish.source
        # One call for all routes with the same number of leases: nearly always one.
        for leases, asked in by_leases.items():
            asks = [ask for _, ask in asked]
            issued = await self._store.grant(asks, instance=request.instance, leases=leases)
            for (place, ask), permits in zip(asked, issued, strict=True):
                answer[place].MergeFrom(_grant(permits, ask.rule))
        self._counts["wishes"] += len(answer)
        self._counts["permits"] += sum(grant.permits for grant in answer)
        return wire.GrantsResponse(grant=answer)

    async def take_back(self, request: wire.ReturnPermitsRequest, _call: Call) -> wire.ReturnPermitsResponse:
        """As far as their intervals still run."""
        _require_count(len(request.permit), "permit")
        found = await self._resolved(
            [(permit.source, permit.target, permit.name) for permit in request.permit]
        )
        returns = []
        for permit in request.permit:
            resolution = found[permit.source, permit.target, permit.name]
            rule = source_rule_of(resolution) if permit.source else rule_of(resolution.route)
            if rule is not None:
                returns.append(
                    PermitReturn(
                        _key(permit), rule.interval_ms, permit.interval, permit.permits, granted=True
                    )
                )
        if returns:
            await self._store.give_back(returns)
        self._counts["returned"] += sum(each.count for each in returns)
        return wire.ReturnPermitsResponse()

    async def _resolved(self, keys: Sequence[Key]) -> dict[Key, Resolution]:
        found: dict[Key, Resolution] = {}
        asked = list(dict.fromkeys(keys))
        for key, answer in (await self._lane_rules.resolve(asked, timeout_ms=self._timeout_ms)).items():
            if isinstance(answer, tuple):
                raise Unavailable(answer[2])
            found[key] = answer
        return found


def _key(permits: wire.GrantWish | wire.PermitReturn) -> tuple[str, ...]:
    """The key in the store: a source's own limit and its route's are counted apart."""
    route = (permits.target, permits.name)
    return (permits.source, *route) if permits.source else route


def _without_store(resolution: Resolution, rule: LimitRule | None) -> wire.Grant | None:
    if not resolution.HasField("route"):
        return wire.Grant(state=wire.GRANT_STATE_NO_ROUTE, retry_after_ms=1000)
    if rule is None:
        return wire.Grant(state=wire.GRANT_STATE_UNLIMITED)
    if resolution.route.dispatch_mode == DISPATCH_MODE_COLD_ONLY:
        return wire.Grant(state=wire.GRANT_STATE_DECIDED_BY_SLOW, retry_after_ms=10_000)
    return None


def _grant(permits: Permits, rule: LimitRule) -> wire.Grant:
    return wire.Grant(
        state=int(permits.state),  # type: ignore[arg-type]
        permits=permits.count,
        life_ms=permits.life_ms,
        interval=permits.interval,
        interval_end_unix_ns=permits.interval_end_ms * 1_000_000,
        retry_after_ms=min(permits.retry_after_ms, 2**32 - 1),
        shadow=rule.shadow,
    )


def _require_count(count: int, field: str) -> None:
    if count > MOST:
        raise BadRequest(f"{field}: must be at most {MOST}.", reason="too-many")
