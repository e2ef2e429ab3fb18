"""Puts Registry together: directory, rules, the way to Signer, server.

Never serves before it has read the denylist once: a revoked principal would be let in.
"""

from __future__ import annotations

from services.registry.settings import RegistrySettings
from services.registry.signer.joint_writes import JointWrites
from services.registry.signer.signer_calls import SignerCalls
from services.registry.snapshots import SnapshotWriter
from services.registry.wire.bans_servicer import BansServicer
from services.registry.wire.query_servicer import QueryServicer
from services.registry.wire.write_servicer import WriteServicer
from services.registry.writes.ownership import Ownership
from services.registry.writes.sweeper import Sweeper
from snavio.clock import Clock
from snavio.config import MeshSettings
from snavio.domain.identity import Identity, IdentityKind
from snavio.host.introspection import Introspection
from snavio.ports.archive import Archive
from snavio.ports.directory import Directory
from snavio.replication.denylist import Denylist, denylist_poller
from snavio.replication.poller import Poller
from snavio.rpc.certificate_gate import CertificateGate
from snavio.rpc.channel import MeshChannel
from snavio.rpc.credentials import CertificateFiles
from snavio.rpc.renewal import Renewal, mesh_renewal
from snavio.rpc.server import MeshServer
from snavio.rpc.server_shares import ServerShares
from snavio.signed.platform_keys import PlatformKeys
from snavio.telemetry.events import EventJournal
from snavio.telemetry.reporting import Reporting
from snavio.wiring import open_archive, open_directory

DRAIN_SECONDS = 5.0


class RegistryApp:
    """One Registry process."""

    def __init__(self, mesh: MeshSettings, settings: RegistrySettings, *, clock: Clock) -> None:
        self._mesh = mesh
        self._settings = settings
        self._clock = clock
        self._reporting = Reporting(mesh, service="registry", instance="registry-0", clock=clock)
        self._signer: MeshChannel | None = None
        self._directory: Directory | None = None
        self._denylist: Denylist | None = None
        self._sweep: Poller | None = None
        self._archive: Archive | None = None
        self._snapshots: SnapshotWriter | None = None
        self._renewal: Renewal | None = None
        self._server: MeshServer | None = None
        self._joint_writes: JointWrites | None = None

    async def start(self) -> int:
        """Open the directory, wait for Signer, serve; returns the port."""
        mesh, settings, clock = self._mesh, self._settings, self._clock
        files = CertificateFiles.in_folder(mesh.certificates("registry"))
        self._directory = await open_directory(settings.store_path(mesh), clock=clock)
        self._signer = MeshChannel(
            mesh.signer, files=files, service="signer", trust_domain=mesh.trust_domain, clock=clock
        )
        gate = CertificateGate(clock=clock)
        self._denylist = denylist_poller(
            self._signer,
            gate,
            clock=clock,
            interval_s=mesh.pull_interval_ms / 1000,
            stale_s=mesh.denylist_stale_s,
        )
        await self._denylist.start(within_s=settings.start_within_s)
        trust = SignerCalls(self._signer, timeout_s=settings.signer_timeout_s)
        ownership = Ownership(settings.bounds(), clock, mesh.queue_kinds())
        policy = settings.ban_policy()
        servicer = WriteServicer(
            directory=self._directory, ownership=ownership, trust=trust, spares=policy.spares
        )
        self._joint_writes = servicer.joint_writes
        methods = servicer.methods()
        QueryServicer(directory=self._directory, ownership=ownership, trust=trust).register(methods)
        sweeper = Sweeper(directory=self._directory, trust=trust, clock=clock, trust_domain=mesh.trust_domain)
        self._sweep = Poller("sweep", sweeper.sweep, clock=clock, interval_s=settings.sweep_interval_s)
        await self._sweep.start(within_s=settings.start_within_s)
        introspection = Introspection("registry", clock=clock)
        introspection.register(methods)
        self._archive = open_archive(mesh.snapshots())
        platform = PlatformKeys(self._signer)
        events = EventJournal(epoch=clock.unix_ns(), onward=self._reporting.record)
        bans = BansServicer(
            directory=self._directory,
            ownership=ownership,
            policy=policy,
            record=lambda event, at_unix_ns: events.record(event, at_unix_ns=at_unix_ns),
            actor=Identity(mesh.trust_domain, IdentityKind.MESH, "registry").spiffe_id,
        )
        bans.register(methods)
        introspection.counts(bans.counters, prefix="proposal.")
        # A life that ended between a ban and its event left it to this one.
        await bans.announce()
        self._snapshots = SnapshotWriter(
            directory=self._directory,
            archive=self._archive,
            sign=platform.sign,
            keys=platform.verifying,
            clock=clock,
            plan=settings.snapshot_plan(),
            events=events,
        )
        introspection.counts(events.counters, prefix="event.")
        introspection.counts(self._snapshots.counters)
        self._reporting.introspect(introspection)
        self._reporting.certificates(gate, introspection)
        introspection.gauges(self._snapshots.gauges)
        self._renewal = mesh_renewal(mesh.certificates("registry"), self._signer, clock=clock)
        introspection.gauges(self._renewal.gauges, prefix="certificate.")
        introspection.gauges(self._denylist.gauges, prefix="denylist.")
        self._renewal.start()
        shares = ServerShares(mesh.share)
        introspection.shares(*shares.all())
        self._server = MeshServer(
            listen=settings.listen or mesh.registry,
            files=files,
            methods=methods,
            gate=gate,
            clock=clock,
            trust_domain=mesh.trust_domain,
            shares=shares,
        )
        port = await self._server.start()
        self._reporting.start()
        if settings.write_snapshots:
            self._snapshots.start()
        return port

    async def drain(self) -> None:
        """Finish calls under way, then release everything."""
        if self._server is not None:
            await self._server.drain(DRAIN_SECONDS)
        if self._joint_writes is not None:
            await self._joint_writes.finish(DRAIN_SECONDS)
        for pull in (self._denylist, self._sweep):
            if pull is not None:
                await pull.stop()
        if self._snapshots is not None:
            await self._snapshots.stop()
        if self._archive is not None:
            await self._archive.close()
        if self._renewal is not None:
            await self._renewal.stop()
        await self._reporting.stop()
        if self._signer is not None:
            await self._signer.close()
        if self._directory is not None:
            await self._directory.close()


def build(mesh: MeshSettings, settings: RegistrySettings, clock: Clock) -> RegistryApp:
    """Registry, composed and not yet started."""
    return RegistryApp(mesh, settings, clock=clock)
