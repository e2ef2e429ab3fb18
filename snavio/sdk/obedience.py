"""Obedience of a producer: it waits where it was told to, asks for keys, and corrects its timestamps, by itself.

Never corrects beyond a bound, never in silence, and never holds a command longer than its sender waits for it.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import structlog

from snavio.clock import Clock
from snavio.domain.verdict import Verdict
from snavio.sdk.pending_sends import AttemptAnswer

LEAST_SKEW_NS: Final = 2_000_000_000
"""Below this a difference may be the way of the message, and matters to nobody."""
MOST_SKEW_NS: Final = 300_000_000_000
"""Beyond this a clock is wrong and not late; whoever says so is not followed."""
MOST_HOLDS: Final = 4096
LONGEST_HOLD_NS: Final = 3600 * 1_000_000_000
"""A time that is further away is waited for in parts: a wrong clock must not silence a producer for good."""
LEGACY_KEY_USED: Final = "snavio.secret.legacy_key_used"
KEY_EXPIRY_IMMINENT: Final = "snavio.secret.key_expiry_imminent"
WARM_PATH_BAN: Final = "snavio.fairness.warm-path-ban"
FAILED: Final = "snavio.command.failed"
SKEW_NEAR_LIMIT: Final = "snavio.telemetry.skew_near_limit"
_SKEW_TOLD: Final = re.compile(r"([0-9]{1,15}) ms (ahead|behind)")

Route = tuple[str, str]
"""Target and name."""


class Obedience:
    """Lives on one event loop. Of a route it remembers until when nothing is to be sent."""

    def __init__(self, *, clock: Clock, shift: Callable[[int], None], renew_keys: Callable[[], None]) -> None:
        self._clock = clock
        self._shift = shift
        self._renew_keys = renew_keys
        self._shift_ns = 0
        # Commands that were stamped before this time say nothing about the correction that is in force.
        self._shifted_at_unix_ns = -(1 << 62)
        self.holds: dict[Route, tuple[int, AttemptAnswer]] = {}
        """Until when (monotonic), and the answer in the meantime; empty for a producer that nobody slows down."""
        self._counts: Counter[str] = Counter()
        self._log = structlog.get_logger()

    @property
    def shift_ns(self) -> int:
        """The correction of timestamps that is in force."""
        return self._shift_ns

    def counters(self) -> dict[str, int]:
        """Actions so far, by kind."""
        names = ("throttled", "held", "keys_asked", "corrected", "skew_refused")
        return {name: self._counts[name] for name in names}

    # -- waiting -------------------------------------------------------------------------------------

    def refused(self, route: Route, answer: AttemptAnswer) -> None:
        """Note a refusal that says from when the route takes commands again."""
        if answer.throttle_until_unix_ns:
            self._hold(route, answer)

    async def turn(self, route: Route, deadline_mono_ns: int) -> AttemptAnswer | None:
        """Wait until the route takes commands again; what to answer instead if that is after the deadline."""
        waited = False
        while (held := self.holds.get(route)) is not None:
            until, answer = held
            now = self._clock.mono_ns()
            if until <= now:
                del self.holds[route]
                return None
            if until >= deadline_mono_ns:
                return answer._replace(retry_after_ms=(until - now) // 1_000_000 + 1)
            self._counts["held"] += not waited
            waited = True
            await asyncio.sleep((until - now) / 1e9)
        return None

    def left_ms(self, route: Route) -> int:
        """Milliseconds until the route takes commands again."""
        held = self.holds.get(route)
        return max(0, (held[0] - self._clock.mono_ns()) // 1_000_000 + 1) if held is not None else 0

    def _hold(self, route: Route, answer: AttemptAnswer) -> None:
        now = self._clock.mono_ns()
        left_ns = answer.throttle_until_unix_ns - (self._clock.unix_ns() + self._shift_ns)
        if left_ns <= 0:
            return
        until = now + min(left_ns, LONGEST_HOLD_NS)
        known = self.holds.get(route)
        if known is not None and known[0] >= until:
            return
        if known is None:
            if len(self.holds) >= MOST_HOLDS:
                del self.holds[next(iter(self.holds))]
            self._counts["throttled"] += 1
            self._log.info(
                "a route is left alone", target=route[0], name=route[1], for_ms=left_ns // 1_000_000
            )
        self.holds[route] = (until, answer)

    # -- the clock -----------------------------------------------------------------------------------

    def greeted(self, server_unix_ns: int) -> None:
        """Shield's clock at the moment of its greeting: the whole difference, measured anew."""
        self._correct(server_unix_ns - self._clock.unix_ns(), by="Shield's greeting")

    def outside_window(self, detail: str) -> bool:
        """True if the difference that Shield named changes the timestamps from now on."""
        told = _SKEW_TOLD.fullmatch(detail)
        if told is None:
            return False
        behind_ns = int(told[1]) * 1_000_000 * (-1 if told[2] == "ahead" else 1)
        return self._correct(self._shift_ns + behind_ns, by="a refusal")

    def _correct(self, shift_ns: int, *, by: str) -> bool:
        if abs(shift_ns) > MOST_SKEW_NS:
            self._counts["skew_refused"] += 1
            self._log.error(
                "the clock is too wrong to be corrected",
                by_ms=shift_ns // 1_000_000,
                most_ms=MOST_SKEW_NS // 1_000_000,
            )
            return False
        if abs(shift_ns) < LEAST_SKEW_NS:
            shift_ns = 0
        if abs(shift_ns - self._shift_ns) < LEAST_SKEW_NS and bool(shift_ns) == bool(self._shift_ns):
            return False
        self._shift_ns = shift_ns
        self._shifted_at_unix_ns = self._clock.unix_ns() + shift_ns
        self._counts["corrected"] += 1
        self._shift(shift_ns)
        self._log.warning("timestamps are corrected", by_ms=shift_ns // 1_000_000, measured_by=by)
        return True

    # -- events --------------------------------------------------------------------------------------

    def heard(self, source: str, events: Sequence[Mapping[str, Any]]) -> None:
        """Do what the events of this producer's own source ask for."""
        for event in events:
            if event.get("source") != source:
                continue
            name = event.get("event")
            if name in (LEGACY_KEY_USED, KEY_EXPIRY_IMMINENT):
                self._counts["keys_asked"] += 1
                self._log.info("keys are asked for", because=name, version=event.get("version_id"))
                self._renew_keys()
            elif name in (WARM_PATH_BAN, FAILED):
                self._throttled(event)
            elif name == SKEW_NEAR_LIMIT:
                self._skewed(event)

    def _throttled(self, event: Mapping[str, Any]) -> None:
        until = _unix_ns(event.get("throttle_until"))
        target, name = event.get("target"), event.get("command.name")
        if until is None or not isinstance(target, str) or not isinstance(name, str):
            return
        banned = (
            event.get("event") == WARM_PATH_BAN or event.get("reason") == Verdict.FAIRNESS_VIOLATION.reason
        )
        verdict = Verdict.FAIRNESS_VIOLATION if banned else Verdict.RATE_LIMIT_EXCEEDED
        self._hold((target, name), AttemptAnswer(verdict, 0, until, "told by telemetry"))

    def _skewed(self, event: Mapping[str, Any]) -> None:
        skew_s, sent = event.get("skew_seconds"), _unix_ns(event.get("sent_at"))
        if not isinstance(skew_s, int | float) or sent is None or sent < self._shifted_at_unix_ns:
            return
        # Received minus sent: positive where this clock is behind.
        if abs(skew_s) <= MOST_SKEW_NS / 1e9:
            self._correct(self._shift_ns + round(skew_s * 1e9), by=SKEW_NEAR_LIMIT)
        else:
            self._counts["skew_refused"] += 1


def _unix_ns(text: object) -> int | None:
    """Nanoseconds of an RFC 3339 time; None for anything else."""
    if not isinstance(text, str):
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return round(found.timestamp() * 1e9) if found.tzinfo is not None else None
