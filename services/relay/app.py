"""Composes Relay.

Never takes a page before the outbox is open and what was received before is known.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from services.relay.alerts.composition import RelayAlerts, run_alerts
from services.relay.compaction import LONGEST_PAUSE_S, LOOK_SECONDS, ArchiveCompaction
from services.relay.cutting import Cutting
from services.relay.directory_names import DirectoryNames
from services.relay.exporter import Exporter
from services.relay.page_intake import PageIntake
from services.relay.pending_pages import PendingPages
from services.relay.queueing import QueueFeed
from services.relay.relay_events import RelayEvents
from services.relay.revocations import Revocations
from services.relay.sealing import Sealing
from services.relay.servicer import RelayServicer
from services.relay.settings import RelaySettings
from services.relay.statements import Statements
from services.relay.stream_retention import StreamRetention
from services.relay.stream_servicer import StreamServicer
from services.relay.stream_tails import StreamTails
from services.relay.tenant_keys import TenantKeys
from snavio.clock import Clock
from snavio.config import MeshSettings
from snavio.domain.stream import Position
from snavio.host.service import HostedService, ServiceHost
from snavio.native import Tombstones
from snavio.ports.outbox import Outbox
from snavio.ports.tenant_streams import StreamEntry, TenantStreams
from snavio.signed.manifest_signer import ManifestSigner
from snavio.signed.platform_keys import PlatformKeys
from snavio.v1.registry_pb2 import Change
from snavio.wiring import open_archive, open_outbox, open_tenant_streams


@dataclass(frozen=True, slots=True)
class StreamReading:
    """Parts that the calls about streams work on."""

    tails: StreamTails
    statements: Statements
    queues: QueueFeed


class RelayApp(HostedService):
    """One Relay process. Its own events are stored with the pages that they are about, so it keeps no journal."""

    def __init__(self, mesh: MeshSettings, settings: RelaySettings, clock: Clock) -> None:
        super().__init__(
            ServiceHost(
                "relay",
                mesh,
                clock=clock,
                instance=settings.instance,
                start_within_s=settings.start_within_s,
                journal="none",
            )
        )
        self._settings = settings

    async def compose(self) -> int:
        """Read the denylist, open the outbox, take up what was left, then serve."""
        host, mesh, settings, clock = self.host, self.host.mesh, self._settings, self.host.clock
        settings.require_one_owner()
        await host.read_denylist()
        outbox = host.hold(await open_outbox(settings.outbox_path(mesh), max_bytes=settings.outbox_max_bytes))
        streams = host.hold(await open_tenant_streams(settings.streams_path(mesh), clock=clock))
        archive = host.hold(open_archive(mesh.archive()))
        waiting, tombstones, turn = PendingPages(), Tombstones(), asyncio.Lock()
        waiting.load(await outbox.pages())
        own = RelayEvents(instance=settings.instance, epoch=host.epoch, clock=clock)
        platform = PlatformKeys(host.channel("signer"))
        signer = ManifestSigner(sign=platform.sign, keys=platform.verifying)
        intake = PageIntake(outbox=outbox, waiting=waiting, own=own, clock=clock)
        await host.run(intake)
        names = DirectoryNames(host.channel("registry"))
        await host.run(names)
        alerts = await run_alerts(host, settings, waiting=waiting)

        def changed(change: Change) -> None:
            names.take(change)
            alerts.channels.take(change)

        revocations = Revocations(
            registry=host.channel("registry"),
            outbox=outbox,
            archive=archive,
            waiting=waiting,
            own=own,
            tombstones=tombstones,
            turn=turn,
            clock=clock,
            interval_s=host.pull_interval_s,
            patience_s=settings.revocations_wait_s,
            changed=changed,
        )
        await host.run(revocations)
        exporter = Exporter(
            outbox=outbox,
            archive=archive,
            waiting=waiting,
            own=own,
            signer=signer,
            tombstones=tombstones,
            turn=turn,
            clock=clock,
            rhythm=settings.rhythm(),
            revocations_known_unix_ns=revocations.known_unix_ns,
        )
        await host.run(exporter)
        compaction = ArchiveCompaction(
            outbox=outbox,
            archive=archive,
            signer=signer,
            keys=platform.ever,
            turn=turn,
            clock=clock,
            after_s=settings.compact_after_s,
        )
        if settings.compact:
            host.every(LOOK_SECONDS, "compaction", compaction.look, longest_s=LONGEST_PAUSE_S)
        reading = await self._streams(
            streams=streams, outbox=outbox, waiting=waiting, intake=intake, names=names, alerts=alerts
        )
        host.introspection.counts(intake.counters, prefix="intake.")
        host.introspection.counts(exporter.counters, prefix="export.")
        host.introspection.counts(compaction.counters, prefix="compaction.")
        host.introspection.gauges(waiting.gauges, prefix="outbox.")
        methods = RelayServicer(intake=intake).methods()
        StreamServicer(
            tails=reading.tails, statements=reading.statements, send_again=reading.queues.send_again
        ).register(methods)
        alerts.servicer.register(methods)
        return await host.serve(methods, leaving=reading.tails.wake)

    async def _streams(
        self,
        *,
        streams: TenantStreams,
        outbox: Outbox,
        waiting: PendingPages,
        intake: PageIntake,
        names: DirectoryNames,
        alerts: RelayAlerts,
    ) -> StreamReading:
        """Start what cuts, seals, sends on and ends the tenants' streams."""
        host, settings, clock = self.host, self._settings, self.host.clock
        signing, tails = TenantKeys(host.channel("signer")), StreamTails(streams)
        queues = QueueFeed(
            streams=streams,
            tails=tails,
            mailbox=host.channel("mailbox", sends=True),
            tell=intake.record,
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
        statements = Statements(streams=streams, signing=signing, clock=clock, members=alerts.members)
        return StreamReading(tails, statements, queues)
