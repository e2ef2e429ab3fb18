"""One gRPC stream of a client, from the peer's Hello to its end: carries frames both ways and heeds the peer's notices.

Never decides what happens to a batch whose connection broke: its listener does.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Protocol

import grpc
import structlog
from google.protobuf.message import DecodeError

from snavio.hop.in_flight import BatchCarrier, InFlightBatch
from snavio.host.background import background
from snavio.native import Reply, read_verdicts
from snavio.rpc.channel import MeshChannel
from snavio.v1.batch_pb2 import Hello, Verdicts

AGE_CHECK_SECONDS = 0.5
# The longest wait before the next stream; each wait is a random part of it.
RECONNECT_SECONDS = 0.25
# After an unexpected error: it may well happen again, and each time it is logged.
FAULT_SECONDS = 1.0
# For a peer to end its half after we have ended ours. Nothing is in flight then, so nothing is lost with it.
END_SECONDS = 1.0
# A peer that stops reading holds what waits to be written to it in our memory; it loses the stream after this long, or
# at most AGE_CHECK_SECONDS later.
WRITE_SECONDS = 15.0


class StreamListener(Protocol):
    """The client's side of its streams."""

    def opened(self, client_stream: BatchCarrier) -> None:
        """Begin to send: the peer has greeted, and the stream's outbox is written."""

    def leaving(self, in_flight_batch: InFlightBatch) -> bytes | None:
        """The frame of a batch that is about to be written; None when no part waits for it any more."""

    def answered(self, reply: Reply) -> None:
        """Take an answer of the peer about a batch."""

    def retire(self, client_stream: BatchCarrier, *, at_once: bool) -> None:
        """Send nothing more on it: it is old, or its certificate; or, `at_once`, the peer is going away."""

    def broken(self, client_stream: BatchCarrier) -> None:
        """Take note that the stream has ended."""


class ClientStream(BatchCarrier):
    """One stream, from the peer's Hello to its end."""

    def __init__(
        self,
        call: grpc.aio.StreamStreamCall,
        channel: MeshChannel,
        traffic: StreamListener,
        *,
        log: structlog.typing.FilteringBoundLogger,
    ) -> None:
        super().__init__()
        self._call = call
        self._channel = channel
        self._traffic = traffic
        self._log = log
        self.over = asyncio.Event()
        """Set when nothing more is sent on it."""
        self.pause_s = RECONNECT_SECONDS
        """The longest wait before the next one is opened."""
        # No deadline while the peer may still answer.
        self._patience = asyncio.timeout(None)
        self._half_ended = False
        self._finished = False
        self._writes = 0
        self._writing = False
        self._seen = 0
        self._stuck_s = 0.0

    async def run(self, *, max_age_s: float) -> None:
        """Write and read until either side ends, then return."""
        try:
            self._traffic.opened(self)
            await self._converse(max_age_s)
        except Exception as error:
            background().failed("stream", error)
            self.pause_s = FAULT_SECONDS
        finally:
            self._call.cancel()
            self._traffic.broken(self)
            self.over.set()

    async def _converse(self, max_age_s: float) -> None:
        tasks = [
            background().once("stream writer", self._write()),
            background().once("stream watch", self._watch(max_age_s)),
        ]
        try:
            async with self._patience:
                while True:
                    frame = await self._call.read()
                    if frame is grpc.aio.EOF:
                        return
                    reply = read_verdicts(frame)
                    if reply.batch_seq:
                        self.silent = False
                        self._traffic.answered(reply)
                    else:
                        self._notice(Verdicts.FromString(frame).hello)
        except TimeoutError:
            if not self._finished:
                self._log.info("stream broken", code="STUCK")
        except grpc.aio.AioRpcError as error:
            self._log.info("stream broken", code=error.code().name)
            await self._channel.heed(error)
        except (ValueError, DecodeError):
            # A peer that sends what is not Verdicts must not end the client for good.
            self._log.warning("stream broken", code="UNREADABLE")
        finally:
            self._finished = True
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _notice(self, hello: Hello) -> None:
        if hello.still_there:
            self.outbox.put(None)
        if hello.going_away:
            self._retire(at_once=True)

    def _retire(self, *, at_once: bool) -> None:
        if not at_once:
            self.pause_s = 0.0
        self._traffic.retire(self, at_once=at_once)
        self.over.set()

    def end_half(self) -> None:
        """End our half, which tells the peer that nothing more will come; its answers are still read."""
        if not self._half_ended:
            self._half_ended = True
            self.outbox.put(None)

    def finish(self) -> None:
        """End in order after the last answer, and do not wait long for the peer to do so too."""
        if not self._finished:
            self._finished = True
            self.end_half()
            self._leave(within_s=END_SECONDS)

    async def _write(self) -> None:
        """Write the outbox, until our half ends."""
        try:
            await self._write_all()
        except Exception as error:
            # Read on without its other half, the stream would take nothing and end never. Errors of gRPC reach the
            # reading half too, with the status.
            if not isinstance(error, grpc.aio.AioRpcError | grpc.aio.UsageError | asyncio.InvalidStateError):
                background().failed("stream writer", error)
            self._leave(within_s=END_SECONDS)

    async def _write_all(self) -> None:
        in_flight_batches = self.outbox.items
        while True:
            await self.outbox.filled()
            while in_flight_batches:
                in_flight_batch = in_flight_batches.popleft()
                if in_flight_batch is None:
                    if self._half_ended:
                        await self._call.done_writing()
                        return
                    # Nothing but a sign that we are here.
                    frame: bytes | None = b""
                else:
                    frame = self._traffic.leaving(in_flight_batch)
                if frame is not None:
                    self._writes += 1
                    self._writing = True
                    await self._call.write(frame)
                    self._writing = False

    async def _watch(self, max_age_s: float) -> None:
        """Have an old stream replaced, and give up one that takes nothing any more."""
        try:
            generation = self._channel.generation()
            age_s = 0.0
            while True:
                if not self.over.is_set() and (
                    age_s >= max_age_s or self._channel.generation() != generation
                ):
                    self._retire(at_once=False)
                left_s = max_age_s - age_s
                pause_s = min(AGE_CHECK_SECONDS, left_s) if left_s > 0 else AGE_CHECK_SECONDS
                await asyncio.sleep(pause_s)
                age_s += pause_s
                self._look(pause_s)
        except Exception as error:
            # A stream without a watch would grow old with its certificate.
            background().failed("stream watch", error)
            self._leave(within_s=0.0)

    def _look(self, passed_s: float) -> None:
        """Measure how long the same write has been in progress; one timer for many writes."""
        stuck = self._writing and self._seen == self._writes
        self._seen = self._writes
        self._stuck_s = self._stuck_s + passed_s if stuck else 0.0
        if self._stuck_s >= WRITE_SECONDS:
            self._leave(within_s=0.0)

    def _leave(self, *, within_s: float) -> None:
        """Read the other half no longer than this; nothing to do where it is not read any more."""
        with contextlib.suppress(RuntimeError):
            self._patience.reschedule(asyncio.get_running_loop().time() + within_s)
