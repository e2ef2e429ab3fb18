"""Waiting for a part of a bound: what does not fit now is taken as soon as it does, in order for each tenant.

Never lets one tenant's waiting hold up another's, and never waits without a deadline.
"""

from __future__ import annotations

import asyncio
from collections import deque

from snavio.host.shares import Shares


class WaitingShares:
    """`Shares` whose `take` waits. Lives on one event loop. Bounded by the number of its callers."""

    __slots__ = ("_waiting", "shares")

    def __init__(self, shares: Shares) -> None:
        self.shares = shares
        self._waiting: dict[str, deque[tuple[asyncio.Future[None], int]]] = {}

    def take_now(self, tenant: str, amount: int) -> int:
        """As `take` without waiting: 0, with nothing taken, without room or while another call of the tenant waits."""
        amount = self._possible(amount)
        if tenant in self._waiting or not self.shares.room(tenant, amount):
            return 0
        self.shares.take(tenant, amount)
        return amount

    def _possible(self, amount: int) -> int:
        limit = self.shares.limit
        return min(amount, limit.per_tenant, limit.total - limit.reserve)

    async def take(self, tenant: str, amount: int, *, within_s: float) -> int:
        """Hold `amount`, or all that a tenant may hold if that is less; how much it is.

        Waits for room; Saturated, with nothing taken, when there is none `within_s`.
        """
        # Nothing would be waited for until somebody else gives back, with all others of the tenant behind it.
        if amount <= 0:
            return 0
        held = self.take_now(tenant, amount)
        if held:
            return held
        amount = self._possible(amount)
        try:
            async with asyncio.timeout(within_s):
                await self._turn(tenant, amount)
        except TimeoutError:
            raise self.shares.saturated(tenant, amount) from None
        return amount

    async def _turn(self, tenant: str, amount: int) -> None:
        queue = self._waiting.setdefault(tenant, deque())
        turn = (asyncio.get_running_loop().create_future(), amount)
        queue.append(turn)
        try:
            await turn[0]
        except asyncio.CancelledError:
            if turn[0].done() and not turn[0].cancelled():
                # It was given in the same moment.
                self.give_back(tenant, amount)
            else:
                if turn in queue:
                    queue.remove(turn)
                if not queue and self._waiting.get(tenant) is queue:
                    del self._waiting[tenant]
                self.shares.refused += 1
                self._wake()
            raise

    def give_back(self, tenant: str, amount: int) -> None:
        """Hold `amount` less; waiting calls that fit now get theirs at once."""
        self.shares.give_back(tenant, amount)
        if self._waiting:
            self._wake()

    def _wake(self) -> None:
        shares = self.shares
        for tenant in list(self._waiting):
            queue = self._waiting.pop(tenant)
            while queue and shares.room(tenant, queue[0][1]):
                future, amount = queue.popleft()
                if not future.done():
                    shares.take(tenant, amount)
                    future.set_result(None)
            if queue:
                # At the end: of several tenants that wait for the whole, each has its turn.
                self._waiting[tenant] = queue
