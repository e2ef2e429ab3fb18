"""The gates that only the running mesh knows: the caller's clock, permits that are left, and the queue's link.

Never fails a check because Slow is away: what could not be asked is unknown.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from services.registry.reads.preflight import Facts, GateReport, GateState, ReaderRights
from snavio.clock import Clock
from snavio.domain.verdict import Verdict
from snavio.errors import SnavioError
from snavio.rpc.channel import MeshChannel
from snavio.v1 import slow_pb2 as wire

WINDOW_NS: Final = 60 * 1_000_000_000
"""The default of `[shield] window_ms`."""
CALL_SECONDS: Final = 1.0


class LiveGates:
    """Asks Slow; after one silence it is not asked for a second, so that a hundred checks wait for one only."""

    def __init__(self, slow: MeshChannel, clock: Clock) -> None:
        self._slow = slow
        self._clock = clock
        self._silent_until_mono_ns = 0

    async def forecast(self, facts: Facts) -> wire.ForecastResponse | None:
        """None where Slow could not be asked."""
        if self._clock.mono_ns() < self._silent_until_mono_ns:
            return None
        request = wire.ForecastRequest(source=facts.source, target=facts.target, name=facts.name)
        try:
            return await self._slow.call(
                "/snavio.v1.Slow/Forecast", request, wire.ForecastResponse, timeout_s=CALL_SECONDS
            )
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
    if not forecast.routed:
        yield GateReport("queue", GateState.UNKNOWN, "The route is not written yet.")
        return
    if not (sight.owner or sight.operator or facts.allowed):
        # How much others have used is for those who may use the route.
        for gate in ("permits", "queue"):
            yield GateReport(gate, GateState.HIDDEN, "Not yours to see.")
        return
    yield from _permits(forecast)
    if forecast.queue_connected:
        waits = f" {forecast.waiting} commands of the source wait at Slow." if forecast.waiting else ""
        yield GateReport("queue", GateState.PASSES, f"The queue can be reached.{waits}")
    else:
        # A queue that was never tried looks the same as one that is away: no reason to say that a command would fail.
        yield GateReport(
            "queue",
            GateState.UNKNOWN,
            "Slow has not reached this kind of queue: its last attempt failed, or it has made none yet.",
            "Ask an operator: `snavio status` shows its link.",
        )


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
