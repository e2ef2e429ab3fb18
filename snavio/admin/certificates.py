"""Signer's certificates for operators: a list of the living ones, revoking, barring and letting in again.

Never sees a private key.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

from snavio.admin.client import SignerClient
from snavio.domain.identity import DEFAULT_TRUST_DOMAIN
from snavio.v1 import signer_pb2 as wire


class CertificateClient(SignerClient):
    """A client of Signer's CA, under an operator's certificate."""

    def __init__(
        self, *, signer_address: str, certificates: Path, trust_domain: str = DEFAULT_TRUST_DOMAIN
    ) -> None:
        super().__init__(signer_address, certificates=certificates, trust_domain=trust_domain)

    async def living(self, spiffe_id: str = "", *, prefix: str = "") -> AsyncIterator[wire.CertificateRecord]:
        """Certificates that have not expired, oldest first; of one identity, with a serial that begins so, if given."""
        after, more = "", True
        while more:
            page = await self._call(
                "ListCertificates",
                wire.ListCertificatesRequest(spiffe_id=spiffe_id, after_serial=after, serial_prefix=prefix),
                wire.ListCertificatesResponse,
            )
            for record in page.certificate:
                yield record
                after = record.serial
            more = page.more and bool(page.certificate)

    async def revoke(self, serial: str, *, reason: str = "") -> wire.RevokeCertificateResponse:
        """Revoke a certificate with the whole chain of renewals that it is of."""
        return await self._call(
            "RevokeCertificate",
            wire.RevokeCertificateRequest(serial=serial, reason=reason),
            wire.RevokeCertificateResponse,
        )

    async def revoke_identity(self, spiffe_id: str, *, reason: str = "") -> wire.RevokeIdentityResponse:
        """Revoke all that an identity has and that was had through it, and bar it from more."""
        return await self._call(
            "RevokeIdentity",
            wire.RevokeIdentityRequest(spiffe_id=spiffe_id, reason=reason),
            wire.RevokeIdentityResponse,
        )

    async def restore_identity(self, spiffe_id: str) -> bool:
        """Let an identity have certificates again; whether it was barred."""
        answer = await self._call(
            "RestoreIdentity", wire.RestoreIdentityRequest(spiffe_id=spiffe_id), wire.RestoreIdentityResponse
        )
        return bool(answer.changed)
