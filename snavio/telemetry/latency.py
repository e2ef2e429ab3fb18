"""Durations over about the last minute: a histogram with log buckets in a ring of slots.

Never keeps a single duration and never grows: one `add` per batch touches one bucket, whatever the batch's size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from snavio.clock import Clock
from snavio.host.introspection import LatencyTotals

SLOTS: Final = 7
SLOT_NS: Final = 10_000_000_000
# Four buckets per doubling: a percentile is at most a quarter too high, never too low.
_STEPS_BITS: Final = 2
_STEPS: Final = 1 << _STEPS_BITS
# Up to about 35 minutes in microseconds; longer is counted there.
_BUCKETS: Final = 31 * _STEPS
_LEAST_EDGE_US, _MOST_EDGE_US = 1 << 6, 1 << 25


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Percentiles of a histogram, in microseconds."""

    count: int = 0
    p50_us: int = 0
    p95_us: int = 0
    p99_us: int = 0
    max_us: int = 0


class _Slot:
    __slots__ = ("buckets", "max_us", "number")

    def __init__(self) -> None:
        self.number = -1
        self.max_us = 0
        self.buckets = [0] * _BUCKETS


class LatencyWindow:
    """Durations of the last 60 to 70 seconds. Used on one thread."""

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._ring = [_Slot() for _ in range(SLOTS)]
        self._ever = [0] * _BUCKETS
        self._ever_us = 0

    def add(self, duration_ns: int, *, count: int = 1) -> None:
        """Record `count` durations of this length; once per batch."""
        us = max(0, duration_ns) // 1000
        slot, bucket = self._slot(), _bucket(us)
        slot.buckets[bucket] += count
        self._ever[bucket] += count
        self._ever_us += us * count
        slot.max_us = max(slot.max_us, us)

    def read(self) -> Percentiles:
        """The percentiles now; all 0 without durations."""
        oldest = self._clock.mono_ns() // SLOT_NS - SLOTS + 1
        recent = [slot for slot in self._ring if slot.number >= oldest]
        totals = [sum(column) for column in zip(*(slot.buckets for slot in recent), strict=True)]
        count = sum(totals)
        if not count:
            return Percentiles()
        longest = max(slot.max_us for slot in recent)
        p50, p95, p99 = (_at(totals, count, share, longest) for share in (0.50, 0.95, 0.99))
        return Percentiles(count, p50, p95, p99, longest)

    def ever(self) -> LatencyTotals:
        """All since the start, in buckets of powers of two; for collectors that subtract the previous reading."""
        passed, up_to = 0, {}
        for doubling in range(0, _BUCKETS, _STEPS):
            passed += sum(self._ever[doubling : doubling + _STEPS])
            edge_us = _upper_edge_us(doubling + _STEPS - 1) + 1
            if _LEAST_EDGE_US <= edge_us <= _MOST_EDGE_US:
                up_to[edge_us / 1e6] = passed
        return LatencyTotals(passed, self._ever_us / 1e6, up_to)

    def _slot(self) -> _Slot:
        number = self._clock.mono_ns() // SLOT_NS
        slot = self._ring[number % SLOTS]
        if slot.number != number:
            slot.number = number
            slot.max_us = 0
            slot.buckets = [0] * _BUCKETS
        return slot


def _bucket(us: int) -> int:
    """Number of the bucket; its upper edge is the first one not below `us`."""
    if us < _STEPS:
        return us
    exponent = us.bit_length() - 1 - _STEPS_BITS
    return min(_BUCKETS - 1, (exponent << _STEPS_BITS) + (us >> exponent))


def _upper_edge_us(bucket: int) -> int:
    """The longest duration that falls into the bucket."""
    if bucket < 2 * _STEPS:
        return bucket
    exponent, step = (bucket >> _STEPS_BITS) - 1, _STEPS + (bucket & (_STEPS - 1))
    return ((step + 1) << exponent) - 1


def _at(totals: list[int], count: int, share: float, longest_us: int) -> int:
    passed = 0
    for bucket, total in enumerate(totals):
        passed += total
        if passed >= share * count:
            return min(_upper_edge_us(bucket), longest_us)
    return longest_us
