"""Callers that wait until a full queue has room: they go on holder by holder, and only as many as fit.

Never wakes all of them at once: each would bring a batch, most of which the queue would have to refuse after the work
of judging it was done.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

# Time for which room is kept for a caller that went on. It may bring less than expected, or nothing; if no other went
# on until then, callers with nothing to bring would keep out those with something.
KEPT_S = 0.05

_Turn = tuple[asyncio.Future[None], int]


class RoomWaiters:
    """Lives on one event loop. `open_for(holder)` is true while it may go on; `free()` is the bytes that have room."""

    __slots__ = ("_again", "_free", "_kept", "_loop", "_open_for", "_waiting")

    def __init__(self, *, open_for: Callable[[str], bool], free: Callable[[], int]) -> None:
        self._open_for = open_for
        self._free = free
        # Bytes kept for callers that went on lately.
        self._kept = 0
        self._waiting: dict[str, deque[_Turn]] = {}
        self._loop = asyncio.get_running_loop()
        self._again: asyncio.TimerHandle | None = None

    async def wait(self, holder: str, size: int) -> None:
        """Return when it is this caller's turn; at once where no other caller of `holder` waits and there is room."""
        if holder not in self._waiting and self._open_for(holder):
            return
        turn = (self._loop.create_future(), size)
        self._waiting.setdefault(holder, deque()).append(turn)
        if self._again is None:
            # Not only when something leaves the queue: the parts that filled it may have been lost.
            self._again = self._loop.call_later(KEPT_S, self._look)
        try:
            await turn[0]
        except asyncio.CancelledError:
            queue = self._waiting.get(holder)
            if queue is not None and turn in queue:
                queue.remove(turn)
                if not queue:
                    del self._waiting[holder]
            raise

    def turn(self) -> None:
        """Let as many go on as fit; to be called when there may be room again."""
        if self._waiting:
            self._let_on()

    def _look(self) -> None:
        self._again = None
        self._kept = 0
        if self._waiting:
            self._let_on()
            if self._waiting:
                self._again = self._loop.call_later(KEPT_S, self._look)

    def _let_on(self) -> None:
        free, progress = self._free(), True
        while progress:
            progress = False
            # One turn for each holder before any has two.
            for holder in list(self._waiting):
                if self._kept >= free:
                    return
                if self._open_for(holder):
                    self._kept += self._let_one_on(holder)
                    progress = True

    def _let_one_on(self, holder: str) -> int:
        queue = self._waiting.pop(holder)
        future, size = queue.popleft()
        if queue:
            self._waiting[holder] = queue
        if future.done():
            return 0
        future.set_result(None)
        return size
