"""A long-lived batch stream to one peer: coalesces, keeps a window, watches budgets, translates breaks into answers.

Never answers a command itself and never retries, unless `resend` says that the peer recognises a batch by
(instance, epoch, batch_seq): then unanswered batches go again, byte for byte, over the next connection.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import grpc
import stamina
import structlog

from snavio.clock import Clock
from snavio.errors import Saturated, Unavailable
from snavio.native import batch_header, read_verdicts
from snavio.ports.queue import Consignment
from snavio.transport.channel import MeshChannel
from snavio.v1.batch_pb2 import Batch, Hello, Verdicts

WIRE_VERSION = 1
HELLO_SECONDS = 5.0
SWEEP_SECONDS = 0.025
CLOSE_SECONDS = 5.0
MAX_BUDGET_MS = 60_000
AGE_CHECK_SECONDS = 0.5
RECONNECT_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class LinkLimits:
    """How much a link holds and how long it lingers."""

    window: int = 16
    """Batches that wait for their final verdicts."""
    eager: int = 2
    """While fewer batches than this are in flight, what waits goes at once: a lone command is not delayed."""
    linger_s: float = 0.001
    """How long a batch that is not full waits for company behind `eager` others."""
    max_batch_bytes: int = 1 << 20
    max_batch_commands: int = 1000
    max_waiting_bytes: int = 64 << 20
    max_age_s: float = 900.0
    """A stream is opened anew after this long, so that renewed certificates come into use."""


@dataclass(slots=True)
class _Shipment:
    """One batch under way: who is in it, and where each starts."""

    seq: int
    consignments: list[tuple[int, Consignment]]
    deadline_mono_ns: int
    """The first of its consignments'; the budget on the wire is the last one's."""
    frame: bytes | None
    written: bool = False


@dataclass(slots=True)
class _Waiting:
    queue: deque[Consignment] = field(default_factory=deque)
    size: int = 0
    commands: int = 0


class BatchLink:
    """See the module. Not thread-safe: it lives on one event loop."""

    def __init__(
        self,
        channel: MeshChannel,
        method: str,
        *,
        clock: Clock,
        instance: str = "",
        epoch: int = 0,
        resend: bool = False,
        limits: LinkLimits | None = None,
        on_hello: Callable[[Hello], None] | None = None,
    ) -> None:
        self._channel = channel
        self._method = method
        self._clock = clock
        self._hello = Batch(
            hello=Hello(wire_version=WIRE_VERSION, instance=instance, epoch=epoch)
        ).SerializeToString()
        self._resend = resend
        self._limits = limits or LinkLimits()
        self._on_hello = on_hello
        self._waiting = _Waiting()
        self._flying: dict[int, _Shipment] = {}
        self._outbox: asyncio.Queue[_Shipment | None] = asyncio.Queue()  # None: the last was written
        self._next_seq = 1
        self._connected = asyncio.Event()
        self._has_room = asyncio.Event()
        self._has_room.set()
        self.crowded = False
        """More than half of the waiting room is taken; `room` waits for the end of it."""
        self._idle = asyncio.Event()
        self._idle.set()
        self._rotating = False
        self._linger: asyncio.TimerHandle | None = None
        self._pump_due = False
        self._sweeper: asyncio.TimerHandle | None = None
        self._runner: asyncio.Task[None] | None = None
        self._log = structlog.get_logger().bind(peer=method)

    # -- for callers ---------------------------------------------------------------------------------

    async def start(self) -> None:
        """Begin connecting; returns at once."""
        self._runner = asyncio.create_task(self._run(), name=f"link {self._method}")

    async def close(self) -> None:
        """Wait a bounded time for what is in flight, then end; what is left is lost."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._idle.wait()
        for handle in (self._linger, self._sweeper):
            if handle is not None:
                handle.cancel()
        if self._runner is not None:
            self._runner.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._runner
        self._lose_everything("the link was closed")

    @property
    def connected(self) -> asyncio.Event:
        """Set while the peer's Hello stands."""
        return self._connected

    def put(self, consignment: Consignment) -> None:
        """Send it in the next batch; see TargetQueue."""
        size = len(consignment.body)
        if self._waiting.size + size > self._limits.max_waiting_bytes:
            raise Saturated(f"{self._method}: too much is waiting.", retry_after_ms=250)
        self._waiting.queue.append(consignment)
        self._waiting.size += size
        self._waiting.commands += consignment.count
        if self._waiting.size > self._limits.max_waiting_bytes // 2:
            self.crowded = True
            self._has_room.clear()
        self._idle.clear()
        self._arm_sweeper()
        if not self._pump_due:
            # Not at once: calls that arrive in the same turn of the loop share a batch.
            self._pump_due = True
            asyncio.get_running_loop().call_soon(self._pump)

    async def room(self) -> None:
        """Wait until less than half of the waiting room is taken."""
        await self._has_room.wait()

    # -- composing batches ---------------------------------------------------------------------------

    def _pump(self) -> None:
        self._pump_due = False
        limits = self._limits
        while self._waiting.queue and self._connected.is_set() and not self._rotating:
            if len(self._flying) >= limits.window:
                return
            full = (
                self._waiting.commands >= limits.max_batch_commands
                or self._waiting.size >= limits.max_batch_bytes
            )
            if len(self._flying) >= limits.eager and not full and not self._lingered():
                return
            self._ship()

    def _lingered(self) -> bool:
        """Whether the linger time of what waits is over; starts it otherwise."""
        loop = asyncio.get_running_loop()
        if self._linger is None:
            self._linger = loop.call_later(self._limits.linger_s, self._pump)
            return False
        if loop.time() < self._linger.when():
            return False
        self._linger = None
        return True

    def _ship(self) -> None:
        limits, waiting = self._limits, self._waiting
        taken: list[tuple[int, Consignment]] = []
        bodies: list[bytes] = []
        size = commands = deadline = 0
        first_deadline = waiting.queue[0].deadline_mono_ns
        while waiting.queue:
            head = waiting.queue[0]
            length = len(head.body)
            over = size + length > limits.max_batch_bytes or commands + head.count > limits.max_batch_commands
            if taken and over:
                break
            waiting.queue.popleft()
            taken.append((commands, head))
            bodies.append(head.body)
            size += length
            commands += head.count
            deadline = max(deadline, head.deadline_mono_ns)
            first_deadline = min(first_deadline, head.deadline_mono_ns)
        waiting.size -= size
        waiting.commands -= commands
        if waiting.size <= limits.max_waiting_bytes // 2:
            self.crowded = False
            self._has_room.set()
        if self._linger is not None:
            self._linger.cancel()
            self._linger = None
        budget_ms = min(max(1, (deadline - self._clock.mono_ns()) // 1_000_000), MAX_BUDGET_MS)
        frame = b"".join((batch_header(self._next_seq, budget_ms), *bodies))
        shipment = _Shipment(self._next_seq, taken, first_deadline, frame)
        self._next_seq += 1
        self._flying[shipment.seq] = shipment
        self._outbox.put_nowait(shipment)

    # -- the connection ------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            call: grpc.aio.StreamStreamCall | None = None
            retries = stamina.retry_context(
                on=Unavailable, attempts=None, timeout=None, wait_initial=0.05, wait_max=1.0, wait_jitter=0.1
            )
            async for attempt in retries:
                with attempt:
                    call = await self._connect()
            assert call is not None
            try:
                await self._converse(call)
            finally:
                self._connected.clear()
                call.cancel()
                self._broken()
            # A peer that greets and hangs up must not be called again in a tight loop.
            await asyncio.sleep(RECONNECT_SECONDS)

    async def _connect(self) -> grpc.aio.StreamStreamCall:
        call = self._channel.stream(self._method)
        try:
            async with asyncio.timeout(HELLO_SECONDS):
                await call.write(self._hello)
                answer = await call.read()
            if answer is grpc.aio.EOF:
                raise Unavailable(f"{self._method} ended the stream before its Hello.")
            hello = Verdicts.FromString(answer).hello
        except (grpc.aio.AioRpcError, grpc.aio.UsageError, asyncio.InvalidStateError, TimeoutError) as error:
            call.cancel()
            code = error.code().name if isinstance(error, grpc.aio.AioRpcError) else type(error).__name__
            raise Unavailable(f"{self._method} cannot be reached: {code}.") from None
        if self._on_hello is not None:
            self._on_hello(hello)
        return call

    async def _converse(self, call: grpc.aio.StreamStreamCall) -> None:
        """Write and read until either side ends, then return."""
        self._outbox = asyncio.Queue()
        for shipment in self._flying.values():
            self._outbox.put_nowait(shipment)
        self._connected.set()
        self._rotating = False
        self._pump()
        writer = asyncio.create_task(self._write(call))
        watching = asyncio.create_task(self._watch_age())
        try:
            await self._read(call)
        except grpc.aio.AioRpcError as error:
            self._log.info("link broken", code=error.code().name)
        except ValueError:
            # A peer that sends what is not Verdicts must not end the link for good.
            self._log.warning("link broken", code="UNREADABLE")
        finally:
            watching.cancel()
            writer.cancel()
            await asyncio.gather(watching, writer, return_exceptions=True)

    async def _write(self, call: grpc.aio.StreamStreamCall) -> None:
        while True:
            shipment = await self._outbox.get()
            if shipment is None:
                await call.done_writing()
                return
            if shipment.frame is None or shipment.seq not in self._flying:
                continue
            shipment.written = True
            await call.write(shipment.frame)
            if not self._resend:
                shipment.frame = None

    async def _read(self, call: grpc.aio.StreamStreamCall) -> None:
        while True:
            frame = await call.read()
            if frame is grpc.aio.EOF:
                return
            reply = read_verdicts(frame)
            shipment = self._flying.get(reply.batch_seq)
            if shipment is None:
                continue
            for offset, consignment in shipment.consignments:
                consignment.settle(offset, reply)
            if reply.final:
                del self._flying[reply.batch_seq]
                self._end_if_rotated()
                self._note_idle()
                self._pump()

    async def _watch_age(self) -> None:
        """Stop sending on an old stream, or one under an old certificate; it ends with its last answer."""
        generation = self._channel.generation()
        age_s = 0.0
        while age_s < self._limits.max_age_s and self._channel.generation() == generation:
            pause_s = min(AGE_CHECK_SECONDS, self._limits.max_age_s - age_s)
            await asyncio.sleep(pause_s)
            age_s += pause_s
        self._rotating = True
        self._end_if_rotated()

    def _end_if_rotated(self) -> None:
        if self._rotating and not self._flying:
            self._outbox.put_nowait(None)

    def _broken(self) -> None:
        if self._resend:
            return
        for shipment in list(self._flying.values()):
            if shipment.written:
                del self._flying[shipment.seq]
                self._lose(shipment, "the connection broke")
        self._note_idle()

    # -- budgets -------------------------------------------------------------------------------------

    def _arm_sweeper(self) -> None:
        if self._sweeper is None:
            self._sweeper = asyncio.get_running_loop().call_later(SWEEP_SECONDS, self._sweep)

    def _sweep(self) -> None:
        self._sweeper = None
        now = self._clock.mono_ns()
        for shipment in [late for late in self._flying.values() if late.deadline_mono_ns <= now]:
            self._lose_late(shipment, now)
        waiting = self._waiting
        overdue = [waiter for waiter in waiting.queue if waiter.deadline_mono_ns <= now]
        if overdue:
            waiting.queue = deque(waiter for waiter in waiting.queue if waiter.deadline_mono_ns > now)
        for late in overdue:
            waiting.size -= len(late.body)
            waiting.commands -= late.count
            late.lost(written=False, cause="the budget ran out")
        if waiting.size <= self._limits.max_waiting_bytes // 2:
            self.crowded = False
            self._has_room.set()
        self._note_idle()
        if self._flying or waiting.queue:
            self._arm_sweeper()
            self._pump()

    def _lose_late(self, shipment: _Shipment, now: int) -> None:
        """Who shares a batch with somebody more patient still gets an answer in time."""
        late = [entry[1] for entry in shipment.consignments if entry[1].deadline_mono_ns <= now]
        shipment.consignments = [entry for entry in shipment.consignments if entry[1].deadline_mono_ns > now]
        if shipment.consignments:
            shipment.deadline_mono_ns = min(entry[1].deadline_mono_ns for entry in shipment.consignments)
        else:
            del self._flying[shipment.seq]
        for consignment in late:
            consignment.lost(written=shipment.written, cause="the budget ran out")

    def _note_idle(self) -> None:
        if not self._flying and not self._waiting.queue:
            self._idle.set()

    def _lose_everything(self, cause: str) -> None:
        for shipment in list(self._flying.values()):
            self._lose(shipment, cause)
        self._flying.clear()
        while self._waiting.queue:
            self._waiting.queue.popleft().lost(written=False, cause=cause)
        self._waiting = _Waiting()

    @staticmethod
    def _lose(shipment: _Shipment, cause: str) -> None:
        for _, consignment in shipment.consignments:
            consignment.lost(written=shipment.written, cause=cause)
