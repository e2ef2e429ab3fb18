"""Composes the certificates of Signer: issuing, revocation, enrolment and its door, assumed services, own renewal.

Never opens the door before a certificate that ended while Signer was away was renewed, if that is possible.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import Final

from services.signer.certificates.assume import ServiceAssumption
from services.signer.certificates.enrolment import TokenEnrolment
from services.signer.certificates.issuance_policy import IssuancePolicy
from services.signer.certificates.issue_order import IssueOrder
from services.signer.certificates.issuing import CertificateIssuer
from services.signer.certificates.revocation import CertificateRevocation
from services.signer.settings import SignerSettings
from services.signer.wire.certificate_servicer import CertificateServicer
from snavio.errors import SnavioError
from snavio.host.service import ServiceHost
from snavio.pki import CertificateAuthority, fingerprint_of
from snavio.ports.certificates import CertificateLedger
from snavio.ports.keystore import KeyStore
from snavio.rpc.enrolment_server import EnrolmentServer
from snavio.rpc.methods import Methods
from snavio.rpc.renewal import Renewal
from snavio.rpc.throttle import Rate, Throttle
from snavio.v1.enrolment_pb2 import EnrollRequest, EnrollResponse
from snavio.wiring import open_certificate_ledger

FORGET_SECONDS: Final = 30.0
DOOR_SECONDS: Final = 1.0
"""For enrolments under way to finish once the end has begun."""
# Strangers who enrol: a person tries a few times, a deployment starts a few dozen machines.
ENROL_EACH: Final = Rate(burst=10, per_s=0.5)
ENROL_ALL: Final = Rate(burst=100, per_s=20.0)

Door = EnrolmentServer[EnrollRequest, EnrollResponse]


@dataclass(frozen=True, slots=True)
class SignerCertificates:
    """The parts of it that other parts of Signer use."""

    ledger: CertificateLedger
    issuer: CertificateIssuer
    door: Door


async def compose_certificates(
    host: ServiceHost,
    settings: SignerSettings,
    *,
    ca: CertificateAuthority,
    store: KeyStore,
    methods: Methods,
) -> SignerCertificates:
    """Open the ledger, fill the gate from the store, and register the methods; the door is not open yet."""
    mesh, clock, gate = host.mesh, host.clock, host.gate
    ledger = host.hold(
        await open_certificate_ledger(
            settings.ledger_path(mesh),
            limit=mesh.share("certificates", settings.max_certificates),
            per_identity=settings.certificates_per_identity,
        )
    )
    turn = asyncio.Lock()
    order = await IssueOrder.load(clock, ledger=ledger, store=store)
    revoking = CertificateRevocation(
        store=store,
        ledger=ledger,
        gate=gate,
        clock=clock,
        order=order,
        trust_domain=mesh.trust_domain,
        turn=turn,
        limit=mesh.share("revocations", settings.max_revocations),
    )
    issuer = CertificateIssuer(
        ca=ca,
        ledger=ledger,
        gate=gate,
        clock=clock,
        trust_domain=mesh.trust_domain,
        ttl_s=settings.ttl_s,
        turn=turn,
        order=order,
        rate=Rate(settings.issue_burst, settings.issue_per_s),
    )
    await revoking.start()
    host.introspection.shares(ledger.shares, revoking.shares)
    enrolling = TokenEnrolment(
        store=store,
        certificates=issuer,
        clock=clock,
        trust_domain=mesh.trust_domain,
        ca_fingerprint=fingerprint_of(ca.certificate),
        ttl_s=settings.ttl_s,
    )
    await enrolling.start()
    host.at_stop("expired enrolments", enrolling.forget_expired)
    await host.now_and_every(
        FORGET_SECONDS, "expired enrolments", enrolling.forget_expired, within_s=settings.start_within_s
    )
    servicer = CertificateServicer(
        certificates=issuer,
        applying=IssuancePolicy(
            certificates=issuer, store=store, trust_domain=mesh.trust_domain, ttl_s=settings.ttl_s
        ),
        revoking=revoking,
        assumption=ServiceAssumption(
            store=store,
            certificates=issuer,
            revoking=revoking,
            trust_domain=mesh.trust_domain,
            ttl_s=settings.service_ttl_s,
        ),
        enrolling=enrolling,
    )
    servicer.register(methods)
    await _renew(host, issuer)
    door = EnrolmentServer(
        listen=settings.enrol_address(mesh),
        files=host.files,
        method="/snavio.v1.Enrolment/Enroll",
        handler=servicer.enroll,
        request_type=EnrollRequest,
        throttle=Throttle(clock=clock, each=ENROL_EACH, all_together=ENROL_ALL),
    )
    return SignerCertificates(ledger, issuer, door)


async def open_door(host: ServiceHost, door: Door) -> int:
    """Let strangers enrol; the port. Last of all, so that it is the first to close after the server."""
    host.at_stop("enrolment", lambda: door.stop(DOOR_SECONDS))
    return await door.start()


async def _renew(host: ServiceHost, issuer: CertificateIssuer) -> None:
    renewal = Renewal(host.mesh.certificates("signer"), issuer.renew_own("signer"), clock=host.clock)
    host.renew(renewal)
    # Before serving: with a certificate that ended while we were away, nobody could talk to us.
    with contextlib.suppress(SnavioError, TimeoutError):
        async with asyncio.timeout(host.start_within_s):
            await renewal.renew_if_due()
