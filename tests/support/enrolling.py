"""Newcomers at Signer's door, certificate requests of every kind, and shorthand for what the CA is asked."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import grpc
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from snavio.pki import make_key_and_csr, write_certificate_folder
from snavio.rpc.status import error_of
from snavio.sdk.enrolment import EnrolmentResult, enroll
from snavio.v1 import signer_pb2 as sig
from snavio.v1.enrolment_pb2 import EnrollRequest, EnrollResponse
from tests.support.control import Control

METHOD = "/snavio.v1.Enrolment/Enroll"


def spiffe(path: str) -> str:
    return f"spiffe://snavio.local/{path}"


def door(control: Control) -> str:
    assert control.signer is not None
    return f"127.0.0.1:{control.signer.enrolment_port}"


async def token_for(control: Control, tenant: str = "acme", principal: str = "", ttl_s: int = 0) -> str:
    request = sig.CreateEnrolmentRequest(tenant=tenant, principal=principal, ttl_seconds=ttl_s)
    answer = await control.sign("registry", "CreateEnrolment", request, sig.CreateEnrolmentResponse)
    token: str = answer.token
    return token


async def newcomer(control: Control, token: str, *, name: str = "ci", folder: str = "ci") -> EnrolmentResult:
    return await enroll(token, address=door(control), folder=control.mesh.certificates(folder), name=name)


async def ask(control: Control, *, token: str, csr_pem: str = "", name: str = "ci") -> EnrollResponse:
    """Enroll without the SDK's own checks."""
    csr_pem = csr_pem or make_key_and_csr()[1].decode()
    request = EnrollRequest(token=token, csr_pem=csr_pem, name=name)
    answer: EnrollResponse = EnrollResponse.FromString(
        await knock(control, METHOD, request.SerializeToString())
    )
    return answer


async def knock(control: Control, method: str, request: bytes) -> bytes:
    ca = (control.mesh.certificates("signer") / "ca.pem").read_bytes()
    options = (("grpc.ssl_target_name_override", "signer.mesh.snavio.local"),)
    credentials = grpc.ssl_channel_credentials(root_certificates=ca)
    async with grpc.aio.secure_channel(door(control), credentials, options=options) as channel:
        try:
            answer: bytes = await channel.unary_unary(method)(request, timeout=10.0)
        except grpc.aio.AioRpcError as error:
            raise error_of(error) from None
    return answer


async def principals(control: Control, source: str, *names: str, **more: Any) -> list[str]:
    """Registry's word on a service; serials that were revoked for it."""
    request = sig.SetServicePrincipalsRequest(source=source, principal=names, **more)
    answer = await control.sign("registry", "SetServicePrincipals", request, sig.SetServicePrincipalsResponse)
    return list(answer.revoked_serial)


async def assume(control: Control, caller: str, source: str, **fields: Any) -> sig.IssueCertificateResponse:
    """AssumeService; the certificate goes to a folder if `folder` names one."""
    folder = fields.pop("folder", None)
    key_pem, csr_pem = make_key_and_csr()
    request = sig.AssumeServiceRequest(**{"source": source, "csr_pem": csr_pem.decode(), **fields})
    issued: sig.IssueCertificateResponse = await control.sign(
        caller, "AssumeService", request, sig.IssueCertificateResponse
    )
    if folder is not None:
        keep(control.mesh.certificates(folder), issued, key_pem)
    return issued


def keep(folder: Path, issued: Any, key_pem: bytes) -> None:
    write_certificate_folder(
        folder,
        certificate_pem=issued.certificate_pem.encode(),
        private_key_pem=key_pem,
        ca_pem=issued.ca_pem.encode(),
    )


def request_with(key: Any = None, *names: str) -> str:
    """A request with that key, asking for those SPIFFE names."""
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    if names:
        uris = [x509.UniformResourceIdentifier(name) for name in names]
        builder = builder.add_extension(x509.SubjectAlternativeName(uris), critical=False)
    csr = builder.sign(key or ec.generate_private_key(ec.SECP256R1()), hashes.SHA256())
    return csr.public_bytes(serialization.Encoding.PEM).decode()


def unproved_request() -> str:
    """A request whose own signature does not fit: a stranger's public key."""
    der = bytearray(base64.b64decode("".join(make_key_and_csr()[1].decode().splitlines()[1:-1])))
    der[-1] ^= 1
    body = base64.encodebytes(bytes(der)).decode()
    return f"-----BEGIN CERTIFICATE REQUEST-----\n{body}-----END CERTIFICATE REQUEST-----\n"


def bad_requests() -> dict[str, str]:
    """Requests that get no certificate."""
    return {
        "an RSA key": request_with(rsa.generate_private_key(public_exponent=65_537, key_size=2048)),
        "a P-384 key": request_with(ec.generate_private_key(ec.SECP384R1())),
        "a stranger's key": unproved_request(),
        "10,000 characters": "x" * 10_000,
        "a request of 20,000 characters": request_with() + "\n" * 20_000,
        "control characters": "-----BEGIN\x00CERTIFICATE REQUEST-----",
        "not ASCII": "ß" * 100,
        "nothing": " ",
    }
