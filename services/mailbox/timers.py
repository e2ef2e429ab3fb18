"""What is due when, on the monotonic clock.

Never lets the timers of leases that ended early pile up until their deadlines: a consumer that asks for a
long visibility and acknowledges at once would fill the memory.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from itertools import count

from services.mailbox.leases import Lease
from services.mailbox.topics import Delayed

_SWEEP_FROM = 4096


class Timers:
    """A heap by due time, with the leases that hold nothing any more swept out in bulk."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Lease | Delayed]] = []
        self._numbers = count()
        self._ended = 0

    def __len__(self) -> int:
        return len(self._heap)

    def arm(self, due_mono_ns: int, what: Lease | Delayed) -> None:
        """Remember it for then."""
        heapq.heappush(self._heap, (due_mono_ns, next(self._numbers), what))

    def due(self, now_mono_ns: int) -> Iterator[Lease | Delayed]:
        """Take out what is due, earliest first; leases that hold nothing are passed over."""
        while self._heap and self._heap[0][0] <= now_mono_ns:
            _, _, what = heapq.heappop(self._heap)
            if isinstance(what, Delayed) or what.left:
                yield what
            else:
                self._ended = max(0, self._ended - 1)

    def ended(self, lease: Lease) -> None:
        """The lease lost messages; if it holds none any more, its timer is waste."""
        if lease.left:
            return
        self._ended += 1
        if self._ended > max(_SWEEP_FROM, len(self._heap) // 2):
            self._heap = [one for one in self._heap if isinstance(one[2], Delayed) or one[2].left]
            heapq.heapify(self._heap)
            self._ended = 0
