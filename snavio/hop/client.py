"""The client side of a hop: coalesces parts into batches, keeps a window, watches budgets, turns breaks into answers.

Never answers a command itself and never retries, unless `resend` says that the peer recognises a batch by
(instance, epoch, batch_seq): then unanswered batches go again, byte for byte, over the next connection.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Protocol

from snavio.clock import Clock
from snavio.hop.client_stream import StreamListener
from snavio.hop.connection import StreamConnection
from snavio.hop.in_flight import BatchCarrier, ClientLimits, InFlightBatch, SendBuffer, lose
from snavio.hop.send_queue import FifoSendQueue, SendQueue
from snavio.host.background import background
from snavio.native import Reply, batch_frame
from snavio.ports.queue import BatchPart
from snavio.rpc.channel import MeshChannel
from snavio.tasks import ended
from snavio.v1.batch_pb2 import Batch, Hello

__all__ = ["BatchClient", "ClientLimits", "HopClient"]

WIRE_VERSION = 1
SWEEP_SECONDS = 0.025
CLOSE_SECONDS = 5.0
MAX_BUDGET_MS = 60_000
# A verdict that the peer has at the end of its budget must arrive before the end of ours: this much of it is kept for
# the way back, and for the peer's own sweep.
RETURN_MS = 4 * round(SWEEP_SECONDS * 1000)
RETURN_SHARE = 10
# More than a peer that is restarted needs: between its streams it cannot be reached, which does not count.
MAX_BROKEN_STREAMS = 5


class HopConnection(Protocol):
    """The way to the next service: one stream of batches after another."""

    trouble: Exception | None
    """Cause of the last failed attempt to connect; None once one succeeded."""

    async def run(self, traffic: StreamListener) -> None:
        """Open streams and carry their batches; until cancelled, whatever happens meanwhile."""
        ...


class HopClient:
    """A `TargetQueue` over a `HopConnection`. Not thread-safe: it lives on one event loop."""

    def __init__(
        self,
        connection: HopConnection,
        name: str,
        *,
        clock: Clock,
        resend: bool = False,
        limits: ClientLimits | None = None,
        waiting: SendQueue | None = None,
    ) -> None:
        self._connection = connection
        self._clock = clock
        self._resend = resend
        self._limits = limits or ClientLimits()
        self._name = f"hop {name}"
        if waiting is None:
            waiting = FifoSendQueue(max_bytes=self._limits.max_waiting_bytes, what=name)
        self._waiting = SendBuffer(self._limits, waiting)
        self._flying: dict[int, InFlightBatch] = {}
        # The stream that is sent on; older ones may still wait for answers.
        self._client_stream: BatchCarrier | None = None
        # Batches in flight without any answer yet.
        self._unheard = 0
        self._next_seq = 1
        self._connected = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._loop = asyncio.get_running_loop()
        self._linger: asyncio.TimerHandle | None = None
        # When what waits has lingered long enough; 0 while nothing lingers.
        self._linger_until = 0.0
        self._pump_due = False
        self._sweeper: asyncio.TimerHandle | None = None
        self._runner: asyncio.Task[None] | None = None

    # -- for callers ---------------------------------------------------------------------------------

    async def start(self) -> None:
        """Begin connecting; returns at once."""
        self._runner = background().keep(self._name, lambda: self._connection.run(self))

    async def close(self) -> None:
        """Wait a bounded time for what is in flight, then end; what is left is lost."""
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_SECONDS):
                    await self._idle.wait()
            await ended(self._runner)
        finally:
            # Also when the caller is cancelled meanwhile: every part that waits for an answer must get one.
            self._let_go()

    def _let_go(self) -> None:
        for handle in (self._linger, self._sweeper):
            if handle is not None:
                handle.cancel()
        for in_flight_batch in list(self._flying.values()):
            in_flight_batch.lose("the connection was closed")
        self._flying.clear()
        self._unheard = 0
        self._waiting.lose_all("the connection was closed")
        self._note_idle()

    @property
    def connected(self) -> asyncio.Event:
        """Set while the peer's Hello stands."""
        return self._connected

    @property
    def trouble(self) -> Exception | None:
        """Cause of the last failed attempt to reach the peer; None once one succeeded."""
        return self._connection.trouble

    @property
    def limits(self) -> ClientLimits:
        """Our own, or the peer's where it takes less: no part may have more, since none is cut."""
        return self._waiting.limits

    @property
    def crowded(self) -> bool:
        """So much waits that `room` waits, too."""
        return self._waiting.crowded

    def put(self, batch_part: BatchPart) -> None:
        """Send it in the next batch; see TargetQueue."""
        waiting = self._waiting
        waiting.enter(batch_part)
        self._idle.clear()
        if self._sweeper is None:
            self._sweeper = self._loop.call_later(SWEEP_SECONDS, self._sweep)
        if self._pump_due:
            return
        if waiting.full_batch:
            self._pump()
        else:
            # Not at once: parts that arrive in the same turn of the loop share a batch.
            self._pump_due = True
            self._loop.call_soon(self._pump)

    async def room(self, holder: str = "", size: int = 0) -> None:
        """Wait until `holder` may send `size` more bytes; see TargetQueue."""
        await self._waiting.room(holder, size or self._waiting.limits.max_batch_bytes)

    # -- composing batches ---------------------------------------------------------------------------

    def _pump(self) -> None:
        self._pump_due = False
        waiting = self._waiting
        limits = waiting.limits
        while waiting and (client_stream := self._client_stream) is not None:
            if client_stream.flying >= limits.window:
                return
            if self._unheard >= limits.eager and not waiting.full_batch and not self._lingered():
                return
            self._send_batch(client_stream)

    def _lingered(self) -> bool:
        """True once the waiting parts have lingered long enough; starts their linger time otherwise."""
        now = self._loop.time()
        if not self._linger_until:
            self._linger_until = now + self._limits.linger_s
        elif now >= self._linger_until:
            return True
        # One timer for many batches: it is not cancelled when one goes early, and finds out what is due.
        if self._linger is None:
            self._linger = self._loop.call_at(self._linger_until, self._linger_over)
        return False

    def _linger_over(self) -> None:
        self._linger = None
        self._pump()

    def _send_batch(self, client_stream: BatchCarrier) -> None:
        taken = self._waiting.next_batch()
        self._linger_until = 0.0
        try:
            self._send_together(taken, client_stream)
        except Exception as error:
            # Nothing else refers to them any more.
            background().failed(self._name, error)
            for batch_part in taken:
                lose(batch_part, written=False, cause="the batch could not be made")

    def _send_together(self, taken: list[BatchPart], client_stream: BatchCarrier) -> None:
        seq = self._next_seq
        self._next_seq = seq + 1
        if len(taken) == 1:
            first = last = taken[0].deadline_mono_ns
            placed = [(0, taken[0])]
        else:
            deadlines = [batch_part.deadline_mono_ns for batch_part in taken]
            first, last = min(deadlines), max(deadlines)
            placed, offset = [], 0
            for batch_part in taken:
                placed.append((offset, batch_part))
                offset += batch_part.count
        left_ms = (last - self._clock.mono_ns()) // 1_000_000
        budget_ms = min(max(1, left_ms - min(left_ms // RETURN_SHARE, RETURN_MS)), MAX_BUDGET_MS)
        frame = batch_frame(seq, budget_ms, [batch_part.buffer for batch_part in taken])
        in_flight_batch = self._flying[seq] = InFlightBatch(seq, placed, first, frame)
        self._unheard += 1
        _hand_over(in_flight_batch, client_stream)

    # -- for the connection: see StreamListener --------------------------------------------------------

    def opened(self, client_stream: BatchCarrier) -> None:
        """Send the batches that no stream has at the moment, sent before or not, and then the waiting parts."""
        self._client_stream = client_stream
        self._send_anew(client_stream)
        self._connected.set()
        self._pump()

    def _send_anew(self, client_stream: BatchCarrier) -> None:
        for in_flight_batch in self._flying.values():
            if in_flight_batch.via is None:
                _hand_over(in_flight_batch, client_stream)

    def leaving(self, in_flight_batch: InFlightBatch) -> bytes | None:
        """Mark the batch as written: from here on it may have arrived."""
        frame = in_flight_batch.frame
        if frame is None or in_flight_batch.seq not in self._flying:
            return None
        in_flight_batch.written = True
        via = in_flight_batch.via
        if via is not None and via.led is None:
            via.led = in_flight_batch
        if not self._resend:
            in_flight_batch.frame = None
        return frame

    def answered(self, reply: Reply) -> None:
        """Settle every part in the batch; the last answer makes room for another batch."""
        seq = reply.batch_seq
        in_flight_batch = self._flying.get(seq)
        if in_flight_batch is None:
            return
        heard = not in_flight_batch.heard_of
        if heard:
            in_flight_batch.heard_of = True
            self._unheard -= 1
        in_flight_batch.settle(reply)
        if reply.final:
            del self._flying[seq]
            self._off(in_flight_batch)
            if not self._flying and not self._waiting:
                self._idle.set()
        if (heard or reply.final) and self._waiting:
            self._pump()

    def _off(self, in_flight_batch: InFlightBatch) -> None:
        """Take the batch off its stream; a retired stream ends with its last one."""
        via = in_flight_batch.via
        if via is None:
            return
        in_flight_batch.via = None
        via.flying -= 1
        if via is not self._client_stream and not via.flying:
            via.finish()

    def retire(self, client_stream: BatchCarrier, *, at_once: bool) -> None:
        """Send the batches that it has not written on the next stream; it ends with its last answer."""
        if client_stream is self._client_stream:
            self._client_stream = None
            self._connected.clear()
        # One that was given up before it was written has left the stream already: taken off twice, its place would be
        # another's, and the stream would end before that one's answer, or never.
        unwritten = [each for each in client_stream.outbox.items if each and each.via is client_stream]
        client_stream.outbox.items.clear()
        for in_flight_batch in unwritten:
            in_flight_batch.via = None
        client_stream.flying -= len(unwritten)
        if at_once:
            client_stream.end_half()
        if not client_stream.flying:
            client_stream.finish()
        if self._client_stream is not None:
            self._send_anew(self._client_stream)

    def broken(self, client_stream: BatchCarrier) -> None:
        """Give up batches that were written and cannot be sent again; the others go on another connection."""
        if client_stream is self._client_stream:
            self._client_stream = None
            self._connected.clear()
        if self._resend:
            self._suspect(client_stream)
        for in_flight_batch in [each for each in self._flying.values() if each.via is client_stream]:
            in_flight_batch.via = None
            if in_flight_batch.written and not self._resend:
                self._land(in_flight_batch)
                in_flight_batch.lose("the connection broke")
        if self._client_stream is not None:
            self._send_anew(self._client_stream)
        self._note_idle()

    def _suspect(self, client_stream: BatchCarrier) -> None:
        """Give up a batch that went first on stream after stream, to a peer that ended each without an answer."""
        first = client_stream.led
        if not client_stream.silent or first is None or first.seq not in self._flying:
            return
        first.broke += 1
        if first.broke >= MAX_BROKEN_STREAMS:
            # Sent again for its whole budget, a frame that the peer cannot take would keep back all that follow it.
            self._land(first)
            first.lose("the peer ended every stream that it came on")

    def _land(self, in_flight_batch: InFlightBatch) -> None:
        if self._flying.pop(in_flight_batch.seq, None) is not None and not in_flight_batch.heard_of:
            self._unheard -= 1
        # It may still stand behind a write that a peer does not take, while its place in the window is filled again.
        in_flight_batch.frame = None
        # Given up is as good as answered: the stream that waits for it would otherwise never end.
        self._off(in_flight_batch)

    # -- budgets -------------------------------------------------------------------------------------

    def _sweep(self) -> None:
        self._sweeper = None
        now = self._clock.mono_ns()
        for in_flight_batch in [late for late in self._flying.values() if late.deadline_mono_ns <= now]:
            if not in_flight_batch.lose_late(now):
                self._land(in_flight_batch)
        self._waiting.lose_late(now)
        self._note_idle()
        if self._flying or self._waiting:
            if self._sweeper is None:
                self._sweeper = self._loop.call_later(SWEEP_SECONDS, self._sweep)
            self._pump()

    def _note_idle(self) -> None:
        if not self._flying and not self._waiting:
            self._idle.set()


class BatchClient(HopClient):
    """Sends to one method of one peer over gRPC."""

    def __init__(
        self,
        channel: MeshChannel,
        method: str,
        *,
        clock: Clock,
        instance: str = "",
        epoch: int = 0,
        resend: bool = False,
        limits: ClientLimits | None = None,
        on_hello: Callable[[Hello], None] | None = None,
        waiting: SendQueue | None = None,
    ) -> None:
        limits = limits or ClientLimits()
        hello = Batch(hello=Hello(wire_version=WIRE_VERSION, instance=instance, epoch=epoch))
        connection = StreamConnection(
            channel,
            method,
            hello=hello.SerializeToString(),
            max_age_s=limits.max_age_s,
            on_hello=self._greeted,
        )
        self._on_hello = on_hello
        super().__init__(connection, method, clock=clock, resend=resend, limits=limits, waiting=waiting)

    def _greeted(self, hello: Hello) -> None:
        # Of our own each time: the next peer may take more than this one.
        self._waiting.limits = self._limits.within(hello.limits)
        if self._on_hello is not None:
            self._on_hello(hello)


def _hand_over(in_flight_batch: InFlightBatch, client_stream: BatchCarrier) -> None:
    in_flight_batch.via = client_stream
    client_stream.flying += 1
    client_stream.outbox.put(in_flight_batch)
