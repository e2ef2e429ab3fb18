"""Refused certificates: every one is counted, few are reported, however many callers there are."""

from __future__ import annotations

from snavio.clock import ManualClock
from snavio.domain.identity import DEFAULT_TRUST_DOMAIN, Identity, IdentityKind
from snavio.domain.verdict import Verdict
from snavio.rpc.certificate_gate import CertificateGate
from snavio.rpc.certificate_refusals import CertificateRefusals
from snavio.rpc.peer import Peer

NEVER = 2**62


def peer(name: str, *, serial: str = "1", until: int = NEVER) -> Peer:
    return Peer(Identity(DEFAULT_TRUST_DOMAIN, IdentityKind.SERVICE, name, "acme"), serial, until)


def refusals(clock: ManualClock, **given: int) -> tuple[CertificateRefusals, list[tuple[str, str, int]]]:
    told: list[tuple[str, str, int]] = []
    built = CertificateRefusals(
        lambda identity, reason, count: told.append((identity.name if identity else "", reason, count)),
        clock=clock,
        **given,
    )
    return built, told


def test_a_caller_is_told_once_in_a_minute_with_what_came_since() -> None:
    clock = ManualClock()
    built, told = refusals(clock)
    for _ in range(500):
        built.refused(peer("billing"), "certificate-revoked")
    built.refused(peer("billing"), "certificate-expired")
    built.refused(None, "no-identity")
    clock.advance(seconds=61)
    built.refused(peer("billing"), "certificate-revoked")
    assert told == [
        ("billing", "certificate-revoked", 1),
        ("billing", "certificate-expired", 1),
        ("", "no-identity", 1),
        ("billing", "certificate-revoked", 500),
    ]
    assert built.counters() == {"certificate-revoked": 501, "certificate-expired": 1, "no-identity": 1}


def test_more_callers_than_are_remembered_are_only_counted_until_there_is_room() -> None:
    clock = ManualClock()
    built, told = refusals(clock, remembered=10)
    for number in range(1000):
        built.refused(peer(f"service-{number}"), "certificate-revoked")
    assert len(told) == 10
    assert built.counters() == {"certificate-revoked": 1000}
    clock.advance(seconds=61)
    built.refused(peer("another"), "certificate-revoked")
    assert told[-1] == ("another", "certificate-revoked", 1)


def test_the_gate_tells_of_what_it_refuses_and_not_of_what_is_only_looked_at() -> None:
    clock = ManualClock()
    gate = CertificateGate(clock=clock)
    built, told = refusals(clock)
    gate.refused = built.refused
    gate.revoke(["bad"])
    assert gate.check(peer("good")) is Verdict.UNDECIDED
    assert gate.judge(peer("lost", serial="bad")) is Verdict.CERTIFICATE_REVOKED
    assert told == []
    assert gate.check(peer("lost", serial="bad")) is Verdict.CERTIFICATE_REVOKED
    assert gate.check(peer("old", until=0)) is Verdict.CERTIFICATE_EXPIRED
    gate.expect_news(within_s=1)
    assert gate.check(peer("stranger")) is Verdict.SATURATED
    assert [reason for _, reason, _ in told] == [
        "certificate-revoked",
        "certificate-expired",
        "revocations-unknown",
    ]


def test_each_tenant_is_told_of_its_own_refusals_and_cannot_push_out_anothers() -> None:
    clock = ManualClock()
    built, _ = refusals(clock)
    built.refused(peer("billing"), "certificate-revoked")
    clock.advance(seconds=1)
    built.refused(peer("billing"), "certificate-revoked")
    for number in range(2000):
        other = Identity(DEFAULT_TRUST_DOMAIN, IdentityKind.SERVICE, f"s-{number}", "rival")
        built.refused(Peer(other, "1", NEVER), "certificate-expired")
    principal = Identity(DEFAULT_TRUST_DOMAIN, IdentityKind.PRINCIPAL, "ci", "acme")
    (own,) = built.recent(principal)
    assert (own.identity.name, own.reason, own.count) == ("billing", "certificate-revoked", 2)
    assert own.last_unix_ns == clock.unix_ns()
    operator = Identity(DEFAULT_TRUST_DOMAIN, IdentityKind.OPERATOR, "admin")
    assert len(built.recent(operator)) == 20
    assert built.recent(Identity(DEFAULT_TRUST_DOMAIN, IdentityKind.JOB, "spark")) == []
