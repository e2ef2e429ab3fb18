"""Writes that touch both the directory and Signer, done to their end whatever becomes of the caller.

Never leaves Signer with what the directory did not take: a caller that goes away between the two would.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import structlog

T = TypeVar("T")


class UnderWay:
    """Work that goes on when whoever waits for it is cancelled."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()
        self._log = structlog.get_logger()

    async def whole(self, work: Coroutine[Any, Any, T]) -> T:
        """The answer of `work`. Every step of it has a deadline of its own, so it ends."""
        task = asyncio.create_task(work, name="write of directory and Signer")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            # Nobody else hears what becomes of it.
            task.add_done_callback(self._tell)
            raise

    async def finish(self, within_s: float) -> None:
        """Wait for what is under way, and cancel what is not done by then."""
        if not self._tasks:
            return
        _, late = await asyncio.wait(set(self._tasks), timeout=within_s)
        for task in late:
            task.cancel()

    def _tell(self, task: asyncio.Task[Any]) -> None:
        if not task.cancelled() and (failure := task.exception()) is not None:
            self._log.warning("a write whose caller was gone has failed", message=str(failure))
