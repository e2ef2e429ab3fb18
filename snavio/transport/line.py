"""The connection under a link: greets, carries frames both ways, and is made anew whenever it ends.

Never decides what happens to a batch whose connection broke: it tells the link, and calls again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

import grpc
import structlog

from snavio.errors import Unavailable
from snavio.native import Reply, read_verdicts
from snavio.transport.channel import MeshChannel
from snavio.transport.outbox import Outbox
from snavio.transport.shipment import Shipment
from snavio.v1.batch_pb2 import Hello, Verdicts

HELLO_SECONDS = 5.0
AGE_CHECK_SECONDS = 0.5
RECONNECT_SECONDS = 0.02


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
        """Connect, carry, and connect again; until cancelled."""
        import stamina

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
                await self._converse(call, traffic)
            finally:
                call.cancel()
                traffic.broken()
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
            code = type(error).__name__
            if isinstance(error, grpc.aio.AioRpcError):
                code = error.code().name
                await self._channel.heed(error)
            raise Unavailable(f"{self._method} cannot be reached: {code}.") from None
        if self._on_hello is not None:
            self._on_hello(hello)
        return call

    async def _converse(self, call: grpc.aio.StreamStreamCall, traffic: Traffic) -> None:
        """Write and read until either side ends, then return."""
        outbox: Outbox[Shipment | None] = Outbox()
        traffic.opened(outbox)
        writer = asyncio.create_task(_write(call, outbox, traffic))
        watching = asyncio.create_task(self._watch_age(traffic))
        try:
            while True:
                frame = await call.read()
                if frame is grpc.aio.EOF:
                    return
                traffic.answered(read_verdicts(frame))
        except grpc.aio.AioRpcError as error:
            self._log.info("link broken", code=error.code().name)
            await self._channel.heed(error)
        except ValueError:
            # A peer that sends what is not Verdicts must not end the link for good.
            self._log.warning("link broken", code="UNREADABLE")
        finally:
            watching.cancel()
            writer.cancel()
            await asyncio.gather(watching, writer, return_exceptions=True)

    async def _watch_age(self, traffic: Traffic) -> None:
        generation = self._channel.generation()
        age_s = 0.0
        while age_s < self._max_age_s and self._channel.generation() == generation:
            pause_s = min(AGE_CHECK_SECONDS, self._max_age_s - age_s)
            await asyncio.sleep(pause_s)
            age_s += pause_s
        traffic.rotate()


async def _write(call: grpc.aio.StreamStreamCall, outbox: Outbox[Shipment | None], traffic: Traffic) -> None:
    shipments = outbox.items
    while True:
        await outbox.filled()
        while shipments:
            shipment = shipments.popleft()
            if shipment is None:
                await call.done_writing()
                return
            frame = traffic.leaving(shipment)
            if frame is not None:
                await call.write(frame)
