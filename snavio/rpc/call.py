"""One call as its handler sees it: the peer, the time left, and the messages of a stream.

Never hands a handler a message of a peer whose certificate has expired or was revoked meanwhile, unless the handler
takes on that check itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import cached_property
from typing import Any, Final

import grpc

from snavio.domain.verdict import Verdict
from snavio.errors import Unavailable
from snavio.rpc.body import too_large
from snavio.rpc.capability import CAPABILITY_KEY
from snavio.rpc.certificate_gate import CertificateGate
from snavio.rpc.limits import PUBLIC_FRAME_BYTES
from snavio.rpc.peer import Peer

# Answers that a peer does not read are kept in memory; after this time, or at most twice as long, its stream is ended.
WRITE_LIMIT_S: Final = 15.0


class Call:
    """A running call. Built by the server; valid until its handler returns."""

    def __init__(
        self,
        *,
        peer: Peer,
        context: Any,
        gate: CertificateGate,
        draining: asyncio.Event,
        received_mono_ns: int,
        write_limit_s: float = WRITE_LIMIT_S,
        max_bytes: int = PUBLIC_FRAME_BYTES,
    ) -> None:
        self.peer = peer
        # gRPC's own servicer context.
        self.context = context
        # Set when the server drains, and on a stream also when it has reached its maximum age.
        self.draining = draining
        # The monotonic clock when the call came in; budgets count from here.
        self.received_mono_ns = received_mono_ns
        self.farewell: Callable[[], None] | None = None
        """Called once when the stream is to end, for a handler that lets its peer finish first; it then calls `cut`."""
        # Bound on one message of this caller.
        self.max_bytes = max_bytes
        # Messages read so far.
        self.reads = 0
        self._gate = gate
        self._read_over = False
        self._reader: asyncio.Task[object] | None = None
        self._cut_short = False
        self._read_cancelled = False
        self._turn = asyncio.Lock()
        self._writer: asyncio.Task[object] | None = None
        self._writes = 0
        self._given_up: asyncio.Task[object] | None = None
        self._write_limit_s = write_limit_s
        self._watchdog: asyncio.TimerHandle | None = None
        self._stuck = False
        self.unsent = False
        """A write was given up that gRPC cannot take back: no status is sent before the peer has read it."""

    @cached_property
    def capability(self) -> str | None:
        """The capability that the caller presents, unverified; None without one, empty when there are several.

        Read once: a stream presents it when it opens.
        """
        found = [value for key, value in self.context.invocation_metadata() or () if key == CAPABILITY_KEY]
        if not found:
            return None
        return found[0] if len(found) == 1 and isinstance(found[0], str) else ""

    def remaining_s(self) -> float | None:
        """Seconds until the caller's deadline; None without one."""
        remaining: float | None = self.context.time_remaining()
        return remaining

    def check(self) -> Verdict:
        """The certificate gate's verdict on the peer now; UNDECIDED when nothing is wrong."""
        return self._gate.check(self.peer)

    @property
    def reading(self) -> bool:
        """True while the handler waits for a message."""
        return self._reader is not None

    def drain(self) -> None:
        """Ask the handler to finish: sets `draining`, and reads nothing more unless it has a `farewell`."""
        if self.draining.is_set():
            return
        self.draining.set()
        if self.farewell is None:
            self.cut()
        else:
            self.farewell()

    def cut(self) -> None:
        """Read nothing more: a waiting read ends, and so do all that follow."""
        self._read_over = True
        if self._reader is not None:
            self._cut_short = True
            self._reader.cancel()

    async def read(self, *, gated: bool = True) -> bytes | None:
        """The next message of a stream, or None when the peer has sent its last or the stream is to end.

        After None the handler finishes what it has in flight and returns; the peer reads the end of the stream and
        sends again elsewhere whatever got no answer.

        The peer's certificate is checked with every message, and Unauthenticated ends the call. A handler that refuses
        message by message passes `gated=False` and calls `check` itself.

        One reader at a time, and none after a read was cancelled: gRPC may have taken a message meanwhile.
        """
        if self._read_over:
            return None
        if self._reader is not None or self._read_cancelled:
            raise RuntimeError("another read is waiting, or was cancelled")
        # Cancelled by `drain`, as asyncio.timeout would: a timeout per read, or a task to wait for either, costs as
        # much as everything else that Python does for a small batch.
        self._reader = reader = asyncio.current_task()
        assert reader is not None
        cancels = reader.cancelling()
        try:
            message = await self.context.read()
        except asyncio.CancelledError:
            if self._cut_short and reader.uncancel() <= cancels:
                return None
            self._read_cancelled = True
            raise
        except grpc.aio.InternalError:
            # gRPC raises this for a message that is larger than it accepts; it reads no more of this stream.
            raise too_large(self.max_bytes) from None
        finally:
            self._reader = None
        self.reads += 1
        if message is grpc.aio.EOF:
            return None
        if gated:
            self._gate.require(self.peer)
        assert isinstance(message, bytes)
        if len(message) > self.max_bytes:
            raise too_large(self.max_bytes)
        return message

    async def write(self, message: bytes) -> None:
        """Send one message of a stream; several tasks may. Unavailable when the peer is gone or stuck."""
        await self._turn.acquire()
        try:
            if self._stuck:
                raise _stuck()
            if self._watchdog is None:
                self._watch(0)
            self._writer = writer = asyncio.current_task()
            assert writer is not None
            self._writes += 1
            cancels = writer.cancelling()
            try:
                await self.context.write(message)
            except asyncio.CancelledError:
                self.unsent = True
                if self._given_up is writer and writer.uncancel() <= cancels:
                    self._stuck = True
                    raise _stuck() from None
                raise
            except grpc.aio.AbortError:
                raise
            except grpc.aio.BaseError:
                raise Unavailable("The peer is gone.", reason="peer-gone") from None
            finally:
                self._writer = None
        finally:
            self._turn.release()

    def end(self) -> None:
        """Cancel timers; the server calls it when the handler has returned."""
        if self._watchdog is not None:
            self._watchdog.cancel()

    def _watch(self, seen: int) -> None:
        """Check writes periodically, and end one that was `seen` in progress at the last check and still is.

        One timer for many writes: one each would cost more than interceptor and gate together.
        """
        loop = asyncio.get_running_loop()
        if self._writer is not None and seen == self._writes:
            self._given_up = self._writer
            self._writer.cancel()
        else:
            joint_writes = self._writes if self._writer is not None else 0
            self._watchdog = loop.call_later(self._write_limit_s, self._watch, joint_writes)


def _stuck() -> Unavailable:
    return Unavailable("The peer does not read its answers.", reason="peer-stuck")
