"""Client of operators and principals for alerts: what was told, to whom, and what nobody took."""

from __future__ import annotations

from collections.abc import Sequence

from snavio.admin.client import ServiceClient
from snavio.v1.relay_pb2 import (
    AckAlertsRequest,
    AckAlertsResponse,
    ListAlertsRequest,
    ListAlertsResponse,
    MuteAlertsRequest,
    MuteAlertsResponse,
    RotateWebhookSecretRequest,
    RotateWebhookSecretResponse,
    TestAlertChannelRequest,
    TestAlertChannelResponse,
)

TEST_SECONDS = 60.0
"""Longer than any channel takes to say no."""


class AlertClient(ServiceClient):
    """A client of Relay under an operator's or a principal's certificate. An empty tenant is the caller's own."""

    service = "relay"

    async def alerts(
        self,
        tenant: str = "",
        *,
        unrouted: bool = False,
        only_open: bool = False,
        limit: int = 0,
        before: str = "",
    ) -> ListAlertsResponse:
        """Alerts, newest first."""
        request = ListAlertsRequest(
            tenant=tenant, unrouted=unrouted, open=only_open, limit=limit, before=before
        )
        return await self._call("ListAlerts", request, ListAlertsResponse)

    async def ack(self, alert_ids: Sequence[str]) -> int:
        """Acknowledge alerts; how many were not before."""
        answer = await self._call("AckAlerts", AckAlertsRequest(alert_id=alert_ids), AckAlertsResponse)
        return answer.acked

    async def test(self, channel: str, *, tenant: str = "") -> TestAlertChannelResponse:
        """Send a test by a channel."""
        request = TestAlertChannelRequest(tenant=tenant, channel=channel)
        return await self._call("TestAlertChannel", request, TestAlertChannelResponse, timeout_s=TEST_SECONDS)

    async def mute(self, event: str = "", *, tenant: str = "", until_unix_ns: int = 0) -> MuteAlertsResponse:
        """Mute an event until then, or lift that; without an event, what is muted."""
        request = MuteAlertsRequest(tenant=tenant, event=event, until_unix_ns=until_unix_ns)
        return await self._call("MuteAlerts", request, MuteAlertsResponse)

    async def rotate_secret(self, channel: str, *, tenant: str = "") -> RotateWebhookSecretResponse:
        """A new signing secret of a webhook, shown this once."""
        request = RotateWebhookSecretRequest(tenant=tenant, channel=channel)
        return await self._call("RotateWebhookSecret", request, RotateWebhookSecretResponse)
