"""The verified peer of a connection, read from the TLS authentication and from nothing else.

Never takes an identity from metadata, from a message, or from a certificate with more than one SPIFFE id.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from cryptography import x509

from snavio.domain.identity import Identity, parse_identity
from snavio.domain.lineage import Lineage
from snavio.errors import BadRequest, Unauthenticated
from snavio.pki import lineage_of, not_after_unix_ns, serial_of

_REMEMBERED_CERTIFICATES: Final = 4096


_UNKNOWN: Final = Lineage()


@dataclass(frozen=True, slots=True)
class Peer:
    """A verified caller and the certificate it came with."""

    identity: Identity
    # Lower-case hex without leading zeros, as on the denylist.
    cert_serial: str
    not_after_unix_ns: int
    lineage: Lineage = _UNKNOWN
    subjects: tuple[str, ...] = field(init=False, repr=False, compare=False)
    """Subjects under which the denylist may contain it."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "subjects", self.lineage.subjects(self.cert_serial, self.identity))


class Peers:
    """Turns gRPC's auth contexts, and certificates that TLS has verified, into peers of one trust domain."""

    def __init__(self, *, trust_domain: str) -> None:
        def peer_of(uri: str, certificate: x509.Certificate) -> Peer:
            return Peer(
                parse_identity(uri, trust_domain=trust_domain),
                serial_of(certificate),
                not_after_unix_ns(certificate),
                lineage_of(certificate),
            )

        def read(uri: bytes, pem: bytes) -> Peer:
            return peer_of(uri.decode("ascii"), x509.load_pem_x509_certificate(pem))

        def read_der(der: bytes) -> Peer:
            certificate = x509.load_der_x509_certificate(der)
            names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
            # As gRPC does: with two URIs there is no identity.
            (uri,) = names.get_values_for_type(x509.UniformResourceIdentifier)
            return peer_of(uri, certificate)

        # Parsing a certificate costs more than the rest of a small call. Only certificates that TLS has verified get
        # here, so an outsider cannot flush the cache.
        self._read = lru_cache(maxsize=_REMEMBERED_CERTIFICATES)(read)
        self._read_der = lru_cache(maxsize=_REMEMBERED_CERTIFICATES)(read_der)

    def peer(self, auth_context: Mapping[str, Iterable[bytes]]) -> Peer:
        """The caller of an auth context; Unauthenticated `no-identity` unless there is exactly one."""
        # gRPC leaves peer_spiffe_id out for a certificate with two SPIFFE URIs, though TLS accepted it.
        spiffe_ids = tuple(auth_context.get("peer_spiffe_id", ()))
        pems = tuple(auth_context.get("x509_pem_cert", ()))
        if len(spiffe_ids) != 1 or len(pems) != 1:
            raise _no_identity()
        try:
            return self._read(spiffe_ids[0], pems[0])
        except (BadRequest, ValueError):
            raise _no_identity() from None

    def of_certificate(self, der: bytes | None) -> Peer:
        """The holder of a certificate that TLS has verified; Unauthenticated `no-identity` without exactly one."""
        if der is None:
            raise Unauthenticated("This needs a client certificate.", reason="no-identity")
        try:
            return self._read_der(der)
        except (BadRequest, ValueError, x509.ExtensionNotFound):
            raise _no_identity() from None


def _no_identity() -> Unauthenticated:
    return Unauthenticated(
        "The certificate does not carry exactly one identity of this mesh.", reason="no-identity"
    )
