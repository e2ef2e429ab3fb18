"""Several threads for a store's blocking reads: one that hangs delays only itself, and another replaces it.

Never runs on the event loop, never lets a slow disk gather work or threads without limit, never lets one
tenant's reads take all the places, and never keeps the process from ending.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final, TypeVar

import structlog

from snavio.errors import Saturated, Unavailable
from snavio.host.shares import HOLDER, Shares, default_share
from snavio.host.store_worker import carry_out

T = TypeVar("T")

READERS: Final = 4
SPARES: Final = 12
"""Threads that may stand in for hanging ones; beyond it, reads are refused at once."""
HANG_S: Final = 1.0


class _Read:
    __slots__ = ("future", "hanging", "over", "work")

    def __init__(self, work: Callable[[], Any]) -> None:
        self.work = work
        self.future: Future[Any] = Future()
        self.hanging = False
        self.over = False


class StoreReaders:
    """The reading threads of one store. Lives on one event loop; work may be done in any order."""

    def __init__(
        self,
        name: str,
        *,
        readers: int = READERS,
        spares: int = SPARES,
        max_waiting: int = 1024,
        timeout_s: float = 10.0,
        hang_s: float = HANG_S,
    ) -> None:
        self._name = name
        self._readers = readers
        self._spares = spares
        self._max_waiting = max_waiting
        self._shares = Shares(
            "calls", default_share("calls", max_waiting + readers + spares), retry_after_ms=250
        )
        self._timeout_s = timeout_s
        self._hang_s = min(hang_s, timeout_s)
        self._jobs: queue.SimpleQueue[_Read | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._waiting = 0
        self._threads: set[threading.Thread] = set()
        self._free = 0
        self._closed = False
        self.hanging = 0
        """Number of reads that hang at the moment."""
        self.hung_total = 0
        self._log = structlog.get_logger()

    async def run(self, work: Callable[[], T]) -> T:
        """Run `work` on a reader; its result or its error.

        Saturated when too much waits, of the tenant or of all.
        Unavailable when the time is over or every reader hangs: work that has not
        begun is then dropped, work that has begun is finished and its outcome is unknown to the caller.
        """
        with self._shares.holding(HOLDER.get()):
            return await self._run(work)

    async def _run(self, work: Callable[[], T]) -> T:
        job = _Read(work)
        with self._lock:
            if self._closed:
                raise Unavailable(f"{self._name} is closed.", reason="closed")
            if self.hanging >= self._readers + self._spares:
                raise Unavailable(f"{self._name}: {self.hanging} reads hang.", reason="reads-hang")
            if self._waiting >= self._max_waiting:
                raise Saturated(f"{self._name}: too much waits for the store.", retry_after_ms=250)
            self._waiting += 1
            self._staff()
        self._jobs.put(job)
        loop = asyncio.get_running_loop()
        watch = loop.call_later(self._hang_s, self._look, loop, job)
        try:
            async with asyncio.timeout(self._timeout_s):
                return await asyncio.wrap_future(job.future)
        except TimeoutError:
            if job.future.done() and not job.future.cancelled():
                raise  # the work's own
            raise Unavailable(f"{self._name}: the store did not answer in time.") from None
        finally:
            if job.over or job.future.cancelled():
                watch.cancel()

    async def close(self, last: Callable[[], object]) -> None:
        """Finish what waits, run `last`, end the threads. Idempotent: a second `last` does not run.

        A read that hangs is not waited for.
        """
        with self._lock:
            if self._closed:
                return
            self._closed = True
            threads = list(self._threads)
        for _ in threads:
            self._jobs.put(None)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._ended(threads), name=f"{self._name} end")
        ending = _Read(last)
        threading.Thread(
            target=carry_out, args=(ending.work, ending.future), name=f"{self._name}-last", daemon=True
        ).start()
        try:
            async with asyncio.timeout(self._timeout_s):
                await asyncio.wrap_future(ending.future)
        except TimeoutError:
            raise Unavailable(f"{self._name}: the store did not answer in time.") from None

    def gauges(self) -> dict[str, float]:
        """Reads that hang now, and threads in use for reading."""
        return {"reads_hanging": self.hanging, "read_threads": len(self._threads)}

    def counters(self) -> dict[str, int]:
        """Reads that hung since the start."""
        return {"reads_hung_total": self.hung_total}

    async def _ended(self, threads: list[threading.Thread]) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + self._timeout_s
        while loop.time() < end:
            with self._lock:
                left = sum(thread.is_alive() for thread in threads) - self.hanging
            if left <= 0:
                return
            await asyncio.sleep(0.002)

    def _look(self, loop: asyncio.AbstractEventLoop, job: _Read) -> None:
        """The time of a read is over: if it has begun and not ended, another thread replaces its reader."""
        with self._lock:
            if job.over or job.future.cancelled() or self._closed:
                return
            if job.future.running() and not job.hanging:
                job.hanging = True
                self.hanging += 1
                self.hung_total += 1
                self._staff()
        if job.hanging:
            self._log.error("a read hangs", of=self._name, hanging=self.hanging)
        else:
            loop.call_later(self._hang_s, self._look, loop, job)

    def _staff(self) -> None:
        """Under the lock: a thread for what waits, up to the bound."""
        working = len(self._threads) - self.hanging
        most = min(self._readers, self._readers + self._spares - self.hanging)
        if working < most and self._waiting > self._free:
            thread = threading.Thread(target=self._serve, name=self._name, daemon=True)
            self._threads.add(thread)
            self._free += 1
            thread.start()

    def _serve(self) -> None:
        while (job := self._jobs.get()) is not None:
            with self._lock:
                self._free -= 1
                self._waiting -= 1
            carry_out(job.work, job.future)
            with self._lock:
                job.over = True
                self._free += 1
                if job.hanging:
                    self.hanging -= 1
                    if len(self._threads) - self.hanging > self._readers and not self._closed:
                        self._free -= 1
                        self._threads.discard(threading.current_thread())
                        return
            del job
        with self._lock:
            self._threads.discard(threading.current_thread())
