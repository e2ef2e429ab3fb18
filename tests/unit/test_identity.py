"""Identities as values, and the certificates and gates built on them."""

from __future__ import annotations

import contextlib
import stat
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.x509.oid import ExtendedKeyUsageOID
from hypothesis import given
from hypothesis import strategies as st

from snavio.clock import ManualClock
from snavio.domain.identity import Identity, IdentityKind, parse_identity
from snavio.domain.verdict import Verdict
from snavio.errors import BadRequest, Saturated, StateError, Unauthenticated, Unavailable
from snavio.pki import (
    CertificateAuthority,
    issue_leaf,
    make_ca,
    make_csr,
    make_key,
    make_key_and_csr,
    not_after_unix_ns,
    public_key_of_csr,
    serial_of,
    write_certificate_folder,
)
from snavio.rpc.certificate_gate import CertificateGate
from snavio.rpc.credentials import CertificateFiles, CertificateWatch
from snavio.rpc.peer import Peer, Peers
from tests.support.pki import Authority

NOW = 1_700_000_000_000_000_000
PRODUCER = Identity("snavio.local", IdentityKind.SERVICE, "billing", "acme")
FAST = Identity("snavio.local", IdentityKind.MESH, "fast")


@pytest.mark.parametrize(
    ("uri", "identity"),
    [
        ("spiffe://snavio.local/mesh/shield", Identity("snavio.local", IdentityKind.MESH, "shield")),
        ("spiffe://snavio.local/operator/ada", Identity("snavio.local", IdentityKind.OPERATOR, "ada")),
        ("spiffe://snavio.local/job/spark", Identity("snavio.local", IdentityKind.JOB, "spark")),
        ("spiffe://snavio.local/tenant/acme/service/billing", PRODUCER),
        (
            "spiffe://snavio.local/tenant/acme/principal/ada",
            Identity("snavio.local", IdentityKind.PRINCIPAL, "ada", "acme"),
        ),
    ],
)
def test_every_kind_of_identity_survives_the_way_through_its_uri(uri: str, identity: Identity) -> None:
    assert parse_identity(uri) == identity
    assert identity.spiffe_id == uri


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "spiffe://snavio.local",
        "spiffe://snavio.local/",
        "spiffe://snavio.local/mesh",
        "spiffe://snavio.local/mesh/",
        "spiffe://snavio.local/mesh/impostor",
        "spiffe://snavio.local/mesh/shield/",
        "spiffe://snavio.local/mesh/shield?x=1",
        "spiffe://snavio.local/mesh/shield\n",
        "spiffe://snavio.local//mesh/shield",
        "spiffe://SNAVIO.local/mesh/shield",
        "SPIFFE://snavio.local/mesh/shield",
        "https://snavio.local/mesh/shield",
        "spiffe://snavio.local.evil/mesh/shield",
        "spiffe://evil/snavio.local/mesh/shield",
        "spiffe://other.local/mesh/shield",
        "spiffe://snavio.local/operator/Ada",
        "spiffe://snavio.local/operator/-ada",
        "spiffe://snavio.local/operator/" + "a" * 64,
        "spiffe://snavio.local/tenant/acme",
        "spiffe://snavio.local/tenant/acme/mesh/shield",
        "spiffe://snavio.local/tenant//service/billing",
        "spiffe://snavio.local/tenant/acme/service/",
        "spiffe://snavio.local/tenant/acme/service/billing/extra",
        "spiffe://snavio.local/tenant/../service/billing",
        "spiffe://snavio.local/tenant/acme%2Fx/service/billing",
        "spiffe://snavio.local/tenant/ａcme/service/billing",
    ],
)
def test_anything_but_the_exact_forms_is_no_identity(uri: str) -> None:
    with pytest.raises(BadRequest):
        parse_identity(uri)


@given(st.text(max_size=80))
def test_no_text_parses_to_an_identity_with_another_uri(path: str) -> None:
    uri = f"spiffe://snavio.local/{path}"
    with contextlib.suppress(BadRequest):
        assert parse_identity(uri).spiffe_id == uri


def test_only_services_have_a_source() -> None:
    assert PRODUCER.source == "acme/billing"
    with pytest.raises(BadRequest):
        _ = Identity("snavio.local", IdentityKind.PRINCIPAL, "billing", "acme").source


# Certificates


def test_leaf_carries_exactly_one_identity_and_no_right_to_sign() -> None:
    ca = make_ca(now_unix_ns=NOW)
    leaf = issue_leaf(ca, public_key=make_key().public_key(), identity=PRODUCER, ttl_s=3600, now_unix_ns=NOW)
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.UniformResourceIdentifier) == [PRODUCER.spiffe_id]
    assert names.get_values_for_type(x509.DNSName) == []
    assert not leaf.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert not leaf.extensions.get_extension_for_class(x509.KeyUsage).value.key_cert_sign
    assert set(leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value) == {
        ExtendedKeyUsageOID.CLIENT_AUTH,
        ExtendedKeyUsageOID.SERVER_AUTH,
    }
    leaf.verify_directly_issued_by(ca.certificate)


def test_only_mesh_services_get_a_dns_name() -> None:
    ca = make_ca(now_unix_ns=NOW)
    shield = Identity("snavio.local", IdentityKind.MESH, "shield")
    leaf = issue_leaf(ca, public_key=make_key().public_key(), identity=shield, ttl_s=3600, now_unix_ns=NOW)
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["shield.mesh.snavio.local"]
    assert names.get_values_for_type(x509.UniformResourceIdentifier) == [shield.spiffe_id]


def test_leaf_starts_a_little_early_and_never_outlives_its_ca() -> None:
    ca = make_ca(now_unix_ns=NOW, ttl_s=1000)
    key = make_key().public_key()
    short = issue_leaf(ca, public_key=key, identity=PRODUCER, ttl_s=600, now_unix_ns=NOW)
    long = issue_leaf(ca, public_key=key, identity=PRODUCER, ttl_s=5000, now_unix_ns=NOW)
    assert not_after_unix_ns(short) == NOW + 600 * 1_000_000_000
    assert short.not_valid_after_utc - short.not_valid_before_utc == timedelta(seconds=900)
    assert long.not_valid_after_utc == ca.certificate.not_valid_after_utc


def test_leaf_without_life_is_not_issued() -> None:
    with pytest.raises(BadRequest):
        issue_leaf(
            make_ca(now_unix_ns=NOW),
            public_key=make_key().public_key(),
            identity=PRODUCER,
            ttl_s=0,
            now_unix_ns=NOW,
        )


def test_ca_signs_leaves_only_and_survives_its_pem() -> None:
    ca = make_ca(now_unix_ns=NOW)
    constraints = ca.certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
    assert (constraints.ca, constraints.path_length) == (True, 0)
    again = CertificateAuthority.from_pem(ca.certificate_pem, ca.private_key_pem())
    assert again.certificate == ca.certificate
    with pytest.raises(StateError):
        CertificateAuthority.from_pem(ca.certificate_pem, make_ca(now_unix_ns=NOW).private_key_pem())
    assert "PRIVATE" not in repr(ca)
    assert "private_key" not in repr(ca)


def test_request_gives_its_key_only_with_proof_of_possession() -> None:
    private_key_pem, csr_pem = make_key_and_csr()
    private_key = serialization.load_pem_private_key(private_key_pem, password=None)
    assert public_key_of_csr(csr_pem) == private_key.public_key()
    assert public_key_of_csr(csr_pem.decode()) == private_key.public_key()
    der = bytearray(x509.load_pem_x509_csr(csr_pem).public_bytes(serialization.Encoding.DER))
    der[-1] ^= 1
    forged = x509.load_der_x509_csr(bytes(der)).public_bytes(serialization.Encoding.PEM)
    with pytest.raises(BadRequest):
        public_key_of_csr(forged)


def test_request_with_another_kind_of_key_or_no_sense_is_refused() -> None:
    edwards = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(x509.Name([]))
        .sign(ed25519.Ed25519PrivateKey.generate(), None)
        .public_bytes(serialization.Encoding.PEM)
    )
    p384 = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(x509.Name([]))
        .sign(ec.generate_private_key(ec.SECP384R1()), hashes.SHA256())
        .public_bytes(serialization.Encoding.PEM)
    )
    for csr in (edwards, p384, b"", b"nonsense", "ünsinn", b"x" * 100_000, make_csr(make_key())[:-40]):
        with pytest.raises(BadRequest) as refused:
            public_key_of_csr(csr)
        assert refused.value.reason == "bad-csr"


def test_nothing_is_proved_with_a_key_of_the_senders_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow:
        """A request whose signature takes a while to check."""

        def public_key(self) -> ec.EllipticCurvePublicKey:
            return ec.generate_private_key(ec.BrainpoolP512R1()).public_key()

        @property
        def is_signature_valid(self) -> bool:
            raise AssertionError("proved")

    monkeypatch.setattr(x509, "load_pem_x509_csr", lambda _pem: Slow())
    with pytest.raises(BadRequest, match="P-256"):
        public_key_of_csr(b"any")


# Folders


def test_folder_is_replaced_whole_and_its_key_is_private(tmp_path: Path) -> None:
    folder = tmp_path / "certs" / "shield"
    for round_ in range(4):
        content = str(round_).encode()
        write_certificate_folder(folder, certificate_pem=content, private_key_pem=content, ca_pem=content)
        assert {(folder / name).read_bytes() for name in ("cert.pem", "key.pem", "ca.pem")} == {content}
    assert stat.S_IMODE((folder / "key.pem").stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    # Old private keys do not pile up.
    assert len(list(folder.glob(".generation-*"))) == 2
    assert {entry.name for entry in folder.iterdir() if not entry.name.startswith(".")} == {
        "cert.pem",
        "key.pem",
        "ca.pem",
        "current",
    }


def test_folder_of_plain_files_is_taken_over(tmp_path: Path) -> None:
    for name in ("cert.pem", "key.pem", "ca.pem"):
        (tmp_path / name).write_bytes(b"old")
    write_certificate_folder(tmp_path, certificate_pem=b"new", private_key_pem=b"new", ca_pem=b"new")
    assert (tmp_path / "key.pem").read_bytes() == b"new"


def test_files_that_do_not_belong_together_are_not_used(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    shield, fast = authority.mesh("shield"), authority.mesh("fast")
    mixed = CertificateFiles(shield.certificate, fast.private_key, shield.ca)
    with pytest.raises(StateError):
        mixed.read()
    with pytest.raises(StateError):
        CertificateFiles(shield.certificate, shield.private_key, shield.private_key).read()
    with pytest.raises(StateError):
        CertificateFiles.in_folder(tmp_path / "nowhere").stamp()


def test_watch_tells_of_a_renewal_once_and_keeps_the_old_pair_while_files_are_broken(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    files = authority.mesh("shield")
    watch = CertificateWatch(files)
    first = watch.bundle
    assert watch.renewed() is None
    authority.mesh("shield")
    second = watch.renewed()
    assert second is not None and second.serial != first.serial
    assert watch.renewed() is None
    files.private_key.write_bytes(b"half a k")
    assert watch.renewed() is None
    assert watch.bundle == second
    authority.mesh("shield")
    third = watch.renewed()
    assert third is not None and third.serial not in (first.serial, second.serial)
    assert b"PRIVATE" not in repr(third).encode()


# Peers and the gate


def _auth_context(files: CertificateFiles, *spiffe_ids: str) -> dict[str, list[bytes]]:
    return {
        "peer_spiffe_id": [spiffe_id.encode() for spiffe_id in spiffe_ids],
        "x509_pem_cert": [files.certificate.read_bytes()],
    }


def test_peer_has_the_serial_and_end_of_its_certificate(tmp_path: Path) -> None:
    files = Authority(tmp_path).leaf(PRODUCER)
    leaf = x509.load_pem_x509_certificate(files.certificate.read_bytes())
    peer = Peers(trust_domain="snavio.local").peer(_auth_context(files, PRODUCER.spiffe_id))
    assert (peer.identity, peer.cert_serial, peer.not_after_unix_ns) == (
        PRODUCER,
        serial_of(leaf),
        not_after_unix_ns(leaf),
    )


@pytest.mark.parametrize(
    "spiffe_ids",
    [
        (),
        ("",),
        ("spiffe://other.local/mesh/shield",),
        (PRODUCER.spiffe_id, PRODUCER.spiffe_id),
        ("spiffe://snavio.local/tenant/é/service/x",),
    ],
)
def test_peer_without_exactly_one_identity_of_ours_is_nobody(
    tmp_path: Path, spiffe_ids: tuple[str, ...]
) -> None:
    files = Authority(tmp_path).leaf(PRODUCER)
    with pytest.raises(Unauthenticated) as refused:
        Peers(trust_domain="snavio.local").peer(_auth_context(files, *spiffe_ids))
    assert refused.value.reason == "no-identity"


def test_peer_of_a_plaintext_connection_is_nobody() -> None:
    with pytest.raises(Unauthenticated):
        Peers(trust_domain="snavio.local").peer({})


def test_gate_closes_at_the_end_of_the_certificate() -> None:
    clock = ManualClock(NOW)
    gate = CertificateGate(clock=clock)
    peer = Peer(PRODUCER, "ab", NOW + 10_000_000_000)
    clock.advance(ns=9_999_999_999)
    assert gate.check(peer) is Verdict.UNDECIDED
    clock.advance(ns=1)
    assert gate.check(peer) is Verdict.CERTIFICATE_EXPIRED
    with pytest.raises(Unauthenticated) as refused:
        gate.require(peer)
    assert refused.value.reason == "certificate-expired"


def test_gate_knows_a_revoked_serial_in_every_spelling() -> None:
    gate = CertificateGate(clock=ManualClock(NOW))
    peer = Peer(PRODUCER, "ab12", NOW + 10_000_000_000)
    assert gate.check(peer) is Verdict.UNDECIDED
    gate.revoke(["00AB12"])
    assert gate.check(peer) is Verdict.CERTIFICATE_REVOKED
    gate.replace([])
    assert gate.check(peer) is Verdict.UNDECIDED


def test_malformed_entry_is_reported_and_does_not_hide_the_others() -> None:
    gate = CertificateGate(clock=ManualClock(NOW))
    with pytest.raises(BadRequest):
        gate.revoke(["0xab", "ab12", "", "1_0", "g"])
    assert gate.check(Peer(PRODUCER, "ab12", NOW + 1)) is Verdict.CERTIFICATE_REVOKED


def test_full_denylist_tells_its_feeder_and_forgets_nobody() -> None:
    gate = CertificateGate(clock=ManualClock(NOW), max_revoked=2)
    gate.revoke(["1", "2"])
    gate.revoke(["2", "1"])
    with pytest.raises(Saturated):
        gate.revoke(["3"])
    with pytest.raises(Saturated):
        gate.replace(["3", "4", "5"])
    assert gate.check(Peer(PRODUCER, "1", NOW + 1)) is Verdict.CERTIFICATE_REVOKED
    gate.replace(["3"])
    assert gate.check(Peer(PRODUCER, "3", NOW + 1)) is Verdict.CERTIFICATE_REVOKED
    assert gate.check(Peer(PRODUCER, "1", NOW + 1)) is Verdict.UNDECIDED


def test_without_news_of_revocations_for_too_long_nobody_comes_in_from_outside_the_mesh() -> None:
    clock = ManualClock(NOW)
    gate = CertificateGate(clock=clock)
    gate.expect_news(within_s=3600)
    outsider, fast = Peer(PRODUCER, "1", 1 << 62), Peer(FAST, "2", 1 << 62)
    # Before the first news there is none to go by.
    assert gate.check(outsider) is Verdict.SATURATED
    gate.heard(clock.mono_ns())
    clock.advance(seconds=3599)
    assert gate.check(outsider) is Verdict.UNDECIDED
    clock.advance(seconds=1)
    assert gate.check(outsider) is Verdict.SATURATED
    with pytest.raises(Unavailable) as refused:
        gate.require(outsider)
    assert refused.value.reason == "revocations-unknown"
    # Calls in progress go on, and a known revocation stays the reason of its refusal.
    assert gate.check(fast) is Verdict.UNDECIDED
    gate.revoke(["1"])
    assert gate.check(outsider) is Verdict.CERTIFICATE_REVOKED
    gate.replace([])
    gate.heard(clock.mono_ns())
    assert gate.check(outsider) is Verdict.UNDECIDED


def test_news_that_is_older_than_what_is_known_makes_nothing_younger_or_older() -> None:
    clock = ManualClock(NOW)
    gate = CertificateGate(clock=clock)
    gate.expect_news(within_s=60)
    clock.advance(seconds=100)
    gate.heard(clock.mono_ns())
    gate.heard(clock.mono_ns() - 90 * 10**9)
    assert gate.check(Peer(PRODUCER, "1", 1 << 62)) is Verdict.UNDECIDED


def test_expiring_leaf_ends_when_it_says(tmp_path: Path) -> None:
    files = Authority(tmp_path).leaf(PRODUCER, ttl_s=30)
    end = not_after_unix_ns(x509.load_pem_x509_certificate(files.certificate.read_bytes()))
    assert 0 < end - time.time_ns() <= 30 * 1_000_000_000


def test_writers_at_the_same_time_leave_one_whole_folder(tmp_path: Path) -> None:
    """As a Producer and a Consumer do that renew the same folder."""
    folder = tmp_path / "billing"

    def write(writer: int) -> None:
        for turn in range(15):
            text = f"{writer} {turn}".encode()
            write_certificate_folder(folder, certificate_pem=text, private_key_pem=text, ca_pem=text)

    with ThreadPoolExecutor(4) as writers:
        for done in [writers.submit(write, writer) for writer in range(4)]:
            done.result()
    contents = {(folder / name).read_bytes() for name in ("cert.pem", "key.pem", "ca.pem")}
    assert len(contents) == 1
    assert len(list(folder.glob(".generation-*"))) <= 2
