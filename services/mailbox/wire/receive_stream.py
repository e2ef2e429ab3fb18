"""Hands out messages on a stream, as they become ready and as long as the consumer gives credit.

Never leases what nobody asked for, and never keeps a lease on what did not leave the mailbox. Who is revoked in
mid-stream gets nothing more.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import count
from typing import Any, Protocol

from google.protobuf.message import DecodeError

from services.mailbox.access.quotas import QuotaTake as Quota
from services.mailbox.delivery.receiving import LeasedResponse, Receiving, Wanted
from services.mailbox.delivery.standstill import Standstill
from snavio.domain.chunks import in_chunks
from snavio.errors import BadRequest, Saturated
from snavio.rpc.call import Call
from snavio.rpc.methods import read_strictly
from snavio.v1.mailbox_pb2 import RecvStreamRequest

MAX_CREDIT = 20_000
CHUNK_BYTES = (16 << 10, 1 << 20)
"""Least and most of what a consumer may ask for."""
LOOK_SECONDS = 5.0
"""Duration of one look for messages; after it, the consumer's right is checked again."""


class Opening(Protocol):
    """The servicer's reading of a consumer's first request."""

    def __call__(self, asked: Any, call: Call) -> Wanted:
        """The request, checked; raises what is to be said against it."""
        ...


class QuotaOf(Protocol):
    """Quota of a consumer's capability."""

    def __call__(self, call: Call, topic: str, messages: int) -> Quota:
        """Saturated if none."""
        ...


class Credit:
    """Number of messages that a consumer still wants. Lives on one event loop."""

    def __init__(self) -> None:
        self.left = 0
        self.ended = False
        self._changed = asyncio.Event()

    def add(self, messages: int) -> None:
        """So many more. BadRequest beyond the bound: what is granted without limit is no credit."""
        if self.left + messages > MAX_CREDIT:
            raise BadRequest(f"More than {MAX_CREDIT} messages of credit.", reason="credit")
        self.left += messages
        self._changed.set()

    def end(self) -> None:
        """The consumer wants no more."""
        self.ended = True
        self._changed.set()

    async def wait(self) -> bool:
        """Until there is some; False when there will be none."""
        while not self.left and not self.ended:
            self._changed.clear()
            await self._changed.wait()
        return not self.ended


class ReceiveStreams:
    """Serves `RecvStream`."""

    def __init__(self, *, receiving: Receiving, opening: Opening, quota: QuotaOf) -> None:
        self._receiving = receiving
        self._opening = opening
        self._quota = quota
        self._numbers = count()
        self.open = 0
        """Streams that stand now."""

    async def serve(self, call: Call) -> None:
        """One stream, to its end."""
        first = await call.read()
        if first is None:
            return
        asked = _read(first)
        if not asked.HasField("open"):
            raise BadRequest("The first request opens the stream.", reason="not-open")
        least, most = CHUNK_BYTES
        if asked.chunk_bytes and not least <= asked.chunk_bytes <= most:
            raise BadRequest(f"chunk_bytes must be {least} to {most}.", reason="chunk-bytes")
        wanted = replace(self._opening(asked.open, call), caller=f"stream {next(self._numbers)}")
        credit = Credit()
        credit.add(asked.credit)
        self.open += 1
        handing = asyncio.create_task(
            self._hand_out(call, wanted, credit, asked.chunk_bytes), name="hand out"
        )
        listening = asyncio.create_task(_listen(call, credit), name="listen")
        try:
            await asyncio.wait({handing, listening}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.open -= 1
            credit.end()
            # Messages that were leased and not sent are given back by the task that leased them.
            for task in (handing, listening):
                task.cancel()
            await asyncio.wait({handing, listening})
        for task in (listening, handing):
            if not task.cancelled() and (error := task.exception()) is not None:
                raise error

    async def _hand_out(self, call: Call, wanted: Wanted, credit: Credit, chunk_bytes: int) -> None:
        told = Standstill.NONE
        while await credit.wait():
            try:
                quota = self._quota(call, wanted.topic, min(wanted.max_messages, credit.left))
                taken = await self._take(wanted, quota)
            except Saturated as full:
                # A ceiling or a quota is no reason to end a stream that waits for messages anyway.
                await asyncio.sleep(min(full.retry_after_ms / 1000, LOOK_SECONDS))
                continue
            if taken.leased:
                credit.left -= min(credit.left, taken.messages)
                await self._send(call, taken, chunk_bytes)
            elif self._receiving.stopping:
                return  # it would be answered "nothing" at once, again and again
            elif taken.standstill is not told:
                await call.write(taken.response)
            told = taken.standstill

    async def _take(self, wanted: Wanted, quota: Quota) -> LeasedResponse:
        moved = 0
        try:
            taken = await self._receiving.take(
                replace(wanted, max_messages=quota.messages, wait_s=LOOK_SECONDS)
            )
            moved = taken.messages
        finally:
            quota.give_back(quota.messages - moved)
        return taken

    async def _send(self, call: Call, taken: LeasedResponse, chunk_bytes: int) -> None:
        try:
            for frame in in_chunks(taken.response, chunk_bytes):
                await call.write(frame)
        except BaseException:
            self._receiving.give_back(taken)
            raise


async def _listen(call: Call, credit: Credit) -> None:
    while (message := await call.read()) is not None:
        asked = _read(message)
        if asked.HasField("open") or asked.chunk_bytes:
            raise BadRequest("The stream is open already.", reason="already-open")
        credit.add(asked.credit)


def _read(message: bytes) -> Any:
    try:
        return read_strictly(RecvStreamRequest, message)
    except DecodeError:
        raise BadRequest("The request cannot be read.", reason="malformed") from None
