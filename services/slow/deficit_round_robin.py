"""Escalations that wait for a round, in one queue per source, served by deficit round robin.

Bounded, per queue, per tenant and in all. Never lets a flood of one source delay another's turn by more than one
quantum of each queue in between; an item that does not fit is refused with a hint. Queues that are held back, those of
banned sources, share one round at a time, a small part of it, and a small part of all time: whatever they bring, most
of Slow stays free for the others.

Not a `FairSendQueue`: that one orders the parts of a connection that sends one batch after another. Here several rounds
are decided side by side, a round takes many sources at once, and held queues are rationed in time as well as in turns,
which a queue that only names the next item cannot do.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from snavio.errors import Saturated
from snavio.host.shares import Shares

RETRY_AFTER_MS = 250
# A turn of a queue that is held back, and the share of all of them in a round, is so many times smaller.
HELD_PARTS = 5
# Their share of time: a fifth while no other source comes, and half of that while one does. A fifth of the time alone
# would cost others all that a flood may cost them, and what is decided beside it is not free either.
ALONE_PARTS, BESIDE_PARTS = 5, 10

T = TypeVar("T")


@dataclass(slots=True)
class _SourceBacklog(Generic[T]):
    held: bool
    waiting: deque[tuple[int, T]] = field(default_factory=deque)
    cost: int = 0
    deficit: int = 0


@dataclass(frozen=True, slots=True)
class Round(Generic[T]):
    """Items that are decided together; `held` when some of them were held back."""

    items: tuple[T, ...]
    held: bool
    began_s: float


class DeficitRoundRobin(Generic[T]):
    """Costs are commands."""

    def __init__(self, *, quantum: int, shares: Shares, max_queue_cost: int) -> None:
        self._quantum = quantum
        self._shares = shares
        self._max_queue_cost = max_queue_cost
        self._queues: dict[str, _SourceBacklog[T]] = {}
        """In the order of their turns; one with nothing waiting is not in it."""
        self._held_queues = 0
        self._holding = False
        """A round with held queues is in progress, or ended just now."""
        self._others = False
        """A source that is not held back came since held queues had their last round."""
        self._changed = asyncio.Event()

    @property
    def cost(self) -> int:
        """Cost of all that waits."""
        return self._shares.used

    @property
    def queues(self) -> int:
        """Queues with something waiting."""
        return len(self._queues)

    def cost_of(self, name: str) -> int:
        """Cost of the items under one name."""
        queue = self._queues.get(name)
        return queue.cost if queue is not None else 0

    def put(self, name: str, item: T, *, cost: int, held: bool = False) -> None:
        """Append to the queue `name`, a source; Saturated when that, its tenant's share, or everything is full.

        One item always fits into an empty queue and an empty share: it came as one, and refusing it would refuse it for
        ever.
        """
        tenant, limit = name.partition("/")[0], self._shares.limit
        queue = self._queues.get(name)
        if queue is not None and queue.cost + cost > self._max_queue_cost:
            raise Saturated(
                f"{self._max_queue_cost} commands of this source wait for Slow, which is its share.",
                retry_after_ms=RETRY_AFTER_MS,
            )
        if self._shares.held(tenant) or self._shares.used + cost > limit.total - limit.reserve:
            self._shares.take(tenant, cost)
        else:
            self._shares.found(tenant, cost)
        if queue is None:
            queue = self._queues[name] = _SourceBacklog(held)
            self._held_queues += held
        queue.waiting.append((cost, item))
        queue.cost += cost
        self._others = self._others or not held
        self._changed.set()

    async def take(self, most: int) -> Round[T]:
        """Take a round, up to a cost of `most` but at least one item; waits for the first. Must be finished."""
        while not self._available():
            self._changed.clear()
            await self._changed.wait()
        return self._round(most)

    def finish(self, taken: Round[T]) -> None:
        """End a round that `take` has begun."""
        if taken.held:
            # The time that they took of Slow they now leave to others, several times over.
            loop = asyncio.get_running_loop()
            parts = BESIDE_PARTS if self._others else ALONE_PARTS
            loop.call_later((parts - 1) * (loop.time() - taken.began_s), self._rested)

    def _rested(self) -> None:
        self._holding = self._others = False
        self._changed.set()

    def _available(self) -> bool:
        free = len(self._queues) - self._held_queues
        return free > 0 or (self._held_queues > 0 and not self._holding)

    def _round(self, most: int) -> Round[T]:
        taken: list[T] = []
        spent = held_spent = passed_over = 0
        held_most = 0 if self._holding else max(1, most // HELD_PARTS)
        while spent < most and passed_over < len(self._queues):
            name, queue = next(iter(self._queues.items()))
            del self._queues[name]
            if queue.held and held_spent >= held_most:
                self._queues[name] = queue
                passed_over += 1
                continue
            passed_over = 0
            before = spent
            queue.deficit += max(1, self._quantum // HELD_PARTS) if queue.held else self._quantum
            while queue.waiting and queue.waiting[0][0] <= queue.deficit and (not taken or spent < most):
                cost, item = queue.waiting.popleft()
                taken.append(item)
                spent += cost
                queue.deficit -= cost
                queue.cost -= cost
                self._shares.give_back(name.partition("/")[0], cost)
            if queue.held:
                held_spent += spent - before
            # To the end of the row, or out of it: a queue with nothing waiting saves up nothing either.
            if queue.waiting:
                self._queues[name] = queue
            else:
                self._held_queues -= queue.held
        self._holding = self._holding or held_spent > 0
        return Round(tuple(taken), held_spent > 0, asyncio.get_running_loop().time())
