"""Simulated time for several instances of Fast and Slow that share a store: drifting clocks, slow and lossy wires."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from services.slow.grants import Grants
from snavio.clock import ManualClock
from snavio.errors import Unavailable

STEP_MS = 5


@dataclass
class Drifting:
    """An instance's own clock, with its own origin and a small drift."""

    world: ManualClock
    began_ns: int
    rate: float

    def unix_ns(self) -> int:
        return self.world.unix_ns()

    def mono_ns(self) -> int:
        return self.began_ns + int(self.world.mono_ns() * self.rate)


@dataclass
class World:
    """Simulated time, and the tasks that wait for it."""

    clock: ManualClock
    busy: int = 0
    waiting: list[tuple[int, asyncio.Future[None]]] = field(default_factory=list)

    async def pass_ms(self, ms: int) -> None:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiting.append((self.clock.mono_ns() + ms * 1_000_000, done))
        await done

    async def at_once(self, call: Awaitable[Any]) -> Any:
        """Nothing else happens meanwhile, however long it takes."""
        self.busy += 1
        try:
            return await call
        finally:
            self.busy -= 1

    async def step(self) -> None:
        self.clock.advance(ns=STEP_MS * 1_000_000)
        now = self.clock.mono_ns()
        due = [done for at, done in self.waiting if at <= now]
        self.waiting = [(at, done) for at, done in self.waiting if at > now]
        for done in due:
            done.set_result(None)
        for _ in range(3):
            await asyncio.sleep(0)
        while self.busy:
            await asyncio.sleep(0.0002)


@dataclass
class Wire:
    """The connection from one Fast to Slow: slow, and sometimes it breaks after the debit."""

    world: World
    slow: Grants
    randomness: random.Random
    loses: float

    async def call(self, method: str, request: Any, _type: type[Any], *, timeout_s: float) -> Any:
        del timeout_s
        serve: Callable[[Any, Any], Awaitable[Any]] = (
            self.slow.issue if method.endswith("/Grants") else self.slow.take_back
        )
        await self.world.pass_ms(self.randomness.randint(0, 40))
        answer = await self.world.at_once(serve(request, None))
        await self.world.pass_ms(self.randomness.randint(0, 40))
        if self.randomness.random() < self.loses:
            raise Unavailable("the answer was lost")
        return answer
