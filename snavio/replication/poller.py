"""Keeps something fresh by asking its authority again and again, one request at a time.

Never pushes and never overlaps; jitter only shortens the pause, so that it cannot stretch a revocation bound.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
from collections.abc import Awaitable, Callable

from snavio.clock import Clock
from snavio.errors import SnavioError, Unavailable
from snavio.host.background import background
from snavio.tasks import ended

START_RETRY_SECONDS = 0.05
NUDGE_QUIET_SECONDS = 0.1
QUIET_AFTER_FAILURE_S = 0.25


class Poller:
    """Calls `refresh` at start and then about every `interval_s`."""

    def __init__(
        self, name: str, refresh: Callable[[], Awaitable[None]], *, clock: Clock, interval_s: float
    ) -> None:
        self._name = name
        self._refresh = refresh
        self._clock = clock
        self.interval_s = interval_s
        self._nudged = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._read_mono_ns: int | None = None
        self._background = background()
        self._work = f"pull {name}"
        self._trial = self._background.trial(self._work, first_s=QUIET_AFTER_FAILURE_S)

    @property
    def read_mono_ns(self) -> int | None:
        """When the last successful request was sent; None before the first."""
        return self._read_mono_ns

    def age_ns(self) -> int | None:
        """How old the data is, counted from when the authority was asked."""
        return None if self._read_mono_ns is None else self._clock.mono_ns() - self._read_mono_ns

    async def start(self, *, within_s: float) -> None:
        """Succeed once within `within_s`, or raise Unavailable; then go on in the background."""
        try:
            async with asyncio.timeout(within_s):
                for pause in itertools.chain([0.0], itertools.repeat(START_RETRY_SECONDS)):
                    await asyncio.sleep(pause)
                    try:
                        await self._once()
                        break
                    except SnavioError as error:
                        self._background.failed(self._work, error)
        except TimeoutError:
            raise Unavailable(f"{self._name} could not be read within {within_s:.0f} s.") from None
        self._task = self._background.keep(self._work, self._run)

    def begin(self, *, read_mono_ns: int | None = None) -> None:
        """Go on in the background at once, for whoever has something to begin with and need not wait.

        `read_mono_ns` is when that was read from the authority; its age counts from there.
        """
        if self._read_mono_ns is None:
            self._read_mono_ns = read_mono_ns
        self._nudged.set()
        self._task = self._background.keep(self._work, self._run)

    async def stop(self) -> None:
        """End the background work."""
        await ended(self._task)

    def nudge(self) -> None:
        """Ask again now instead of at the end of the pause; many nudges are one."""
        self._nudged.set()

    async def _run(self) -> None:
        while True:
            pause = self.interval_s * random.uniform(0.8, 1.0)  # noqa: S311 spreads load, hides nothing
            # Nudges come from strangers' commands: between two pulls there is always some quiet.
            quiet = min(pause, NUDGE_QUIET_SECONDS)
            await asyncio.sleep(quiet)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause - quiet):
                    await self._nudged.wait()
            self._nudged.clear()
            try:
                await self._once()
                self._trial.succeeded()
            except Exception as error:
                # Whatever it was: nothing would ever be fresh again, though the next answer may well be readable.
                # A dead authority must not be hammered by nudges, and is asked again in time all the same.
                await asyncio.sleep(min(pause, self._trial.failed(error), QUIET_AFTER_FAILURE_S))

    async def _once(self) -> None:
        sent = self._clock.mono_ns()
        await self._refresh()
        self._read_mono_ns = sent
