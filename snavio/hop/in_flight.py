"""Parts that wait for a batch, and batches in flight that wait for their answers.

Never forgets a part: each is settled, or lost, with whether it may have arrived.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

from snavio.hop.room_waiters import RoomWaiters
from snavio.hop.send_queue import SendQueue
from snavio.hop.write_queue import WriteQueue
from snavio.host.background import background
from snavio.native import Reply
from snavio.ports.queue import BatchPart
from snavio.v1.batch_pb2 import Limits

# A frame is more than what is put into it; the peer counts all of it.
HEADER_BYTES = 64


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """Bounds of a client: what it holds, and how long a batch lingers."""

    window: int = 16
    """Batches that wait for their final verdicts, on one stream."""
    eager: int = 1
    """While fewer batches than this wait for their first answer, parts go at once: a lone command is not delayed. The
    others gather meanwhile: a hop pays as much for a frame as for some three hundred commands in it."""
    linger_s: float = 0.0015
    """Time for which a batch that is not full gathers parts behind `eager` others without any answer."""
    max_batch_bytes: int = 1 << 20
    max_batch_commands: int = 4000
    """Above one producer's thousand: behind others, two full batches share a frame, and the next hops do the work of a
    frame once for both."""
    max_waiting_bytes: int = 64 << 20
    max_age_s: float = 900.0
    """A stream is opened anew after this long, so that renewed certificates come into use."""

    def within(self, peer: Limits) -> ClientLimits:
        """The smaller of these and the peer's limits; a 0 of the peer is no limit."""
        most_bytes = (peer.max_batch_bytes or self.max_batch_bytes + HEADER_BYTES) - HEADER_BYTES
        most_commands = peer.max_batch_commands or self.max_batch_commands
        return replace(
            self,
            max_batch_bytes=min(self.max_batch_bytes, max(1, most_bytes)),
            max_batch_commands=min(self.max_batch_commands, most_commands),
            window=min(self.window, peer.max_batches_in_flight or self.window),
        )


class BatchCarrier(ABC):
    """One stream of batches, as the client and its batches see it."""

    def __init__(self) -> None:
        self.outbox: WriteQueue[InFlightBatch | None] = WriteQueue()
        """Batches that are not written yet; None is written as a sign of life, or ends our half."""
        self.flying = 0
        """Batches on it that wait for their last answers."""
        self.silent = True
        """True while it has brought no answer."""
        self.led: InFlightBatch | None = None
        """The batch that was the first on it."""

    @abstractmethod
    def end_half(self) -> None:
        """Send nothing more; answers are still read."""

    @abstractmethod
    def finish(self) -> None:
        """End the stream: nothing on it waits for an answer."""


@dataclass(slots=True)
class InFlightBatch:
    """One batch in flight: its parts, and the offset of each."""

    seq: int
    batch_parts: list[tuple[int, BatchPart]]
    deadline_mono_ns: int
    """The earliest of its parts'; the budget on the wire is that of the latest."""
    frame: bytes | None
    via: BatchCarrier | None = None
    """The stream it was handed to; None while it waits for one."""
    written: bool = False
    heard_of: bool = False
    """Some of it was answered: its open commands do not wait for the connection."""
    broke: int = 0
    """Streams in a row that ended without any answer while it was the first on them."""

    def settle(self, reply: Reply) -> None:
        """Pass an answer on to every part in the batch."""
        for offset, batch_part in self.batch_parts:
            try:
                batch_part.settle(offset, reply)
            except Exception as error:
                # One that fails to take its answer must not keep the others in the batch from theirs.
                background().failed("answer", error)
                lose(batch_part, written=True, cause="its answer was not taken")

    def lose(self, cause: str) -> None:
        """Lose every part: no (further) answer will come."""
        for _, batch_part in self.batch_parts:
            lose(batch_part, written=self.written, cause=cause)

    def lose_late(self, now_mono_ns: int) -> bool:
        """Lose the parts whose budget has ended; True while parts with more time are left in the batch."""
        late = [entry[1] for entry in self.batch_parts if entry[1].deadline_mono_ns <= now_mono_ns]
        self.batch_parts = [entry for entry in self.batch_parts if entry[1].deadline_mono_ns > now_mono_ns]
        if self.batch_parts:
            self.deadline_mono_ns = min(entry[1].deadline_mono_ns for entry in self.batch_parts)
        for batch_part in late:
            lose(batch_part, written=self.written, cause="the budget ran out")
        return bool(self.batch_parts)


def lose(batch_part: BatchPart, *, written: bool, cause: str) -> None:
    """Lose a part: no answer will come. Its own failure is reported and passed over."""
    try:
        batch_part.lost(written=written, cause=cause)
    except Exception as error:
        # The parts after it must be lost as well.
        background().failed("answer", error)


class SendBuffer:
    """Parts that are in no batch yet; their queue enforces the bound and the order."""

    __slots__ = ("_queue", "_room_waiters", "limits")

    def __init__(self, limits: ClientLimits, queue: SendQueue) -> None:
        self.limits = limits
        self._queue = queue
        self._room_waiters = RoomWaiters(open_for=self._open_for, free=self._free)

    @property
    def crowded(self) -> bool:
        """So much waits that no more should be sent."""
        return self._queue.size > self._queue.crowded_bytes

    def __bool__(self) -> bool:
        return bool(self._queue)

    def enter(self, batch_part: BatchPart) -> None:
        """Append a part; Saturated when there is no room."""
        self._queue.put(batch_part)

    @property
    def full_batch(self) -> bool:
        """True when the waiting parts fill a batch."""
        limits, queue = self.limits, self._queue
        return queue.commands >= limits.max_batch_commands or queue.size >= limits.max_batch_bytes

    def next_batch(self) -> list[BatchPart]:
        """Pop queued parts until the batch limits are reached, at least one."""
        limits, queue = self.limits, self._queue
        first = queue.take()
        taken, size, commands = [first], len(first.buffer), first.count
        while queue:
            head = queue.head()
            size += len(head.buffer)
            commands += head.count
            if size > limits.max_batch_bytes or commands > limits.max_batch_commands:
                break
            taken.append(queue.take())
        self._room_waiters.turn()
        return taken

    def lose_late(self, now_mono_ns: int) -> None:
        """Lose the parts whose budget has ended; nothing of them was written."""
        late = self._queue.overdue(now_mono_ns)
        self._room_waiters.turn()
        for batch_part in late:
            lose(batch_part, written=False, cause="the budget ran out")

    def lose_all(self, cause: str) -> None:
        """Lose every part; nothing of them was written."""
        while self._queue:
            lose(self._queue.take(), written=False, cause=cause)
        self._room_waiters.turn()

    async def room(self, holder: str, size: int) -> None:
        """Wait until `holder` may send `size` more bytes. As many waiting callers go on as there is room for."""
        await self._room_waiters.wait(holder, size)

    def _open_for(self, holder: str) -> bool:
        queue = self._queue
        size = queue.size
        if not size:
            return True
        held = queue.held(holder)
        # A holder with nothing waiting sends its first part, whatever others have waiting.
        return not held or (held <= queue.max_held and size <= queue.crowded_bytes)

    def _free(self) -> int:
        queue = self._queue
        return max(1, min(queue.crowded_bytes, queue.max_bytes - queue.size))
