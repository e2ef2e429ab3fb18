"""Prepares a state folder: sealing key, key store with a CA, certificates for the mesh, an operator and jobs.

Never replaces a sealing key or a CA that is there: either would lock the installation out of itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature

from services.signer.certificates.issue_order import IssueOrder
from services.signer.settings import SignerSettings
from snavio.clock import Clock
from snavio.config import MeshSettings
from snavio.domain.identity import Identity, IdentityKind
from snavio.domain.lineage import Lineage
from snavio.pki import (
    CERTIFICATE_FILE,
    LINEAGE_OID_0_1,
    CertificateAuthority,
    certificate_pem,
    issue_leaf,
    make_ca,
    make_key,
    not_after_unix_ns,
    private_key_pem,
    serial_of,
    write_certificate_folder,
)
from snavio.ports.certificates import IssuedCertificate
from snavio.ports.keystore import Authority, KeyStore
from snavio.wiring import open_certificate_ledger, open_key_store

SERVICES = ("shield", "fast", "slow", "signer", "registry", "mailbox", "relay", "gateway")
OPERATOR = "admin"
JOB = "spark"
"""Name of the auditors of archived traffic."""


async def prepare(
    mesh: MeshSettings, settings: SignerSettings, *, clock: Clock, restored: bool = False
) -> list[str]:
    """Make whatever is missing and renew what ends soon; returns the names of certificates that were made.

    `restored` tells every reader of the key store to start again; for a state folder from a backup.
    """
    store = await open_key_store(
        settings.store_path(mesh),
        sealing_key=settings.sealing_key_path(mesh),
        kms=settings.kms(mesh),
        create=True,
    )
    try:
        if restored:
            await store.renew_epoch()
        ca = await _authority(store, clock=clock, trust_domain=mesh.trust_domain)
        return await _certify_all(ca, store, mesh, settings, clock=clock)
    finally:
        await store.close()


async def _certify_all(
    ca: CertificateAuthority,
    store: KeyStore,
    mesh: MeshSettings,
    settings: SignerSettings,
    *,
    clock: Clock,
) -> list[str]:
    made = []
    ledger = await open_certificate_ledger(
        settings.ledger_path(mesh),
        limit=mesh.share("certificates", settings.max_certificates),
        per_identity=settings.certificates_per_identity,
    )
    try:
        order = await IssueOrder.load(clock, ledger=ledger, store=store)
        for name, identity, ttl_s in _identities(mesh, settings):
            issued = _certify(
                ca,
                identity,
                mesh.certificates(name),
                ttl_s=ttl_s,
                now_ns=clock.unix_ns(),
                issued_ns=order.next(),
            )
            if issued is not None:
                await ledger.record(issued, now_ns=clock.unix_ns())
                made.append(name)
    finally:
        await ledger.close()
    return made


async def _authority(store: KeyStore, *, clock: Clock, trust_domain: str) -> CertificateAuthority:
    kept = await store.authority()
    if kept is None:
        ca = make_ca(now_unix_ns=clock.unix_ns(), trust_domain=trust_domain)
        kept = Authority(ca.certificate_pem.decode(), ca.private_key_pem().decode())
        await store.put_authority(kept)
    return CertificateAuthority.from_pem(kept.certificate_pem.encode(), kept.private_key_pem.encode())


def _identities(mesh: MeshSettings, settings: SignerSettings) -> Iterator[tuple[str, Identity, int]]:
    for service in SERVICES:
        yield service, Identity(mesh.trust_domain, IdentityKind.MESH, service), settings.mesh_ttl_s
    operator = Identity(mesh.trust_domain, IdentityKind.OPERATOR, OPERATOR)
    yield f"operator-{OPERATOR}", operator, settings.bootstrap_operator_ttl_s
    yield f"job-{JOB}", Identity(mesh.trust_domain, IdentityKind.JOB, JOB), settings.job_ttl_s


def _certify(
    ca: CertificateAuthority,
    identity: Identity,
    folder: Path,
    *,
    ttl_s: int,
    now_ns: int,
    issued_ns: int,
) -> IssuedCertificate | None:
    if _good_for_a_while(folder / CERTIFICATE_FILE, ca=ca, identity=identity, ttl_s=ttl_s, now_ns=now_ns):
        return None
    key = make_key()
    leaf = issue_leaf(
        ca,
        public_key=key.public_key(),
        identity=identity,
        ttl_s=ttl_s,
        now_unix_ns=now_ns,
        lineage=Lineage(issued_ns),
    )
    write_certificate_folder(
        folder,
        certificate_pem=certificate_pem(leaf),
        private_key_pem=private_key_pem(key),
        ca_pem=ca.certificate_pem,
    )
    return IssuedCertificate(
        serial=serial_of(leaf),
        spiffe_id=identity.spiffe_id,
        issued_to="init",
        parent="",
        delegate="",
        issued_ns=issued_ns,
        not_after_ns=not_after_unix_ns(leaf),
        root=serial_of(leaf),
    )


def _good_for_a_while(
    path: Path, *, ca: CertificateAuthority, identity: Identity, ttl_s: int, now_ns: int
) -> bool:
    """True if the certificate there is of this CA, for that identity, with more than a third of its life left.

    One of 0.1.0 is not: no Go program could connect to a service that shows it.
    """
    try:
        leaf = x509.load_pem_x509_certificate(path.read_bytes())
        leaf.verify_directly_issued_by(ca.certificate)
        names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        if any(extension.oid == LINEAGE_OID_0_1 for extension in leaf.extensions):
            return False
    except (OSError, ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound):
        # Absent, damaged or of another CA: in every case a new one is right.
        return False
    uris = names.get_values_for_type(x509.UniformResourceIdentifier)
    return uris == [identity.spiffe_id] and not_after_unix_ns(leaf) - now_ns > ttl_s * 1_000_000_000 // 3
