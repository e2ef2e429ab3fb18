"""Where Fast and Slow send admitted commands to.

A `BatchPart` is the part of one batch that travels to one queue; a `TargetQueue` takes it and answers
it command by command. The queue never blocks its caller and never answers a command twice.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from snavio.native import Freight, Reply


class BatchPart(Protocol):
    """Commands that wait for their verdicts from one next hop."""

    @property
    def body(self) -> bytes:
        """Serialised repeated fields of the hop's batch message; concatenates with others'."""
        ...

    @property
    def freight(self) -> bytes | Freight:
        """The same, perhaps not yet written: for who writes it into a frame of their own."""
        ...

    @property
    def count(self) -> int:
        """Commands in `body`."""
        ...

    @property
    def deadline_mono_ns(self) -> int:
        """When the budget ends."""
        ...

    def settle(self, offset: int, reply: Reply) -> None:
        """Take an answer; `offset` is where these commands start in the batch that it speaks of."""
        ...

    def lost(self, *, written: bool, cause: str) -> None:
        """No (further) answer will come: the budget ran out or the connection broke.

        `written` tells whether the bytes may have reached the other side; if not, it was definitely not
        delivered.
        """
        ...


class TargetQueue(Protocol):
    """A place that stores commands durably before it answers DELIVERED.

    What it promises beyond that is told by `snavio.domain.queue_traits`.
    """

    @property
    def connected(self) -> asyncio.Event:
        """Set while the queue was reached at last."""
        ...

    async def start(self) -> None:
        """Begin to connect; never waits for a queue that is away."""
        ...

    async def close(self) -> None:
        """Answer what is under way and let go. Bounded in time."""
        ...

    def put(self, batch_part: BatchPart) -> None:
        """Send it on; returns at once. Raises Saturated when too much is waiting already."""
        ...

    async def room(self, holder: str = "", size: int = 0) -> None:
        """Wait until `holder` may bring `size` bytes more; the caller's way of not reading when overloaded.

        Those who wait go on as there is room for what they bring, and in turns between holders. 0 is a whole batch.
        """
        ...
