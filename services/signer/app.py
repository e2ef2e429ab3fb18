"""Puts Signer together: sealed store, CA, keys, certificates, server.

Never starts without a CA: making one is `init`'s, once, and not a side effect of serving.
"""

from __future__ import annotations

import asyncio
import contextlib

from services.signer.capabilities.issuing import CapabilityIssuer
from services.signer.certificates.assume import ServiceAssumption
from services.signer.certificates.enrolment import PrincipalEnrolment
from services.signer.certificates.issuance_policy import IssuancePolicy
from services.signer.certificates.issue_order import IssueOrder
from services.signer.certificates.issuing import CertificateIssuer
from services.signer.certificates.revocation import CertificateRevocation
from services.signer.keys.key_expiry_watch import KeyExpiryWatch
from services.signer.keys.key_polls import KeyPolls
from services.signer.keys.key_rollout import KeyRollout
from services.signer.keys.key_snapshots import KeySnapshots
from services.signer.keys.key_traffic import KeyTraffic
from services.signer.keys.keysets import Keysets
from services.signer.keys.rotation_schedule import RotationSchedule
from services.signer.keys.signatures import Signatures
from services.signer.keys.traffic_ledger import MAX_FILE_BYTES, TrafficLedger
from services.signer.settings import SignerSettings
from services.signer.wire.capability_servicer import CapabilityServicer
from services.signer.wire.certificate_servicer import CertificateServicer
from services.signer.wire.keyset_servicer import KeysetServicer
from services.signer.wire.signature_servicer import SignatureServicer
from snavio.clock import Clock
from snavio.config import MeshSettings
from snavio.errors import SnavioError, StateError
from snavio.host.introspection import Introspection
from snavio.pki import CertificateAuthority, fingerprint_of
from snavio.ports.archive import Archive
from snavio.ports.capabilities import CapabilityLedger
from snavio.ports.certificates import CertificateLedger
from snavio.ports.keystore import KeyStore
from snavio.replication.poller import Poller
from snavio.rpc.certificate_gate import CertificateGate
from snavio.rpc.credentials import CertificateFiles
from snavio.rpc.enrolment_server import EnrolmentServer
from snavio.rpc.renewal import Renewal
from snavio.rpc.server import MeshServer, Methods
from snavio.rpc.server_shares import ServerShares
from snavio.rpc.throttle import Rate, Throttle
from snavio.telemetry.events import EventJournal
from snavio.telemetry.reporting import Reporting
from snavio.v1.enrolment_pb2 import EnrollRequest, EnrollResponse
from snavio.wiring import (
    open_archive,
    open_capability_ledger,
    open_certificate_ledger,
    open_key_store,
    open_watermark,
)

DRAIN_SECONDS = 5.0
UPKEEP_SECONDS = 20.0
PROMOTE_SECONDS = 1.0
FORGET_SECONDS = 30.0
MAX_CAPABILITY_REVOCATIONS = 200_000
# Strangers who enrol: a person tries a few times, a deployment starts a few dozen machines.
ENROL_EACH = Rate(burst=10, per_s=0.5)
ENROL_ALL = Rate(burst=100, per_s=20.0)


class SignerApp:
    """One Signer process."""

    def __init__(self, mesh: MeshSettings, settings: SignerSettings, *, clock: Clock) -> None:
        self._mesh = mesh
        self._settings = settings
        self._clock = clock
        self._reporting = Reporting(mesh, service="signer", instance="signer-0", clock=clock)
        self._store: KeyStore | None = None
        self._server: MeshServer | None = None
        self.enrolment_port = 0
        self._ledger: CertificateLedger | None = None
        self._capability_ledger: CapabilityLedger | None = None
        self._enrolling: PrincipalEnrolment | None = None
        self._renewal: Renewal | None = None
        self._forgetting: Poller | None = None
        self.door: EnrolmentServer[EnrollRequest, EnrollResponse] | None = None
        self._polls: KeyPolls | None = None
        self._upkeep: Poller | None = None
        self._usage_ledger: TrafficLedger | None = None
        self._promoting: Poller | None = None
        self.distribution: KeyRollout | None = None
        self._publishing: Poller | None = None
        self.key_snapshots: KeySnapshots | None = None
        self._archive: Archive | None = None

    async def start(self) -> int:
        """Open the store and serve; returns the port."""
        mesh, settings, clock = self._mesh, self._settings, self._clock
        store = self._store = await open_key_store(
            settings.store_path(mesh), sealing_key=settings.sealing_key_path(mesh), kms=settings.kms(mesh)
        )
        authority = await store.authority()
        if authority is None:
            raise StateError(
                "This installation has no CA; run `python -m services.signer init`.", reason="no-ca"
            )
        ca = CertificateAuthority.from_pem(
            authority.certificate_pem.encode(), authority.private_key_pem.encode()
        )
        gate, methods = CertificateGate(clock=clock), Methods()
        introspection = Introspection("signer", clock=clock)
        introspection.register(methods)
        self._reporting.introspect(introspection)
        self._reporting.certificates(gate, introspection)
        await self._compose_certificates(ca, store, gate, methods, introspection)
        await self._compose_keys(store, methods, introspection)
        shares = ServerShares(mesh.share)
        introspection.shares(*shares.all())
        self._server = MeshServer(
            listen=settings.listen or mesh.signer,
            files=CertificateFiles.in_folder(mesh.certificates("signer")),
            methods=methods,
            gate=gate,
            clock=clock,
            trust_domain=mesh.trust_domain,
            shares=shares,
        )
        assert self.door is not None
        self.enrolment_port = await self.door.start()
        port = await self._server.start()
        self._reporting.start()
        return port

    async def _compose_certificates(
        self,
        ca: CertificateAuthority,
        store: KeyStore,
        gate: CertificateGate,
        methods: Methods,
        introspection: Introspection,
    ) -> None:
        mesh, settings, clock = self._mesh, self._settings, self._clock
        self._ledger = await open_certificate_ledger(
            settings.ledger_path(mesh),
            limit=mesh.share("certificates", settings.max_certificates),
            per_identity=settings.certificates_per_identity,
        )
        turn = asyncio.Lock()
        order = await IssueOrder.load(clock, ledger=self._ledger, store=store)
        revoking = CertificateRevocation(
            store=store,
            ledger=self._ledger,
            gate=gate,
            clock=clock,
            order=order,
            trust_domain=mesh.trust_domain,
            turn=turn,
            limit=mesh.share("revocations", settings.max_revocations),
        )
        certificates = CertificateIssuer(
            ca=ca,
            ledger=self._ledger,
            gate=gate,
            clock=clock,
            trust_domain=mesh.trust_domain,
            ttl_s=settings.ttl_s,
            turn=turn,
            order=order,
            rate=Rate(settings.issue_burst, settings.issue_per_s),
        )
        await revoking.start()
        introspection.shares(self._ledger.shares, revoking.shares)
        enrolling = self._enrolling = PrincipalEnrolment(
            store=store,
            certificates=certificates,
            clock=clock,
            trust_domain=mesh.trust_domain,
            ca_fingerprint=fingerprint_of(ca.certificate),
            ttl_s=settings.principal_ttl_s,
        )
        await enrolling.start()
        servicer = CertificateServicer(
            certificates=certificates,
            applying=IssuancePolicy(
                certificates=certificates,
                store=store,
                trust_domain=mesh.trust_domain,
                ttl_s=settings.ttl_s,
            ),
            revoking=revoking,
            assumption=ServiceAssumption(
                store=store,
                certificates=certificates,
                revoking=revoking,
                trust_domain=mesh.trust_domain,
                ttl_s=settings.service_ttl_s,
            ),
            enrolling=enrolling,
        )
        servicer.register(methods)
        await self._compose_capabilities(store, certificates, methods, introspection)
        folder = mesh.certificates("signer")
        self._renewal = Renewal(folder, certificates.renew_own("signer"), clock=clock)
        # Before serving: with a certificate that ended while we were away, nobody could talk to us.
        with contextlib.suppress(SnavioError, TimeoutError):
            async with asyncio.timeout(settings.start_within_s):
                await self._renewal.renew_if_due()
        self._renewal.start()
        introspection.gauges(self._renewal.gauges, prefix="certificate.")
        self._forgetting = Poller(
            "expired enrolments", enrolling.forget_expired, clock=clock, interval_s=FORGET_SECONDS
        )
        await self._forgetting.start(within_s=settings.start_within_s)
        self.door = EnrolmentServer(
            listen=settings.enrol_address(mesh),
            files=CertificateFiles.in_folder(folder),
            method="/snavio.v1.Enrolment/Enroll",
            handler=servicer.enroll,
            request_type=EnrollRequest,
            throttle=Throttle(clock=clock, each=ENROL_EACH, all_together=ENROL_ALL),
        )

    async def _compose_capabilities(
        self, store: KeyStore, certificates: CertificateIssuer, methods: Methods, introspection: Introspection
    ) -> None:
        mesh, settings = self._mesh, self._settings
        self._capability_ledger = await open_capability_ledger(
            settings.capabilities_path(mesh),
            limit=mesh.share("capability_revocations", MAX_CAPABILITY_REVOCATIONS),
        )
        introspection.shares(self._capability_ledger.shares)
        capabilities = CapabilityIssuer(
            store=store,
            ledger=self._capability_ledger,
            certificates=certificates,
            clock=self._clock,
            trust_domain=mesh.trust_domain,
            ttl_s=settings.capability_ttl_s,
            max_ttl_s=settings.capability_max_ttl_s,
            delay_ns=round(settings.distribution_delay_s * 1e9),
            overlap_ns=round(settings.overlap_s * 1e9),
        )
        await capabilities.start()
        CapabilityServicer(capabilities=capabilities).register(methods)

    async def _compose_keys(self, store: KeyStore, methods: Methods, introspection: Introspection) -> None:
        mesh, settings, clock = self._mesh, self._settings, self._clock
        delay_ns, overlap_ns = round(settings.distribution_delay_s * 1e9), round(settings.overlap_s * 1e9)
        cadence_ns = round(settings.rotate_every_s * 1e9)
        events = EventJournal(epoch=clock.unix_ns(), onward=self._reporting.record)
        polls = self._polls = KeyPolls(store=store, clock=clock)
        await polls.load()
        keysets = Keysets(store=store, polls=polls, clock=clock, overlap_ns=overlap_ns)
        distribution = self.distribution = KeyRollout(
            keysets=keysets, store=store, clock=clock, least_ns=delay_ns
        )
        introspection.gauges(distribution.gauges, prefix="rotation.")
        scheduler = RotationSchedule(keysets=keysets, store=store, clock=clock, cadence_ns=cadence_ns)
        usage = KeyTraffic(clock=clock)
        key_expiry_watch = KeyExpiryWatch(store=store, usage=usage, polls=polls, events=events, clock=clock)
        ledger = self._usage_ledger = TrafficLedger(
            file=open_watermark(settings.usage_path(mesh), max_bytes=MAX_FILE_BYTES),
            usage=usage,
            key_expiry_watch=key_expiry_watch,
            clock=clock,
        )
        await ledger.load()
        KeysetServicer(
            keysets=keysets,
            distribution=distribution,
            polls=polls,
            usage=usage,
            key_expiry_watch=key_expiry_watch,
            events=events,
            clock=clock,
            poll_after_s=settings.poll_after_s,
            cadence_ns=cadence_ns,
        ).register(methods)
        signatures = Signatures(
            store=store,
            clock=clock,
            events=events,
            trust_domain=mesh.trust_domain,
            delay_ns=delay_ns,
            overlap_ns=overlap_ns,
        )
        await signatures.announce_rotations()
        self._archive = open_archive(mesh.snapshots())
        snapshots = self.key_snapshots = KeySnapshots(
            store=store,
            archive=self._archive,
            signatures=signatures,
            clock=clock,
            lifetime_s=settings.snapshot_lifetime_s,
            key_life_ns=cadence_ns,
        )
        SignatureServicer(signatures=signatures, snapshots=snapshots, clock=clock).register(methods)
        introspection.counts(snapshots.counters)
        introspection.gauges(snapshots.gauges)
        self._publishing = Poller(
            "snapshot of key sets", snapshots.turn, clock=clock, interval_s=settings.snapshot_interval_s
        )
        introspection.counts(events.counters, prefix="event.")

        async def upkeep() -> None:
            await polls.write()
            await ledger.write()
            await scheduler.turn()

        self._upkeep = Poller("upkeep of keys", upkeep, clock=clock, interval_s=UPKEEP_SECONDS)
        await self._upkeep.start(within_s=settings.start_within_s)

        async def promote() -> None:
            await distribution.turn()

        self._promoting = Poller("distribution of keys", promote, clock=clock, interval_s=PROMOTE_SECONDS)
        self._promoting.begin()
        if settings.write_snapshots:
            self._publishing.begin()

    async def drain(self) -> None:
        """Finish calls under way, then release the store."""
        if self._server is not None:
            await self._server.drain(DRAIN_SECONDS)
        if self.door is not None:
            await self.door.stop(1.0)
        if self._renewal is not None:
            await self._renewal.stop()
        for upkeep in (self._upkeep, self._promoting, self._forgetting, self._publishing):
            if upkeep is not None:
                await upkeep.stop()
        if self._archive is not None:
            await self._archive.close()
        if self._polls is not None:
            # What cannot be written now only makes sources look as if they had polled a little earlier.
            with contextlib.suppress(SnavioError):
                await self._polls.write(now=True)
        if self._usage_ledger is not None:
            await self._usage_ledger.close()
        if self._enrolling is not None:
            with contextlib.suppress(SnavioError):
                await self._enrolling.forget_expired()
        await self._reporting.stop()
        for ledger in (self._ledger, self._capability_ledger):
            if ledger is not None:
                await ledger.close()
        if self._store is not None:
            await self._store.close()


def build(mesh: MeshSettings, settings: SignerSettings, clock: Clock) -> SignerApp:
    """Signer, composed and not yet started."""
    return SignerApp(mesh, settings, clock=clock)
