"""Certificates for tests: real ones from a throw-away CA, and the kinds that a server must refuse."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes

from snavio.domain.identity import DEFAULT_TRUST_DOMAIN, Identity, IdentityKind
from snavio.pki import (
    certificate_pem,
    issue_leaf,
    make_ca,
    make_key,
    private_key_pem,
    write_certificate_folder,
)
from snavio.rpc.credentials import CertificateFiles

HOUR_S = 3600


class Authority:
    """A CA with a folder, in which every identity gets a folder of its own."""

    def __init__(self, folder: Path, *, trust_domain: str = DEFAULT_TRUST_DOMAIN) -> None:
        self.folder = folder
        self.trust_domain = trust_domain
        # TLS judges certificates by the machine's clock, so that is the one they are made by.
        self.ca = make_ca(now_unix_ns=time.time_ns(), trust_domain=trust_domain)

    def mesh(self, name: str, *, ttl_s: int = HOUR_S) -> CertificateFiles:
        """A mesh service."""
        return self.leaf(Identity(self.trust_domain, IdentityKind.MESH, name), ttl_s=ttl_s)

    def service(self, tenant: str, name: str, *, ttl_s: int = HOUR_S) -> CertificateFiles:
        """A service of a tenant."""
        return self.leaf(Identity(self.trust_domain, IdentityKind.SERVICE, name, tenant), ttl_s=ttl_s)

    def principal(self, tenant: str, name: str, *, ttl_s: int = HOUR_S) -> CertificateFiles:
        """A principal of a tenant."""
        return self.leaf(Identity(self.trust_domain, IdentityKind.PRINCIPAL, name, tenant), ttl_s=ttl_s)

    def operator(self, name: str, *, ttl_s: int = HOUR_S) -> CertificateFiles:
        """An operator."""
        return self.leaf(Identity(self.trust_domain, IdentityKind.OPERATOR, name), ttl_s=ttl_s)

    def leaf(
        self,
        identity: Identity,
        *,
        ttl_s: int = HOUR_S,
        issued_ago_s: int = 0,
        trusts: Authority | None = None,
        folder: Path | None = None,
    ) -> CertificateFiles:
        """A folder for `identity`, written again if it exists; `trusts` puts another CA beside the leaf."""
        key = make_key()
        leaf = issue_leaf(
            self.ca,
            public_key=key.public_key(),
            identity=identity,
            ttl_s=ttl_s,
            now_unix_ns=time.time_ns() - issued_ago_s * 1_000_000_000,
        )
        return self._write(folder or self._folder(identity), leaf, private_key_pem(key), trusts)

    def expired(self, identity: Identity) -> CertificateFiles:
        """A leaf that ended a minute ago."""
        return self.leaf(identity, ttl_s=60, issued_ago_s=120, folder=self.folder / "expired")

    def with_spiffe_ids(self, *spiffe_ids: str) -> CertificateFiles:
        """A leaf that TLS accepts, with any number of SPIFFE ids: no honest Signer would make it."""
        key = make_key()
        now = datetime.now(UTC)
        names = [x509.UniformResourceIdentifier(spiffe_id) for spiffe_id in spiffe_ids]
        leaf = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([]))
            .issuer_name(self.ca.certificate.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(minutes=5))
            .not_valid_after(now + timedelta(hours=1))
            .add_extension(x509.SubjectAlternativeName([*names, x509.DNSName("odd.test")]), critical=False)
            .sign(self.ca.private_key, hashes.SHA256())
        )
        return self._write(self.folder / f"odd-{len(spiffe_ids)}", leaf, private_key_pem(key), None)

    def _folder(self, identity: Identity) -> Path:
        return self.folder / "-".join((identity.kind.value, identity.tenant, identity.name))

    def _write(
        self, folder: Path, leaf: x509.Certificate, key_pem: bytes, trusts: Authority | None
    ) -> CertificateFiles:
        write_certificate_folder(
            folder,
            certificate_pem=certificate_pem(leaf),
            private_key_pem=key_pem,
            ca_pem=(trusts or self).ca.certificate_pem,
        )
        return CertificateFiles.in_folder(folder)
