"""Where escalations wait for their turn: a line per source, served by deficit round robin.

Bounded, per line and in all. Never lets a flood of one line delay another's turn by more than one quantum of each line
in between; what does not fit is refused with a hint. Lines that are held back, those of banned sources, share one
round at a time, a small part of it, and a small part of all time: however much they bring, most of Slow is free for
whoever comes next.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from snavio.errors import Saturated

RETRY_AFTER_MS = 250
# A turn of a line that is held back, and the share of all of them in a round, is so many times smaller.
HELD_PARTS = 5
# Their share of time: a fifth while nobody else comes, and half of that while somebody does. A fifth of the time alone
# would cost others all that a flood may cost them, and what is decided beside it is not free either.
ALONE_PARTS, BESIDE_PARTS = 5, 10

T = TypeVar("T")


@dataclass(slots=True)
class _SourceLine(Generic[T]):
    held: bool
    waiting: deque[tuple[int, T]] = field(default_factory=deque)
    cost: int = 0
    deficit: int = 0


@dataclass(frozen=True, slots=True)
class Round(Generic[T]):
    """What is decided together; `held` when some of it was held back."""

    items: tuple[T, ...]
    held: bool
    began_s: float


class FairQueue(Generic[T]):
    """Costs are commands."""

    def __init__(self, *, quantum: int, max_cost: int, max_line_cost: int) -> None:
        self._quantum = quantum
        self._max_cost = max_cost
        self._max_line_cost = max_line_cost
        self._lines: dict[str, _SourceLine[T]] = {}
        """In the order of their turns; one with nothing waiting is not in it."""
        self._held_lines = 0
        self._holding = False
        """A round with held lines is under way, or was just now."""
        self._others = False
        """Somebody who is not held back came since held lines had their last round."""
        self._cost = 0
        self._changed = asyncio.Event()

    @property
    def cost(self) -> int:
        """What waits, in all."""
        return self._cost

    @property
    def lines(self) -> int:
        """How many wait."""
        return len(self._lines)

    def put(self, name: str, item: T, *, cost: int, held: bool = False) -> None:
        """Join a line; Saturated when that, or everything, is full. One item always fits into an empty line: it came
        as one, and refusing it would refuse it for ever."""
        line = self._lines.get(name)
        if line is not None and line.cost + cost > self._max_line_cost:
            raise Saturated("Too much of this source waits for Slow.", retry_after_ms=RETRY_AFTER_MS)
        if self._cost + cost > self._max_cost:
            raise Saturated("Too much waits for Slow.", retry_after_ms=RETRY_AFTER_MS)
        if line is None:
            line = self._lines[name] = _SourceLine(held)
            self._held_lines += held
        line.waiting.append((cost, item))
        line.cost += cost
        self._cost += cost
        self._others = self._others or not held
        self._changed.set()

    async def take(self, most: int) -> Round[T]:
        """What is next, up to a cost of `most` but at least one item; waits for the first. Must be finished."""
        while not self._available():
            self._changed.clear()
            await self._changed.wait()
        return self._round(most)

    def finish(self, taken: Round[T]) -> None:
        """A round is over."""
        if taken.held:
            # What they took of Slow they now leave to others, several times over.
            loop = asyncio.get_running_loop()
            parts = BESIDE_PARTS if self._others else ALONE_PARTS
            loop.call_later((parts - 1) * (loop.time() - taken.began_s), self._rested)

    def _rested(self) -> None:
        self._holding = self._others = False
        self._changed.set()

    def _available(self) -> bool:
        free = len(self._lines) - self._held_lines
        return free > 0 or (self._held_lines > 0 and not self._holding)

    def _round(self, most: int) -> Round[T]:
        taken: list[T] = []
        spent = held_spent = passed_over = 0
        held_most = 0 if self._holding else max(1, most // HELD_PARTS)
        while spent < most and passed_over < len(self._lines):
            name, line = next(iter(self._lines.items()))
            del self._lines[name]
            if line.held and held_spent >= held_most:
                self._lines[name] = line
                passed_over += 1
                continue
            passed_over = 0
            before = spent
            line.deficit += max(1, self._quantum // HELD_PARTS) if line.held else self._quantum
            while line.waiting and line.waiting[0][0] <= line.deficit and (not taken or spent < most):
                cost, item = line.waiting.popleft()
                taken.append(item)
                spent += cost
                line.deficit -= cost
                line.cost -= cost
            if line.held:
                held_spent += spent - before
            # To the end of the row, or out of it: who has nothing waiting saves up nothing either.
            if line.waiting:
                self._lines[name] = line
            else:
                self._held_lines -= line.held
        self._cost -= spent
        self._holding = self._holding or held_spent > 0
        return Round(tuple(taken), held_spent > 0, asyncio.get_running_loop().time())
