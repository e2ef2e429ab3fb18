"""The running parts of a process: started in the order in which they are named, stopped in the reverse order.

Never lets a part that hangs or fails while it stops keep the others from stopping.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

import structlog

from snavio.errors import Unavailable
from snavio.host.background import LONGEST_PAUSE_S, background
from snavio.host.periodic import JITTER, Periodic

STOP_SECONDS: Final = 6.0
"""For one part to stop, unless it is given another bound. A client that waits for its last answers takes 5 s."""
ALL_SECONDS: Final = 9.0
"""For all of them together: less than the time after which the process ends whatever is left."""
LEAST_SECONDS: Final = 0.25
"""Kept for each part that still has to stop, however long those before it hang: the journal is among the last."""


class RunnablePart(Protocol):
    """A part with `start`, which may be a coroutine, and with either `stop` or `close`."""

    @property
    def start(self) -> Callable[..., Any]: ...


class OpenResource(Protocol):
    """A resource that was opened and has to be closed."""

    @property
    def close(self) -> Callable[[], Any]: ...


R = TypeVar("R", bound=RunnablePart)
H = TypeVar("H", bound=OpenResource)


@dataclass(frozen=True, slots=True)
class _Stop:
    name: str
    stop: Callable[[], Awaitable[object]]
    within_s: float


class Parts:
    """One stack of parts. Lives on one event loop."""

    def __init__(self) -> None:
        self._stops: list[_Stop] = []
        self._log = structlog.get_logger()

    def at_stop(
        self, name: str, stop: Callable[[], Awaitable[object]], *, within_s: float = STOP_SECONDS
    ) -> None:
        """Call `stop` at the end, before that of everything named earlier."""
        self._stops.append(_Stop(name, stop, within_s))

    async def run(self, part: R, **given: object) -> R:
        """Start `part` now, with the arguments `given` to its `start`, and stop it at the end."""
        # Before it starts: a part whose start fails half-way has something to release too.
        self.at_stop(type(part).__name__, getattr(part, "stop", None) or part.close)  # type: ignore[attr-defined]
        started = part.start(**given)
        if inspect.isawaitable(started):
            await started
        return part

    def hold(self, opened: H) -> H:
        """Close `opened` at the end."""
        self.at_stop(type(opened).__name__, opened.close)
        return opened

    def every(
        self,
        every_s: float | Callable[[], float],
        work: str,
        turn: Callable[[], Awaitable[object]],
        *,
        at_once: bool = False,
        longest_s: float = LONGEST_PAUSE_S,
        jitter: float = JITTER,
    ) -> Periodic:
        """Call `turn` about every `every_s` from now to the end; see `Periodic`."""
        periodic = Periodic(work, turn, every_s=every_s, longest_s=longest_s, jitter=jitter)
        self.at_stop(work, periodic.stop)
        periodic.start(at_once=at_once)
        return periodic

    async def now_and_every(
        self, every_s: float, work: str, turn: Callable[[], Awaitable[object]], *, within_s: float
    ) -> Periodic:
        """Wait until `turn` has succeeded once, then as `every`; Unavailable after `within_s`.

        A later failure is tried again after one pause, however often it repeats.
        """
        periodic = Periodic(work, turn, every_s=every_s, longest_s=every_s)
        self.at_stop(work, periodic.stop)
        try:
            await periodic.start_within(within_s)
        except TimeoutError as late:
            raise Unavailable(f"{work} did not succeed within {within_s:.0f} s: {late}.") from None
        return periodic

    async def stop(self, *, within_s: float = ALL_SECONDS) -> None:
        """Stop everything, last named first, each part within its bound, all `within_s`. Does nothing a second time."""
        loop = asyncio.get_running_loop()
        ends_s = loop.time() + within_s
        while self._stops:
            part = self._stops.pop()
            left_s = ends_s - loop.time() - LEAST_SECONDS * len(self._stops)
            await self._stopped(part, within_s=min(part.within_s, max(LEAST_SECONDS, left_s)))

    async def _stopped(self, part: _Stop, *, within_s: float) -> None:
        # As a task of its own, which is not waited for when it ignores its cancellation.
        stopping = background().once(f"stop {part.name}", _call(part.stop))
        await asyncio.wait({stopping}, timeout=within_s)
        if not stopping.done():
            stopping.cancel()
            self._log.warning("a part did not stop in time", part=part.name, within_s=round(within_s, 2))


async def _call(stop: Callable[[], Awaitable[object]]) -> None:
    await stop()
