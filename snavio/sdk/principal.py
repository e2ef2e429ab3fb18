"""A principal's own certificate, renewed with itself before it ends: no operator and no second token.

Never renews what has ended, which takes a new token, and never keeps a connection open between two renewals.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from snavio.clock import Clock
from snavio.domain.identity import IdentityKind, parse_identity
from snavio.errors import BadRequest, Unauthenticated
from snavio.rpc.channel import MeshChannel, call_once
from snavio.rpc.credentials import CertificateFiles
from snavio.rpc.proto_message import ProtoMessage
from snavio.rpc.renewal import Certified, Certify, Leaf, Renewal, replace_certificate
from snavio.v1.signer_pb2 import IssueCertificateRequest, IssueCertificateResponse

METHOD = "/snavio.v1.Signer/IssueCertificate"
CALL_SECONDS = 5.0


async def ask_certificate(
    signer: str, method: str, request: ProtoMessage, *, files: CertificateFiles, trust_domain: str
) -> Certified:
    """A certificate from Signer, asked for under the one in `files`."""
    channel = MeshChannel(signer, files=files, service="signer", trust_domain=trust_domain)
    issued = await call_once(channel, method, request, IssueCertificateResponse, timeout_s=CALL_SECONDS)
    return Certified(issued.certificate_pem.encode(), issued.ca_pem.encode())


def principal_renewal(folder: Path, *, signer: str, clock: Clock, trust_domain: str) -> Renewal:
    """Keeps the certificate in `folder` from ending, from `start` to `stop`."""
    return Renewal(folder, _certify(folder, signer=signer, trust_domain=trust_domain), clock=clock)


async def renew_now(folder: Path, *, signer: str, clock: Clock, trust_domain: str) -> Leaf:
    """Replace key and certificate of a principal at once; the certificate that was there is good until its end.

    Unauthenticated `certificate-expired` when it has ended; BadRequest when it is not a principal's.
    """
    leaf = await asyncio.to_thread(Leaf.in_folder, folder)
    if parse_identity(leaf.spiffe_id, trust_domain=trust_domain).kind is not IdentityKind.PRINCIPAL:
        raise BadRequest(f"{folder} holds no principal's certificate.", reason="not-a-principal")
    if leaf.not_after_ns <= clock.unix_ns():
        raise Unauthenticated(
            f"The certificate in {folder} has ended; ask an operator for a token and enrol again.",
            reason="certificate-expired",
        )
    certify = _certify(folder, signer=signer, trust_domain=trust_domain)
    return await replace_certificate(folder, certify, spiffe_id=leaf.spiffe_id)


def _certify(folder: Path, *, signer: str, trust_domain: str) -> Certify:
    async def certify(csr_pem: bytes) -> Certified:
        leaf = await asyncio.to_thread(Leaf.in_folder, folder)
        request = IssueCertificateRequest(csr_pem=csr_pem.decode(), spiffe_id=leaf.spiffe_id)
        files = CertificateFiles.in_folder(folder)
        return await ask_certificate(signer, METHOD, request, files=files, trust_domain=trust_domain)

    return certify
