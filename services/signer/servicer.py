"""The wire's face of Signer's CA: protobuf in, decisions, protobuf out.

Never lets a caller's own gate lag behind a revocation that it asked for.
"""

from __future__ import annotations

from services.signer.certificates import Certificates
from snavio.transport.gate import Gate
from snavio.transport.server import Call, Methods
from snavio.v1 import signer_pb2 as wire


class SignerServicer:
    """The methods of `snavio.v1.Signer` that are about certificates."""

    def __init__(self, *, certificates: Certificates, gate: Gate) -> None:
        self._certificates = certificates
        self._gate = gate

    def methods(self) -> Methods:
        """Handlers for the server."""
        methods = Methods()
        at = "/snavio.v1.Signer/"
        methods.unary(at + "IssueCertificate", self.issue_certificate, wire.IssueCertificateRequest)
        methods.unary(at + "RevokeCertificate", self.revoke_certificate, wire.RevokeCertificateRequest)
        methods.unary(at + "Denylist", self.denylist, wire.DenylistRequest)
        return methods

    async def issue_certificate(
        self, request: wire.IssueCertificateRequest, call: Call
    ) -> wire.IssueCertificateResponse:
        issued = self._certificates.issue(
            csr_pem=request.csr_pem,
            spiffe_id=request.spiffe_id,
            ttl_s=request.ttl_seconds,
            caller=call.peer.identity,
        )
        return wire.IssueCertificateResponse(
            certificate_pem=issued.certificate_pem,
            ca_pem=issued.ca_pem,
            serial=issued.serial,
            not_after_unix_ns=issued.not_after_ns,
        )

    async def revoke_certificate(
        self, request: wire.RevokeCertificateRequest, call: Call
    ) -> wire.RevokeCertificateResponse:
        version = await self._certificates.revoke(
            serial=request.serial, reason=request.reason, caller=call.peer.identity
        )
        # Signer pulls from nobody: its own gate learns here, and from the store at start.
        self._gate.revoke([request.serial])
        return wire.RevokeCertificateResponse(version=version)

    async def denylist(self, request: wire.DenylistRequest, _call: Call) -> wire.DenylistResponse:
        page = await self._certificates.denylist(request.since_version)
        return wire.DenylistResponse(
            version=page.version, serial=[revocation.serial for revocation in page.revocations]
        )
