"""One call as its handler sees it: who calls, what is left of the time, and the messages of a stream.

Never hands a handler a message of a peer whose certificate has expired or was revoked meanwhile, unless
the handler says that it will answer for that itself.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, Final

import grpc

from snavio.domain.verdict import Verdict
from snavio.errors import Unavailable
from snavio.transport.gate import Gate
from snavio.transport.peer import Peer

# A peer that does not read its answers holds them in our memory; after this long it loses the stream.
WRITE_LIMIT_S: Final = 30.0


class Call:
    """One call under way. Built by the server; valid until its handler returns."""

    def __init__(
        self, *, peer: Peer, context: Any, gate: Gate, draining: asyncio.Event, received_mono_ns: int
    ) -> None:
        self.peer = peer
        # gRPC's own servicer context.
        self.context = context
        # Set when the server drains, and on a stream also when it has reached its maximum age.
        self.draining = draining
        # The monotonic clock when the call came in; budgets count from here.
        self.received_mono_ns = received_mono_ns
        self._gate = gate
        self._reading: asyncio.Task[Any] | None = None
        self._drained: asyncio.Task[Any] | None = None
        self._writing = asyncio.Lock()

    def remaining_s(self) -> float | None:
        """Seconds until the caller's deadline; None if it has set none."""
        remaining: float | None = self.context.time_remaining()
        return remaining

    def check(self) -> Verdict:
        """What the gate says of the peer at this moment; UNDECIDED when all is well."""
        return self._gate.check(self.peer)

    async def read(self, *, gated: bool = True) -> bytes | None:
        """The next message of a stream, or None when the peer has sent its last or the stream is to end.

        Once `draining` is set, a message that has arrived is still returned, then None. The handler then
        finishes what it has in flight and returns; the peer reads the end of the stream and asks again
        elsewhere for whatever got no answer.

        The peer's certificate is checked with every message, and Unauthenticated ends the call. A handler
        that refuses message by message passes `gated=False` and calls `check` itself.

        A read that is cancelled loses nothing: the next one continues it. One reader at a time.
        """
        if self._reading is None:
            if self.draining.is_set():
                return None
            self._reading = asyncio.create_task(self.context.read(), name="read")
        if not self._reading.done():
            if self._drained is None:
                self._drained = asyncio.create_task(self.draining.wait(), name="draining")
            await asyncio.wait((self._reading, self._drained), return_when=asyncio.FIRST_COMPLETED)
            if not self._reading.done():
                return None
        reading, self._reading = self._reading, None
        message = reading.result()
        if message is grpc.aio.EOF:
            return None
        if gated:
            self._gate.require(self.peer)
        assert isinstance(message, bytes)
        return message

    async def write(self, message: bytes) -> None:
        """Send one message of a stream; several tasks may. Unavailable when the peer is gone or stuck."""
        try:
            async with asyncio.timeout(WRITE_LIMIT_S), self._writing:
                await self.context.write(message)
        except TimeoutError:
            raise Unavailable("The peer does not read its answers.", reason="peer-stuck") from None
        except grpc.aio.AbortError:
            raise
        except grpc.aio.BaseError:
            raise Unavailable("The peer is gone.", reason="peer-gone") from None

    async def release(self) -> None:
        """End what `read` has left waiting; the server calls it when the handler has returned."""
        waiting = [task for task in (self._reading, self._drained) if task is not None]
        self._reading = self._drained = None
        for task in waiting:
            task.cancel()
        for task in waiting:
            with suppress(asyncio.CancelledError, grpc.aio.BaseError):
                await task
