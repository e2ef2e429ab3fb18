"""The next hop of a batch: a queue that takes parts of batches and answers them command by command.

Shield, Fast and Slow send through this port, over gRPC, to a service in the same process or to a queue that is not our
own. A `TargetQueue` never blocks its caller and never answers a command twice.
"""

from __future__ import annotations

import asyncio
from typing import Protocol, runtime_checkable

from snavio.native import PartBuffer, Reply
from snavio.ports.queue_driver import QueueState


class BatchPart(Protocol):
    """The commands of one batch that go to one next hop and wait for its verdicts."""

    @property
    def body(self) -> bytes:
        """Serialised repeated fields of the hop's batch message; concatenates with others'."""
        ...

    @property
    def buffer(self) -> bytes | PartBuffer:
        """The same, perhaps not yet written: `batch_frame` writes it straight into a frame."""
        ...

    @property
    def source(self) -> str:
        """`<tenant>/<service>` where all commands are of one source, for queues that are fair by source; or empty."""
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
        """Take note that no (further) answer will come: the budget ran out or the connection broke.

        With `written` the bytes may have reached the other side; without it they were definitely not delivered.
        """
        ...


@runtime_checkable
class ExaminedQueue(Protocol):
    """A queue of other owners, which must prove that it is fit before a route is accepted to it."""

    async def examine(self, topic: str, *, timeout_s: float) -> QueueState:
        """Look at a topic's queue as it is now, and store nothing. Unavailable where it cannot be asked."""
        ...


class TargetQueue(Protocol):
    """A next hop that answers DELIVERED only for commands that are stored durably.

    `snavio.domain.queue_traits` says what each kind of queue promises beyond that.
    """

    @property
    def connected(self) -> asyncio.Event:
        """Set while the last attempt reached the queue."""
        ...

    async def start(self) -> None:
        """Begin to connect; never waits for a queue that is away."""
        ...

    async def close(self) -> None:
        """Answer the parts in flight and release connections. Bounded in time."""
        ...

    def put(self, batch_part: BatchPart) -> None:
        """Send it on; returns at once. Raises Saturated when too much is waiting already."""
        ...

    async def room(self, holder: str = "", size: int = 0) -> None:
        """Wait until `holder` may send `size` bytes more; a caller that is overloaded reads nothing meanwhile.

        Waiting callers go on as there is room for their bytes, and in turns between holders. 0 is a whole batch.
        """
        ...
