"""Stands for a kind of target queue that this installation has not set up: nothing is ever delivered to it."""

from __future__ import annotations

import asyncio

from snavio.ports.queue import BatchPart


class AbsentQueue:
    """See `snavio.ports.queue.TargetQueue`."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self.connected = asyncio.Event()

    async def start(self) -> None:
        """Nothing to start."""

    async def close(self) -> None:
        """Nothing to close."""

    def put(self, batch_part: BatchPart) -> None:
        """Definitely not delivered."""
        batch_part.lost(written=False, cause=f"This installation has no {self._kind} queues.")

    async def room(self, _holder: str = "", _size: int = 0) -> None:
        """There is always room to refuse."""
