"""Tells what a command would meet here now: permits, the coordination store, its queue, and the line it would wait in.

Never takes a permit, never claims an id and never sends: asking as often as one likes changes no decision.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from dataclasses import dataclass

from services.slow.lane_rules import LaneRules, is_strict, quota_rule, rule_of
from services.slow.queue_states import QueueStates
from services.slow.strict import RECOGNISING, told_of
from snavio.domain.directory import QueueKind
from snavio.domain.first_outcome import stored_at
from snavio.domain.quota import LimitRule
from snavio.domain.verdict import Verdict
from snavio.errors import SnavioError, Unavailable
from snavio.ports.coordination import Coordination, PermitAsk
from snavio.rpc.server import Call
from snavio.v1 import slow_pb2 as wire
from snavio.v1.batch_pb2 import Verdict as WireVerdict
from snavio.v1.mailbox_pb2 import ProbeResponse
from snavio.v1.registry_pb2 import Resolution


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecasts:
    """Answers Registry, which has checked who asks."""

    lane_rules: LaneRules
    store: Coordination
    connected: Callable[[int], bool]
    states: QueueStates
    waiting: Callable[[str], int]
    timeout_ms: int

    async def forecast(self, request: wire.ForecastRequest, _call: Call) -> wire.ForecastResponse:
        """Unavailable where Registry could not be asked."""
        key = (request.source, request.target, request.name)
        resolution = (await self.lane_rules.resolve([key], timeout_ms=self.timeout_ms))[key]
        if isinstance(resolution, tuple):
            raise Unavailable(resolution[2])
        answer = wire.ForecastResponse(
            routed=resolution.HasField("route"), waiting=self.waiting(request.source), store_answers=True
        )
        if not answer.routed:
            return answer
        place = max(0, resolution.route.queue_kind - 1)
        answer.queue_connected = self.connected(place)
        strict = bool(request.command_id) and is_strict(resolution)
        state, probe = await self.states.or_silence(
            QueueKind(place + 1),
            resolution.route.topic,
            source=request.source,
            command_id=request.command_id if strict else "",
        )
        answer.queue.CopyFrom(state)
        if strict:
            answer.id.CopyFrom(await self._id(request, probe, claimed=place not in RECOGNISING))
        asks = _asks(key, resolution)
        if asks:
            try:
                async with asyncio.timeout(self.timeout_ms / 1000):
                    permits = await self.store.take(asks)
            except (SnavioError, TimeoutError):
                answer.store_answers = False
                return answer
            for ask, found in zip(asks, permits, strict=True):
                left = max(0, ask.rule.max - found.used)
                answer.limit.append(
                    wire.LimitForecast(
                        source=request.source if len(ask.key) == len(key) else "",
                        max=ask.rule.max,
                        left=left,
                        now=0 if found.retry_after_ms else left,
                        retry_after_ms=min(found.retry_after_ms, 2**32 - 1),
                        shadow=ask.rule.shadow,
                    )
                )
        return answer

    async def _id(
        self, request: wire.ForecastRequest, probe: ProbeResponse | None, *, claimed: bool
    ) -> wire.IdForecast:
        if not claimed:
            if probe is None:
                return _id_forecast(Verdict.DELIVERY_FAILURE, detail="The mailbox could not be asked.")
            if not probe.first_msg_id:
                return _id_forecast(Verdict.DELIVERED)
            at = probe.first_stored_unix_ns
            detail = stored_at(probe.first_msg_id, at)
            return _id_forecast(Verdict.DUPLICATE, detail=detail)
        try:
            async with asyncio.timeout(self.timeout_ms / 1000):
                found = await self.store.look_up(request.source, uuid.UUID(request.command_id).bytes)
        except (SnavioError, TimeoutError):
            silent = "The coordination store, which remembers ids, does not answer."
            return _id_forecast(Verdict.DELIVERY_FAILURE, detail=silent)
        verdict, detail = told_of(found)
        return _id_forecast(verdict, detail=detail, retry_after_ms=min(found.retry_after_ms, 2**32 - 1))


def _asks(key: tuple[str, str, str], resolution: Resolution) -> list[PermitAsk]:
    """A question of no permits about each limit that counts for this source now."""
    rules: list[tuple[tuple[str, ...], LimitRule]] = []
    quota = resolution.source_quota
    if resolution.HasField("source_quota") and (quota.always or resolution.warm_banned):
        rules.append((key, quota_rule(quota)))
    of_route = rule_of(resolution.route)
    if of_route is not None:
        rules.append((key[1:], of_route))
    return [PermitAsk(key, rule, 0) for key, rule in rules]


def _id_forecast(verdict: Verdict, detail: str = "", retry_after_ms: int = 0) -> wire.IdForecast:
    told = WireVerdict.ValueType(verdict)
    return wire.IdForecast(verdict=told, detail=detail, retry_after_ms=retry_after_ms)
