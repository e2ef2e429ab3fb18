"""Composes the alerts of one Relay: store, channels, senders, the watch over the mesh, and the calls.

Never sends before the store of alerts is open.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from services.relay.alerts.alert_servicer import AlertServicer
from services.relay.alerts.alerting import Alerting
from services.relay.alerts.channels import AlertChannels, operators_channels
from services.relay.alerts.contents import member
from services.relay.alerts.emails import AlertEmails, SmtpServer, require_password
from services.relay.alerts.watch import LOOK_SECONDS, OperatorWatch
from services.relay.alerts.webhook_egress import WebhookEgress
from services.relay.alerts.webhooks import AlertWebhooks
from services.relay.pending_pages import PendingPages
from services.relay.settings import RelaySettings
from snavio.errors import SnavioError
from snavio.host.service import ServiceHost
from snavio.ports.alert_store import AlertStore
from snavio.rpc.channel import MeshChannel
from snavio.v1.registry_pb2 import ListRouteHealthRequest, ListRouteHealthResponse
from snavio.wiring import open_alerts

IN_STATE: Final = 50
ROUTES_IN_STATE: Final = 500
CALL_SECONDS: Final = 2.0
WATCHED: Final = ("signer", "registry", "shield", "fast", "slow", "mailbox")


@dataclass(frozen=True, slots=True)
class RelayAlerts:
    """The parts that others work with."""

    alerting: Alerting
    channels: AlertChannels
    servicer: AlertServicer
    store: AlertStore

    registry: MeshChannel

    async def members(self, tenant: str) -> dict[str, Any]:
        """The tenant's open alerts and the health of its routes, as members of its signed state.

        While Registry is away nobody says how routes are: null.
        """
        found = await self.store.listed(tenant=tenant, open_only=True, limit=IN_STATE)
        alerts = [member(message) for message, _ in found]
        try:
            answer = await self.registry.call(
                "/snavio.v1.Registry/ListRouteHealth",
                ListRouteHealthRequest(tenant=tenant, limit=ROUTES_IN_STATE),
                ListRouteHealthResponse,
                timeout_s=CALL_SECONDS,
            )
        except SnavioError:
            return {"alerts": alerts, "routes": None}
        routes = [
            {"target": each.target, "status": each.status, "evidence": list(each.evidence)}
            for each in answer.route
        ]
        return {"alerts": alerts, "routes": routes}


async def run_alerts(host: ServiceHost, settings: RelaySettings, *, waiting: PendingPages) -> RelayAlerts:
    """Open the store, then run everything; StateError for settings that cannot work."""
    mesh, clock = host.mesh, host.clock
    smtp = _smtp(settings)
    store = host.hold(
        await open_alerts(
            settings.alerts_path(mesh),
            messages=settings.alert_messages,
            messages_per_tenant=settings.alert_messages_per_tenant,
        )
    )
    egress = host.hold(WebhookEgress(settings))
    emails = AlertEmails(smtp, clock=clock)
    host.at_stop("mail", emails.stop)
    webhooks = AlertWebhooks(egress, store, clock=clock)
    channels = AlertChannels(
        host.channel("registry"),
        operators=operators_channels(email=settings.operator_email, webhook=settings.operator_webhook),
    )
    alerting = Alerting(store=store, channels=channels, webhooks=webhooks, emails=emails, clock=clock)
    await host.run(channels)
    await host.run(alerting)
    watch = OperatorWatch(
        services={name: host.channel(name) for name in WATCHED},
        fullness=lambda: {
            "relay.outbox": waiting.gauges().get("waiting_bytes", 0.0) / settings.outbox_max_bytes,
            "relay.alerts": alerting.gauges()["messages"] / settings.alert_messages,
        },
        certificate=host.files.certificate,
        ca=host.files.ca,
        note=alerting.note,
        clock=clock,
    )
    host.every(LOOK_SECONDS, "watch over the mesh", watch.look)
    host.introspection.shares(alerting.shares, egress.shares)
    host.introspection.counts(alerting.counters)
    host.introspection.counts(egress.counters)
    host.introspection.gauges(alerting.gauges, prefix="alerts.")
    servicer = AlertServicer(
        alerting=alerting, store=store, channels=channels, webhooks=webhooks, clock=clock
    )
    return RelayAlerts(alerting, channels, servicer, store, host.channel("registry"))


def _smtp(settings: RelaySettings) -> SmtpServer:
    server = SmtpServer(
        host=settings.smtp_host,
        port=settings.smtp_port,
        security=settings.smtp_security.value,
        user=settings.smtp_user,
        password_file=settings.smtp_password_file,
        sender=settings.smtp_from,
        ca_file=settings.smtp_ca_file,
    )
    require_password(server)
    return server
