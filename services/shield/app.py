"""Composes Shield."""

from __future__ import annotations

import secrets

from services.shield.admission import Gatehouse
from services.shield.servicer import (
    MAX_BATCH_BYTES,
    MAX_BATCH_COMMANDS,
    MAX_PAYLOAD_BYTES,
    ShieldServicer,
)
from services.shield.settings import ShieldSettings
from services.shield.standing import Standing
from snavio.clock import Clock
from snavio.config import MeshSettings
from snavio.native import Admission
from snavio.snapshot.platform_keys import PlatformKeys
from snavio.snapshot.reader import SnapshotReader
from snavio.telemetry.journal import Journal
from snavio.telemetry.latency import LatencyWindow
from snavio.telemetry.tally import Tally
from snavio.transport.channel import MeshChannel
from snavio.transport.credentials import CertificateFiles
from snavio.transport.denylist import denylist_pull
from snavio.transport.gate import Gate
from snavio.transport.introspection import Introspection
from snavio.transport.link import BatchLink
from snavio.transport.renewal import mesh_renewal
from snavio.transport.server import MeshServer
from snavio.wiring import open_archive, open_watermark


class ShieldApp:
    """Shield, ready to start."""

    def __init__(self, mesh: MeshSettings, settings: ShieldSettings, clock: Clock) -> None:
        files = CertificateFiles.in_folder(mesh.certificates("shield"))
        interval_s = mesh.pull_interval_ms / 1000
        self._settings = settings
        self._channels = {
            name: MeshChannel(address, files=files, service=name, trust_domain=mesh.trust_domain)
            for name, address in (("fast", mesh.fast), ("signer", mesh.signer), ("registry", mesh.registry))
        }
        # A new audience with every start: nothing that an earlier life of this process admitted, or that
        # was signed for it with a stamp in the future, can be played to the empty nonce table of this one.
        audience = f"{settings.instance}:{secrets.token_hex(8)}"
        admission = Admission(
            audience=audience,
            window_ms=settings.window_ms,
            nonce_capacity=settings.nonce_capacity,
            nonce_share_per_source=settings.nonce_share_per_source,
            max_batch_bytes=MAX_BATCH_BYTES,
            max_batch_commands=MAX_BATCH_COMMANDS,
            max_payload_bytes=MAX_PAYLOAD_BYTES,
        )
        gate = Gate(clock=clock)
        self._archive = open_archive(mesh.snapshots())
        snapshots = SnapshotReader(
            archive=self._archive,
            keys=PlatformKeys(self._channels["signer"]).verifying,
            watermark=open_watermark(mesh.state_dir / "shield" / f"{settings.instance}.snapshot"),
            clock=clock,
        )
        self._standing = Standing(
            admission=admission,
            signer=self._channels["signer"],
            registry=self._channels["registry"],
            clock=clock,
            interval_s=interval_s,
            stale_ms=settings.keys_stale_ms,
            snapshots=snapshots if settings.use_snapshots else None,
        )
        self._denylist = denylist_pull(self._channels["signer"], gate, clock=clock, interval_s=interval_s)
        self._fast = BatchLink(
            self._channels["fast"],
            "/snavio.v1.Fast/Dispatch",
            clock=clock,
            instance=settings.instance,
            epoch=clock.unix_ns(),
        )
        journal, tally, latency = Journal(), Tally(), LatencyWindow(clock=clock)
        gatehouse = Gatehouse(
            admission=admission,
            standing=self._standing,
            fast=self._fast,
            journal=journal,
            tally=tally,
            latency=latency,
            clock=clock,
            budget_ms=mesh.budget_ms,
        )
        introspection = Introspection("shield", instance=settings.instance, clock=clock)
        introspection.counts(tally.read, prefix="outcome.")
        introspection.counts(journal.counters, prefix="journal.")
        introspection.counts(self._standing.counters, prefix="standing.")
        introspection.counts(snapshots.counters)
        self._renewal = mesh_renewal(mesh.certificates("shield"), self._channels["signer"], clock=clock)
        introspection.gauges(self._renewal.gauges, prefix="certificate.")
        introspection.native(admission.counters, gauges=frozenset({"nonces_live"}), prefix="admission.")
        introspection.link("fast", self._fast.connected.is_set)
        introspection.times("admit_to_verdict", latency.read)
        servicer = self._servicer = ShieldServicer(
            gatehouse=gatehouse,
            gate=gate,
            clock=clock,
            audience=audience,
            window_ms=settings.window_ms,
            in_flight=settings.batches_in_flight,
            streams_per_source=settings.streams_per_source,
        )
        methods = servicer.methods()
        introspection.register(methods)
        self._server = MeshServer(
            listen=mesh.shield,
            files=files,
            methods=methods,
            gate=gate,
            clock=clock,
            trust_domain=mesh.trust_domain,
        )

    async def start(self) -> int:
        """Read keys, suspensions and the denylist, then serve."""
        within_s = self._settings.start_within_s
        await self._denylist.start(within_s=within_s)
        await self._standing.start(within_s=within_s)
        await self._fast.start()
        self._renewal.start()
        return await self._server.start()

    async def drain(self) -> None:
        """Stop taking commands, answer what was taken."""
        await self._server.drain(grace_s=5.0)
        await self._fast.close()
        await self._standing.stop()
        await self._denylist.stop()
        await self._archive.close()
        await self._renewal.stop()
        for channel in self._channels.values():
            await channel.close()


def build(mesh: MeshSettings, settings: ShieldSettings, clock: Clock) -> ShieldApp:
    """The composition root."""
    return ShieldApp(mesh, settings, clock)
