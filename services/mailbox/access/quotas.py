"""Messages that a capability has moved in its interval, for those with a quota.

Never evicts a count whose interval runs: a full table refuses, because forgetting would give the quota anew. Never
lets one tenant fill the table: narrowing a capability makes as many quotas as the holder likes.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

from snavio.clock import Clock
from snavio.domain.caveat import Quota
from snavio.errors import Saturated

MAX_COUNTS: Final = 65_536
MAX_PER_SHARE: Final = 4096
MILLISECOND: Final = 1_000_000
SWEEP_QUIET_NS: Final = 250 * MILLISECOND


@dataclass(frozen=True, slots=True)
class Metered:
    """One quota of one capability. What was narrowed from it further shares the count: `key` is made of the chain up
    to the caveat."""

    key: bytes
    quota: Quota
    share: str
    """The tenant whose part of the table it takes."""


@dataclass(slots=True)
class QuotaCount:
    """One quota's interval."""

    share: str
    ends_mono_ns: int
    messages: int = 0


@dataclass(slots=True)
class QuotaTake:
    """Messages that may move."""

    messages: int
    counts: tuple[QuotaCount, ...] = ()

    def give_back(self, unused: int) -> None:
        """So many did not move. In an interval that is over meanwhile, that changes nothing."""
        self.messages -= unused
        for count in self.counts:
            count.messages -= unused


class Quotas:
    """Lives on one event loop. Intervals are counted on the monotonic clock, from the first message."""

    def __init__(self, *, clock: Clock, most: int = MAX_COUNTS, most_per_share: int = MAX_PER_SHARE) -> None:
        self._clock = clock
        self._most = most
        self._most_per_share = most_per_share
        self._counts: dict[bytes, QuotaCount] = {}
        self._shares: Counter[str] = Counter()
        self._sweep_mono_ns = 0

    def __len__(self) -> int:
        return len(self._counts)

    def take(self, metered: tuple[Metered, ...], wanted: int) -> QuotaTake:
        """Use up as many of `wanted` as every quota allows; Saturated, with when to come again, if that is none."""
        now = self._clock.mono_ns()
        counts = [self._count(each, now) for each in metered]
        for each, count in zip(metered, counts, strict=True):
            left = each.quota.messages - count.messages
            if left <= 0:
                wait_ms = max(1, -(-(count.ends_mono_ns - now) // MILLISECOND))
                raise Saturated(
                    f"E_SATURATED: The capability's quota of {each.quota.messages} messages is used up.",
                    retry_after_ms=wait_ms,
                    reason="cap-quota",
                )
            wanted = min(wanted, left)
        for count in counts:
            count.messages += wanted
        return QuotaTake(wanted, tuple(counts))

    def _count(self, metered: Metered, now: int) -> QuotaCount:
        count = self._counts.get(metered.key)
        if count is not None and now < count.ends_mono_ns:
            return count
        if count is None:
            if len(self._counts) >= self._most or self._shares[metered.share] >= self._most_per_share:
                self._sweep(now)
            if len(self._counts) >= self._most or self._shares[metered.share] >= self._most_per_share:
                raise Saturated(
                    "E_SATURATED: Too many quotas are counted.", retry_after_ms=1000, reason="cap-quota"
                )
            self._shares[metered.share] += 1
        fresh = QuotaCount(metered.share, now + metered.quota.interval_ms * MILLISECOND)
        self._counts[metered.key] = fresh
        return fresh

    def _sweep(self, now: int) -> None:
        # A caller whose share is full may ask all the time; each call must not cost a walk through the table.
        if now < self._sweep_mono_ns:
            return
        self._sweep_mono_ns = now + SWEEP_QUIET_NS
        over = [key for key, count in self._counts.items() if count.ends_mono_ns <= now]
        for key in over:
            share = self._counts.pop(key).share
            self._shares[share] -= 1
            if not self._shares[share]:
                del self._shares[share]
