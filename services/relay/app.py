"""Composes Relay.

Never takes a page before the outbox is open and what was received before is known.
"""

from __future__ import annotations

import asyncio

import structlog

from services.relay.compaction import ArchiveCompaction
from services.relay.exporter import Exporter
from services.relay.page_intake import PageIntake
from services.relay.pending_pages import PendingPages
from services.relay.relay_events import RelayEvents
from services.relay.revocations import Revocations
from services.relay.servicer import RelayServicer
from services.relay.settings import RelaySettings
from snavio.clock import Clock
from snavio.config import MeshSettings
from snavio.domain.identity import Identity
from snavio.host.introspection import Introspection
from snavio.native import Tombstones
from snavio.ports.outbox import Outbox
from snavio.replication.denylist import denylist_poller
from snavio.rpc.certificate_gate import CertificateGate
from snavio.rpc.certificate_refusals import CertificateRefusals
from snavio.rpc.channel import MeshChannel
from snavio.rpc.credentials import CertificateFiles
from snavio.rpc.renewal import mesh_renewal
from snavio.rpc.server import MeshServer
from snavio.rpc.server_shares import ServerShares
from snavio.signed.manifest_signer import ManifestSigner
from snavio.signed.platform_keys import PlatformKeys
from snavio.telemetry.metrics import Metrics, export_metrics
from snavio.wiring import open_archive, open_outbox

DRAIN_SECONDS = 5.0


class RelayApp:
    """Relay, ready to start."""

    def __init__(self, mesh: MeshSettings, settings: RelaySettings, clock: Clock) -> None:
        self._mesh = mesh
        self._settings = settings
        self._clock = clock
        files = self._files = CertificateFiles.in_folder(mesh.certificates("relay"))
        self._channels = {
            name: MeshChannel(address, files=files, service=name, trust_domain=mesh.trust_domain)
            for name, address in (("signer", mesh.signer), ("registry", mesh.registry))
        }
        self._gate = CertificateGate(clock=clock)
        self._denylist = denylist_poller(
            self._channels["signer"],
            self._gate,
            clock=clock,
            interval_s=mesh.pull_interval_ms / 1000,
            stale_s=mesh.denylist_stale_s,
        )
        self._renewal = mesh_renewal(mesh.certificates("relay"), self._channels["signer"], clock=clock)
        self._archive = open_archive(mesh.archive())
        self._outbox: Outbox | None = None
        self._intake: PageIntake | None = None
        self._exporter: Exporter | None = None
        self._revocations: Revocations | None = None
        self._compaction: ArchiveCompaction | None = None
        self._server: MeshServer | None = None
        self._metrics: Metrics | None = None

    async def start(self) -> int:
        """Open the outbox, take up what was left, serve; the port."""
        mesh, settings, clock = self._mesh, self._settings, self._clock
        await self._denylist.start(within_s=settings.start_within_s)
        outbox = self._outbox = await open_outbox(
            settings.outbox_path(mesh), max_bytes=settings.outbox_max_bytes
        )
        waiting, tombstones, turn = PendingPages(), Tombstones(), asyncio.Lock()
        waiting.load(await outbox.pages())
        own = RelayEvents(instance=settings.instance, epoch=clock.unix_ns(), clock=clock)
        platform = PlatformKeys(self._channels["signer"])
        signer = ManifestSigner(sign=platform.sign, keys=platform.verifying)
        intake = self._intake = PageIntake(outbox=outbox, waiting=waiting, own=own, clock=clock)
        revocations = self._revocations = Revocations(
            registry=self._channels["registry"],
            outbox=outbox,
            archive=self._archive,
            waiting=waiting,
            own=own,
            tombstones=tombstones,
            turn=turn,
            clock=clock,
            interval_s=mesh.pull_interval_ms / 1000,
            patience_s=settings.revocations_wait_s,
        )
        exporter = self._exporter = Exporter(
            outbox=outbox,
            archive=self._archive,
            waiting=waiting,
            own=own,
            signer=signer,
            tombstones=tombstones,
            turn=turn,
            clock=clock,
            rhythm=settings.rhythm(),
            revocations_known_unix_ns=revocations.known_unix_ns,
        )
        self._compaction = ArchiveCompaction(
            outbox=outbox,
            archive=self._archive,
            signer=signer,
            keys=platform.ever,
            turn=turn,
            clock=clock,
            after_s=settings.compact_after_s,
        )
        introspection = Introspection("relay", instance=settings.instance, clock=clock)
        refusals = CertificateRefusals(_log_refusal, clock=clock)
        self._gate.refused = refusals.refused
        introspection.counts(refusals.counters, prefix="certificate_refused.")
        introspection.counts(intake.counters, prefix="intake.")
        introspection.counts(exporter.counters, prefix="export.")
        introspection.counts(self._compaction.counters, prefix="compaction.")
        introspection.gauges(waiting.gauges, prefix="outbox.")
        introspection.gauges(self._renewal.gauges, prefix="certificate.")
        introspection.gauges(self._denylist.gauges, prefix="denylist.")
        methods = RelayServicer(intake=intake).methods()
        introspection.register(methods)
        await intake.start()
        await revocations.start()
        await exporter.start()
        if settings.compact:
            self._compaction.start()
        self._renewal.start()
        shares = ServerShares(mesh.share)
        introspection.shares(*shares.all())
        self._server = MeshServer(
            listen=mesh.relay,
            files=self._files,
            methods=methods,
            gate=self._gate,
            clock=clock,
            trust_domain=mesh.trust_domain,
            shares=shares,
        )
        port = await self._server.start()
        self._metrics = export_metrics(introspection, exporter=mesh.metrics_exporter)
        return port

    async def drain(self) -> None:
        """Store what was taken, then release everything; what is not archived is archived by the next life."""
        if self._server is not None:
            await self._server.drain(DRAIN_SECONDS)
        for part in (self._metrics, self._intake, self._exporter, self._compaction, self._revocations):
            if part is not None:
                await part.stop()
        await self._denylist.stop()
        await self._renewal.stop()
        await self._archive.close()
        if self._outbox is not None:
            await self._outbox.close()
        for channel in self._channels.values():
            await channel.close()


def build(mesh: MeshSettings, settings: RelaySettings, clock: Clock) -> RelayApp:
    """The composition root."""
    return RelayApp(mesh, settings, clock)


def _log_refusal(identity: Identity | None, reason: str, count: int) -> None:
    # Relay's own events are stored with the pages that gave rise to them; to this no page did.
    structlog.get_logger().warning(
        "certificate refused", identity=str(identity or ""), reason=reason, count=count
    )
