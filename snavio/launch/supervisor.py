"""Keeps the services of a mesh running: starts them, waits for their health, restarts what crashes, ends them.

Never restarts in a busy loop: each crash in a row doubles the pause, up to half a minute.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from snavio.clock import Clock
from snavio.errors import Unavailable
from snavio.launch.probes import Probes
from snavio.launch.processes import READY_SECONDS, STOP_SECONDS, MeshProcesses

FIRST_PAUSE_S: Final = 0.25
LONGEST_PAUSE_S: Final = 30.0
STEADY_S: Final = 30.0
"""After running for so long, the next crash counts as the first again."""
LOOK_SECONDS: Final = 0.1
"""Between questions to a service that starts."""
REST_SECONDS: Final = 5.0
"""Between looks at one that serves; the system wakes us when a child ends."""


class ServicePhase(Enum):
    """Where a service stands."""

    STARTING = "starting"
    SERVING = "serving"
    CRASHED = "crashed"
    STOPPED = "stopped"


@dataclass(slots=True)
class ServiceLife:
    """One service's life so far."""

    phase: ServicePhase = ServicePhase.STOPPED
    restarts: int = 0
    crashes_in_a_row: int = 0
    started_mono_ns: int = 0


class Supervisor:
    """Lives on one event loop, in the main thread. `say` is told, in sentences, what happens."""

    def __init__(
        self, processes: MeshProcesses, *, probes: Probes, clock: Clock, say: Callable[[str], None]
    ) -> None:
        self._processes = processes
        self._probes = probes
        self._clock = clock
        self._say = say
        self._child_ended = asyncio.Event()
        self.lives = {name: ServiceLife() for name in processes.services}

    async def start(self, *, healthy: Callable[[str], None]) -> None:
        """Start everything; `healthy` hears of each service that serves. Unavailable when one does not."""
        for name in self._processes.services:
            self._spawn(name)
        try:
            async with asyncio.timeout(READY_SECONDS), asyncio.TaskGroup() as group:
                for name in self._processes.services:
                    group.create_task(self._begin(name, healthy))
        except TimeoutError:
            slow = [name for name, life in self.lives.items() if life.phase is ServicePhase.STARTING]
            raise Unavailable(
                f"Not serving after {READY_SECONDS:.0f} s: {', '.join(slow)}. Their logs are in "
                f"{self._processes.logs}.",
                reason="slow-start",
            ) from None

    async def watch(self) -> None:
        """Restart what ends, for ever."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGCHLD, self._wake)
        try:
            async with asyncio.TaskGroup() as group:
                for name in self._processes.services:
                    group.create_task(self._keep(name), name=f"keep {name}")
        finally:
            loop.remove_signal_handler(signal.SIGCHLD)

    async def stop(self, *, hurry: asyncio.Event) -> None:
        """Drain and end everything, the ingress first; `hurry` ends the patience."""
        end = asyncio.get_running_loop().time() + STOP_SECONDS
        for name in reversed(self._processes.services):
            if self.lives[name].phase is ServicePhase.STOPPED:
                continue
            self._processes.terminate(name)
            while self._processes.ended(name) is None and not hurry.is_set():
                if asyncio.get_running_loop().time() > end:
                    break
                await asyncio.sleep(0.02)
            self.lives[name].phase = ServicePhase.STOPPED
        self._processes.kill_all()

    def _wake(self) -> None:
        self._child_ended.set()
        self._child_ended = asyncio.Event()

    async def _rest(self, seconds: float) -> None:
        """Sleep, at most until some child ends."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._child_ended.wait()

    def _spawn(self, name: str) -> None:
        life = self.lives[name]
        self._processes.spawn(name)
        life.phase, life.started_mono_ns = ServicePhase.STARTING, self._clock.mono_ns()

    async def _begin(self, name: str, healthy: Callable[[str], None]) -> None:
        while not await self._probes.serving(name):
            if self._processes.ended(name) is not None:
                raise Unavailable(
                    f"{name} did not start: {self._processes.last_words(name)}", reason="did-not-start"
                )
            await asyncio.sleep(LOOK_SECONDS)
        self.lives[name].phase = ServicePhase.SERVING
        healthy(name)

    async def _keep(self, name: str) -> None:
        life = self.lives[name]
        while True:
            code = self._processes.ended(name)
            if code is None:
                if life.phase is ServicePhase.STARTING and await self._probes.serving(name):
                    life.phase = ServicePhase.SERVING
                    self._say(f"{name} serves again (process {self._processes.pid(name)}).")
                await self._rest(LOOK_SECONDS if life.phase is ServicePhase.STARTING else REST_SECONDS)
                continue
            steady = self._clock.mono_ns() - life.started_mono_ns > STEADY_S * 1e9
            life.crashes_in_a_row = 1 if steady else life.crashes_in_a_row + 1
            pause = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** (life.crashes_in_a_row - 1))
            life.phase = ServicePhase.CRASHED
            self._say(f"{name} ended unexpectedly ({_cause(code)}); restarting it in {pause:g} s.")
            await asyncio.sleep(pause)
            life.restarts += 1
            self._spawn(name)


def _cause(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
