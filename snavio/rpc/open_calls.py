"""The open calls of a server, checked once a second: revoked callers lose them, silent streams end.

Never ends a call for an action of the last second: a batch in transit is refused by its own answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol

from snavio.clock import Clock
from snavio.domain.identity import IdentityKind
from snavio.domain.verdict import Verdict
from snavio.errors import SnavioError, Unavailable
from snavio.host.background import background
from snavio.rpc.certificate_gate import CertificateGate
from snavio.rpc.limits import SWEEP_S
from snavio.rpc.peer import Peer
from snavio.rpc.status import DEADLINE_EXCEEDED

_NOT_ANY_MORE: Final = frozenset({Verdict.CERTIFICATE_EXPIRED, Verdict.CERTIFICATE_REVOKED})


class Stream(Protocol):
    """The view of a stream that the checks need."""

    @property
    def reads(self) -> int:
        """Number of messages read so far."""
        ...

    @property
    def reading(self) -> bool:
        """True while the handler waits for one more."""
        ...

    def drain(self) -> None:
        """Ask it to finish."""
        ...


class OpenCall:
    """One call from its headers to its end."""

    __slots__ = (
        "answered",
        "awaits_body",
        "doomed",
        "error",
        "idle_s",
        "peer",
        "seen_reads",
        "since_ns",
        "stream",
        "task",
    )

    def __init__(self, peer: Peer, task: asyncio.Task[Any], since_ns: int) -> None:
        self.peer = peer
        self.error: SnavioError | None = None
        """The error with which it was cut off, if it was."""
        self.stream: Stream | None = None
        self.idle_s: float | None = None
        self.doomed = False
        self.answered = False
        """True once its handler has returned."""
        self.awaits_body = False
        """True until its request has arrived."""
        self.seen_reads = 0
        self.since_ns = since_ns
        self.task = task

    def cut(self, error: SnavioError) -> None:
        """End it with `error`, wherever its handler is."""
        if self.error is None:
            self.error = error
            self.task.cancel()

    def was_cut(self) -> bool:
        """True if the cancellation that just arrived came from `cut`; call once, where it was caught."""
        return self.error is not None and self.task.uncancel() == 0

    def handled(self) -> None:
        """Its handler has returned; the answer is still to be sent, and may never be read."""
        self.stream = None
        self.awaits_body = False
        self.answered = True

    def when_over(self, do: Callable[[], object]) -> None:
        """Call `done` when the answer is sent, or the caller is gone."""
        self.task.add_done_callback(lambda _task: do())


class OpenCalls:
    """Bounded by the shares of calls and streams. Costs nothing while nothing is open."""

    def __init__(
        self,
        *,
        gate: CertificateGate,
        clock: Clock,
        first_read_s: float,
        idle_stream_s: float,
    ) -> None:
        self._gate = gate
        self._clock = clock
        self._first_read_ns = round(first_read_s * 1e9)
        self._idle_stream_s = idle_stream_s
        self._calls: set[OpenCall] = set()
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, peer: Peer, give_back: Callable[[], object]) -> OpenCall:
        """The call of the current task. `give_back` is called when its answer is sent, or cannot be.

        Not when its handler returns: a caller that does not read its answers would hold them in memory beyond any
        share.
        """
        task = asyncio.current_task()
        assert task is not None
        opened = OpenCall(peer, task, self._clock.mono_ns())
        self._calls.add(opened)

        def over(_task: object) -> None:
            self._calls.discard(opened)
            give_back()

        task.add_done_callback(over)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(SWEEP_S, self._due)
        return opened

    def watch(self, opened: OpenCall, stream: Stream, *, idle_s: float | None = None) -> None:
        """End `stream` when it is silent for `idle_s`; the default time if not given."""
        opened.stream = stream
        opened.idle_s = idle_s or self._idle_stream_s

    def close(self) -> None:
        """Stop checking."""
        if self._timer is not None:
            self._timer.cancel()

    def __iter__(self) -> Iterator[OpenCall]:
        return iter(tuple(self._calls))

    def tasks(self) -> set[asyncio.Task[Any]]:
        """Tasks of the calls; each ends after gRPC has sent the status, which follows the handler's return."""
        return {opened.task for opened in self._calls}

    def _due(self) -> None:
        try:
            self.sweep()
        except Exception as error:
            background().failed("open calls", error)
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(SWEEP_S, self._due) if self._calls else None

    def sweep(self) -> None:
        """Check every call once."""
        now = self._clock.mono_ns()
        for opened in self:
            if self._gate.judge(opened.peer) in _NOT_ANY_MORE:
                if opened.doomed:
                    opened.cut(self._gate.refusal(opened.peer))
                opened.doomed = True
            elif opened.stream is not None:
                self._look(opened, opened.stream, now)
            elif opened.awaits_body and now - opened.since_ns >= self._first_read_ns:
                opened.cut(Unavailable("The request did not come in time.", reason=DEADLINE_EXCEEDED))

    def _look(self, opened: OpenCall, stream: Stream, now: int) -> None:
        if stream.reads != opened.seen_reads or not stream.reading:
            opened.seen_reads = stream.reads
            opened.since_ns = now
        elif not stream.reads:
            if now - opened.since_ns >= self._first_read_ns:
                opened.cut(Unavailable("Nothing came on this stream for too long.", reason=DEADLINE_EXCEEDED))
        # Services of the mesh keep idle streams open.
        elif opened.peer.identity.kind is not IdentityKind.MESH:
            assert opened.idle_s is not None
            if now - opened.since_ns >= opened.idle_s * 1e9:
                stream.drain()
