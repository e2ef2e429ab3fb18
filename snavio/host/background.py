"""Background work of a process, supervised in one way: faults are logged, counted, and tried again after a pause.

Never leaves a process half alive: work that meets nothing but faults for minutes, or that cannot be begun again, ends
the process, so that its supervisor starts it again.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from contextvars import ContextVar, copy_context
from typing import Any, Final

import structlog

from snavio.clock import Clock, SystemClock
from snavio.errors import SnavioError
from snavio.tracebacks import trace_of

FIRST_PAUSE_S: Final = 0.05
LONGEST_PAUSE_S: Final = 30.0
LONGEST_THREAD_PAUSE_S: Final = 1.0
"""Short, because a thread cannot be ended while it pauses."""
STEADY_S: Final = 30.0
"""Work that ran for this long before it failed is retried after the first pause again."""
PATIENCE_S: Final = 300.0
"""Time of uninterrupted faults after which the process ends. Errors caused by other services do not count."""

Body = Callable[[], Coroutine[Any, Any, None]]


class Stray(Exception):
    """A cancellation from inside the work, such as that of a future which it awaited."""


def stray(work: str, cancelled: asyncio.CancelledError) -> Stray:
    """`cancelled` as a fault of `work`; raised again when it is the running task that is cancelled."""
    task = asyncio.current_task()
    if task is None or task.cancelling():
        raise cancelled
    # Of something else: passed on, it would end this work for good, without a word.
    return Stray(f"{work} was cancelled from within")


class Background:
    """The background work of one process. `failed` and `lost` may be called on any thread."""

    def __init__(
        self,
        *,
        clock: Clock | None = None,
        patience_s: float = PATIENCE_S,
        jitter: Callable[[], float] = random.random,
        ends: bool = True,
    ) -> None:
        self.clock = clock or SystemClock()
        self._ends = ends
        self.patience_s = patience_s
        self.jitter = jitter
        self.lost_work: str | None = None
        """Name of the work that could not go on and ended the process; None while there is none."""
        self._failures: Counter[str] = Counter()
        self._faults: Counter[str] = Counter()
        self._kinds: Counter[tuple[str, type[BaseException]]] = Counter()
        self._on_lost: list[Callable[[], None]] = []
        self._running: set[asyncio.Task[Any]] = set()
        self._log = structlog.get_logger()

    def counters(self) -> dict[str, int]:
        """Failures by work: all of them, and the faults among them."""
        return {
            f'{name}{{work="{work}"}}': times
            for name, counts in (
                ("background_failures_total", self._failures),
                ("background_faults_total", self._faults),
            )
            for work, times in list(counts.items())
        }

    def on_lost(self, ending: Callable[[], None]) -> None:
        """Call `ending` when some work cannot go on; at once if that has happened already."""
        if self.lost_work is not None:
            ending()
        elif self._ends:
            self._on_lost.append(ending)

    def failed(self, work: str, error: BaseException, **where: object) -> None:
        """Log and count a failure. Anything but a SnavioError is a fault of the program, logged with its trace."""
        self._failures[work] += 1
        if isinstance(error, SnavioError):
            self._log.warning("work failed", work=work, reason=error.reason, message=str(error), **where)
            return
        self._faults[work] += 1
        kind = (work, type(error))
        self._kinds[kind] += 1
        times = self._kinds[kind]
        # Ever more rarely: a fault that comes with every turn must not fill the disk with traces.
        trace = trace_of(error) if times & (times - 1) == 0 else None
        self._log.error(
            "work failed unexpectedly", work=work, error=repr(error), times=times, stack=trace, **where
        )

    def lost(self, work: str, error: BaseException) -> None:
        """`work` cannot go on: end the process, if this one belongs to a process."""
        if self._ends and self.lost_work is None:
            self.lost_work = work
            for ending in self._on_lost:
                ending()
            self._log.critical("work cannot go on, the process ends", work=work, error=repr(error))

    def trial(
        self, work: str, *, first_s: float = FIRST_PAUSE_S, longest_s: float = LONGEST_PAUSE_S
    ) -> Trial:
        """Attempts at `work`, for a loop that has a guard of its own."""
        return Trial(self, work, first_s=first_s, longest_s=longest_s)

    def keep(self, work: str, body: Body) -> asyncio.Task[None]:
        """Run `body` until it returns or is cancelled; run it again after any failure."""
        return asyncio.create_task(self._keep(work, body), name=work)

    def once(self, work: str, doing: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run a coroutine once as a task that is held until it ends; its failure is logged and counted."""
        task = asyncio.create_task(doing, name=work)
        self._running.add(task)
        task.add_done_callback(self._over)
        return task

    def thread(self, work: str, body: Callable[[], None]) -> threading.Thread:
        """As `keep`, on a new thread, already started. Call on the event loop, which is told when the work is lost."""
        loop = asyncio.get_running_loop()

        def lost(error: BaseException) -> None:
            try:
                loop.call_soon_threadsafe(self.lost, work, error)
            except RuntimeError:
                return  # The loop has ended before it, and with it the process.

        context = copy_context()
        thread = threading.Thread(
            target=context.run, args=(self._keep_thread, work, body, lost), name=work, daemon=True
        )
        thread.start()
        return thread

    async def _keep(self, work: str, body: Body) -> None:
        trial = self.trial(work)
        while True:
            began_ns = self.clock.mono_ns()
            try:
                await body()
                return
            except asyncio.CancelledError as cancelled:
                error: Exception = stray(work, cancelled)
            except Exception as fault:
                error = fault
            except BaseException as fault:
                self.lost(work, fault)
                raise
            if self.clock.mono_ns() - began_ns >= STEADY_S * 1e9:
                trial.succeeded()
            await asyncio.sleep(trial.failed(error))

    def _keep_thread(
        self, work: str, body: Callable[[], None], lost: Callable[[BaseException], None]
    ) -> None:
        trial = Trial(self, work, first_s=FIRST_PAUSE_S, longest_s=LONGEST_THREAD_PAUSE_S, lost=lost)
        while True:
            began_ns = self.clock.mono_ns()
            try:
                body()
                return
            except Exception as error:
                if self.clock.mono_ns() - began_ns >= STEADY_S * 1e9:
                    trial.succeeded()
                pause_s = trial.failed(error)
            except BaseException as error:
                # Python ends a thread that exits without a word.
                self.failed(work, error)
                lost(error)
                return
            time.sleep(pause_s)

    def _over(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.failed(task.get_name(), error)


class Trial:
    """Attempts at one piece of work: growing pauses, and a bound on uninterrupted faults."""

    def __init__(
        self,
        background: Background,
        work: str,
        *,
        first_s: float,
        longest_s: float,
        lost: Callable[[BaseException], None] | None = None,
    ) -> None:
        self._background = background
        self._work = work
        self._first_s = first_s
        self._longest_s = longest_s
        self._lost = lost or (lambda error: background.lost(work, error))
        self._pause_s = 0.0
        self._faulty_since_ns: int | None = None

    def succeeded(self) -> None:
        """Note a success: the next pause is the first again."""
        self._pause_s = 0.0
        self._faulty_since_ns = None

    def failed(self, error: Exception, **where: object) -> float:
        """Note a failure; returns the pause in seconds, with jitter so that many processes do not retry in step."""
        background = self._background
        background.failed(self._work, error, **where)
        self._pause_s = min(self._longest_s, self._pause_s * 2 or self._first_s)
        if isinstance(error, SnavioError):
            self._faulty_since_ns = None
        else:
            now = background.clock.mono_ns()
            if self._faulty_since_ns is None:
                self._faulty_since_ns = now
            elif now - self._faulty_since_ns >= background.patience_s * 1e9:
                self._lost(error)
        return self._pause_s * (0.5 + 0.5 * background.jitter())


_UNHOSTED: Final = Background(ends=False)
_CURRENT: ContextVar[Background | None] = ContextVar("background", default=None)


def background() -> Background:
    """The background work of this process; outside of a service, one that never ends the process."""
    return _CURRENT.get() or _UNHOSTED


def host(own: Background) -> None:
    """Make `own` the result of `background` for every task and thread started from here on."""
    _CURRENT.set(own)
