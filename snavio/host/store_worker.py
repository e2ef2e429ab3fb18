"""One thread for one store's blocking work: one at a time, in order for each tenant, with a bound on what waits.

Never runs on the event loop, and never lets a slow disk gather work without limit. Never lets one tenant's work fill
the line that an operator's stands in, nor go before it all at once: tenants and the mesh take turns.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from snavio.errors import Saturated, Unavailable
from snavio.host.shares import HOLDER, Shares, default_share

T = TypeVar("T")


class StoreWorker:
    """The thread of one store."""

    def __init__(self, name: str, *, max_waiting: int = 1024, timeout_s: float = 10.0) -> None:
        self._name = name
        self._timeout_s = timeout_s
        self._places = threading.BoundedSemaphore(max_waiting)
        self._shares = Shares("calls", default_share("calls", max_waiting), retry_after_ms=250)
        self._lock = threading.Lock()
        # By who waits; the first has the next turn.
        self._lines: dict[str, deque[tuple[Future[Any], Callable[[], Any]]]] = {}
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)

    async def run(self, work: Callable[[], T]) -> T:
        """Run `work` on the thread; returns or raises what it does.

        Saturated when too much waits. Unavailable when the time is over: work that has not begun is then
        dropped, work that has begun is finished and its outcome is unknown to the caller.
        """
        holder = HOLDER.get()
        with self._shares.holding(holder):
            if not self._places.acquire(blocking=False):
                raise Saturated(f"{self._name}: too much waits for the store.", retry_after_ms=250)
            return await self._outcome(self._stand_in_line(holder, work))

    def _stand_in_line(self, holder: str, work: Callable[[], T]) -> Future[T]:
        future: Future[T] = Future()
        with self._lock:
            try:
                self._thread.submit(self._next)
            except RuntimeError:
                self._places.release()
                raise Unavailable(f"{self._name} is closed.", reason="closed") from None
            self._lines.setdefault(holder, deque()).append((future, work))
        future.add_done_callback(self._leave)
        return future

    def _next(self) -> None:
        """One piece of work, of the holder that had no turn for longest."""
        with self._lock:
            holder = next(iter(self._lines))
            line = self._lines.pop(holder)
            future, work = line.popleft()
            if line:
                self._lines[holder] = line
        carry_out(work, future)

    async def begin(self, opening: Callable[[], T]) -> T:
        """As `run`, for the work that opens the store: when it fails, the thread ends too."""
        try:
            return await self.run(opening)
        except BaseException:
            await self.close(lambda: None)
            raise

    async def close(self, last: Callable[[], object]) -> None:
        """Finish what waits, run `last`, end the thread. Idempotent: a second `last` does not run."""
        try:
            # Past the bound on purpose: a full queue must not keep the store from being released.
            future = self._thread.submit(last)
        except RuntimeError:
            return
        self._thread.shutdown(wait=False)
        await self._outcome(future)

    async def _outcome(self, future: Future[T]) -> T:
        try:
            async with asyncio.timeout(self._timeout_s):
                return await asyncio.wrap_future(future)
        except TimeoutError:
            raise Unavailable(f"{self._name}: the store did not answer in time.") from None

    def _leave(self, _future: Future[T]) -> None:
        self._places.release()


def carry_out(work: Callable[[], T], future: Future[T]) -> None:
    """Do the work for which `future` waits, unless nobody waits any more."""
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = work()
    except BaseException as error:  # a panic of the native library, too, is the caller's to hear
        future.set_exception(error)
    else:
        future.set_result(result)
