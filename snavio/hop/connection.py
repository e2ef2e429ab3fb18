"""The gRPC streams of a client, one after another: greets, and connects anew whenever one ends or is to end.

Never waits for the last answers of one stream before it opens the next.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import grpc
import structlog
from google.protobuf.message import DecodeError

from snavio.errors import SnavioError, Unavailable
from snavio.hop.client_stream import ClientStream, StreamListener
from snavio.hop.instance_names import TAKEN
from snavio.host.background import background
from snavio.rpc.channel import MeshChannel
from snavio.rpc.status import error_of
from snavio.v1.batch_pb2 import Hello, Verdicts

HELLO_SECONDS = 5.0
# Every wait is a random part of one of these. Peers that lost the same server in the same moment must not come back in
# the same moment: each handshake costs the server more than a thousand commands.
FIRST_WAIT_SECONDS = 0.1
LONGEST_WAIT_SECONDS = 1.0
# Streams that wait for their last answers beside the one that is sent on.
MAX_RETIRED = 3
# Time for which a process under whose name another one runs tries again: the other may be about to end.
TAKEN_SECONDS = 10.0
# Between two log entries about a peer that cannot be reached.
COMPLAIN_SECONDS = 10.0


class StreamConnection:
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
        self._jitter = random.Random()  # noqa: S311 spreads load, hides nothing
        self._log = structlog.get_logger().bind(peer=method)
        self._complained_s = -COMPLAIN_SECONDS
        self.trouble: Exception | None = None
        """Cause of the last failed attempt to connect; None once one succeeded."""
        self._streams: set[asyncio.Task[None]] = set()

    async def run(self, traffic: StreamListener) -> None:
        """Connect, carry, and connect again; until cancelled, whatever happens meanwhile."""
        try:
            while True:
                client_stream = ClientStream(await self._connected(), self._channel, traffic, log=self._log)
                task = background().once(f"hop {self._method}", client_stream.run(max_age_s=self._max_age_s))
                self._streams.add(task)
                task.add_done_callback(self._streams.discard)
                # Its last answers come while the next one is sent on already.
                await client_stream.over.wait()
                while len(self._streams) > MAX_RETIRED:
                    await asyncio.wait(self._streams, return_when=asyncio.FIRST_COMPLETED)
                await asyncio.sleep(self._jitter.uniform(0.0, client_stream.pause_s))
        finally:
            for task in self._streams:
                task.cancel()
            await asyncio.gather(*self._streams, return_exceptions=True)

    async def _connected(self) -> grpc.aio.StreamStreamCall:
        """A stream whose peer has greeted, after as many attempts as it takes."""
        ceiling_s = FIRST_WAIT_SECONDS
        taken_s: float | None = None
        while True:
            try:
                call = await self._connect()
                self.trouble = None
                return call
            except Exception as error:
                self.trouble = error
                # On everything: a client without its runner takes in parts that it never sends, and files of a
                # certificate that cannot be read now may be readable in a second.
                self._complain(error)
                taken_s = self._taken(error, taken_s)
            await asyncio.sleep(self._jitter.uniform(0.0, ceiling_s))
            ceiling_s = min(2 * ceiling_s, LONGEST_WAIT_SECONDS)

    def _taken(self, error: Exception, since_s: float | None) -> float | None:
        """The time since which another process has our name, if it has; our process ends when that lasts."""
        if not isinstance(error, Unavailable) or error.reason != TAKEN:
            return None
        now_s = asyncio.get_running_loop().time()
        if since_s is not None and now_s - since_s >= TAKEN_SECONDS:
            background().lost(f"hop {self._method}", error)
        return now_s if since_s is None else since_s

    def _complain(self, error: Exception) -> None:
        if not isinstance(error, SnavioError):
            background().failed(f"hop {self._method}", error)
            return
        now_s = asyncio.get_running_loop().time()
        if now_s - self._complained_s >= COMPLAIN_SECONDS:
            self._complained_s = now_s
            report = self._log.error if getattr(error, "reason", "") == TAKEN else self._log.warning
            report("hop not connected", cause=str(error) or type(error).__name__)

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
            if not isinstance(error, grpc.aio.AioRpcError):
                raise Unavailable(f"{self._method} cannot be reached: {type(error).__name__}.") from None
            await self._channel.heed(error)
            cause = error_of(error, peer=self._channel.service.capitalize(), address=self._channel.address)
            became = "cannot be reached" if isinstance(cause, Unavailable) else "is refused"
            raise Unavailable(f"{self._method} {became}: {cause}", reason=cause.reason) from None
        except BaseException:
            call.cancel()
            raise
        return call
