"""Stands for a kind of target queue that this installation has not set up: nothing is ever delivered to it."""

from __future__ import annotations

import asyncio

from snavio.ports.queue import BatchPart
from snavio.ports.queue_driver import QueueState


class AbsentQueue:
    """See `snavio.ports.queue.TargetQueue`."""

    def __init__(self, kind: str) -> None:
        self._cause = f"This installation has no {kind} queues."
        self.connected = asyncio.Event()

    async def start(self) -> None:
        """Nothing to start."""

    async def close(self) -> None:
        """Nothing to close."""

    def put(self, batch_part: BatchPart) -> None:
        """Definitely not delivered."""
        batch_part.lost(written=False, cause=self._cause)

    async def examine(self, _topic: str, *, timeout_s: float) -> QueueState:
        """None of its kind is fit."""
        del timeout_s
        return QueueState(flaw=self._cause)

    async def room(self, _holder: str = "", _size: int = 0) -> None:
        """There is always room to refuse."""
