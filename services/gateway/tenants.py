"""The names of all tenants, from Registry's directory.

Never takes a tenant for unknown while the list has not been read as a whole.
"""

from __future__ import annotations

from snavio.clock import Clock
from snavio.replication.directory_feed import DirectoryFeed
from snavio.replication.poller import Poller
from snavio.rpc.channel import MeshChannel
from snavio.v1.registry_pb2 import Change

KIND = "tenant"


class TenantNames(Poller):
    """Follows the directory's tenants."""

    def __init__(self, registry: MeshChannel, *, clock: Clock, interval_s: float, instance: str) -> None:
        self._names: set[str] = set()
        self._feed = DirectoryFeed(
            registry, clock=clock, take=self._take, forget=self._forget, kind=KIND, instance=instance
        )
        super().__init__("tenants", self._catch_up, clock=clock, interval_s=interval_s)

    def __contains__(self, tenant: str) -> bool:
        return tenant in self._names

    def gauges(self) -> dict[str, float]:
        """For operators."""
        return {"known": float(len(self._names))}

    async def _catch_up(self) -> None:
        await self._feed.catch_up()

    def _take(self, change: Change) -> None:
        if change.WhichOneof("value") != KIND:
            return
        if change.deleted:
            self._names.discard(change.tenant.tenant)
        else:
            self._names.add(change.tenant.tenant)

    def _forget(self, _asked_mono_ns: int | None) -> None:
        self._names.clear()
