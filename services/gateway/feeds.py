"""The feeds of all tenants that have readers; a tenant without readers is followed no more after a while.

Never follows more tenants than there may be streams.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from services.gateway.tenant_feed import Frame, MakeChain, TenantFeed
from snavio.clock import Clock
from snavio.host.shares import Shares
from snavio.rpc.channel import MeshChannel

LINGER_NS: Final = 30_000_000_000
"""A reader that reconnects finds the tail that it left."""


class Feeds:
    """Lives on one event loop."""

    def __init__(
        self, relay: MeshChannel, *, chain: MakeChain, frame: Frame, kept: Shares, clock: Clock
    ) -> None:
        self._make: Callable[[str, int], TenantFeed] = lambda tenant, after: TenantFeed(
            tenant, relay=relay, chain=chain, frame=frame, kept=kept, after=after
        )
        self._clock = clock
        self._by_tenant: dict[str, TenantFeed] = {}
        self._idle_since: dict[str, int] = {}

    def enter(self, tenant: str, *, high: int) -> TenantFeed:
        """The feed of a tenant for one more reader; a new one follows from number `high`."""
        feed = self._by_tenant.get(tenant)
        if feed is None or feed.failed:
            feed = self._by_tenant[tenant] = self._make(tenant, high)
            feed.start()
        feed.readers += 1
        self._idle_since.pop(tenant, None)
        return feed

    def leave(self, tenant: str, feed: TenantFeed) -> None:
        """One reader less."""
        feed.readers -= 1
        if not feed.readers and self._by_tenant.get(tenant) is feed:
            self._idle_since[tenant] = self._clock.mono_ns()

    async def sweep(self) -> None:
        """Stop feeds without readers."""
        now = self._clock.mono_ns()
        for tenant in [name for name, since in self._idle_since.items() if now - since >= LINGER_NS]:
            del self._idle_since[tenant]
            await self._by_tenant.pop(tenant).stop()

    async def close(self) -> None:
        """Stop all of them."""
        feeds, self._by_tenant = list(self._by_tenant.values()), {}
        self._idle_since.clear()
        for feed in feeds:
            await feed.stop()

    def gauges(self) -> dict[str, float]:
        """For operators."""
        return {"followed": float(len(self._by_tenant))}
