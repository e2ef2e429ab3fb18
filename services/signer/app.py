"""Puts Signer together: sealed store, CA, keys, certificates, server.

Never starts without a CA: making one is `init`'s, once, and not a side effect of serving.
"""

from __future__ import annotations

import asyncio
import contextlib

from services.signer.applying import Applying
from services.signer.assume import Assumption
from services.signer.capabilities import Capabilities
from services.signer.capability_servicer import CapabilityServicer
from services.signer.certificates import Certificates
from services.signer.distribution import Distribution
from services.signer.enrolment import Enrolling
from services.signer.issue_order import IssueOrder
from services.signer.key_snapshots import KeySnapshots
from services.signer.keyset_servicer import KeysetServicer
from services.signer.keysets import Keysets
from services.signer.polls import Polls
from services.signer.revoking import Revoking
from services.signer.scheduler import RotationScheduler
from services.signer.servicer import SignerServicer
from services.signer.settings import SignerSettings
from services.signer.signature_servicer import SignatureServicer
from services.signer.signatures import Signatures
from services.signer.usage import Usage
from services.signer.usage_ledger import MAX_FILE_BYTES, UsageLedger
from services.signer.vigil import Vigil
from snavio.clock import Clock
from snavio.config import MeshSettings
from snavio.errors import SnavioError, StateError
from snavio.pki import CertificateAuthority, fingerprint_of
from snavio.ports.archive import Archive
from snavio.ports.capabilities import CapabilityLedger
from snavio.ports.certificates import CertificateLedger
from snavio.ports.keystore import KeyStore
from snavio.rpc.server_shares import ServerShares
from snavio.telemetry.events import EventJournal
from snavio.telemetry.reporting import Reporting
from snavio.transport.credentials import CertificateFiles
from snavio.transport.doorway import Doorway
from snavio.transport.gate import Gate
from snavio.transport.introspection import Introspection
from snavio.transport.pull import Pull
from snavio.transport.renewal import Renewal
from snavio.transport.server import MeshServer, Methods
from snavio.transport.throttle import Rate, Throttle
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
        self._enrolling: Enrolling | None = None
        self._renewal: Renewal | None = None
        self._forgetting: Pull | None = None
        self.door: Doorway[EnrollRequest, EnrollResponse] | None = None
        self._polls: Polls | None = None
        self._upkeep: Pull | None = None
        self._usage_ledger: UsageLedger | None = None
        self._promoting: Pull | None = None
        self.distribution: Distribution | None = None
        self._publishing: Pull | None = None
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
        gate, methods = Gate(clock=clock), Methods()
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
        gate: Gate,
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
        revoking = Revoking(
            store=store,
            ledger=self._ledger,
            gate=gate,
            clock=clock,
            order=order,
            trust_domain=mesh.trust_domain,
            turn=turn,
            limit=mesh.share("revocations", settings.max_revocations),
        )
        certificates = Certificates(
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
        enrolling = self._enrolling = Enrolling(
            store=store,
            certificates=certificates,
            clock=clock,
            trust_domain=mesh.trust_domain,
            ca_fingerprint=fingerprint_of(ca.certificate),
            ttl_s=settings.principal_ttl_s,
        )
        await enrolling.start()
        servicer = SignerServicer(
            certificates=certificates,
            applying=Applying(
                certificates=certificates,
                store=store,
                trust_domain=mesh.trust_domain,
                ttl_s=settings.ttl_s,
            ),
            revoking=revoking,
            assumption=Assumption(
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
        self._forgetting = Pull(
            "expired enrolments", enrolling.forget_expired, clock=clock, interval_s=FORGET_SECONDS
        )
        await self._forgetting.start(within_s=settings.start_within_s)
        self.door = Doorway(
            listen=settings.enrol_address(mesh),
            files=CertificateFiles.in_folder(folder),
            method="/snavio.v1.Enrolment/Enroll",
            handler=servicer.enroll,
            request_type=EnrollRequest,
            throttle=Throttle(clock=clock, each=ENROL_EACH, all_together=ENROL_ALL),
        )

    async def _compose_capabilities(
        self, store: KeyStore, certificates: Certificates, methods: Methods, introspection: Introspection
    ) -> None:
        mesh, settings = self._mesh, self._settings
        self._capability_ledger = await open_capability_ledger(
            settings.capabilities_path(mesh),
            limit=mesh.share("capability_revocations", MAX_CAPABILITY_REVOCATIONS),
        )
        introspection.shares(self._capability_ledger.shares)
        capabilities = Capabilities(
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
        polls = self._polls = Polls(store=store, clock=clock)
        await polls.load()
        keysets = Keysets(store=store, polls=polls, clock=clock, overlap_ns=overlap_ns)
        distribution = self.distribution = Distribution(
            keysets=keysets, store=store, clock=clock, least_ns=delay_ns
        )
        introspection.gauges(distribution.gauges, prefix="rotation.")
        scheduler = RotationScheduler(keysets=keysets, store=store, clock=clock, cadence_ns=cadence_ns)
        usage = Usage(clock=clock)
        vigil = Vigil(store=store, usage=usage, polls=polls, events=events, clock=clock)
        ledger = self._usage_ledger = UsageLedger(
            file=open_watermark(settings.usage_path(mesh), max_bytes=MAX_FILE_BYTES),
            usage=usage,
            vigil=vigil,
            clock=clock,
        )
        await ledger.load()
        KeysetServicer(
            keysets=keysets,
            distribution=distribution,
            polls=polls,
            usage=usage,
            vigil=vigil,
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
        self._publishing = Pull(
            "snapshot of key sets", snapshots.turn, clock=clock, interval_s=settings.snapshot_interval_s
        )
        introspection.counts(events.counters, prefix="event.")

        async def upkeep() -> None:
            await polls.write()
            await ledger.write()
            await scheduler.turn()

        self._upkeep = Pull("upkeep of keys", upkeep, clock=clock, interval_s=UPKEEP_SECONDS)
        await self._upkeep.start(within_s=settings.start_within_s)

        async def promote() -> None:
            await distribution.turn()

        self._promoting = Pull("distribution of keys", promote, clock=clock, interval_s=PROMOTE_SECONDS)
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
