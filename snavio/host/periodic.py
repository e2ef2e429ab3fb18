"""Repeated work of a process: one turn at a time, a pause between two, for as long as the process runs.

Never overlaps turns, never ends because a turn failed, and jitter only shortens a pause.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
import random
from collections.abc import Awaitable, Callable
from typing import Final

from snavio.errors import SnavioError
from snavio.host.background import FIRST_PAUSE_S, LONGEST_PAUSE_S, Background, background, stray
from snavio.tasks import ended

JITTER: Final = 0.2
START_RETRY_S: Final = 0.05


class Periodic:
    """Calls `turn` about every `every_s`, the first time after one pause; with None only after a nudge.

    After a failure the next turn waits for the back-off, from `first_s` up to `longest_s`, and for the pause: whichever
    is longer. A nudge cuts the pause short, but neither the back-off nor the first `quiet_s` of the pause.
    """

    def __init__(
        self,
        work: str,
        turn: Callable[[], Awaitable[object]],
        *,
        every_s: float | Callable[[], float] | None,
        first_s: float = FIRST_PAUSE_S,
        longest_s: float = LONGEST_PAUSE_S,
        quiet_s: float = 0.0,
        jitter: float = JITTER,
        of: Background | None = None,
    ) -> None:
        self.work = work
        self._turn = turn
        self._every_s = every_s
        self._quiet_s = quiet_s
        self._jitter = jitter
        self._background = of or background()
        self._trial = self._background.trial(work, first_s=first_s, longest_s=longest_s)
        self._nudged = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.turns = 0
        """Turns that succeeded."""

    def start(self, *, at_once: bool = False) -> None:
        """Begin in the background; with `at_once` the first turn does not wait for a pause."""
        if at_once:
            self._nudged.set()
        self._task = self._background.keep(self.work, self._run)

    async def start_within(self, within_s: float) -> None:
        """Wait for one turn that succeeds, then go on in the background.

        TimeoutError after `within_s`, with the last failure as its text.
        """
        why = "no answer"
        try:
            async with asyncio.timeout(within_s):
                for pause_s in itertools.chain([0.0], itertools.repeat(START_RETRY_S)):
                    await asyncio.sleep(pause_s)
                    try:
                        await self._turn()
                        break
                    except SnavioError as error:
                        why = str(error).rstrip(".")
                        self._background.failed(self.work, error)
        except TimeoutError:
            raise TimeoutError(why) from None
        self.turns += 1
        self.start()

    async def stop(self) -> None:
        """End; a turn under way is cancelled."""
        await ended(self._task)
        self._task = None

    def nudge(self) -> None:
        """Have the next turn soon instead of at the end of the pause; many nudges are one."""
        self._nudged.set()

    async def _run(self) -> None:
        owed_s = 0.0
        while True:
            every_s = self._every_s() if callable(self._every_s) else self._every_s
            shortened = random.uniform(1.0 - self._jitter, 1.0)  # noqa: S311 spreads load, hides nothing
            # Nudges often come from strangers' calls: they hurry neither a failed turn nor the quiet between two.
            held_s = max(owed_s, shortened * min(self._quiet_s, math.inf if every_s is None else every_s))
            if held_s:
                await asyncio.sleep(held_s)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(
                    None if every_s is None else max(0.0, every_s * shortened - held_s)
                ):
                    await self._nudged.wait()
            self._nudged.clear()
            try:
                await self._turn()
            except asyncio.CancelledError as cancelled:
                # Here, because the back-off of the task itself may be far longer than `longest_s`.
                owed_s = self._trial.failed(stray(self.work, cancelled))
            except Exception as error:
                owed_s = self._trial.failed(error)
            else:
                owed_s = 0.0
                self._trial.succeeded()
                self.turns += 1
