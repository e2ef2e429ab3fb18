"""Work that comes round again and again: one turn at a time, with a pause between two, for as long as its process runs.

Never overlaps, never ends because of a turn that failed, and jitter only shortens a pause.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable
from typing import Final

from snavio.host.background import LONGEST_PAUSE_S, Background, background
from snavio.tasks import ended

JITTER: Final = 0.2


class Periodic:
    """Calls `turn` about every `every_s`, the first time after one pause; after failures more and more rarely."""

    def __init__(
        self,
        work: str,
        turn: Callable[[], Awaitable[object]],
        *,
        every_s: float | Callable[[], float],
        longest_s: float = LONGEST_PAUSE_S,
        jitter: float = JITTER,
        uniform: Callable[[float, float], float] = random.uniform,
        of: Background | None = None,
    ) -> None:
        self.work = work
        self._turn = turn
        self._every_s = every_s
        self._jitter = jitter
        self._uniform = uniform
        self._background = of or background()
        self._trial = self._background.trial(work, longest_s=longest_s)
        self._nudged = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.turns = 0
        """Turns that went well."""

    def start(self, *, at_once: bool = False) -> None:
        """Begin; `at_once` without the first pause."""
        if at_once:
            self._nudged.set()
        self._task = self._background.keep(self.work, self._run)

    async def stop(self) -> None:
        """End, also within a turn."""
        await ended(self._task)
        self._task = None

    def nudge(self) -> None:
        """Have the next turn now instead of at the end of the pause; many nudges are one."""
        self._nudged.set()

    async def _run(self) -> None:
        owed_s = 0.0
        while True:
            every_s = self._every_s if isinstance(self._every_s, float | int) else self._every_s()
            pause_s = every_s * self._uniform(1.0 - self._jitter, 1.0)
            # A turn that failed is not hurried by nudges.
            if owed_s:
                await asyncio.sleep(owed_s)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, pause_s - owed_s)):
                    await self._nudged.wait()
            self._nudged.clear()
            try:
                await self._turn()
            except Exception as error:
                owed_s = self._trial.failed(error)
            else:
                owed_s = 0.0
                self._trial.succeeded()
                self.turns += 1
