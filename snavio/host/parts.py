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

    async def stop(self) -> None:
        """Stop everything, last named first, each part within its bound. Does nothing a second time."""
        while self._stops:
            await self._stopped(self._stops.pop())

    async def _stopped(self, part: _Stop) -> None:
        # As a task of its own, which is not waited for when it ignores its cancellation.
        stopping = background().once(f"stop {part.name}", _call(part.stop))
        await asyncio.wait({stopping}, timeout=part.within_s)
        if not stopping.done():
            stopping.cancel()
            self._log.warning("a part did not stop in time", part=part.name, within_s=part.within_s)


async def _call(stop: Callable[[], Awaitable[object]]) -> None:
    await stop()
