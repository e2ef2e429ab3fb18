"""The serving end of a batch stream: Hello first, then a window of batches, answered in any order and in parts.

A stream that is to end says so to its peer and goes on reading until the peer has ended its half: batches in flight
then are answered, and not left unknown.

Never reads a batch that it has no place for, and never ends a stream before every batch that it has read is answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

from google.protobuf.message import DecodeError

from snavio.clock import Clock
from snavio.domain.verdict import Verdict
from snavio.errors import BadRequest, SnavioError, Unauthenticated
from snavio.hop.instance_names import HeldName, InstanceNames
from snavio.hop.write_queue import WriteQueue
from snavio.native import MESH_BATCH_BYTES, MESH_BATCH_COMMANDS
from snavio.rpc.certificate_gate import CertificateGate
from snavio.rpc.server import Call
from snavio.v1.batch_pb2 import Batch, Hello, Limits, Verdicts

WIRE_VERSIONS = frozenset({1})
HELLO_SECONDS = 10.0
FINISH_SECONDS = 10.0
# For a peer to end its half after our notice that we are going away; one that does not know the notice never does.
GOING_AWAY_SECONDS = 2.0
_GOING_AWAY = Verdicts(hello=Hello(going_away=True)).SerializeToString()
_STILL_THERE = Verdicts(hello=Hello(still_there=True)).SerializeToString()


class BatchStream:
    """One stream of one peer. `reply` may be called from anywhere on the loop."""

    def __init__(self, call: Call, *, gate: CertificateGate, window: int = 16) -> None:
        self._call = call
        self._gate = gate
        self._window = window
        self._open = 0
        self._turn = asyncio.Event()
        # Answers, and whether each is the last about its batch.
        self._replies: WriteQueue[tuple[bytes, bool]] = WriteQueue()
        self._writer: asyncio.Task[None] | None = None
        self._cutting: asyncio.TimerHandle | None = None
        # Set when something is read; `still_there` waits for it.
        self._sign: asyncio.Event | None = None
        self._displaced: SnavioError | None = None
        self.name: HeldName | None = None

    async def greet(
        self,
        answer: Hello,
        *,
        require: Callable[[], object] = lambda: None,
        names: InstanceNames | None = None,
    ) -> Hello:
        """Exchange Hellos; BadRequest when the peer speaks another version or no Hello at all.

        An exception of `require` ends the stream in place of the answer. With `names` the peer must give its instance
        and epoch, and holds that name until `finish`; Conflict while another living process does.
        """
        async with asyncio.timeout(HELLO_SECONDS):
            frame = await self._call.read()
        if frame is None:
            raise BadRequest("The stream ended before its Hello.", reason="no-hello")
        hello = read_hello(frame)
        require()
        if names is not None:
            # The identity is in the name, so that no service can take another's place.
            self.name = await names.enter(self._call.peer.identity.name, hello, self)
        await self._call.write(Verdicts(hello=answer).SerializeToString())
        self._writer = asyncio.create_task(self._write())
        self._writer.add_done_callback(self._written_off)
        self._call.farewell = self._say_goodbye
        if self._call.draining.is_set():
            self._say_goodbye()
        return hello

    async def batches(
        self,
        *,
        room: Callable[[], Awaitable[None]] | None = None,
        refusal: Callable[[bytes, Verdict], bytes] | None = None,
    ) -> AsyncIterator[bytes]:
        """Frames, one at a time, while there is a place in the window.

        `room` is awaited before each read: a process that is full must not hold batches that it cannot pass on.

        The peer's certificate is checked again for every one of them: gRPC goes on serving a connection
        whose certificate has expired or was revoked since the handshake. The stream then ends; or, with
        `refusal`, each such frame is answered with its result, so that the sender knows that it was not
        delivered, and why.

        Unavailable when the peer does not take its answers any more.
        """
        writer = self._writer
        assert writer is not None
        while True:
            while self._open >= self._window and not writer.done():
                self._turn.clear()
                await self._turn.wait()
            if room is not None:
                await room()
            frame = await self._call.read(gated=False)
            if frame is None:
                if writer.done():
                    writer.result()
                if self._displaced is not None:
                    raise self._displaced
                return
            if self._sign is not None:
                self._sign.set()
                if not frame:
                    continue
            fault = self._gate.check(self._call.peer)
            if fault is not Verdict.UNDECIDED:
                if refusal is not None:
                    # Written before the next is read: a peer that is refused gathers nothing here.
                    await self._call.write(refusal(frame, fault))
                    continue
                raise Unauthenticated("The peer's certificate is not valid any more.", reason=fault.reason)
            self._open += 1
            yield frame

    def reply(self, frame: bytes, final: bool) -> None:
        """Send an answer; the `final` one frees the batch's place once it is written. An empty frame only does that."""
        if frame or final:
            self._replies.put((frame, final))

    async def still_there(self, *, within_s: float) -> bool:
        """True if the peer gives a sign of life, or cannot because nothing is read of it; see InstanceNames."""
        if self._sign is None:
            # Kept for good: an answer that comes late is no batch either.
            self._sign = asyncio.Event()
        self._sign.clear()
        self._replies.put((_STILL_THERE, False))
        try:
            async with asyncio.timeout(within_s):
                await self._sign.wait()
        except TimeoutError:
            return self._open >= self._window
        return True

    def displace(self, error: SnavioError) -> None:
        """Read nothing more, and end with `error` once every batch that was read is answered."""
        self._displaced = error
        self._call.cut()

    async def finish(self) -> None:
        """Wait, within bounds, until everything read is answered and everything answered is written."""
        if self.name is not None:
            self.name.leave()
        writer = self._writer
        if writer is None:
            return
        try:
            async with asyncio.timeout(FINISH_SECONDS):
                while self._open > 0 and not writer.done():
                    self._turn.clear()
                    waiting = asyncio.ensure_future(self._turn.wait())
                    await asyncio.wait({waiting, writer}, return_when=asyncio.FIRST_COMPLETED)
                    waiting.cancel()
                if not writer.done():
                    written = asyncio.ensure_future(self._replies.emptied())
                    await asyncio.wait({written, writer}, return_when=asyncio.FIRST_COMPLETED)
                    written.cancel()
        except TimeoutError:
            pass
        finally:
            if self._cutting is not None:
                self._cutting.cancel()
            writer.cancel()
            # Its failure is not looked at: the stream has ended by it, or is about to end without it.
            await asyncio.wait({writer})

    async def _write(self) -> None:
        replies, write = self._replies.items, self._call.write
        while True:
            await self._replies.filled()
            while replies:
                frame, final = replies[0]
                if frame:
                    await write(frame)
                replies.popleft()
                if final:
                    # Not when it was queued: a peer that sends and does not read would fill our memory with answers.
                    self._open -= 1
                    self._turn.set()

    def _written_off(self, writer: asyncio.Task[None]) -> None:
        """Read no more of a peer that takes no answers any more."""
        # Cancelled, it was by `finish`. The exception is retrieved, so that a stream which ends for another reason does
        # not leave it to be logged as never retrieved.
        if not writer.cancelled() and writer.exception() is not None:
            self._turn.set()
            self._call.draining.set()
            self._call.cut()

    def _say_goodbye(self) -> None:
        self._replies.put((_GOING_AWAY, False))
        self._cutting = asyncio.get_running_loop().call_later(GOING_AWAY_SECONDS, self._call.cut)


def read_hello(frame: bytes) -> Hello:
    """The Hello that a stream opens with; BadRequest when it is none, or of a version we do not speak."""
    # Every streamed message keeps its Hello in field 1, so one parser serves them all.
    try:
        opening = Batch.FromString(frame)
    except DecodeError:
        raise BadRequest("The stream did not open with a Hello.", reason="no-hello") from None
    if not opening.HasField("hello"):
        raise BadRequest("The stream did not open with a Hello.", reason="no-hello")
    hello: Hello = opening.hello
    if hello.wire_version not in WIRE_VERSIONS:
        raise BadRequest(f"Wire version {hello.wire_version} is not spoken here.", reason="wire-version")
    return hello


def mesh_hello(clock: Clock, *, in_flight: int) -> Hello:
    """The Hello with which a service inside the mesh answers."""
    return Hello(
        wire_version=max(WIRE_VERSIONS),
        server_unix_ns=clock.unix_ns(),
        limits=Limits(
            max_batch_bytes=MESH_BATCH_BYTES,
            max_batch_commands=MESH_BATCH_COMMANDS,
            max_batches_in_flight=in_flight,
        ),
    )
