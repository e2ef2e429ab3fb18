"""The connection under a link: greets, carries frames both ways, and is made anew whenever it ends.

Never decides what happens to a batch whose connection broke: it tells the link, and calls again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Protocol

import grpc
import structlog
from google.protobuf.message import DecodeError

from snavio.errors import Unavailable
from snavio.host.background import background
from snavio.native import Reply, read_verdicts
from snavio.transport.channel import MeshChannel
from snavio.transport.outbox import Outbox
from snavio.transport.shipment import Shipment
from snavio.v1.batch_pb2 import Hello, Verdicts

HELLO_SECONDS = 5.0
AGE_CHECK_SECONDS = 0.5
RECONNECT_SECONDS = 0.02
# After something that should not have happened: it may well happen again, and each time it is logged.
FAULT_SECONDS = 1.0
# For a peer to end its half after we have ended ours. Nothing is in flight then, so nothing is lost with it.
END_SECONDS = 1.0
# A peer that stops reading holds what waits to be written to it in our memory; it loses the stream after this long, or
# at most AGE_CHECK_SECONDS later.
WRITE_SECONDS = 15.0


class Traffic(Protocol):
    """What the link does about its connection."""

    def opened(self, outbox: Outbox[Shipment | None]) -> None:
        """The peer has greeted; what is put into `outbox` is written, and None ends our half."""

    def leaving(self, shipment: Shipment) -> bytes | None:
        """It is about to be written: its frame, or None when nobody waits for it any more."""

    def answered(self, reply: Reply) -> None:
        """The peer said something about a batch."""

    def rotate(self) -> None:
        """The stream is old, or its certificate: send nothing more on it, and end it with its last answer."""

    def broken(self) -> None:
        """The connection has ended."""


class Line:
    """One stream after another to one method of one peer."""

    def __init__(
        self,
        channel: MeshChannel,
        method: str,
        *,
        hello: bytes,
        max_age_s: float,
        on_hello: Callable[[Hello], None] | None,
    ) -> None:
        self._channel = channel
        self._method = method
        self._hello = hello
        self._max_age_s = max_age_s
        self._on_hello = on_hello
        self._log = structlog.get_logger().bind(peer=method)

    async def run(self, traffic: Traffic) -> None:
        """Connect, carry, and connect again; until cancelled, whatever happens meanwhile."""
        import stamina

        while True:
            call: grpc.aio.StreamStreamCall | None = None
            # On everything, and stamina logs what: a link without its runner takes in what it never sends, and files of
            # a certificate that cannot be read now may be readable in a second.
            retries = stamina.retry_context(
                on=Exception, attempts=None, timeout=None, wait_initial=0.05, wait_max=1.0, wait_jitter=0.1
            )
            async for attempt in retries:
                with attempt:
                    call = await self._connect()
            assert call is not None
            # A peer that greets and hangs up must not be called again in a tight loop.
            pause_s = RECONNECT_SECONDS
            try:
                await self._converse(call, traffic)
            except Exception as error:
                background().failed(f"link {self._method}", error)
                pause_s = FAULT_SECONDS
            finally:
                call.cancel()
                traffic.broken()
            await asyncio.sleep(pause_s)

    async def _connect(self) -> grpc.aio.StreamStreamCall:
        call = self._channel.stream(self._method)
        try:
            async with asyncio.timeout(HELLO_SECONDS):
                await call.write(self._hello)
                answer = await call.read()
            if answer is grpc.aio.EOF:
                raise Unavailable(f"{self._method} ended the stream before its Hello.")
            hello = Verdicts.FromString(answer).hello
            if self._on_hello is not None:
                self._on_hello(hello)
        except DecodeError:
            call.cancel()
            raise Unavailable(f"{self._method} greets with what is no Hello.") from None
        except (grpc.aio.AioRpcError, grpc.aio.UsageError, asyncio.InvalidStateError, TimeoutError) as error:
            call.cancel()
            code = type(error).__name__
            if isinstance(error, grpc.aio.AioRpcError):
                code = error.code().name
                await self._channel.heed(error)
            raise Unavailable(f"{self._method} cannot be reached: {code}.") from None
        except BaseException:
            call.cancel()
            raise
        return call

    async def _converse(self, call: grpc.aio.StreamStreamCall, traffic: Traffic) -> None:
        """Write and read until either side ends, then return."""
        outbox: Outbox[Shipment | None] = Outbox()
        traffic.opened(outbox)
        # No deadline while the peer may still have something to say; `_Writing` sets one when it has not.
        patience = asyncio.timeout(None)
        writing = _Writing(call, outbox, traffic, patience)
        chores = [
            background().once("link writer", writing.run()),
            background().once("link watch", self._watch(traffic, writing)),
        ]
        try:
            async with patience:
                while True:
                    frame = await call.read()
                    if frame is grpc.aio.EOF:
                        return
                    traffic.answered(read_verdicts(frame))
        except TimeoutError:
            self._log.info("link broken", code="STUCK")
        except grpc.aio.AioRpcError as error:
            self._log.info("link broken", code=error.code().name)
            await self._channel.heed(error)
        except ValueError:
            # A peer that sends what is not Verdicts must not end the link for good.
            self._log.warning("link broken", code="UNREADABLE")
        finally:
            for chore in chores:
                chore.cancel()
            await asyncio.gather(*chores, return_exceptions=True)

    async def _watch(self, traffic: Traffic, writing: _Writing) -> None:
        """Have an old stream replaced, and give up one that takes nothing any more."""
        try:
            generation = self._channel.generation()
            age_s, rotated = 0.0, False
            while True:
                if not rotated and (age_s >= self._max_age_s or self._channel.generation() != generation):
                    rotated = True
                    traffic.rotate()
                left_s = self._max_age_s - age_s
                pause_s = min(AGE_CHECK_SECONDS, left_s) if left_s > 0 else AGE_CHECK_SECONDS
                await asyncio.sleep(pause_s)
                age_s += pause_s
                writing.look(pause_s)
        except Exception as error:
            # A stream that nobody watches would grow old with its certificate.
            background().failed("link watch", error)
            writing.leave(within_s=0.0)


class _Writing:
    """Our half of one stream. `patience` bounds how long the other half is read."""

    def __init__(
        self,
        call: grpc.aio.StreamStreamCall,
        outbox: Outbox[Shipment | None],
        traffic: Traffic,
        patience: asyncio.Timeout,
    ) -> None:
        self._call = call
        self._outbox = outbox
        self._traffic = traffic
        self._patience = patience
        self._writes = 0
        self._under_way = False
        self._seen = 0
        self._stuck_s = 0.0

    async def run(self) -> None:
        """Write what is put into the outbox, until our half ends."""
        try:
            await self._write()
        except Exception as error:
            # Read on without its other half, the stream would take nothing and end never. What gRPC raises, whoever
            # reads hears of too, with the status.
            if not isinstance(error, grpc.aio.AioRpcError | grpc.aio.UsageError | asyncio.InvalidStateError):
                background().failed("link writer", error)
            self.leave(within_s=END_SECONDS)

    async def _write(self) -> None:
        shipments = self._outbox.items
        while True:
            await self._outbox.filled()
            while shipments:
                shipment = shipments.popleft()
                if shipment is None:
                    self.leave(within_s=END_SECONDS)
                    await self._call.done_writing()
                    return
                frame = self._traffic.leaving(shipment)
                if frame is not None:
                    self._writes += 1
                    self._under_way = True
                    await self._call.write(frame)
                    self._under_way = False

    def look(self, passed_s: float) -> None:
        """Count how long the same write has been under way; one timer for many writes."""
        stuck = self._under_way and self._seen == self._writes
        self._seen = self._writes
        self._stuck_s = self._stuck_s + passed_s if stuck else 0.0
        if self._stuck_s >= WRITE_SECONDS:
            self.leave(within_s=0.0)

    def leave(self, *, within_s: float) -> None:
        """Read the other half no longer than this; nothing to do where it is not read any more."""
        with contextlib.suppress(RuntimeError):
            self._patience.reschedule(asyncio.get_running_loop().time() + within_s)
