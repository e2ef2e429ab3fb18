"""Frees, now and then, what the native dispatch holds for nobody any more.

Never decides anything: what it frees was over before.
"""

from __future__ import annotations

import asyncio

from snavio.clock import Clock
from snavio.ending import ended
from snavio.native import Dispatch

PAUSE_SECONDS = 10.0


class Upkeep:
    """Sweeps in the background."""

    def __init__(self, *, dispatch: Dispatch, clock: Clock) -> None:
        self._dispatch = dispatch
        self._clock = clock
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin."""
        self._task = asyncio.create_task(self._run(), name="upkeep")

    async def stop(self) -> None:
        """End."""
        await ended(self._task)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(PAUSE_SECONDS)
            # On another thread: it walks all routes, and the call lets go of the interpreter.
            await asyncio.to_thread(self._dispatch.sweep, now_mono_ns=self._clock.mono_ns())
