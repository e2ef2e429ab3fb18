"""Frames that wait to be written to one stream, in order: `put` never waits, and one writer is woken once per lull.

Unbounded: the caller enforces the limit, a window of batches or a send buffer.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class WriteQueue(Generic[T]):
    """Lives on one event loop and has one reader.

    In place of asyncio.Queue, whose locks, events and counters cost more per batch than judging ten commands.
    """

    __slots__ = ("_emptied", "_filled", "_loop", "items")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        # The reader takes from the left, and only items that it has written: those here are not written yet.
        self.items: deque[T] = deque()
        self._filled: asyncio.Future[None] | None = None
        self._emptied: asyncio.Future[None] | None = None

    def put(self, item: T) -> None:
        """Append an item for the reader."""
        self.items.append(item)
        filled = self._filled
        if filled is not None:
            self._filled = None
            if not filled.done():
                filled.set_result(None)

    async def filled(self) -> None:
        """Wait for the first item; for the reader."""
        if self.items:
            return
        if self._emptied is not None and not self._emptied.done():
            self._emptied.set_result(None)
        self._filled = self._loop.create_future()
        await self._filled

    async def emptied(self) -> None:
        """Wait until everything has been written; one at a time, and the caller brings the deadline."""
        if self.items:
            waiting = self._emptied = self._loop.create_future()
            try:
                await waiting
            finally:
                self._emptied = None
