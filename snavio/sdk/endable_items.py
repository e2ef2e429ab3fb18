"""An iteration that another task can end while somebody waits for its next item.

A plain generator raises RuntimeError then. Never mistakes the end for a cancellation that the waiting task was meant to
see.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Generic, TypeVar

Item = TypeVar("Item")


class EndableItems(AsyncIterator[Item], Generic[Item]):
    """The items of a generator, for one task at a time."""

    def __init__(self, items: AsyncGenerator[Item, None]) -> None:
        self._items = items
        self._waiting: asyncio.Task[object] | None = None
        self._idle = asyncio.Event()
        self._ended = asyncio.Event()

    async def __anext__(self) -> Item:
        if self._ended.is_set():
            raise StopAsyncIteration
        if self._waiting is not None:
            raise RuntimeError("Another task is waiting for the next item.")
        self._waiting = task = asyncio.current_task()
        self._idle.clear()
        try:
            return await anext(self._items)
        except asyncio.CancelledError:
            # Counted: `end` has cancelled once; whatever is beyond that was meant for the task itself.
            if not self._ended.is_set() or task is None or task.uncancel() > 0:
                raise
            raise StopAsyncIteration from None
        finally:
            self._waiting = None
            self._idle.set()

    async def end(self) -> None:
        """End the generator, and the wait for its next item."""
        if not self._ended.is_set():
            self._ended.set()
            if self._waiting is not None:
                self._waiting.cancel()
        if self._waiting is not None:
            await self._idle.wait()
        await self._items.aclose()
