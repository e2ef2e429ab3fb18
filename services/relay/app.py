"""Composes Relay.

Never takes a page before the outbox is open and what was received before is known.
"""

from __future__ import annotations

import asyncio

from services.relay.alerts.composition import run_alerts
from services.relay.archive_composition import compose_archive
from services.relay.directory_names import DirectoryNames
from services.relay.page_intake import PageIntake
from services.relay.pending_pages import PendingPages
from services.relay.relay_events import RelayEvents
from services.relay.revocations import Revocations
from services.relay.servicer import RelayServicer
from services.relay.settings import RelaySettings
from services.relay.stream_composition import compose_streams
from services.relay.tenant_restrictions import TenantRestrictions
from services.relay.undelivered import Undelivered
from snavio.host.service import HostedService
from snavio.native import Tombstones
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
        intake = PageIntake(outbox=outbox, waiting=waiting, own=own, clock=clock)
        await host.run(intake)
        names = DirectoryNames(host.channel("registry"))
        await host.run(names)
        restrictions = TenantRestrictions(host.channel("registry"), owner=names.owner, clock=clock)
        await host.run(restrictions)
        alerts = await run_alerts(host, settings, waiting=waiting)

        def changed(change: Change) -> None:
            names.take(change)
            restrictions.take(change)
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
        await compose_archive(
            host,
            settings,
            outbox=outbox,
            archive=archive,
            waiting=waiting,
            own=own,
            platform=platform,
            tombstones=tombstones,
            turn=turn,
            revocations=revocations,
        )
        streams = await compose_streams(
            host,
            settings,
            outbox=outbox,
            waiting=waiting,
            intake=intake,
            names=names,
            undelivered=Undelivered(archive=archive, tell=intake.record),
            alerts=alerts,
            restrictions=restrictions,
        )
        host.introspection.counts(intake.counters, prefix="intake.")
        host.introspection.gauges(waiting.gauges, prefix="outbox.")
        methods = RelayServicer(intake=intake).methods()
        streams.servicer.register(methods)
        alerts.servicer.register(methods)
        return await host.serve(methods, leaving=streams.tails.wake)
