"""Frees expired entries of the native dispatch, periodically.

Never decides anything: an entry that it frees had no effect any more.
"""

from __future__ import annotations

import asyncio

from snavio.clock import Clock
from snavio.host.periodic import Periodic
from snavio.native import Dispatch

PAUSE_SECONDS = 10.0


class Expiry:
    """Sweeps in the background."""

    def __init__(self, *, dispatch: Dispatch, clock: Clock) -> None:
        self._dispatch = dispatch
        self._clock = clock
        self._sweeps = Periodic("upkeep", self._sweep, every_s=PAUSE_SECONDS)

    def start(self) -> None:
        """Begin."""
        self._sweeps.start()

    async def stop(self) -> None:
        """End."""
        await self._sweeps.stop()

    async def _sweep(self) -> None:
        # On another thread: it walks all routes, and the call lets go of the interpreter.
        await asyncio.to_thread(self._dispatch.sweep, now_mono_ns=self._clock.mono_ns())
