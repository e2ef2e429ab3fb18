"""Time as a dependency: a wall clock that never steps back, and a monotonic one.

Nothing else in Snavio may read the system's clocks for a decision.
"""

from __future__ import annotations

import time
from typing import Protocol

# Counts while the machine sleeps, where the system has it: after a laptop wakes up, a clock that slept
# would see every producer as ahead of the window.
_MONOTONIC = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Clock(Protocol):
    """The current time, wall-clock and monotonic."""

    def unix_ns(self) -> int:
        """Wall-clock nanoseconds since the epoch; never smaller than an earlier answer."""
        ...

    def mono_ns(self) -> int:
        """Monotonic nanoseconds; only differences mean anything."""
        ...


class SystemClock:
    """The wall clock as it was at start, advanced by the monotonic clock.

    A wall clock that is set back during the run would reopen the replay window for every command whose nonce was
    forgotten in between; this one cannot be set back.
    """

    def __init__(self) -> None:
        self._offset = time.time_ns() - time.clock_gettime_ns(_MONOTONIC)

    def unix_ns(self) -> int:
        return self._offset + time.clock_gettime_ns(_MONOTONIC)

    def mono_ns(self) -> int:
        return time.clock_gettime_ns(_MONOTONIC)


class ManualClock:
    """A clock that tests move by hand."""

    def __init__(self, unix_ns: int = 1_700_000_000_000_000_000) -> None:
        self._unix_ns = unix_ns
        self._mono_ns = 1_000_000_000

    def unix_ns(self) -> int:
        return self._unix_ns

    def mono_ns(self) -> int:
        return self._mono_ns

    def advance(self, *, seconds: float = 0.0, ns: int = 0) -> None:
        """Move both clocks forward."""
        step = round(seconds * 1e9) + ns
        self._unix_ns += step
        self._mono_ns += step
