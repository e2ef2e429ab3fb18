"""The gates that only the running mesh knows: the caller's clock, permits that are left, and the queue's link.

Never fails a check because Slow is away: what could not be asked is unknown.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from services.registry.reads.preflight import Facts, GateReport, GateState, ReaderRights
from snavio.clock import Clock
from snavio.domain.directory import DedupeMode
from snavio.domain.verdict import Verdict
from snavio.errors import SnavioError
from snavio.rpc.channel import MeshChannel
from snavio.v1 import slow_pb2 as wire

WINDOW_NS: Final = 60 * 1_000_000_000
"""The default of `[shield] window_ms`."""
CALL_SECONDS: Final = 3.0


class LiveGates:
    """Asks Slow; after one silence it is not asked for a second, so that a hundred checks wait for one only."""

    def __init__(self, slow: MeshChannel, clock: Clock) -> None:
        self._slow = slow
        self._clock = clock
        self._silent_until_mono_ns = 0

    async def forecast(self, facts: Facts, *, command_id: str = "") -> wire.ForecastResponse | None:
        """None where Slow could not be asked."""
        if self._clock.mono_ns() < self._silent_until_mono_ns:
            return None
        request = wire.ForecastRequest(
            source=facts.source, target=facts.target, name=facts.name, command_id=command_id
        )
        try:
            told = await self._slow.call(
                "/snavio.v1.Slow/Forecast", request, wire.ForecastResponse, timeout_s=CALL_SECONDS
            )
            if not told.routed and facts.route is not None:
                # A route that a dry run would write: its queue can be looked at all the same.
                told.queue.CopyFrom(
                    await self._slow.call(
                        "/snavio.v1.Slow/ExamineQueue",
                        wire.ExamineQueueRequest(queue_kind=facts.route.queue_kind, topic=facts.route.topic),
                        wire.QueueForecast,
                        timeout_s=CALL_SECONDS,
                    )
                )
            return told
        except SnavioError:
            self._silent_until_mono_ns = self._clock.mono_ns() + int(CALL_SECONDS * 1e9)
            return None


def clock_gate(caller_unix_ns: int, now_unix_ns: int) -> Iterator[GateReport]:
    """The caller's clock beside Registry's; nothing for a caller that did not say what time it has."""
    if not caller_unix_ns:
        return
    off_ns = caller_unix_ns - now_unix_ns
    words = f"{abs(off_ns) / 1e9:.1f} s {'ahead' if off_ns > 0 else 'behind'}"
    if abs(off_ns) <= WINDOW_NS:
        yield GateReport("clock", GateState.PASSES, f"This machine's clock is {words}.")
        return
    yield GateReport(
        "clock",
        GateState.FAILS,
        f"This machine's clock is {words}, more than the {WINDOW_NS // 10**9} s that Shield allows.",
        "Synchronise the clock of the machine that signs (NTP).",
        Verdict.TIMESTAMP_OUTSIDE_WINDOW,
    )


def slow_gates(
    forecast: wire.ForecastResponse | None, facts: Facts, sight: ReaderRights
) -> Iterator[GateReport]:
    """Permits and queue, as Slow has them at this moment."""
    if forecast is None:
        for gate in ("permits", "queue"):
            yield GateReport(gate, GateState.UNKNOWN, "Slow could not be asked.", "Try again soon.")
        return
    if not (sight.owner or sight.operator or facts.allowed):
        # How much others have used is for those who may use the route.
        for gate in ("permits", "queue"):
            yield GateReport(gate, GateState.HIDDEN, "Not yours to see.")
        return
    yield from _id(forecast, facts, sight)
    if forecast.routed:
        yield from _permits(forecast)
    yield _queue(forecast, sight)


def _id(forecast: wire.ForecastResponse, facts: Facts, sight: ReaderRights) -> Iterator[GateReport]:
    if facts.route is None or facts.route.dedupe_mode is not DedupeMode.STRICT:
        return
    if not forecast.HasField("id"):
        words = "Strict: each id is delivered once. `--id` tells what one would meet."
        yield GateReport("id", GateState.NOTE, words)
        return
    if not (sight.sender or sight.operator):
        # What others have sent under which id is between them and the queue.
        yield GateReport("id", GateState.HIDDEN, "Not yours to see.")
        return
    verdict, detail = Verdict(forecast.id.verdict), forecast.id.detail
    if verdict is Verdict.DELIVERED:
        yield GateReport("id", GateState.PASSES, "The id is new.")
    elif verdict is Verdict.DUPLICATE:
        said = f"The id was used: the same command is a duplicate, another one a conflict. {detail}"
        yield GateReport("id", GateState.NOTE, said)
    else:
        wait = f"Again in {forecast.id.retry_after_ms / 1000:.1f} s." if forecast.id.retry_after_ms else ""
        yield GateReport("id", GateState.FAILS, detail, wait or "Try again soon.", verdict)


def _queue(forecast: wire.ForecastResponse, sight: ReaderRights) -> GateReport:
    queue, may_know = forecast.queue, sight.owner or sight.operator
    if not queue.reached:
        why = f": {queue.flaw}" if queue.flaw and may_know else "."
        return GateReport(
            "queue",
            GateState.FAILS,
            f"The queue cannot be reached{why}",
            "Ask an operator: `snavio status` shows its link.",
            Verdict.DELIVERY_FAILURE,
        )
    if queue.full:
        # How full is for its owner.
        said = queue.flaw if may_know else "The queue has no room."
        return GateReport("queue", GateState.FAILS, said, "Its consumers make room.", Verdict.SATURATED)
    if queue.flaw:
        whose = "Put it right, and ask again." if may_know else "Ask the target's owner to put it right."
        return GateReport("queue", GateState.FAILS, queue.flaw, whose, Verdict.DELIVERY_FAILURE)
    said = "The queue can be reached."
    if may_know:
        room = f", {queue.room:,} fit" if queue.HasField("room") else ""
        said = f"The queue can be reached: {queue.waiting:,} wait{room}."
    waits = f" {forecast.waiting} commands of the source wait at Slow." if forecast.waiting else ""
    return GateReport("queue", GateState.PASSES, said + waits)


def _permits(forecast: wire.ForecastResponse) -> Iterator[GateReport]:
    if not forecast.store_answers:
        yield GateReport(
            "permits",
            GateState.FAILS,
            "The coordination store, which counts the limits, does not answer.",
            "Ask an operator.",
            Verdict.DELIVERY_FAILURE,
        )
    for limit in forecast.limit:
        whose = f"{limit.source} alone" if limit.source else "all sources together"
        said = f"{limit.left} of {limit.max} left in this interval for {whose}"
        if limit.now or limit.shadow:
            yield GateReport("permits", GateState.PASSES, f"{said}.")
        else:
            yield GateReport(
                "permits",
                GateState.FAILS,
                f"{said}; none now.",
                f"Again in {limit.retry_after_ms / 1000:.1f} s.",
                Verdict.RATE_LIMIT_EXCEEDED,
            )
