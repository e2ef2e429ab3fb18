"""Certificates of one installation: its CA, its leaf certificates, and their folders.

Never makes a leaf with more or less than one identity, and never leaves a folder in which certificate and key do not
belong together, whenever the power fails.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path
from secrets import token_hex
from time import monotonic, sleep
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from snavio.domain.identity import DEFAULT_TRUST_DOMAIN, Identity, IdentityKind
from snavio.domain.lineage import Lineage, parse_lineage
from snavio.errors import BadRequest, StateError

CA_TTL_S: Final = 10 * 365 * 86_400
# A machine whose clock is a little behind must accept a certificate that was made just now.
BACKDATE_S: Final = 300
MAX_CSR_BYTES: Final = 16_384
# Not registered: this arc takes any UUID, in seven numbers. Under 2.25 a UUID is one number of 128 bits, which Go's
# crypto/x509 cannot hold: it refuses the whole certificate, and no Go program could have talked to the mesh.
LINEAGE_OID: Final = x509.ObjectIdentifier(
    "1.2.840.113556.1.8000.2554.58899.160.50373.4574.45390.677.14009627"
)
# The same UUID, in certificates of 0.1.0.
LINEAGE_OID_0_1: Final = x509.ObjectIdentifier("2.25.305821105408246119474742976030998643995")

CERTIFICATE_FILE: Final = "cert.pem"
PRIVATE_KEY_FILE: Final = "key.pem"
CA_FILE: Final = "ca.pem"
_CURRENT: Final = "current"
_GENERATION: Final = ".generation-"
_WRITER_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class CertificateAuthority:
    """The CA of one installation. Its private key can impersonate every identity."""

    certificate: x509.Certificate
    private_key: ec.EllipticCurvePrivateKey = field(repr=False)

    @property
    def certificate_pem(self) -> bytes:
        """The CA certificate, which every process trusts."""
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    def private_key_pem(self) -> bytes:
        """PKCS#8, not encrypted; the key store seals it."""
        return private_key_pem(self.private_key)

    @classmethod
    def from_pem(cls, certificate: bytes, private_key: bytes) -> CertificateAuthority:
        """The CA from PEM; StateError unless certificate and key belong together."""
        try:
            loaded = x509.load_pem_x509_certificate(certificate)
            key = serialization.load_pem_private_key(private_key, password=None)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            raise StateError("The CA's certificate or key cannot be read.", reason="bad-ca") from None
        if not isinstance(key, ec.EllipticCurvePrivateKey) or loaded.public_key() != key.public_key():
            raise StateError("The CA's certificate and key do not belong together.", reason="bad-ca")
        return cls(loaded, key)


def make_ca(
    *, now_unix_ns: int, trust_domain: str = DEFAULT_TRUST_DOMAIN, ttl_s: int = CA_TTL_S
) -> CertificateAuthority:
    """A new CA, which may sign leaves but no further CA."""
    key = make_key()
    name = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Snavio"),
            # Two installations of the same trust domain have different CA names, so that a folder with both can be
            # sorted out.
            x509.NameAttribute(NameOID.COMMON_NAME, f"Snavio CA {token_hex(4)}"),
        ]
    )
    not_before, not_after = _validity(now_unix_ns, ttl_s)
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(not_before)
        .not_valid_after(not_after)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(ca=True), critical=True)
        .add_extension(identifier, critical=False)
        .add_extension(
            x509.SubjectAlternativeName([x509.UniformResourceIdentifier(f"spiffe://{trust_domain}")]),
            critical=False,
        )
        .sign(key, hashes.SHA256())
    )
    return CertificateAuthority(certificate, key)


def issue_leaf(
    ca: CertificateAuthority,
    *,
    public_key: ec.EllipticCurvePublicKey,
    identity: Identity,
    ttl_s: int,
    now_unix_ns: int,
    lineage: Lineage | None = None,
) -> x509.Certificate:
    """A certificate for `identity`, valid for `ttl_s` from now or until the CA ends, whichever comes first.

    It carries its lineage; without one it is the first of a chain, issued now.
    """
    if ttl_s <= 0:
        raise BadRequest("A certificate needs a positive time to live.", reason="bad-ttl")
    not_before, not_after = _validity(now_unix_ns, ttl_s)
    names: list[x509.GeneralName] = [x509.UniformResourceIdentifier(identity.spiffe_id)]
    dns_name = server_name(identity)
    if dns_name is not None:
        names.append(x509.DNSName(dns_name))
    serial = x509.random_serial_number()
    lineage = lineage or Lineage()
    lineage = replace(
        lineage, issued_ns=lineage.issued_ns or now_unix_ns, root=lineage.root or format(serial, "x")
    )
    return (
        x509.CertificateBuilder()
        # No common name: TLS stacks that still compare it with a host name find nothing to compare.
        .subject_name(x509.Name([x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Snavio")]))
        .issuer_name(ca.certificate.subject)
        .public_key(public_key)
        .serial_number(serial)
        .not_valid_before(max(not_before, ca.certificate.not_valid_before_utc))
        .not_valid_after(min(not_after, ca.certificate.not_valid_after_utc))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(ca=False), critical=True)
        .add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]),
            critical=False,
        )
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
        .add_extension(x509.UnrecognizedExtension(LINEAGE_OID, _utf8_string(lineage.text())), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(ca.private_key.public_key()), critical=False
        )
        .sign(ca.private_key, hashes.SHA256())
    )


def server_name(identity: Identity) -> str | None:
    """The DNS name under which clients verify a mesh service. Tenants and operators run no servers and have none."""
    if identity.kind is not IdentityKind.MESH:
        return None
    return f"{identity.name}.mesh.{identity.trust_domain}"


def make_key() -> ec.EllipticCurvePrivateKey:
    """A new P-256 key; gRPC refuses Ed25519 leaves."""
    return ec.generate_private_key(ec.SECP256R1())


def private_key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """PKCS#8, not encrypted."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def certificate_pem(certificate: x509.Certificate) -> bytes:
    """The certificate as PEM."""
    return certificate.public_bytes(serialization.Encoding.PEM)


def make_csr(key: ec.EllipticCurvePrivateKey) -> bytes:
    """A request that proves possession of `key` and asks for no name: the CA decides names."""
    csr = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([])).sign(key, hashes.SHA256())
    return csr.public_bytes(serialization.Encoding.PEM)


def make_key_and_csr() -> tuple[bytes, bytes]:
    """A new private key and a request for its certificate, both PEM."""
    key = make_key()
    return private_key_pem(key), make_csr(key)


def public_key_of_csr(csr_pem: str | bytes) -> ec.EllipticCurvePublicKey:
    """The P-256 key of a request; BadRequest unless the request is signed with its private half."""
    if len(csr_pem) > MAX_CSR_BYTES:
        raise BadRequest("The certificate request is too long.", reason="bad-csr")
    try:
        csr = x509.load_pem_x509_csr(csr_pem.encode("ascii") if isinstance(csr_pem, str) else csr_pem)
        key = csr.public_key()
        # Before the proof: checking one of a key of the sender's choice can take fifty times as long, under the GIL.
        if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
            raise BadRequest("The certificate request must hold a P-256 key.", reason="bad-csr")
        proved = csr.is_signature_valid
    except (ValueError, UnsupportedAlgorithm, InvalidSignature):
        raise BadRequest("The certificate request cannot be read.", reason="bad-csr") from None
    # Without the proof, a caller could have another's public key certified under its own name.
    if not proved:
        raise BadRequest("The signature of the certificate request does not match.", reason="bad-csr")
    return key


def require_csr_names(csr_pem: str | bytes, identity: Identity) -> None:
    """BadRequest when a readable request asks for a SPIFFE name other than `identity`'s.

    The CA decides names, so a request need not have one; one with a different name is a mistake or an attack, and a
    certificate with another name than requested would hide it.
    """
    csr = x509.load_pem_x509_csr(csr_pem.encode("ascii") if isinstance(csr_pem, str) else csr_pem)
    try:
        names = csr.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return
    except (ValueError, x509.DuplicateExtension):
        raise BadRequest("The certificate request's names cannot be read.", reason="bad-csr") from None
    asked = names.get_values_for_type(x509.UniformResourceIdentifier)
    if any(name != identity.spiffe_id for name in asked):
        raise BadRequest(
            f"The certificate request asks for another name than {identity}.", reason="csr-names-another"
        )


def fingerprint_of(certificate: x509.Certificate) -> bytes:
    """SHA-256 of the certificate, as `openssl x509 -fingerprint -sha256` shows it."""
    return certificate.fingerprint(hashes.SHA256())


def serial_of(certificate: x509.Certificate) -> str:
    """Lower-case hex without leading zeros, as on the denylist and in runs."""
    return format(certificate.serial_number, "x")


def lineage_of(certificate: x509.Certificate) -> Lineage:
    """The lineage of the certificate; an empty one if it has none. ValueError when it cannot be read."""
    extensions = [one for one in certificate.extensions if one.oid in (LINEAGE_OID, LINEAGE_OID_0_1)]
    if not extensions:
        return Lineage()
    if len(extensions) > 1:
        # Of two that differ, a revocation would be compared with one only.
        raise ValueError("two lineages")
    extension = extensions[0].value
    assert isinstance(extension, x509.UnrecognizedExtension)
    return parse_lineage(_utf8_text(extension.value))


def not_after_unix_ns(certificate: x509.Certificate) -> int:
    """End of validity, nanoseconds since the epoch."""
    return round(certificate.not_valid_after_utc.timestamp()) * 1_000_000_000


def _utf8_string(text: str) -> bytes:
    """DER of a UTF8String."""
    contents = text.encode()
    size = len(contents)
    length = bytes([size]) if size < 0x80 else b"\x82" + size.to_bytes(2, "big")
    return b"\x0c" + length + contents


def _utf8_text(der: bytes) -> str:
    text = der[4:].decode() if der[1:2] == b"\x82" else der[2:].decode()
    if _utf8_string(text) != der:
        raise ValueError("not a UTF8String")
    return text


def write_certificate_folder(
    folder: Path, *, certificate_pem: bytes, private_key_pem: bytes, ca_pem: bytes
) -> None:
    """Write `cert.pem`, `key.pem` and `ca.pem` to `folder`, all three at once, durably.

    The files are links through `current`, a link to one generation of them: replacing that single link replaces them
    all. File by file, a crash in the middle would leave a certificate with another key, and a service that cannot
    start.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _alone(folder):
        generation = folder / f"{_GENERATION}{token_hex(8)}"
        generation.mkdir(mode=0o700)
        contents = (
            (CERTIFICATE_FILE, certificate_pem),
            (PRIVATE_KEY_FILE, private_key_pem),
            (CA_FILE, ca_pem),
        )
        for name, content in contents:
            _write_durably(generation / name, content, mode=0o600 if name == PRIVATE_KEY_FILE else 0o644)
        _sync_folder(generation)
        current = folder / _CURRENT
        before = current.readlink().name if current.is_symlink() else None
        _link(current, generation.name)
        for name, _ in contents:
            link, destination = folder / name, f"{_CURRENT}/{name}"
            if not link.is_symlink() or str(link.readlink()) != destination:
                _link(link, destination)
        _sync_folder(folder)
        # The previous generation stays, for a reader that has just opened its first file.
        for old in folder.glob(f"{_GENERATION}*"):
            if old.name not in (generation.name, before) and stat.S_ISDIR(old.lstat().st_mode):
                shutil.rmtree(old, ignore_errors=True)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Keep other writers of the folder out, of this process and of others; StateError if one does not come to its end.

    A Producer and a Consumer of one process renew the same folder: without this, one of them would remove the
    generation that the other is about to link, and neither could read the folder again.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        end = monotonic() + _WRITER_S
        while True:
            try:
                flock(descriptor, LOCK_EX | LOCK_NB)
                break
            except BlockingIOError:
                if monotonic() >= end:
                    raise StateError(
                        f"Another process does not finish writing {folder}.", reason="folder-locked"
                    ) from None
                sleep(0.005)
        yield
    finally:
        os.close(descriptor)


def _write_durably(path: Path, content: bytes, *, mode: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _link(path: Path, destination: str) -> None:
    fresh = path.with_name(f".{path.name}.{token_hex(8)}")
    fresh.symlink_to(destination)
    fresh.replace(path)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _validity(now_unix_ns: int, ttl_s: int) -> tuple[datetime, datetime]:
    # Certificates know whole seconds only.
    now = datetime.fromtimestamp(now_unix_ns // 1_000_000_000, UTC)
    return now - timedelta(seconds=BACKDATE_S), now + timedelta(seconds=ttl_s)


def _key_usage(*, ca: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not ca,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=ca,
        crl_sign=ca,
        encipher_only=False,
        decipher_only=False,
    )
