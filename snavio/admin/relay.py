"""Client of operators for Relay: its progress, and envelopes that go to a tenant's queue again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from snavio.admin.client import ServiceClient
from snavio.v1.introspection_pb2 import StatusRequest, StatusResponse
from snavio.v1.relay_pb2 import ReEmitRequest, ReEmitResponse

STATUS: str = "/snavio.v1.Introspection/Status"
CALL_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class RelayProgress:
    """Relay's counters since its start, and its gauges, by name."""

    counters: Mapping[str, int]
    gauges: Mapping[str, float]


class RelayClient(ServiceClient):
    """A client of Relay under an operator's certificate."""

    service = "relay"
    call_seconds = CALL_SECONDS

    async def progress(self) -> RelayProgress:
        """Counts of events received, archived, sealed and sent on."""
        told = await self._channel.call(STATUS, StatusRequest(), StatusResponse, timeout_s=CALL_SECONDS)
        return RelayProgress(
            {each.name: each.value for each in told.counter}, {each.name: each.value for each in told.gauge}
        )

    async def re_emit(self, tenant: str, *, after: int) -> ReEmitResponse:
        """Send a tenant's envelopes after a number (0: all that are kept) to its queue again."""
        return await self._call("ReEmit", ReEmitRequest(tenant=tenant, after=after), ReEmitResponse)
