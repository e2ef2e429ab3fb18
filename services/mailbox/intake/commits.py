"""Group commit: what waits goes to the store together, in one transaction and one fsync, on its own thread.

Never says "done" before the store did, and never holds more bytes than its bound: senders wait for room.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import structlog

from snavio.clock import Clock
from snavio.domain.verdict import Verdict
from snavio.errors import IntegrityError, Saturated, SnavioError, Unavailable
from snavio.host.background import background
from snavio.ports.mailbox_store import MailboxStore, Progress, Recognised, Send
from snavio.telemetry.latency import LatencyWindow

PROGRESS_BYTES = 512
CHECKPOINT_SECONDS = 0.02
IDLE_SECONDS = 1.0
CLOSE_SECONDS = 10.0
DEGRADED_NS = 5_000_000_000
"""Length of the degraded state; then sends are accepted again, because only a write shows that there is room."""
_NEW = bytes([Verdict.DELIVERED])


@dataclass(frozen=True, slots=True)
class Committed:
    """The ids of a send's batches, in order, when they were stored, and what of the send was new."""

    ids: tuple[int, ...]
    stored_unix_ns: int
    recognised: Recognised | None = None
    keyed_ids: tuple[int, ...] = ()
    """Of every batch with keys that was committed together with it, as `Recognised.findings` number them; 0 for one
    of which nothing was new."""
    stored_age_ns: int = 0
    """The store's age then."""
    with_progress: bool = True
    """The progress that came with the send is on disk, too; it is not when nothing of the send was new."""


MAX_GROUP_BYTES = 8 << 20

Outcome = Committed | SnavioError
Done = Callable[[Outcome], None]


@dataclass(frozen=True, slots=True)
class _Job:
    send: Send | None
    progress: Sequence[Progress]
    size: int
    done: Done | None


class Commits:
    """Lives on one event loop; `done` is called there, in the order of `submit`."""

    def __init__(
        self,
        store: MailboxStore,
        *,
        clock: Clock,
        max_waiting_bytes: int = 64 << 20,
        age_ns: Callable[[], int] = lambda: 0,
    ) -> None:
        self._age_ns = age_ns
        self._store = store
        self._clock = clock
        self._max_waiting_bytes = max_waiting_bytes
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._waiting_bytes = 0
        self._room = asyncio.Event()
        self._room.set()
        self._closed = False
        self.latency = LatencyWindow(clock=clock)
        """Of groups, from the store's begin to its fsync."""
        self._refused_mono_ns: int | None = None
        self._ended = threading.Event()
        self._stirred = threading.Event()
        self._threads: list[threading.Thread] = []
        self._log = structlog.get_logger()

    def start(self) -> None:
        """Begin committing; call on the event loop."""
        loop = asyncio.get_running_loop()
        self._threads = [
            background().thread("mailbox-commits", lambda: self._commit_all(loop)),
            background().thread("mailbox-checkpoints", self._checkpoint_all),
        ]

    async def close(self) -> None:
        """Commit what waits, then end the threads; the store is then free to be closed."""
        if self._closed:
            return
        self._closed = True
        self._jobs.put(None)
        await asyncio.gather(*(asyncio.to_thread(thread.join, CLOSE_SECONDS) for thread in self._threads))
        # Lets the last group's outcomes, which are already queued on the loop, be heard.
        await asyncio.sleep(0)

    async def room(self) -> None:
        """Wait until senders may hand in more. Not reading on is how a stream feels an overloaded disk."""
        while not self._room.is_set():
            await self._room.wait()

    @property
    def takes_sends(self) -> bool:
        """True unless the store has just refused a send. For readiness only: no send is refused because of it."""
        refused = self._refused_mono_ns
        return refused is None or self._clock.mono_ns() - refused > DEGRADED_NS

    def submit(
        self, *, send: Send | None = None, progress: Sequence[Progress] = (), done: Done | None = None
    ) -> None:
        """Commit this with what else waits. Unavailable when closed, Saturated when far too much waits.

        A send and the progress that comes with it are committed together, or neither; when nothing of the send is new,
        there is nothing to commit.
        """
        if self._closed:
            raise Unavailable("The mailbox is stopping.", reason="stopping")
        # Twice the bound: acknowledgements free space and must not be refused as soon as sends have to wait.
        if done is not None and self._waiting_bytes > 2 * self._max_waiting_bytes:
            raise Saturated("Too much waits for the disk.", retry_after_ms=250)
        size = PROGRESS_BYTES * (len(progress) + 1)
        if send is not None:
            size += sum(len(batch.runs) for batch in send.batches)
        self._waiting_bytes += size
        if self._waiting_bytes >= self._max_waiting_bytes:
            self._room.clear()
        self._jobs.put(_Job(send, progress, size, done))

    # -- on the committing thread ----------------------------------------------------------------------

    def _commit_all(self, loop: asyncio.AbstractEventLoop) -> None:
        open_ended = True
        while open_ended:
            job = self._jobs.get()
            group: list[_Job] = []
            size = 0
            while job is not None:
                group.append(job)
                size += job.size
                if size >= MAX_GROUP_BYTES:
                    break
                try:
                    job = self._jobs.get_nowait()
                except queue.Empty:
                    break
            open_ended = job is not None
            if group:
                began = self._clock.mono_ns()
                outcomes = self._outcomes(group)
                took = self._clock.mono_ns() - began
                self._stirred.set()
                try:
                    loop.call_soon_threadsafe(self._heard, group, outcomes, took)
                except RuntimeError:
                    open_ended = False  # the loop is gone, and with it every caller that waits
        self._ended.set()
        self._stirred.set()

    def _outcomes(self, group: list[_Job]) -> list[Outcome]:
        try:
            return self._commit(group)
        except Exception as error:
            # It may have been stored: every send in it is answered with an unknown outcome.
            background().failed("mailbox-commits", error)
            return [Unavailable("The commit failed unexpectedly.") for _ in group]

    def _commit(self, group: list[_Job]) -> list[Outcome]:
        sends = [job for job in group if job.send is not None]
        others = [job for job in group if job.send is None]
        try:
            return self._store_together(group, sends, others)
        except IntegrityError as error:
            self._log.error("commit met damaged rows", message=str(error), jobs=len(group))
            if len(group) > 1:
                # A damaged page costs the requests whose rows are in it, not those that were committed with them.
                return [self._commit([job])[0] for job in group]
            return [error]
        except SnavioError as error:
            self._log.error("commit failed", reason=error.reason, jobs=len(group))
            outcomes: dict[int, Outcome] = {id(job): error for job in group}
        if sends and others:
            # Acknowledgements make room; sends that do not fit must not keep them out.
            try:
                again = self._store_together(others, [], others)
                outcomes.update((id(job), outcome) for job, outcome in zip(others, again, strict=True))
            except SnavioError as error:
                self._log.error("commit failed again", reason=error.reason, jobs=len(others))
        return [outcomes[id(job)] for job in group]

    def _store_together(self, group: list[_Job], sends: list[_Job], others: list[_Job]) -> list[Outcome]:
        now, age_ns = self._clock.unix_ns(), self._age_ns()
        try:
            # Here and not when they arrive: a message that is under way in the group before this one is decided
            # by now, and one in the same group is stored or refused together with its duplicate.
            recognised = self._store.recognise(
                [job.send for job in sends if job.send is not None], now_unix_ns=now
            )
            empty = {id(job) for job, one in zip(sends, recognised, strict=True) if not one.send.batches}
            ids = self._store.commit(
                [one.send for one in recognised],
                [state for job in group if id(job) not in empty for state in job.progress],
                now_unix_ns=now,
                age_ns=age_ns,
            )
        except SnavioError:
            raise
        except Exception as error:
            # After any error this thread must live on, and no send may be answered as stored.
            self._log.exception("commit failed unexpectedly")
            raise Unavailable("The store failed unexpectedly.") from error
        stored = iter(_committed(recognised, ids, now, age_ns))
        return [next(stored) if job.send is not None else Committed((), now) for job in group]

    def _checkpoint_all(self) -> None:
        while not self._ended.wait(CHECKPOINT_SECONDS):
            # Without commits there is nothing to copy, and an idle mailbox should cost nothing.
            if not self._stirred.wait(IDLE_SECONDS):
                continue
            self._stirred.clear()
            try:
                if self._store.checkpoint():
                    self._stirred.set()
            except Exception as error:
                # After any error this thread must live on: without it the log grows until the disk is full.
                background().failed("checkpoint", error)
                self._stirred.set()
                self._ended.wait(1.0)

    # -- on the event loop -----------------------------------------------------------------------------

    def _heard(self, group: list[_Job], outcomes: list[Outcome], took_ns: int) -> None:
        self._waiting_bytes -= sum(job.size for job in group)
        if self._waiting_bytes < self._max_waiting_bytes:
            self._room.set()
        for job, outcome in zip(group, outcomes, strict=True):
            if job.send is not None:
                self._refused_mono_ns = self._clock.mono_ns() if isinstance(outcome, SnavioError) else None
            if job.done is not None:
                try:
                    job.done(outcome)
                except Exception as error:
                    # Those behind it wait for their own outcome.
                    background().failed("outcome of a commit", error)
        self.latency.add(took_ns)


def _committed(
    recognised: Sequence[Recognised], ids: Sequence[tuple[int, ...]], now: int, age_ns: int
) -> Iterator[Committed]:
    keyed: list[int] = []
    for one, batch_ids in zip(recognised, ids, strict=True):
        new = (
            batch_id
            for batch, batch_id in zip(one.send.batches, batch_ids, strict=True)
            if batch.keys is not None
        )
        keyed += (next(new) if _NEW in codes else 0 for _, codes, _ in one.findings)
    for one, batch_ids in zip(recognised, ids, strict=True):
        some = bool(one.send.batches)
        yield Committed(batch_ids, now, one, tuple(keyed) if one.findings else (), age_ns, some)
