"""Calls that are asked for at the same time go together: a call costs what it costs, whatever it carries.

Never delays a call while few are under way, and never loses one: each is answered, or fails, as the call that it went
with.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

A = TypeVar("A")
R = TypeVar("R")


class Coalescer(Generic[A, R]):
    """`call(asked)` answers several at once, in their order; at most `at_once` calls are under way.

    `weight` says what one takes up of `most`, which bounds a call. Lives on one event loop.
    """

    def __init__(
        self,
        call: Callable[[Sequence[A]], Awaitable[Sequence[R]]],
        *,
        weight: Callable[[A], int],
        most: int,
        at_once: int = 2,
    ) -> None:
        self._call = call
        self._weight = weight
        self._most = most
        self._at_once = at_once
        self._waiting: list[tuple[A, asyncio.Future[R]]] = []
        self._calls: set[asyncio.Task[None]] = set()

    @property
    def idle(self) -> bool:
        """Nothing is under way or waits."""
        return not (self._waiting or self._calls)

    async def ask(self, asked: A) -> R:
        """The answer to one; it is made even when nobody waits for it any more."""
        answer: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._waiting.append((asked, answer))
        self._go()
        return await asyncio.shield(answer)

    def _go(self) -> None:
        if self._waiting and len(self._calls) < self._at_once:
            call = asyncio.get_running_loop().create_task(self._run(), name="coalesced call")
            self._calls.add(call)
            call.add_done_callback(self._ended)

    def _ended(self, call: asyncio.Task[None]) -> None:
        self._calls.discard(call)
        self._go()

    async def _run(self) -> None:
        taken = self._take()
        if not taken:
            return
        try:
            answers = await self._call([asked for asked, _ in taken])
        except BaseException as error:
            for _, answer in taken:
                if not answer.done():
                    answer.set_exception(error if isinstance(error, Exception) else asyncio.CancelledError())
                    answer.exception()  # whoever waited may be gone
            if not isinstance(error, Exception):
                raise
            return
        for (_, answer), found in zip(taken, answers, strict=True):
            if not answer.done():
                answer.set_result(found)

    def _take(self) -> list[tuple[A, asyncio.Future[R]]]:
        weight, end = 0, 0
        for asked, _ in self._waiting:
            weight += self._weight(asked)
            if end and weight > self._most:
                break
            end += 1
        taken, self._waiting = self._waiting[:end], self._waiting[end:]
        return taken
