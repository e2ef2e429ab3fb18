"""Tenants, and the owners of targets, as Registry's directory has them.

Never a reason to wait: while Registry is away nobody is known, and who asks does without.
"""

from __future__ import annotations

from snavio.host.periodic import Periodic
from snavio.replication.directory_dump import DumpReading
from snavio.rpc.channel import MeshChannel
from snavio.v1.registry_pb2 import Change

AGAIN_SECONDS = 600.0
"""Changes are taken as they come; reading all of it again mends what was missed."""
QUIET_SECONDS = 2.0
"""Between two readings, however many names are unknown."""


class DirectoryNames:
    """Lives on one event loop; as large as the directory's lists of tenants and targets, which Registry bounds."""

    def __init__(self, registry: MeshChannel) -> None:
        self._registry = registry
        self._tenants: set[str] = set()
        self._owners: dict[str, str] = {}
        self._readings = Periodic(
            "directory names",
            self.read,
            every_s=AGAIN_SECONDS,
            first_s=0.5,
            longest_s=30.0,
            quiet_s=QUIET_SECONDS,
        )

    async def start(self) -> None:
        """Read in the background until `stop`."""
        self._readings.start(at_once=True)

    async def stop(self) -> None:
        """End the readings."""
        await self._readings.stop()

    async def read(self) -> None:
        """Read both lists anew."""
        tenants: set[str] = set()
        owners: dict[str, str] = {}
        async for entry in DumpReading(self._registry, kind="tenant").entries():
            tenants.add(entry.tenant.tenant)
        async for entry in DumpReading(self._registry, kind="target").entries():
            owners[entry.target.target] = entry.target.tenant
        self._tenants, self._owners = tenants, owners

    def take(self, change: Change) -> None:
        """Apply a change of the directory."""
        match change.WhichOneof("value"), change.deleted:
            case "tenant", False:
                self._tenants.add(change.tenant.tenant)
            case "tenant", True:
                self._tenants.discard(change.tenant.tenant)
            case "target", False:
                self._owners[change.target.target] = change.target.tenant
            case "target", True:
                self._owners.pop(change.target.target, None)

    def knows(self, tenant: str) -> bool:
        """True if the directory has this tenant; otherwise it is read again, soon, in case a change was missed."""
        known = tenant in self._tenants
        if not known:
            self._readings.nudge()
        return known

    def owner(self, target: str) -> str:
        """The tenant that owns a target; empty if unknown, and then it is read again, soon."""
        owner = self._owners.get(target, "")
        if not owner:
            self._readings.nudge()
        return owner
