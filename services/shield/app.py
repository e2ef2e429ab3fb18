"""Composes Shield."""

from __future__ import annotations

import secrets
from collections import Counter

from services.shield.admission import CROWDED_BYTES, WAITING_BYTES, AdmissionControl
from services.shield.cache_freshness import CacheFreshness
from services.shield.key_cache import KeyCache
from services.shield.nonces import NonceShares
from services.shield.refused_batch import MAX_BATCH_COMMANDS
from services.shield.servicer import (
    ANSWER_SECONDS,
    MAX_BATCH_BYTES,
    MAX_FRAME_BYTES,
    MAX_PAYLOAD_BYTES,
    ShieldServicer,
)
from services.shield.settings import ShieldSettings
from services.shield.snapshot_key_cache import SnapshotKeyCache
from services.shield.suspension_cache import SuspensionCache
from snavio.clock import Clock
from snavio.config import MeshSettings
from snavio.hop.client import BatchClient
from snavio.hop.fair_queue import FairSendQueue
from snavio.host.introspection import Introspection
from snavio.native import Admission
from snavio.replication.denylist import denylist_poller
from snavio.rpc.certificate_gate import CertificateGate
from snavio.rpc.channel import MeshChannel
from snavio.rpc.credentials import CertificateFiles
from snavio.rpc.limits import HOP_WINDOW_BYTES
from snavio.rpc.renewal import mesh_renewal
from snavio.rpc.server import MeshServer
from snavio.rpc.server_shares import ServerShares
from snavio.signed.platform_keys import PlatformKeys
from snavio.signed.snapshot_reader import SnapshotReader
from snavio.telemetry.cache_meter import HMAC, CacheMeter
from snavio.telemetry.events import EventJournal
from snavio.telemetry.explain_servicer import ExplainServicer
from snavio.telemetry.latency import LatencyWindow
from snavio.telemetry.recent_commands import RecentCommands
from snavio.telemetry.reporting import Reporting
from snavio.telemetry.tally import VerdictCounts
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
        nonces = mesh.share("nonces", settings.nonce_capacity)
        admission = Admission(
            audience=audience,
            window_ms=settings.window_ms,
            nonce_capacity=nonces.total,
            nonce_share_per_tenant=nonces.per_tenant,
            nonce_reserve=nonces.reserve,
            max_batch_bytes=MAX_BATCH_BYTES,
            max_batch_commands=MAX_BATCH_COMMANDS,
            max_payload_bytes=MAX_PAYLOAD_BYTES,
        )
        self._reporting = Reporting(
            mesh,
            service="shield",
            instance=settings.instance,
            clock=clock,
            gather=lambda: [block for _, block in admission.flood_telemetry(clock.unix_ns())],
        )
        gate = CertificateGate(clock=clock)
        self._archive = open_archive(mesh.snapshots())
        snapshots = SnapshotReader(
            archive=self._archive,
            keys=PlatformKeys(self._channels["signer"]).verifying,
            watermark=open_watermark(mesh.state_dir / "shield" / f"{settings.instance}.snapshot"),
            clock=clock,
            refused=self._reporting.snapshot_refused,
        )
        self._denylist = denylist_poller(
            self._channels["signer"], gate, clock=clock, interval_s=interval_s, stale_s=mesh.denylist_stale_s
        )
        self._refreshes = EventJournal(epoch=clock.unix_ns(), max_events=256)
        fresh_ms = min(settings.keys_fresh_ms, settings.keys_stale_ms)
        keys = self._keys(mesh, settings, admission, clock, holder=audience)
        meter = CacheMeter(
            HMAC,
            fresh_s=fresh_ms / 1000,
            stale_s=settings.keys_stale_ms / 1000,
            age_ns=keys.age_ns,
            clock=clock,
            record=lambda event: self._refreshes.record(event, at_unix_ns=clock.unix_ns()),
            onward=self._reporting.record,
        )
        keys.refreshed = meter.refreshed
        self._freshness = CacheFreshness(
            keys=keys,
            fresh_ms=fresh_ms,
            meter=meter,
            clock=clock,
            record=self._reporting.record,
            suspensions=SuspensionCache(
                admission=admission,
                registry=self._channels["registry"],
                clock=clock,
                interval_s=interval_s,
                instance=settings.instance,
                bound_ms=settings.keys_stale_ms,
                snapshots=snapshots if settings.use_snapshots else None,
            ),
            stale_ms=settings.keys_stale_ms,
        )
        self._fast = BatchClient(
            self._channels["fast"],
            "/snavio.v1.Fast/Dispatch",
            clock=clock,
            instance=settings.instance,
            epoch=clock.unix_ns(),
            waiting=FairSendQueue(
                max_bytes=WAITING_BYTES,
                crowded_bytes=CROWDED_BYTES,
                what="The way to Fast",
            ),
        )
        tally, latency = VerdictCounts(), LatencyWindow(clock=clock)
        recent = RecentCommands(max_bytes=mesh.explain_max_mb << 20)
        self._reporting.journal.seen = recent.keep
        admission_control = AdmissionControl(
            admission=admission,
            freshness=self._freshness,
            fast=self._fast,
            journal=self._reporting.journal,
            tally=tally,
            latency=latency,
            clock=clock,
            budget_ms=mesh.budget_ms,
        )
        introspection = Introspection("shield", instance=settings.instance, clock=clock)
        introspection.counts(tally.read, prefix="outcome.")
        self._reporting.introspect(introspection)
        self._reporting.certificates(gate, introspection)
        introspection.gauges(recent.gauges, prefix="recent.")
        introspection.counts(self._freshness.counters, prefix="standing.")
        self._freshness.register(introspection)
        introspection.counts(self._refreshes.counters, prefix="events.")
        # One name for both: which of them it was stands in the log.
        introspection.counts(
            lambda: dict(Counter(snapshots.counters()) + Counter(self._key_snapshots.counters()))
        )
        self._renewal = mesh_renewal(mesh.certificates("shield"), self._channels["signer"], clock=clock)
        introspection.gauges(self._renewal.gauges, prefix="certificate.")
        introspection.gauges(self._denylist.gauges, prefix="denylist.")
        introspection.native(admission.counters, gauges=frozenset({"nonces_live"}), prefix="admission.")
        introspection.link("fast", self._fast.connected.is_set)
        introspection.times("admit_to_verdict", latency.read)
        shares = self._shares = ServerShares(mesh.share)
        introspection.shares(*shares.all(), NonceShares(admission, nonces))
        servicer = self._servicer = ShieldServicer(
            admission_control=admission_control,
            gate=gate,
            clock=clock,
            audience=audience,
            window_ms=settings.window_ms,
            in_flight=settings.batches_in_flight,
            bodies=shares.bodies,
        )
        methods = servicer.methods()
        introspection.register(methods)
        ExplainServicer(
            recent, instance=settings.instance, registry=self._channels["registry"], clock=clock
        ).register(methods)
        self._server = MeshServer(
            listen=mesh.shield,
            files=files,
            methods=methods,
            gate=gate,
            clock=clock,
            trust_domain=mesh.trust_domain,
            window_bytes=HOP_WINDOW_BYTES,
            unary_limit_s=ANSWER_SECONDS,
            shares=shares,
            max_message_bytes=MAX_FRAME_BYTES,
        )

    def _keys(
        self,
        mesh: MeshSettings,
        settings: ShieldSettings,
        admission: Admission,
        clock: Clock,
        *,
        holder: str,
    ) -> KeyCache:
        folder, signer = mesh.state_dir / "shield", self._channels["signer"]
        opening = SnapshotKeyCache(
            signer=signer, file=open_watermark(folder / f"{settings.instance}.opening"), clock=clock
        )
        self._key_snapshots = SnapshotReader(
            archive=self._archive,
            keys=opening.verifying,
            # Its own: versions of the key store and of the directory have nothing to do with each other.
            watermark=open_watermark(folder / f"{settings.instance}.keys-snapshot"),
            clock=clock,
            refused=self._reporting.snapshot_refused,
        )
        return KeyCache(
            admission=admission,
            signer=signer,
            clock=clock,
            interval_s=mesh.pull_interval_ms / 1000,
            stale_ms=settings.keys_stale_ms,
            holder=holder,
            denylist=self._denylist,
            snapshots=self._key_snapshots if settings.use_snapshots else None,
            opening=opening,
        )

    async def start(self) -> int:
        """Read keys, denylist and suspensions, then serve."""
        await self._freshness.start(within_s=self._settings.start_within_s)
        await self._fast.start()
        self._renewal.start()
        self._reporting.start()
        return await self._server.start()

    async def drain(self) -> None:
        """Stop taking commands, answer what was taken."""
        await self._server.drain(grace_s=5.0)
        await self._fast.close()
        await self._freshness.stop()
        await self._denylist.stop()
        await self._archive.close()
        await self._renewal.stop()
        await self._reporting.stop()
        for channel in self._channels.values():
            await channel.close()


def build(mesh: MeshSettings, settings: ShieldSettings, clock: Clock) -> ShieldApp:
    """The composition root."""
    return ShieldApp(mesh, settings, clock)
