"""Composes the way of tenants' events inside Relay: cut from the outbox, sealed into chains, kept, sent to queues.

Never reads a page that the outbox does not hold: what is cut is on disk already.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from services.relay.alerts.composition import RelayAlerts
from services.relay.cutting import Cutting
from services.relay.directory_names import DirectoryNames
from services.relay.page_intake import PageIntake
from services.relay.pending_pages import PendingPages
from services.relay.queueing import QueueFeed
from services.relay.sealing import Sealing
from services.relay.settings import RelaySettings
from services.relay.state_members import StateMembers
from services.relay.statements import Statements
from services.relay.stream_retention import StreamRetention
from services.relay.stream_servicer import StreamServicer
from services.relay.stream_tails import StreamTails
from services.relay.tenant_keys import TenantKeys
from services.relay.tenant_restrictions import TenantRestrictions
from services.relay.undelivered import Undelivered
from snavio.domain.stream import Position
from snavio.host.service import ServiceHost
from snavio.ports.outbox import Outbox
from snavio.ports.tenant_streams import StreamEntry
from snavio.wiring import open_tenant_streams


@dataclass(frozen=True, slots=True)
class StreamParts:
    """The calls about streams, and the readers that wait in them."""

    servicer: StreamServicer
    tails: StreamTails


async def compose_streams(
    host: ServiceHost,
    settings: RelaySettings,
    *,
    outbox: Outbox,
    waiting: PendingPages,
    intake: PageIntake,
    names: DirectoryNames,
    undelivered: Undelivered,
    alerts: RelayAlerts,
    restrictions: TenantRestrictions,
) -> StreamParts:
    """Open the streams and start the work on them."""
    clock = host.clock
    streams = host.hold(await open_tenant_streams(settings.streams_path(host.mesh), clock=clock))
    signing, tails = TenantKeys(host.channel("signer")), StreamTails(streams)
    queues = QueueFeed(
        streams=streams,
        tails=tails,
        mailbox=host.channel("mailbox", sends=True),
        tell=intake.record,
        undelivered=undelivered,
        clock=clock,
    )

    def appended(tenant: str, entries: Sequence[StreamEntry], position: Position) -> None:
        tails.appended(tenant, entries, position)
        queues.nudge()

    sealing = Sealing(
        streams=streams,
        signing=signing,
        knows=names.knows,
        clock=clock,
        fence=host.epoch,
        appended=appended,
    )
    cutting = Cutting(
        outbox=outbox,
        streams=streams,
        owner=names.owner,
        clock=clock,
        told_per_s=settings.stream_events_per_s,
        cut=sealing.nudge,
        alerts=alerts.alerting,
    )
    retention = StreamRetention(
        streams=streams,
        tails=tails,
        tell=intake.record,
        clock=clock,
        window_s=settings.stream_window_s,
        max_bytes_per_tenant=settings.stream_max_bytes,
    )
    await host.run(sealing)
    await host.run(cutting)
    await host.run(retention)
    await host.run(queues)
    waiting.added = cutting.nudge
    host.introspection.counts(cutting.counters, prefix="cutting.")
    host.introspection.counts(sealing.counters)
    host.introspection.counts(retention.counters, prefix="streams.")
    host.introspection.counts(tails.counters, prefix="streams.")
    host.introspection.counts(queues.counters, prefix="queues.")
    host.introspection.gauges(queues.gauges, prefix="queues.")
    host.introspection.gauges(sealing.gauges, prefix="sealing.")
    host.introspection.gauges(tails.gauges, prefix="stream_tails.")
    members = StateMembers(signer=host.channel("signer"), restrictions=restrictions, alerts=alerts.members)
    statements = Statements(streams=streams, signing=signing, clock=clock, members=members.of)
    return StreamParts(
        StreamServicer(tails=tails, statements=statements, send_again=queues.send_again), tails
    )
