"""Counts the recent traffic of each key version from Shield's reports.

Never grows past its bound. Relies on the caller to count only for sources that have a key.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

from snavio.clock import Clock
from snavio.domain.key_retirement import DAY_NS, HOUR_NS, WATCHED_NS, Rehearsal, Use
from snavio.errors import Saturated

# Two living versions for every source that the key store can hold.
MAX_TRACKED = 40_000
MAX_REHEARSALS = 10_000
_FINE_NS = 5 * 60 * 1_000_000_000


@dataclass(slots=True)
class _Window:
    """Counts in buckets of `width_ns` over `span_ns`; what is older is forgotten when it is looked at."""

    width_ns: int
    span_ns: int
    buckets: dict[int, int] = field(default_factory=dict)

    def add(self, count: int, now_ns: int) -> None:
        bucket = now_ns // self.width_ns
        if bucket not in self.buckets:
            self._forget(now_ns)
        self.buckets[bucket] = self.buckets.get(bucket, 0) + count

    def total(self, now_ns: int, *, span_ns: int = 0) -> int:
        """The count of the whole window, or of its last `span_ns`."""
        self._forget(now_ns)
        oldest = (now_ns - (span_ns or self.span_ns)) // self.width_ns
        return sum(count for bucket, count in self.buckets.items() if bucket >= oldest)

    def told(self, now_ns: int) -> list[tuple[int, int]]:
        self._forget(now_ns)
        return list(self.buckets.items())

    def restore(self, told: list[tuple[int, int]]) -> None:
        for bucket, count in told:
            self.buckets[int(bucket)] = self.buckets.get(int(bucket), 0) + int(count)

    def _forget(self, now_ns: int) -> None:
        # The bucket that is partly inside counts in full: "unused for a day" must not be said too early.
        oldest = (now_ns - self.span_ns) // self.width_ns
        for bucket in [bucket for bucket in self.buckets if bucket < oldest]:
            del self.buckets[bucket]


@dataclass(slots=True)
class _Tracked:
    hour: _Window = field(default_factory=lambda: _Window(_FINE_NS, HOUR_NS))
    days: _Window = field(default_factory=lambda: _Window(HOUR_NS, WATCHED_NS))
    last_used_ns: int = 0


class KeyTraffic:
    """Sliding counts per (source, version)."""

    def __init__(self, *, clock: Clock, max_tracked: int = MAX_TRACKED) -> None:
        self._clock = clock
        self._max_tracked = max_tracked
        self._tracked: OrderedDict[tuple[str, str], _Tracked] = OrderedDict()
        self._rehearsals: dict[str, Rehearsal] = {}
        self.observed_since_ns = clock.unix_ns()
        """Time since which all use was counted."""

    def note(self, source: str, version: str, commands: int) -> None:
        """`commands` were let in under that version just now."""
        now = self._clock.unix_ns()
        tracked = self._tracked.setdefault((source, version), _Tracked())
        tracked.hour.add(commands, now)
        tracked.days.add(commands, now)
        tracked.last_used_ns = now
        if (rehearsal := self._rehearsals.get(source)) is not None:
            self._rehearsals[source] = rehearsal.noted(version, commands, now)
        self._tracked.move_to_end((source, version))
        while len(self._tracked) > self._max_tracked:
            self._tracked.popitem(last=False)

    def told(self) -> list[list[Any]]:
        """All counts as plain values, for `restore`, without those that are too old."""
        now = self._clock.unix_ns()
        return [
            [*key, tracked.last_used_ns, tracked.hour.told(now), tracked.days.told(now)]
            for key, tracked in self._tracked.items()
        ]

    def restore(self, told: list[list[Any]], *, observed_since_ns: int) -> None:
        """Load the counts of an earlier life; TypeError or ValueError for values that it cannot have saved."""
        for source, version, last_used_ns, hour, day in told[-self._max_tracked :]:
            tracked = self._tracked.setdefault((str(source), str(version)), _Tracked())
            tracked.hour.restore(hour)
            tracked.days.restore(day)
            tracked.last_used_ns = max(tracked.last_used_ns, int(last_used_ns))
        self.observed_since_ns = observed_since_ns

    def of(self, source: str, version: str) -> Use:
        """The counts of one version."""
        tracked = self._tracked.get((source, version))
        if tracked is None:
            return Use()
        now = self._clock.unix_ns()
        return Use(
            tracked.hour.total(now),
            tracked.days.total(now, span_ns=DAY_NS),
            tracked.last_used_ns,
            tracked.days.total(now),
        )

    # -- rehearsals ------------------------------------------------------------------------------------

    def rehearse(self, source: str, minimum: str) -> None:
        """Count from now on what a minimum would refuse; empty ends the rehearsal. Saturated beyond a bound."""
        if not minimum:
            self._rehearsals.pop(source, None)
        elif source not in self._rehearsals and len(self._rehearsals) >= MAX_REHEARSALS:
            raise Saturated("Too many retirements are rehearsed at once.", retry_after_ms=60_000)
        else:
            self._rehearsals[source] = Rehearsal(minimum, self._clock.unix_ns())

    def rehearsal(self, source: str) -> Rehearsal | None:
        """The rehearsal of a source, if there is one."""
        return self._rehearsals.get(source)

    def rehearsals(self) -> list[list[Any]]:
        """All rehearsals as plain values, for `resume`."""
        return [
            [source, one.minimum, one.since_ns, one.would_refuse, one.last_ns]
            for source, one in self._rehearsals.items()
        ]

    def resume(self, told: list[list[Any]]) -> None:
        """Load the rehearsals of an earlier life; TypeError or ValueError for values that it cannot have saved."""
        for source, minimum, since_ns, would_refuse, last_ns in told[:MAX_REHEARSALS]:
            self._rehearsals[str(source)] = Rehearsal(
                str(minimum), int(since_ns), int(would_refuse), int(last_ns)
            )
