"""One tenant's stream as this gateway follows it: read once from Relay, verified once, shared by its readers.

Never hands out an envelope that was not verified. A reader that is behind what is kept here reads from Relay itself
until it has caught up.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

import grpc

from services.gateway.callers import StreamScope
from snavio.errors import Conflict, SnavioError, Unavailable
from snavio.host.background import background
from snavio.host.shares import Shares
from snavio.rpc.channel import MeshChannel
from snavio.rpc.status import error_of
from snavio.signed.stream_chain import ChainEnd, StreamChain, VerifiedEnvelope
from snavio.tasks import ended
from snavio.telemetry.stream_failures import failures_in
from snavio.v1.relay_pb2 import ReadStreamRequest, StreamPage

METHOD: Final = "/snavio.v1.Relay/ReadStream"
SILENCE_SECONDS: Final = 40.0
"""Relay sends an empty page at least every fifteen seconds."""
AT_A_TIME: Final = 32
FIRST_PAUSE_S: Final = 0.1
LONGEST_PAUSE_S: Final = 2.0

MakeChain = Callable[[str, ChainEnd | None, bool], StreamChain]
Frame = Callable[[int, bytes], bytes]


@dataclass(frozen=True, slots=True)
class Served:
    """A verified envelope in the bytes of an event stream, the same for every reader."""

    seq: int
    source: str
    family: str
    frame: bytes = field(repr=False)
    failures: bool = False
    """An event of it is a refusal or a failure."""

    def matches(self, scope: StreamScope) -> bool:
        """True if it is part of what a reader may read and wants."""
        return (
            (not scope.sources or self.source in scope.sources)
            and (not scope.families or self.family in scope.families)
            and (not scope.failures or self.failures)
        )


class TenantFeed:
    """Follows one tenant while it has readers."""

    def __init__(
        self, tenant: str, *, relay: MeshChannel, chain: MakeChain, frame: Frame, kept: Shares, after: int
    ) -> None:
        self._tenant = tenant
        self._relay = relay
        self._make_chain = chain
        self._frame = frame
        self._kept = kept
        self._tail: deque[Served] = deque()
        self._low = after
        """Number before the oldest envelope of the tail."""
        self._high = after
        self._news: asyncio.Future[None] | None = None
        self._failure: SnavioError | None = None
        self._task: asyncio.Task[None] | None = None
        self.readers = 0

    @property
    def high(self) -> int:
        """Number of the newest envelope that was verified."""
        return self._high

    @property
    def failed(self) -> bool:
        """True once it cannot go on; its readers begin again with another."""
        return self._failure is not None

    def start(self) -> None:
        """Follow from now on."""
        self._task = background().once(f"stream of {self._tenant}", self._follow())

    async def stop(self) -> None:
        """Follow no more and forget the tail."""
        await ended(self._task)
        self._forget()
        self._tell()

    async def read(
        self, after: int, scope: StreamScope, *, over: asyncio.Future[None]
    ) -> AsyncGenerator[Served, None]:
        """Envelopes after a number, as they come, until `over` is done; raises what ended the feed."""
        while not over.done():
            if after < self._low:
                async with aclosing(self._catch_up(after, scope)) as missed:
                    async for through, served in missed:
                        after = through
                        if served is not None:
                            yield served
                continue
            # Numbers of a tail are consecutive. A few at a time: what a slow reader holds is not counted here.
            first = after - self._low
            for served in list(islice(self._tail, first, first + AT_A_TIME)):
                after = served.seq
                if served.matches(scope):
                    yield served
            if after < self._high:
                continue
            if self._failure is not None:
                raise self._failure
            await self._newer(over)

    async def _newer(self, over: asyncio.Future[None]) -> None:
        if self._news is None:
            self._news = asyncio.get_running_loop().create_future()
        await asyncio.wait({self._news, over}, return_when=asyncio.FIRST_COMPLETED)

    def _tell(self) -> None:
        news, self._news = self._news, None
        if news is not None and not news.done():
            news.set_result(None)

    async def _follow(self) -> None:
        chain = self._make_chain(self._tenant, None, False)
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                async with aclosing(self._pages(self._high, StreamScope())) as pages:
                    async for page in pages:
                        pause_s = FIRST_PAUSE_S
                        for found in page.envelope:
                            self._keep(self._served(await chain.verify(found.body)))
                        self._tell()
            except Unavailable:
                await asyncio.sleep(pause_s)
                pause_s = min(LONGEST_PAUSE_S, pause_s * 2)
            except SnavioError as error:
                # The place is gone, or what came cannot be believed: readers begin again where they stopped.
                self._failure = error
                # Its successor needs the room; readers that are behind read the rest from Relay.
                self._forget()
                self._tell()
                return

    async def _catch_up(
        self, after: int, scope: StreamScope
    ) -> AsyncGenerator[tuple[int, Served | None], None]:
        """Envelopes of Relay after a number, up to the tail, each with the number that was looked at."""
        filtered = bool(scope.sources or scope.families)
        chain = self._make_chain(self._tenant, ChainEnd(after), filtered)
        async with aclosing(self._pages(after, scope)) as pages:
            async for page in pages:
                for found in page.envelope:
                    served = self._served(await chain.verify(found.body))
                    # Relay's word for what it filtered is not taken for what a capability permits.
                    yield served.seq, served if served.matches(scope) else None
                yield page.through, None
                if page.through >= self._low:
                    return

    async def _pages(self, after: int, scope: StreamScope) -> AsyncGenerator[StreamPage, None]:
        stream = self._relay.stream(METHOD)
        try:
            request = ReadStreamRequest(
                tenant=self._tenant,
                after=after,
                source=sorted(scope.sources),
                family=sorted(scope.families),
            )
            await stream.write(request.SerializeToString())
            await stream.done_writing()
            while True:
                async with asyncio.timeout(SILENCE_SECONDS):
                    message = await stream.read()
                if message is grpc.aio.EOF:
                    # The status tells a place that is gone from a Relay that ends.
                    if await stream.code() is not grpc.StatusCode.OK:
                        raise await _failure_of(stream)
                    raise Unavailable("Relay has ended the stream.", reason="stream-ended")
                yield StreamPage.FromString(message)
        except grpc.aio.AioRpcError as error:
            raise error_of(error, peer="Relay", address=self._relay.address) from None
        except TimeoutError:
            raise Unavailable("Relay is silent.", reason="deadline-exceeded") from None
        finally:
            stream.cancel()

    def _served(self, verified: VerifiedEnvelope) -> Served:
        envelope = verified.envelope
        frame = self._frame(envelope.seq, verified.body)
        source = str(envelope.payload["source"])
        return Served(envelope.seq, source, envelope.family, frame, failures_in(verified.body) > 0)

    def _keep(self, served: Served) -> None:
        if served.seq != self._high + 1:
            raise Conflict("The stream has begun a new epoch.", reason="new-epoch")
        size = len(served.frame)
        while self._tail and not self._kept.room(self._tenant, size):
            self._drop_oldest()
        if self._kept.room(self._tenant, size):
            self._kept.take(self._tenant, size)
            self._tail.append(served)
        else:
            self._low = served.seq
        self._high = served.seq

    def _forget(self) -> None:
        while self._tail:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        oldest = self._tail.popleft()
        self._kept.give_back(self._tenant, len(oldest.frame))
        self._low = oldest.seq


async def _failure_of(stream: Any) -> SnavioError:
    """The error of a stream that ended without raising one."""
    code = await stream.code()
    details = await stream.details()
    metadata = await stream.trailing_metadata()
    return error_of(grpc.aio.AioRpcError(code, grpc.aio.Metadata(), metadata, details), peer="Relay")
