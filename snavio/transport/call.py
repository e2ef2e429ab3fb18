"""One call as its handler sees it: who calls, what is left of the time, and the messages of a stream.

Never hands a handler a message of a peer whose certificate has expired or was revoked meanwhile, unless
the handler says that it will answer for that itself.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import grpc

from snavio.domain.verdict import Verdict
from snavio.errors import Unavailable
from snavio.transport.gate import Gate
from snavio.transport.peer import Peer

# A peer that does not read its answers holds them in our memory; after this long, or at most twice as long,
# it loses the stream.
WRITE_LIMIT_S: Final = 15.0


class Call:
    """One call under way. Built by the server; valid until its handler returns."""

    def __init__(
        self,
        *,
        peer: Peer,
        context: Any,
        gate: Gate,
        draining: asyncio.Event,
        received_mono_ns: int,
        write_limit_s: float = WRITE_LIMIT_S,
    ) -> None:
        self.peer = peer
        # gRPC's own servicer context.
        self.context = context
        # Set when the server drains, and on a stream also when it has reached its maximum age.
        self.draining = draining
        # The monotonic clock when the call came in; budgets count from here.
        self.received_mono_ns = received_mono_ns
        self._gate = gate
        self._reading: asyncio.Timeout | None = None
        self._read_cancelled = False
        self._turn = asyncio.Lock()
        self._writing: asyncio.Timeout | None = None
        self._write_limit_s = write_limit_s
        self._watchdog: asyncio.TimerHandle | None = None
        self._stuck = False

    def remaining_s(self) -> float | None:
        """Seconds until the caller's deadline; None if it has set none."""
        remaining: float | None = self.context.time_remaining()
        return remaining

    def check(self) -> Verdict:
        """What the gate says of the peer at this moment; UNDECIDED when all is well."""
        return self._gate.check(self.peer)

    def drain(self) -> None:
        """Tell the handler to come to an end: sets `draining` and ends a read that is waiting."""
        if self.draining.is_set():
            return
        self.draining.set()
        if self._reading is not None:
            self._reading.reschedule(asyncio.get_running_loop().time())

    async def read(self, *, gated: bool = True) -> bytes | None:
        """The next message of a stream, or None when the peer has sent its last or the stream is to end.

        Once the stream drains, None. The handler then finishes what it has in flight and returns; the peer
        reads the end of the stream and asks again elsewhere for whatever got no answer.

        The peer's certificate is checked with every message, and Unauthenticated ends the call. A handler
        that refuses message by message passes `gated=False` and calls `check` itself.

        One reader at a time, and none after a read was cancelled: gRPC may have taken a message meanwhile.
        """
        if self.draining.is_set():
            return None
        if self._reading is not None or self._read_cancelled:
            raise RuntimeError("another read is waiting, or was cancelled")
        # Without a limit until `drain` sets one. A task per read to wait for either would cost as much as
        # everything else that Python does for a small batch.
        self._reading = asyncio.timeout(None)
        try:
            async with self._reading:
                message = await self.context.read()
        except TimeoutError:
            return None
        except asyncio.CancelledError:
            self._read_cancelled = True
            raise
        finally:
            self._reading = None
        if message is grpc.aio.EOF:
            return None
        if gated:
            self._gate.require(self.peer)
        assert isinstance(message, bytes)
        return message

    async def write(self, message: bytes) -> None:
        """Send one message of a stream; several tasks may. Unavailable when the peer is gone or stuck."""
        async with self._turn:
            if self._stuck:
                raise _stuck()
            if self._watchdog is None:
                self._watch(None)
            self._writing = asyncio.timeout(None)
            try:
                async with self._writing:
                    await self.context.write(message)
            except TimeoutError:
                self._stuck = True
                raise _stuck() from None
            except grpc.aio.AbortError:
                raise
            except grpc.aio.BaseError:
                raise Unavailable("The peer is gone.", reason="peer-gone") from None
            finally:
                self._writing = None

    def end(self) -> None:
        """Let go of timers; the server calls it when the handler has returned."""
        if self._watchdog is not None:
            self._watchdog.cancel()

    def _watch(self, waiting: asyncio.Timeout | None) -> None:
        """Look at the writes now and then, and end one that was `waiting` at the last look and still is.

        One timer for many writes: one each would cost more than the guard and the gate together.
        """
        loop = asyncio.get_running_loop()
        if waiting is not None and waiting is self._writing:
            waiting.reschedule(loop.time())
        else:
            self._watchdog = loop.call_later(self._write_limit_s, self._watch, self._writing)


def _stuck() -> Unavailable:
    return Unavailable("The peer does not read its answers.", reason="peer-stuck")
