"""What a link has to send: consignments that wait for a batch, and batches that wait for their answers.

Never forgets a consignment: each is settled, or told that it was lost and whether it may have arrived.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from snavio.hop.room_waiters import RoomWaiters
from snavio.hop.send_queue import SendQueue
from snavio.host.background import background
from snavio.native import Reply
from snavio.ports.queue import BatchPart
from snavio.v1.batch_pb2 import Limits

# A frame is more than what is put into it; the peer counts all of it.
HEADER_BYTES = 64


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """How much a link holds and how long it lingers."""

    window: int = 16
    """Batches that wait for their final verdicts, on one stream."""
    eager: int = 1
    """While fewer batches than this wait for their first answer, what waits goes at once: a lone command is not
    delayed. The others gather meanwhile: a hop pays as much for a frame as for some three hundred commands in it."""
    linger_s: float = 0.0015
    """How long a batch that is not full gathers behind `eager` others that nothing was heard of."""
    max_batch_bytes: int = 1 << 20
    max_batch_commands: int = 4000
    """Above one producer's thousand: behind others, two full batches share a frame, and the next hops do the work of a
    frame once for both."""
    max_waiting_bytes: int = 64 << 20
    max_age_s: float = 900.0
    """A stream is opened anew after this long, so that renewed certificates come into use."""

    def within(self, peer: Limits) -> ClientLimits:
        """These, or what the peer takes where that is less; it says nothing with a 0."""
        most_bytes = (peer.max_batch_bytes or self.max_batch_bytes + HEADER_BYTES) - HEADER_BYTES
        most_commands = peer.max_batch_commands or self.max_batch_commands
        return replace(
            self,
            max_batch_bytes=min(self.max_batch_bytes, max(1, most_bytes)),
            max_batch_commands=min(self.max_batch_commands, most_commands),
            window=min(self.window, peer.max_batches_in_flight or self.window),
        )


class BatchCarrier:
    """The stream that batches travel on, as far as they and the link look at it."""

    def __init__(self) -> None:
        self.flying = 0
        """Batches on it that wait for their last answers."""
        self.silent = True
        """True while it has brought no answer."""
        self.led: InFlightBatch | None = None
        """The batch that was the first on it."""

    def finish(self) -> None:
        """Nothing on it waits for an answer, and nothing more will be sent."""
        raise NotImplementedError


@dataclass(slots=True)
class InFlightBatch:
    """One batch under way: who is in it, and where each starts."""

    seq: int
    batch_parts: list[tuple[int, BatchPart]]
    deadline_mono_ns: int
    """The first of its consignments'; the budget on the wire is the last one's."""
    frame: bytes | None
    via: BatchCarrier | None = None
    """The stream it was handed to; None while it waits for one."""
    written: bool = False
    heard_of: bool = False
    """Some of it was answered: what is still open waits for something else than the way."""
    broke: int = 0
    """Streams in a row that ended without any answer while it was the first on them."""

    def settle(self, reply: Reply) -> None:
        """Pass an answer on to everybody in the batch."""
        for offset, batch_part in self.batch_parts:
            try:
                batch_part.settle(offset, reply)
            except Exception as error:
                # One that fails to take its answer must not keep the others in the batch from theirs.
                background().failed("answer", error)
                lose(batch_part, written=True, cause="its answer was not taken")

    def lose(self, cause: str) -> None:
        """No (further) answer will come."""
        for _, batch_part in self.batch_parts:
            lose(batch_part, written=self.written, cause=cause)

    def lose_late(self, now_mono_ns: int) -> bool:
        """Tell those whose budget has ended; whether somebody more patient is left in the batch."""
        late = [entry[1] for entry in self.batch_parts if entry[1].deadline_mono_ns <= now_mono_ns]
        self.batch_parts = [entry for entry in self.batch_parts if entry[1].deadline_mono_ns > now_mono_ns]
        if self.batch_parts:
            self.deadline_mono_ns = min(entry[1].deadline_mono_ns for entry in self.batch_parts)
        for batch_part in late:
            lose(batch_part, written=self.written, cause="the budget ran out")
        return bool(self.batch_parts)


def lose(batch_part: BatchPart, *, written: bool, cause: str) -> None:
    """Tell a consignment that no answer will come, whatever it does about it."""
    try:
        batch_part.lost(written=written, cause=cause)
    except Exception as error:
        # Whoever comes after it waits for the same news.
        background().failed("answer", error)


class SendBuffer:
    """Consignments that no batch has taken yet; their line holds the bound and says who is next."""

    __slots__ = ("_line", "_room_waiters", "limits")

    def __init__(self, limits: ClientLimits, line: SendQueue) -> None:
        self.limits = limits
        self._line = line
        self._room_waiters = RoomWaiters(open_for=self._open_for, free=self._free)

    @property
    def crowded(self) -> bool:
        """So much is waiting that no more should be brought."""
        return self._line.size > self._line.crowded_bytes

    def __bool__(self) -> bool:
        return bool(self._line)

    def enter(self, batch_part: BatchPart) -> None:
        """Take it in; Saturated when there is no room."""
        self._line.put(batch_part)

    @property
    def full_batch(self) -> bool:
        """Whether what waits fills a batch."""
        limits, line = self.limits, self._line
        return line.commands >= limits.max_batch_commands or line.size >= limits.max_batch_bytes

    def next_batch(self) -> list[BatchPart]:
        """Let those go who fit into one batch; at least one."""
        limits, line = self.limits, self._line
        first = line.take()
        taken, size, commands = [first], len(first.buffer), first.count
        while line:
            head = line.head()
            size += len(head.buffer)
            commands += head.count
            if size > limits.max_batch_bytes or commands > limits.max_batch_commands:
                break
            taken.append(line.take())
        self._room_waiters.turn()
        return taken

    def lose_late(self, now_mono_ns: int) -> None:
        """Tell those whose budget has ended; nothing of them was written."""
        late = self._line.overdue(now_mono_ns)
        self._room_waiters.turn()
        for batch_part in late:
            lose(batch_part, written=False, cause="the budget ran out")

    def lose_all(self, cause: str) -> None:
        """The same for everybody."""
        while self._line:
            lose(self._line.take(), written=False, cause=cause)
        self._room_waiters.turn()

    async def room(self, holder: str, size: int) -> None:
        """Wait until `holder` may bring `size` more bytes. Of those who wait, as many go on as there is room for."""
        await self._room_waiters.wait(holder, size)

    def _open_for(self, holder: str) -> bool:
        line = self._line
        size = line.size
        if not size:
            return True
        held = line.held(holder)
        # Whoever has nothing waiting brings its first, however much others have.
        return not held or (held <= line.max_held and size <= line.crowded_bytes)

    def _free(self) -> int:
        line = self._line
        return max(1, min(line.crowded_bytes, line.max_bytes - line.size))
