"""Alert channels of tenants as Registry's directory has them, and the operators' own from the settings.

Never takes a tenant for one without channels while the list has not been read as a whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from snavio.domain.alerts import OPERATORS, RoutedChannel
from snavio.domain.directory import AlertChannel, ChannelKind
from snavio.host.periodic import Periodic
from snavio.replication.directory_dump import DumpReading
from snavio.replication.directory_wire import value_from_wire
from snavio.rpc.channel import MeshChannel
from snavio.v1.registry_pb2 import Change

KIND: Final = "alert_channel"
AGAIN_SECONDS: Final = 600.0
"""Changes are taken as they come; reading all of it again mends what was missed."""


class AlertChannels:
    """Lives on one event loop; as large as the directory's list, which Registry bounds for each tenant."""

    def __init__(self, registry: MeshChannel, *, operators: Mapping[str, AlertChannel]) -> None:
        self._registry = registry
        self._operators = dict(operators)
        self._channels: dict[str, dict[str, AlertChannel]] = {}
        self._known = False
        self._readings = Periodic(
            "alert channels", self.read, every_s=AGAIN_SECONDS, first_s=0.5, longest_s=30.0, quiet_s=2.0
        )

    async def start(self) -> None:
        """Read in the background until `stop`."""
        self._readings.start(at_once=True)

    async def stop(self) -> None:
        """End the readings."""
        await self._readings.stop()

    async def read(self) -> None:
        """Read the list anew."""
        channels: dict[str, dict[str, AlertChannel]] = {}
        async for entry in DumpReading(self._registry, kind=KIND).entries():
            value = value_from_wire(AlertChannel, entry.alert_channel)
            channels.setdefault(value.tenant, {})[value.name] = value
        self._channels, self._known = channels, True

    def take(self, change: Change) -> None:
        """Apply a change of the directory."""
        if change.WhichOneof("value") != KIND:
            return
        wire = change.alert_channel
        if change.deleted:
            self._channels.get(wire.tenant, {}).pop(wire.name, None)
        else:
            value = value_from_wire(AlertChannel, wire)
            self._channels.setdefault(value.tenant, {})[value.name] = value

    def known(self, tenant: str) -> bool:
        """False while it cannot be said which channels a tenant has."""
        return self._known or tenant == OPERATORS

    def of(self, tenant: str) -> Mapping[str, AlertChannel]:
        """The channels of a tenant by name; those of the operators for `OPERATORS`."""
        return self._operators if tenant == OPERATORS else self._channels.get(tenant, {})

    def routed(self, tenant: str) -> list[RoutedChannel]:
        """As routing looks at them."""
        return [RoutedChannel(each.name, each.events) for each in self.of(tenant).values()]


def operators_channels(*, email: str, webhook: str) -> dict[str, AlertChannel]:
    """The operators' channels of the settings; BadRequest for an address that is none."""
    found = {}
    for name, kind, address in (
        ("operator-email", ChannelKind.EMAIL, email),
        ("operator-webhook", ChannelKind.WEBHOOK, webhook),
    ):
        if address:
            # A channel has a tenant by form; nothing looks at this one's.
            found[name] = AlertChannel("operators", name, kind, address)
    return found
