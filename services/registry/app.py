"""Composes Registry: directory, rules, snapshots, and the calls to Signer.

Never serves before what an earlier life left half-done was finished: expired entries, announcements of bans.
"""

from __future__ import annotations

from services.registry.reads.forecast import Forecast
from services.registry.reads.live_gates import LiveGates
from services.registry.settings import RegistrySettings
from services.registry.signer.signer_calls import SignerCalls
from services.registry.snapshots import SnapshotWriter
from services.registry.wire.bans_servicer import BansServicer
from services.registry.wire.entries_servicer import EntriesServicer
from services.registry.wire.query_servicer import QueryServicer
from services.registry.wire.write_servicer import WriteServicer
from services.registry.writes.ownership import Ownership
from services.registry.writes.queue_proofs import QueueProofs
from services.registry.writes.sweeper import Sweeper
from snavio.domain.identity import Identity, IdentityKind
from snavio.host.service import DRAIN_SECONDS, HostedService
from snavio.ports.directory import Directory
from snavio.signed.platform_keys import PlatformKeys
from snavio.telemetry.events import EventJournal
from snavio.wiring import open_archive, open_directory


class RegistryApp(HostedService[RegistrySettings]):
    """One Registry process. Tests may look at `directory` and `snapshots`, once it has started."""

    service = "registry"
    directory: Directory
    snapshots: SnapshotWriter

    async def compose(self) -> int:
        """Open the directory, wait for Signer, sweep, then serve."""
        host, settings, mesh, clock = self.host, self._settings, self.host.mesh, self.host.clock
        directory = self.directory = host.hold(await open_directory(settings.store_path(mesh), clock=clock))
        await host.read_denylist()
        events = EventJournal(epoch=host.epoch, onward=host.reporting.record)
        trust = SignerCalls(host.channel("signer"), timeout_s=settings.signer_timeout_s)
        ownership = Ownership(settings.bounds(), clock, mesh.queue_kinds())
        policy = settings.ban_policy()
        forecast = Forecast(trust, LiveGates(host.channel("slow"), clock), clock)
        writes = WriteServicer(
            directory=directory,
            ownership=ownership,
            trust=trust,
            forecast=forecast,
            queues=QueueProofs(host.channel("slow")),
            spares=policy.spares,
        )
        host.at_stop(
            "joint writes",
            lambda: writes.joint_writes.finish(DRAIN_SECONDS),
            within_s=DRAIN_SECONDS + 1.0,
        )
        bans = BansServicer(
            directory=directory,
            ownership=ownership,
            policy=policy,
            record=lambda event, at_unix_ns: events.record(event, at_unix_ns=at_unix_ns),
            actor=Identity(mesh.trust_domain, IdentityKind.MESH, "registry").spiffe_id,
        )
        sweeper = Sweeper(directory=directory, trust=trust, clock=clock, trust_domain=mesh.trust_domain)
        await host.now_and_every(
            settings.sweep_interval_s, "sweep", sweeper.sweep, within_s=settings.start_within_s
        )
        # A life that ended between a ban and its event left it to this one.
        await bans.announce()
        platform = PlatformKeys(host.channel("signer"))
        snapshots = self.snapshots = SnapshotWriter(
            directory=directory,
            archive=host.hold(open_archive(mesh.snapshots())),
            sign=platform.sign,
            keys=platform.verifying,
            clock=clock,
            plan=settings.snapshot_plan(),
            events=events,
        )
        if settings.write_snapshots:
            host.every(settings.snapshot_plan().interval_s, "snapshots", snapshots.turn, at_once=True)
        host.introspection.counts(bans.counters, prefix="proposal.")
        host.introspection.counts(events.counters, prefix="event.")
        host.introspection.counts(snapshots.meter.counters)
        host.introspection.gauges(snapshots.meter.gauges)
        methods = writes.methods()
        QueryServicer(directory=directory, ownership=ownership, forecast=forecast).register(methods)
        bans.register(methods)
        EntriesServicer(directory=directory, ownership=ownership, batches=writes.batches).register(methods)
        return await host.serve(methods)
