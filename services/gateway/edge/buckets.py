"""Token buckets of routes, which outlive the plan that named them.

Never fills a bucket because a file was read again: a reload would otherwise be a way around the rate.
"""

from __future__ import annotations

from snavio.clock import Clock
from snavio.edge.plan import TokenBucket


class RouteBucket:
    """One bucket. Looked at before a request has shown who it is, taken from only after."""

    __slots__ = ("_at_ns", "_left", "rate")

    def __init__(self, rate: TokenBucket, now_ns: int) -> None:
        self.rate = rate
        self._left = float(rate.burst)
        self._at_ns = now_ns

    def wait_s(self, now_ns: int) -> float:
        """Seconds until there is a token; 0 when there is one. Takes none."""
        elapsed_s = max(0, now_ns - self._at_ns) / 1e9
        self._left = min(float(self.rate.burst), self._left + elapsed_s * self.rate.rps)
        self._at_ns = now_ns
        return 0.0 if self._left >= 1.0 else (1.0 - self._left) / self.rate.rps

    def take(self, now_ns: int) -> float:
        """Take a token; the seconds to wait when there is none, otherwise 0."""
        wait_s = self.wait_s(now_ns)
        if not wait_s:
            self._left -= 1.0
        return wait_s

    def change(self, rate: TokenBucket, now_ns: int) -> None:
        """Give it another rate; it keeps what it held, up to the new burst."""
        self.wait_s(now_ns)
        self.rate = rate
        self._left = min(self._left, float(rate.burst))


class RouteBuckets:
    """Buckets by name. Lives as long as the process, and holds those of the plan in force."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._by_name: dict[str, RouteBucket] = {}

    def adopt(self, rates: dict[str, TokenBucket]) -> dict[str, RouteBucket]:
        """The buckets of a plan; those that were there keep their level, those that it has not are dropped."""
        now = self._clock.mono_ns()
        found = {}
        for name, rate in rates.items():
            bucket = self._by_name.get(name)
            if bucket is None:
                bucket = RouteBucket(rate, now)
            elif bucket.rate != rate:
                bucket.change(rate, now)
            found[name] = bucket
        self._by_name = found
        return found
