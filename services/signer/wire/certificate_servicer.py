"""The wire face of Signer's CA: protobuf in, decisions, protobuf out.

Never takes the caller's identity from a request: it is in the certificate of the call.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from services.signer.certificates.assume import ServiceAssumption
from services.signer.certificates.enrolment import PrincipalEnrolment
from services.signer.certificates.issuance_policy import IssuancePolicy
from services.signer.certificates.issuing import MAX_LISTED, CertificateIssuer, Issued
from services.signer.certificates.revocation import CertificateRevocation
from snavio.domain.lineage import Revoked, is_serial
from snavio.rpc.server import Call, Methods
from snavio.v1 import signer_pb2 as wire
from snavio.v1.enrolment_pb2 import EnrollRequest, EnrollResponse


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateServicer:
    """The methods of `snavio.v1.Signer` that are about certificates, and `snavio.v1.Enrolment`."""

    certificates: CertificateIssuer
    applying: IssuancePolicy
    revoking: CertificateRevocation
    assumption: ServiceAssumption
    enrolling: PrincipalEnrolment

    def register(self, methods: Methods) -> None:
        """Add the handlers; `enroll` is not among them, it is served apart."""
        at = "/snavio.v1.Signer/"
        methods.unary(at + "IssueCertificate", self.issue_certificate, wire.IssueCertificateRequest)
        methods.unary(at + "RevokeCertificate", self.revoke_certificate, wire.RevokeCertificateRequest)
        methods.unary(at + "Denylist", self.denylist, wire.DenylistRequest)
        methods.unary(at + "CreateEnrolment", self.create_enrolment, wire.CreateEnrolmentRequest)
        methods.unary(
            at + "SetServicePrincipals", self.set_service_principals, wire.SetServicePrincipalsRequest
        )
        methods.unary(at + "AssumeService", self.assume_service, wire.AssumeServiceRequest)
        methods.unary(at + "RevokeIdentity", self.revoke_identity, wire.RevokeIdentityRequest)
        methods.unary(at + "RestoreIdentity", self.restore_identity, wire.RestoreIdentityRequest)
        methods.unary(at + "ListCertificates", self.list_certificates, wire.ListCertificatesRequest)

    async def issue_certificate(
        self, request: wire.IssueCertificateRequest, call: Call
    ) -> wire.IssueCertificateResponse:
        return _issued(
            await self.applying.issue(
                csr_pem=request.csr_pem,
                spiffe_id=request.spiffe_id,
                ttl_s=request.ttl_seconds,
                caller=call.peer,
            )
        )

    async def revoke_certificate(
        self, request: wire.RevokeCertificateRequest, call: Call
    ) -> wire.RevokeCertificateResponse:
        ended = await self.revoking.revoke(
            serial=request.serial, reason=request.reason, caller=call.peer.identity
        )
        return wire.RevokeCertificateResponse(
            version=ended.version,
            serial=ended.serials,
            revoked=_revoked(ended.entries),
            more=ended.more,
        )

    async def denylist(self, request: wire.DenylistRequest, _call: Call) -> wire.DenylistResponse:
        page = await self.revoking.denylist(request.since_version)
        entries = [revocation.entry for revocation in page.revocations]
        return wire.DenylistResponse(
            version=page.version,
            serial=[entry.subject for entry in entries if is_serial(entry.subject)],
            more=page.more,
            revoked=_revoked(entries),
        )

    async def create_enrolment(
        self, request: wire.CreateEnrolmentRequest, call: Call
    ) -> wire.CreateEnrolmentResponse:
        token, expires = await self.enrolling.create(
            tenant=request.tenant,
            principal=request.principal,
            ttl_s=request.ttl_seconds,
            actor=request.on_behalf_of or str(call.peer.identity),
        )
        return wire.CreateEnrolmentResponse(token=token, expires_unix_ns=expires)

    async def set_service_principals(
        self, request: wire.SetServicePrincipalsRequest, call: Call
    ) -> wire.SetServicePrincipalsResponse:
        revoked = await self.assumption.set_principals(
            source=request.source,
            principals=tuple(request.principal),
            suspended=request.suspended,
            removed=request.removed,
            actor=call.peer.identity,
        )
        return wire.SetServicePrincipalsResponse(revoked_serial=revoked)

    async def assume_service(
        self, request: wire.AssumeServiceRequest, call: Call
    ) -> wire.IssueCertificateResponse:
        return _issued(
            await self.assumption.assume(
                source=request.source,
                csr_pem=request.csr_pem,
                ttl_s=request.ttl_seconds,
                caller=call.peer,
            )
        )

    async def revoke_identity(
        self, request: wire.RevokeIdentityRequest, call: Call
    ) -> wire.RevokeIdentityResponse:
        ended = await self.revoking.revoke_identity(
            spiffe_id=request.spiffe_id, reason=request.reason, caller=call.peer.identity
        )
        return wire.RevokeIdentityResponse(
            serial=ended.serials, revoked=_revoked(ended.entries), more=ended.more
        )

    async def restore_identity(
        self, request: wire.RestoreIdentityRequest, call: Call
    ) -> wire.RestoreIdentityResponse:
        changed = await self.revoking.restore_identity(spiffe_id=request.spiffe_id, caller=call.peer.identity)
        return wire.RestoreIdentityResponse(changed=changed)

    async def list_certificates(
        self, request: wire.ListCertificatesRequest, _call: Call
    ) -> wire.ListCertificatesResponse:
        limit = min(request.limit or MAX_LISTED, MAX_LISTED)
        found = await self.certificates.listed(
            spiffe_id=request.spiffe_id,
            after=request.after_serial,
            limit=limit + 1,
            prefix=request.serial_prefix,
        )
        shown = found[:limit]
        barred = await self.certificates.barred({entry.spiffe_id for entry in shown})
        return wire.ListCertificatesResponse(
            certificate=[
                wire.CertificateRecord(
                    serial=entry.serial,
                    spiffe_id=entry.spiffe_id,
                    issued_to=entry.issued_to,
                    parent_serial=entry.parent,
                    issued_unix_ns=entry.issued_ns,
                    not_after_unix_ns=entry.not_after_ns,
                    revoked=self.certificates.revoked(entry),
                    barred=entry.spiffe_id in barred,
                    root_serial=entry.root or entry.serial,
                )
                for entry in shown
            ],
            more=len(found) > limit,
        )

    async def enroll(self, request: EnrollRequest) -> EnrollResponse:
        """For callers without a certificate."""
        enrolled = await self.enrolling.enroll(
            token_text=request.token, csr_pem=request.csr_pem, name=request.name
        )
        issued = enrolled.issued
        return EnrollResponse(
            certificate_pem=issued.certificate_pem,
            ca_pem=issued.ca_pem,
            serial=issued.serial,
            not_after_unix_ns=issued.not_after_ns,
            spiffe_id=enrolled.identity.spiffe_id,
        )


def _revoked(entries: Iterable[Revoked]) -> list[wire.RevokedSubject]:
    return [
        wire.RevokedSubject(subject=entry.subject, issued_before_unix_ns=entry.before_ns) for entry in entries
    ]


def _issued(issued: Issued) -> wire.IssueCertificateResponse:
    return wire.IssueCertificateResponse(
        certificate_pem=issued.certificate_pem,
        ca_pem=issued.ca_pem,
        serial=issued.serial,
        not_after_unix_ns=issued.not_after_ns,
    )
