"""How far messages of a shard overtake each other on their first way out, as a number to be watched.

Never remembers more than the latest deliveries of a shard: it measures, and decides nothing.
"""

from __future__ import annotations

from collections import deque

LATEST = 64


class Ordering:
    """Of one topic."""

    __slots__ = ("_latest", "deepest")

    def __init__(self) -> None:
        self.deepest: dict[int, int] = {}
        """By shard: the most messages that were handed out before an older one, since the start."""
        self._latest: dict[int, deque[tuple[int, int, int]]] = {}

    def handed(self, shard: int, batch_id: int, lo: int, hi: int) -> None:
        """Messages `lo .. hi` of a batch are handed out for the first time."""
        latest = self._latest.setdefault(shard, deque(maxlen=LATEST))
        if latest and latest[-1][:2] > (batch_id, lo):
            passed = sum(end - start for other, start, end in latest if (other, start) > (batch_id, lo))
            self.deepest[shard] = max(self.deepest.get(shard, 0), passed)
        latest.append((batch_id, lo, hi))
