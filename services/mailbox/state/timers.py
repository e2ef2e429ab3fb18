"""Ends of leases and delays, on the monotonic clock.

Never lets the timers of leases and delays that ended early pile up until they are due: a consumer that asks for a
long visibility and acknowledges at once, or gives back with a long delay what an operator requeues, would fill the
memory. There are at most twice as many timers as leases and delays were live at a sweep.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from itertools import count

from services.mailbox.state.leases import RangeLease
from services.mailbox.state.topics import Delayed

_SWEEP_FROM = 4096


class Timers:
    """A heap by due time, with what is not live any more swept out in bulk.

    `delays(delayed, due)` says whether a delay still holds, until that very time.
    """

    def __init__(self, delays: Callable[[Delayed, int], bool] = lambda delayed, due: True) -> None:
        self._delays = delays
        self._heap: list[tuple[int, int, RangeLease | Delayed]] = []
        self._numbers = count()
        self._ended = 0
        self._sweep_at = _SWEEP_FROM

    def __len__(self) -> int:
        return len(self._heap)

    def arm(self, due_mono_ns: int, what: RangeLease | Delayed) -> None:
        """Remember it for then."""
        heapq.heappush(self._heap, (due_mono_ns, next(self._numbers), what))
        if len(self._heap) > self._sweep_at:
            self._sweep()

    def due(self, now_mono_ns: int) -> Iterator[RangeLease | Delayed]:
        """Take out what is due, earliest first; leases that hold nothing are passed over."""
        while self._heap and self._heap[0][0] <= now_mono_ns:
            _, _, what = heapq.heappop(self._heap)
            if isinstance(what, Delayed) or what.left:
                yield what
            else:
                self._ended = max(0, self._ended - 1)

    def ended(self, lease: RangeLease) -> None:
        """The lease lost messages; if it holds none any more, its timer is waste."""
        if lease.left:
            return
        self._ended += 1
        if self._ended > max(_SWEEP_FROM, len(self._heap) // 2):
            self._sweep()

    def _sweep(self) -> None:
        self._heap = [one for one in self._heap if self._live(one[0], one[2])]
        heapq.heapify(self._heap)
        self._ended = 0
        self._sweep_at = max(_SWEEP_FROM, 2 * len(self._heap))

    def _live(self, due: int, what: RangeLease | Delayed) -> bool:
        return self._delays(what, due) if isinstance(what, Delayed) else what.left > 0
