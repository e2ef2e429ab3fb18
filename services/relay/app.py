"""Composes Relay.

Never takes a page before the outbox is open and what was received before is known.
"""

from __future__ import annotations

import asyncio

from services.relay.alerts.composition import run_alerts
from services.relay.compaction import LONGEST_PAUSE_S, LOOK_SECONDS, ArchiveCompaction
from services.relay.directory_names import DirectoryNames
from services.relay.exporter import Exporter
from services.relay.page_intake import PageIntake
from services.relay.pending_pages import PendingPages
from services.relay.relay_events import RelayEvents
from services.relay.retention import LOOK_SECONDS as RETENTION_LOOK_SECONDS
from services.relay.retention import ArchiveRetention
from services.relay.revocations import Revocations
from services.relay.servicer import RelayServicer
from services.relay.settings import RelaySettings
from services.relay.stream_composition import compose_streams
from services.relay.undelivered import Undelivered
from snavio.host.service import HostedService
from snavio.native import Tombstones
from snavio.signed.manifest_signer import ManifestSigner
from snavio.signed.platform_keys import PlatformKeys
from snavio.v1.registry_pb2 import Change
from snavio.wiring import open_archive, open_outbox


class RelayApp(HostedService[RelaySettings]):
    """One Relay process. Its own events are stored with the pages that they are about, so it keeps no journal."""

    service = "relay"
    journal = "none"

    async def compose(self) -> int:
        """Read the denylist, open the outbox, take up what was left, then serve."""
        host, mesh, settings, clock = self.host, self.host.mesh, self._settings, self.host.clock
        settings.require_one_owner()
        await host.read_denylist()
        outbox = host.hold(await open_outbox(settings.outbox_path(mesh), max_bytes=settings.outbox_max_bytes))
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
        if settings.archive_keep_days:
            retention = ArchiveRetention(
                outbox=outbox,
                archive=archive,
                sign=platform.sign,
                keys=platform.ever,
                turn=turn,
                clock=clock,
                keep_days=settings.archive_keep_days,
            )
            host.every(RETENTION_LOOK_SECONDS, "retention", retention.look)
            host.introspection.counts(retention.counters, prefix="retention.")
        streams = await compose_streams(
            host,
            settings,
            outbox=outbox,
            waiting=waiting,
            intake=intake,
            names=names,
            undelivered=Undelivered(archive=archive, tell=intake.record),
            alerts=alerts,
        )
        host.introspection.counts(intake.counters, prefix="intake.")
        host.introspection.counts(exporter.counters, prefix="export.")
        host.introspection.counts(compaction.counters, prefix="compaction.")
        host.introspection.gauges(waiting.gauges, prefix="outbox.")
        methods = RelayServicer(intake=intake).methods()
        streams.servicer.register(methods)
        alerts.servicer.register(methods)
        return await host.serve(methods, leaving=streams.tails.wake)
