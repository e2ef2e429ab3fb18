"""Enrols: makes a key here, trades a one-time token for its certificate, writes both to a folder.

Never sends the token to a server whose CA is not the one that the token names, and never sends the private key.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from google.protobuf.message import DecodeError

from snavio.domain.enrolment import parse_token
from snavio.domain.identity import Identity, IdentityKind, parse_identity
from snavio.errors import BadRequest, IntegrityError, NotAllowed, StateError, Unauthenticated, Unavailable
from snavio.pki import CERTIFICATE_FILE, fingerprint_of, make_key_and_csr, server_name
from snavio.rpc.connection_options import CLIENT_SIZES, COMMON_OPTIONS
from snavio.rpc.renewal import Certified, keep_certificate
from snavio.rpc.status import error_of
from snavio.v1.enrolment_pb2 import EnrollRequest, EnrollResponse

METHOD = "/snavio.v1.Enrolment/Enroll"
CALL_SECONDS = 10.0
_DER = 2


@dataclass(frozen=True, slots=True)
class EnrolmentResult:
    """Identity and certificate after an enrolment."""

    identity: Identity
    folder: Path
    serial: str
    not_after_unix_ns: int
    ahead_s: float = 0.0
    """This machine's clock against the mesh's: how far ahead it was, negative when behind."""


async def enroll(
    token: str, *, address: str, folder: Path, name: str = "", nested: bool = False, service: str = ""
) -> EnrolmentResult:
    """Trade `token` at Signer's enrolment `address`; the folder then holds key, certificate and CA.

    `nested` writes to `<folder>/<tenant>-<name>` instead. StateError when the folder has a certificate already,
    for a principal's key is not replaced by mistake, or cannot be written. With `service` the token must be for a new
    instance of that mesh service, and not for a principal.
    """
    token = token.strip()
    fingerprint = parse_token(token).fingerprint
    # Before the token is spent. A nested folder belongs to a principal that is new or was made anew.
    await asyncio.to_thread(_require_usable, folder, empty=not nested)
    ca = await asyncio.to_thread(_pinned_ca, address, fingerprint)
    trust_domain = trust_domain_of(ca)
    ca_pem = ca.public_bytes(serialization.Encoding.PEM)
    private_key_pem, csr_pem = make_key_and_csr()
    answer = await _call(
        address,
        EnrollRequest(token=token, csr_pem=csr_pem.decode(), name=service or name),
        ca_pem=ca_pem,
        trust_domain=trust_domain,
    )
    identity = _enrolled(answer.spiffe_id, service or name, trust_domain)
    if (identity.kind is IdentityKind.MESH) != bool(service):
        raise _not_ours()
    if nested:
        folder = folder / f"{identity.tenant}-{identity.name}"
    # With the CA that the token names, whatever the answer calls it.
    certified = Certified(answer.certificate_pem.encode(), ca_pem)
    leaf = await keep_certificate(folder, certified, private_key_pem, spiffe_id=identity.spiffe_id)
    # Whole seconds on one side, and the time of the answer's way: good enough to notice a minute.
    ahead_s = (time.time_ns() - leaf.issued_ns) / 1e9
    return EnrolmentResult(identity, folder, leaf.serial, leaf.not_after_ns, ahead_s)


def _require_usable(folder: Path, *, empty: bool) -> None:
    if empty and (folder / CERTIFICATE_FILE).exists():
        raise StateError(
            f"{folder} holds a certificate already; choose another folder.", reason="folder-taken"
        )
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        trial = folder / f".trial-{os.getpid()}"
        trial.write_bytes(b"")
        trial.unlink()
    except OSError as error:
        raise StateError(
            f"{folder} cannot be written: {error.strerror}.", reason="folder-unwritable"
        ) from None


def _enrolled(spiffe_id: str, name: str, trust_domain: str) -> Identity:
    try:
        identity = parse_identity(spiffe_id, trust_domain=trust_domain)
    except BadRequest:
        raise _not_ours() from None
    newcomers = (IdentityKind.PRINCIPAL, IdentityKind.MESH)
    if identity.kind not in newcomers or name not in ("", identity.name):
        raise _not_ours()
    return identity


def _not_ours() -> IntegrityError:
    return IntegrityError("The certificate that came back is not ours.", reason="bad-certificate")


def _pinned_ca(address: str, fingerprint: bytes) -> x509.Certificate:
    """The CA with that fingerprint, as the server shows it. Blocking, within bounds."""
    shown = shown_certificates(address)
    for certificate in shown:
        if fingerprint_of(certificate) == fingerprint:
            _require_clock(shown)
            return certificate
    if len(shown) == 1 and (service := _mesh_service(shown[0])):
        # Its port alone is wrong: to call its token foreign would send the newcomer back for another.
        raise BadRequest(
            f"{address} is {service.capitalize()}, not the door for newcomers, which is Signer's port plus 10 unless "
            "[signer] enrol_listen says another; nothing was sent.",
            reason="wrong-port",
        )
    raise NotAllowed(
        f"This token is of another installation than the one at {address}; nothing was sent.",
        reason="wrong-installation",
    )


def _mesh_service(leaf: x509.Certificate) -> str:
    """The service of a mesh that showed only its own certificate; empty for any other server."""
    try:
        names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        (uri,) = names.get_values_for_type(x509.UniformResourceIdentifier)
    except (x509.ExtensionNotFound, ValueError):
        return ""
    kind, _, service = uri.rpartition("/")
    return service if kind.endswith("/mesh") else ""


def _require_clock(shown: list[x509.Certificate]) -> None:
    """Unauthenticated `clock-wrong` when a certificate of the mesh is not good now: it renews them long before."""
    now = datetime.now(UTC)
    for certificate in shown:
        begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
        if not begin <= now < end:
            wrong = "behind" if now < begin else "ahead, or the mesh's certificate has ended"
            raise Unauthenticated(
                f"This machine's clock is {wrong}: it says {now:%Y-%m-%d %H:%M:%S} UTC, and the mesh's "
                f"certificate is good from {begin:%Y-%m-%d %H:%M:%S} to {end:%Y-%m-%d %H:%M:%S}. Set the clock "
                "right; nothing was sent.",
                reason="clock-wrong",
            )


def shown_certificates(address: str) -> list[x509.Certificate]:
    """The certificates that a server shows, its own first. Blocking, within bounds.

    Nothing is sent on this connection: it is not verified.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isascii() or not port.isdigit():
        raise BadRequest(f"{address[:300]!r} is not an address like 127.0.0.1:7414.", reason="bad-address")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    try:
        with (
            socket.create_connection((host.strip("[]"), int(port)), timeout=CALL_SECONDS) as plain,
            context.wrap_socket(plain) as secured,
        ):
            shown = [x509.load_der_x509_certificate(der) for der in _chain(secured)]
    except (OSError, ValueError, OverflowError):
        shown = []
    if not shown:
        raise Unavailable(
            f"{address} does not answer as Signer's enrolment would: is the address right, and the mesh up?",
            reason="no-enrolment",
        )
    return shown


def _chain(secured: ssl.SSLSocket) -> list[bytes]:
    public: Any = getattr(secured, "get_unverified_chain", None)
    if public is not None:
        return [bytes(der) for der in public()]
    # Public since Python 3.13 only.
    inner: Any = secured._sslobj  # type: ignore[attr-defined]
    return [certificate.public_bytes(_DER) for certificate in inner.get_unverified_chain() or ()]


def trust_domain_of(ca: x509.Certificate) -> str:
    """The installation that a CA names; IntegrityError when it names none."""
    try:
        names = ca.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        (name,) = names.get_values_for_type(x509.UniformResourceIdentifier)
    except (x509.ExtensionNotFound, ValueError):
        raise IntegrityError("The CA does not name its installation.", reason="bad-ca") from None
    return name.removeprefix("spiffe://")


async def _call(address: str, request: EnrollRequest, *, ca_pem: bytes, trust_domain: str) -> EnrollResponse:
    """This connection is verified in full: the CA, and that it is Signer who answers."""
    options = (
        *COMMON_OPTIONS,
        *CLIENT_SIZES,
        ("grpc.ssl_target_name_override", server_name(Identity(trust_domain, IdentityKind.MESH, "signer"))),
        ("grpc.enable_retries", 0),
        ("grpc.enable_http_proxy", 0),
    )
    credentials = grpc.ssl_channel_credentials(root_certificates=ca_pem)
    async with grpc.aio.secure_channel(address, credentials, options=options) as channel:
        try:
            answer = await channel.unary_unary(METHOD)(request.SerializeToString(), timeout=CALL_SECONDS)
        except grpc.aio.AioRpcError as error:
            raise error_of(error, peer="Signer", address=address) from None
    try:
        response: EnrollResponse = EnrollResponse.FromString(answer)
        return response
    except DecodeError:
        raise IntegrityError("Signer's answer cannot be read.", reason="malformed") from None
