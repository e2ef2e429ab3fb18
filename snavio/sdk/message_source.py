"""Sources of a consumer's messages: calls that bring one response each, or a stream that brings them in chunks.

Never asks for more than there is room for, and never takes half a response for a whole one.
"""

from __future__ import annotations

import contextlib
from typing import Any, Protocol

import grpc

from snavio.domain.chunks import CHUNK_BYTES, Reassembly
from snavio.errors import SnavioError, Unauthenticated, Unavailable
from snavio.rpc.channel import MeshChannel
from snavio.rpc.status import error_of
from snavio.v1.mailbox_pb2 import ReceiveRequest, ReceiveResponse, RecvStreamRequest, Standstill

CALL = "/snavio.v1.Mailbox/Receive"
STREAM = "/snavio.v1.Mailbox/RecvStream"
MOST_PER_RECEIVE = 1000
MAX_RECEIVE_BYTES = 1 << 20
ANSWER_MARGIN_S = 5.0
NOTHING = b""


def standstill_of(response: bytes) -> str:
    """The reason that a response without messages gives, such as `leased`; empty when it gives none."""
    name: str = Standstill.Name(ReceiveResponse.FromString(response).standstill)
    reason = name.removeprefix("STANDSTILL_").lower().replace("_", "-")
    return "" if reason == "unspecified" else reason


class MessageSource(Protocol):
    """One consumer's way to its topic. Lives on one event loop."""

    async def receive(self, room: int) -> bytes:
        """A serialised ReceiveResponse with at most `room` messages, perhaps none."""
        ...

    def took(self, messages: int) -> None:
        """The last response had so many."""
        ...

    @property
    def awaited(self) -> int:
        """Messages that were asked for and may be on their way, whether or not `receive` is called."""
        ...

    async def end(self) -> None:
        """Nothing more is wanted: what is on its way still comes, and then nothing."""
        ...

    @property
    def ended(self) -> bool:
        """Nothing more comes."""
        ...


class ReceiveCalls:
    """A call for each response, of up to 1 MiB."""

    def __init__(self, topic: str, *, channel: MeshChannel, visibility_ms: int, wait_s: float) -> None:
        self._topic = topic
        self._channel = channel
        self._visibility_ms = visibility_ms
        self._wait_s = wait_s

    async def receive(self, room: int) -> bytes:
        request = ReceiveRequest(
            topic=self._topic,
            visibility_ms=self._visibility_ms,
            max_messages=min(room, MOST_PER_RECEIVE),
            max_bytes=MAX_RECEIVE_BYTES,
            wait_ms=round(self._wait_s * 1000),
            explain=True,
        ).SerializeToString()
        return await self._channel.call_raw(CALL, request, timeout_s=self._wait_s + ANSWER_MARGIN_S)

    def took(self, messages: int) -> None:
        pass

    @property
    def awaited(self) -> int:
        return 0

    async def end(self) -> None:
        pass

    @property
    def ended(self) -> bool:
        return False


class ReceiveStream:
    """A stream that is opened again whenever it ends; its credit is the room that the consumer has."""

    def __init__(
        self, topic: str, *, channel: MeshChannel, visibility_ms: int, chunk_bytes: int = CHUNK_BYTES
    ) -> None:
        self._channel = channel
        self._chunk_bytes = chunk_bytes
        self._opening = ReceiveRequest(
            topic=topic,
            visibility_ms=visibility_ms,
            max_messages=MOST_PER_RECEIVE,
            max_bytes=MAX_RECEIVE_BYTES,
            explain=True,
        )
        self._call: Any = None
        self._generation = 0
        self._credit = 0
        self._opened = self._closing = self._ended = False
        self._pieces = Reassembly()

    async def receive(self, room: int) -> bytes:
        try:
            return await self._receive(room)
        except grpc.aio.AioRpcError as broken:
            self._call = None
            if not await self._channel.heed(broken, strict=True):
                raise error_of(broken, peer="Mailbox", address=self._channel.address) from None
        # Another certificate or capability is there now: at once, as a call would do it.
        try:
            return await self._receive(room)
        except grpc.aio.AioRpcError as broken:
            self._call = None
            raise await self._heeded(broken) from None

    async def _receive(self, room: int) -> bytes:
        try:
            if self._call is None:
                if self._ended:
                    return NOTHING
                self._open()
            await self._grant(room)
            while (frame := await self._call.read()) is not grpc.aio.EOF:
                if (whole := self._pieces.take(frame)) is not None:
                    return whole
            code = await self._call.code()
            if code is not grpc.StatusCode.OK:
                raise Unavailable("The stream broke.", reason="stream-broken")
        except grpc.aio.UsageError:
            # It ended while credit was written; how it did is told by the next one.
            pass
        self._call = None
        return NOTHING

    def took(self, messages: int) -> None:
        # Not below nothing: a mailbox that sends more than its credit would be read on, and be granted that much more.
        self._credit = max(0, self._credit - messages)

    @property
    def awaited(self) -> int:
        return self._credit if self._call is not None else 0

    async def end(self) -> None:
        self._ended = True
        if self._call is not None and not self._closing:
            self._closing = True
            with contextlib.suppress(grpc.aio.BaseError, grpc.aio.UsageError):
                await self._call.done_writing()

    @property
    def ended(self) -> bool:
        """Nothing more comes."""
        return self._ended and self._call is None

    def _open(self) -> None:
        self._call = self._channel.stream(STREAM)
        self._generation = self._channel.generation()
        self._credit, self._opened, self._closing = 0, False, False
        self._pieces = Reassembly()

    async def _grant(self, room: int) -> None:
        if self._closing:
            return
        if self._ended or self._generation != self._channel.generation():
            # Another certificate or capability: messages already leased for this stream still arrive, then it ends.
            self._closing = True
            await self._call.done_writing()
            return
        more = max(0, room - self._credit)
        if not more and self._opened:
            return
        request = RecvStreamRequest(credit=more)
        if not self._opened:
            request.open.CopyFrom(self._opening)
            request.chunk_bytes = self._chunk_bytes
        self._opened = True
        self._credit += more
        await self._call.write(request.SerializeToString())

    async def _heeded(self, broken: grpc.aio.AioRpcError) -> SnavioError:
        error = error_of(broken, peer="Mailbox", address=self._channel.address)
        if isinstance(error, Unauthenticated) and await self._channel.heed(broken, strict=True):
            return Unavailable(str(error), reason=error.reason)
        return error
