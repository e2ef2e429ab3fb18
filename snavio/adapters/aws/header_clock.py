"""The time of a server that gives only whole seconds, in the `Date` of its answers: a pair of bounds.

Never trusts the caller's wall clock: between answers it moves on with the monotonic one, and the bounds widen as two
clocks may run apart.
"""

from __future__ import annotations

from email.utils import parsedate_to_datetime
from typing import Final

from snavio.clock import Clock

DRIFT_PARTS: Final = 2000
"""Two clocks may run apart by one part of so many."""


class HeaderClock:
    """Bounds of the server's time, narrowed by every answer; an answer that does not fit starts again."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._low_ms: int | None = None
        """The server's clock less our monotonic one, at the least; and at the most."""
        self._high_ms = 0
        self._at_ms = 0

    def mono_ms(self) -> int:
        """To be read before asking."""
        return self._clock.mono_ns() // 1_000_000

    def heard(self, date: str, *, asked_ms: int) -> None:
        """An answer came, which was written at `date` or within a second after it."""
        now_ms = self.mono_ms()
        second_ms = round(parsedate_to_datetime(date).timestamp()) * 1000
        low, high = second_ms - now_ms - 1, second_ms + 1000 - asked_ms
        if self._low_ms is not None:
            known_low, known_high = self._bounds(now_ms)
            if max(low, known_low) <= min(high, known_high):
                low, high = max(low, known_low), min(high, known_high)
        self._low_ms, self._high_ms, self._at_ms = low, high, now_ms

    def now_ms(self) -> tuple[int, int] | None:
        """The server's time is between these; None before the first answer."""
        if self._low_ms is None:
            return None
        now_ms = self.mono_ms()
        low, high = self._bounds(now_ms)
        return now_ms + low, now_ms + high

    def _bounds(self, now_ms: int) -> tuple[int, int]:
        assert self._low_ms is not None
        drift = (now_ms - self._at_ms) // DRIFT_PARTS
        return self._low_ms - drift, self._high_ms + drift
