"""The lineage in a certificate, the subjects of its revocation, and the gate that compares the two."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes

from snavio.clock import ManualClock
from snavio.domain.identity import Identity, IdentityKind
from snavio.domain.lineage import Lineage, Revoked, parse_lineage, tenant_subject, through
from snavio.domain.verdict import Verdict
from snavio.errors import BadRequest
from snavio.pki import LINEAGE_OID_0_1, issue_leaf, lineage_of, make_ca, make_key, serial_of
from snavio.rpc.certificate_gate import CertificateGate
from snavio.rpc.peer import Peer

NOW = 1_700_000_000 * 10**9
BILLING = Identity("snavio.local", IdentityKind.SERVICE, "billing", "acme")
CI = Identity("snavio.local", IdentityKind.PRINCIPAL, "ci", "acme")
WHOLE = Lineage(NOW, "a" * 40, "b" * 39, CI.spiffe_id)


@pytest.mark.parametrize("lineage", [WHOLE, Lineage(1, "a"), Lineage(2**63 - 1, "a", "", "x" * 1024)])
def test_lineage_travels_in_a_certificate(lineage: Lineage) -> None:
    key = make_key()
    leaf = issue_leaf(
        make_ca(now_unix_ns=NOW),
        public_key=key.public_key(),
        identity=BILLING,
        ttl_s=60,
        now_unix_ns=NOW,
        lineage=lineage,
    )
    assert lineage_of(leaf) == lineage


def test_first_certificate_of_a_chain_is_its_own_root() -> None:
    key = make_key()
    leaf = issue_leaf(
        make_ca(now_unix_ns=NOW), public_key=key.public_key(), identity=CI, ttl_s=60, now_unix_ns=NOW + 7
    )
    assert lineage_of(leaf) == Lineage(NOW + 7, serial_of(leaf))


def leaf_of_0_1() -> x509.Certificate:
    """As 0.1.0 issued it: the lineage under an OID with one number of 128 bits."""
    key = make_key()
    text = WHOLE.text().encode()
    der = b"\x0c\x82" + len(text).to_bytes(2, "big") + text
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([]))
        .issuer_name(x509.Name([]))
        .public_key(key.public_key())
        .serial_number(7)
        .not_valid_before(datetime.fromtimestamp(NOW // 10**9, UTC))
        .not_valid_after(datetime.fromtimestamp(NOW // 10**9 + 60, UTC))
        .add_extension(x509.UnrecognizedExtension(LINEAGE_OID_0_1, der), critical=False)
        .sign(key, hashes.SHA256())
    )


def test_lineage_of_a_certificate_of_the_first_release_is_read() -> None:
    assert lineage_of(leaf_of_0_1()) == WHOLE


def test_every_number_of_every_extension_fits_into_31_bits() -> None:
    """Go's crypto/x509 refuses a certificate with a larger one, and with it every connection of a Go program."""
    ca = make_ca(now_unix_ns=NOW)
    leaf = issue_leaf(ca, public_key=make_key().public_key(), identity=BILLING, ttl_s=60, now_unix_ns=NOW)
    for certificate in (ca.certificate, leaf):
        for extension in certificate.extensions:
            assert all(int(number) < 2**31 for number in extension.oid.dotted_string.split("."))


@pytest.mark.parametrize("text", ["", "1", "2 1 a - -", "1 x a - -", "1 1 A - -", "1 1 a - ", "1 1 a - - -"])
def test_what_is_no_lineage_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="lineage"):
        parse_lineage(text)


def gate_with(*entries: str | Revoked) -> CertificateGate:
    gate = CertificateGate(clock=ManualClock(NOW))
    gate.revoke(entries)
    return gate


def peer(serial: str = "c1", lineage: Lineage = WHOLE, identity: Identity = BILLING) -> Peer:
    return Peer(identity, serial, NOW + 10**9, lineage)


@pytest.mark.parametrize(
    "subject",
    [
        "c1",
        "a" * 40,
        "b" * 39,
        BILLING.spiffe_id,
        CI.spiffe_id,
        through(BILLING.spiffe_id, CI.spiffe_id),
        tenant_subject("acme"),
    ],
)
def test_each_subject_covers_what_was_issued_before_and_nothing_later(subject: str) -> None:
    assert gate_with(Revoked(subject, NOW + 1)).check(peer()) is Verdict.CERTIFICATE_REVOKED
    assert gate_with(Revoked(subject, NOW)).check(peer()) is Verdict.UNDECIDED
    assert gate_with(subject).check(peer()) is Verdict.CERTIFICATE_REVOKED


def test_others_are_not_covered() -> None:
    gate = gate_with(
        Revoked("c2", NOW + 1),
        Revoked(Identity("snavio.local", IdentityKind.SERVICE, "bot", "acme").spiffe_id, NOW + 1),
        Revoked(through(BILLING.spiffe_id, BILLING.spiffe_id), NOW + 1),
        Revoked(tenant_subject("rival"), NOW + 1),
    )
    assert gate.check(peer()) is Verdict.UNDECIDED


def test_certificate_of_before_is_older_than_every_revocation() -> None:
    before = peer(lineage=Lineage())
    assert gate_with(Revoked(BILLING.spiffe_id, 1)).check(before) is Verdict.CERTIFICATE_REVOKED
    assert gate_with(Revoked("c1", 1)).check(before) is Verdict.CERTIFICATE_REVOKED


def test_an_older_page_brings_nothing_back() -> None:
    gate = gate_with(Revoked("c1", NOW + 1))
    gate.revoke([Revoked("c1", 5)])
    assert gate.check(peer()) is Verdict.CERTIFICATE_REVOKED


def test_subject_that_nobody_could_present_is_an_error_and_the_rest_counts() -> None:
    gate = CertificateGate(clock=ManualClock(NOW))
    with pytest.raises(BadRequest):
        gate.revoke([Revoked("billing", 1), Revoked("0C1", NOW + 1)])
    assert gate.check(peer()) is Verdict.CERTIFICATE_REVOKED
