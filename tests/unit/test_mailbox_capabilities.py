"""The mailbox's capability check by itself: its cache, revocations, and bounds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from services.mailbox.access import capabilities as module
from services.mailbox.access.capabilities import (
    MAX_ANSWERS,
    PURGE_QUIET_NS,
    SPIKE,
    Capabilities,
    count_received,
)
from services.mailbox.access.quotas import Metered, Quotas, QuotaTake
from services.mailbox.access.roots import Roots, Secret
from snavio.clock import ManualClock
from snavio.domain.capability import Capability, verify
from snavio.domain.caveat import Caveat, Operation, Quota
from snavio.domain.identity import Identity, IdentityKind
from snavio.domain.verdict import Verdict
from snavio.errors import NotAllowed, Saturated, Unauthenticated
from snavio.rpc.call import Call
from snavio.rpc.peer import Peer
from snavio.v1 import signer_pb2 as wire
from tests.support.capabilities import CapabilityMint

TOPIC = "acme/billing"
BOT = Identity("snavio.local", IdentityKind.SERVICE, "bot", "acme")
FAST = Identity("snavio.local", IdentityKind.MESH, "fast")
CACHE_S = 30.0
RECV, ACK, NACK, SEND = Operation.RECV, Operation.ACK, Operation.NACK, Operation.SEND


@dataclass
class Presented:
    """The part of a call that the check reads."""

    capability: str | None
    peer: Peer


@dataclass
class CapabilityChecks:
    """The check, with Signer's side controlled by the test."""

    clock: ManualClock = field(default_factory=ManualClock)
    refreshed: int = 0
    verified: int = 0

    def __post_init__(self) -> None:
        self.mint = CapabilityMint(self.clock)
        self.roots = Roots(clock=self.clock)
        self.capabilities = self.build()
        self.roots.take_secrets(
            {root: Secret(secret, 0) for root, secret in self.mint.secrets.items()}, max_ttl_s=3600
        )

    def build(self, **bounds: int) -> Capabilities:
        return Capabilities(
            roots=self.roots,
            clock=self.clock,
            cache_s=CACHE_S,
            signer="signer:7404",
            refresh=self._refresh,
            **bounds,
        )

    def _refresh(self) -> None:
        self.refreshed += 1

    def check(
        self,
        capability: Capability | str | None,
        operation: Operation = RECV,
        topic: str | None = TOPIC,
        identity: Identity = BOT,
    ) -> Any:
        text = capability.text() if isinstance(capability, Capability) else capability
        call = Presented(text, Peer(identity, "ab", 1 << 62))
        return self.capabilities.check(cast("Call", call), operation, topic)

    def refused(self, *asked: Any, **named: Any) -> tuple[type[Exception], str]:
        with pytest.raises((Unauthenticated, NotAllowed)) as refused:
            self.check(*asked, **named)
        code = "E_CAP_AUTH" if isinstance(refused.value, Unauthenticated) else "E_CAP_SCOPE"
        assert str(refused.value).startswith(f"{code}: ")
        return type(refused.value), refused.value.reason

    def revoke(self, capability: Capability) -> None:
        self.mint.revoke(capability)
        self.hear()

    def hear(self) -> None:
        self.roots.take_endings(
            wire.CapabilityRevocationsResponse(
                version=self.mint.version,
                epoch=1,
                capability=self.mint.revoked,
                holder=self.mint.holders,
                line=self.mint.lines,
            )
        )


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> CapabilityChecks:
    made = CapabilityChecks()

    def counted(*asked: Any) -> Any:
        made.verified += 1
        return verify(*asked)

    monkeypatch.setattr(module, "verify", counted)
    return made


def test_I_8_without_a_capability_nothing_is_served_and_signers_address_is_told(
    checks: CapabilityChecks,
) -> None:
    for operation in Operation:
        assert checks.refused(None, operation) == (Unauthenticated, "cap-required")
    with pytest.raises(Unauthenticated) as refused:
        checks.check(None)
    assert refused.value.signer == "signer:7404"


@pytest.mark.parametrize("text", ["", "snvcap1.", "snvcap1.AAAA", "x" * 5000, "snvcap1." + "A" * 400])
def test_I_8_what_is_no_capability_is_refused(checks: CapabilityChecks, text: str) -> None:
    assert checks.refused(text) == (Unauthenticated, "cap-malformed")


def test_I_8_forged_foreign_and_stolen_ones_are_refused(checks: CapabilityChecks) -> None:
    genuine = checks.mint.make(BOT.spiffe_id)
    forged = Capability(genuine.identifier, genuine.caveats[1:], genuine.signature)
    assert checks.refused(forged) == (Unauthenticated, "cap-forged")
    other = CapabilityMint(checks.clock, secrets={"00112233445566ff": b"x" * 32})
    assert checks.refused(other.make(BOT.spiffe_id)) == (Unauthenticated, "cap-forged")
    strange = CapabilityMint(checks.clock, secrets={"ffff33445566ffff": b"r" * 32})
    assert checks.refused(strange.make(BOT.spiffe_id)) == (Unauthenticated, "cap-unknown-root")
    thief = Identity("snavio.local", IdentityKind.SERVICE, "thief", "acme")
    assert checks.refused(genuine, identity=thief) == (Unauthenticated, "cap-holder")
    checks.check(genuine)
    # Not even after its holder has used it, and it is in the cache.
    assert checks.refused(genuine, identity=thief) == (Unauthenticated, "cap-holder")


def test_I_8_another_topic_or_operation_is_out_of_scope(checks: CapabilityChecks) -> None:
    narrow = checks.mint.make(BOT.spiffe_id, realm=TOPIC, operations=frozenset({RECV, ACK}))
    checks.check(narrow)
    checks.check(narrow, ACK)
    assert checks.refused(narrow, NACK) == (NotAllowed, "cap-operation")
    assert checks.refused(narrow, Operation.MANAGE, None) == (NotAllowed, "cap-operation")
    assert checks.refused(narrow, RECV, "acme/orders") == (NotAllowed, "cap-topic")
    grant = checks.check(narrow, RECV, None)
    assert grant.covers(RECV, TOPIC) and not grant.covers(RECV, "acme/orders")


def test_I_8_one_without_an_end_is_refused(checks: CapabilityChecks) -> None:
    endless = checks.mint.make(BOT.spiffe_id)
    from snavio.domain.capability import derive_root, mint

    key = derive_root(checks.mint.secrets["00112233445566ff"], realm="*", version=1)
    assert checks.refused(mint(key, endless.identifier, *endless.caveats[:2])) == (
        Unauthenticated,
        "cap-expired",
    )


def test_I_15_an_expired_one_is_refused_though_its_verification_is_cached(checks: CapabilityChecks) -> None:
    short = checks.mint.make(BOT.spiffe_id, ttl_s=10)
    checks.check(short)
    checks.clock.advance(seconds=9.99)
    checks.check(short)
    checks.clock.advance(seconds=0.01)
    assert checks.refused(short) == (Unauthenticated, "cap-expired")
    assert checks.refused(short, ACK) == (Unauthenticated, "cap-expired")


def test_C_6_a_verification_is_cached_for_the_cache_time_and_no_longer(checks: CapabilityChecks) -> None:
    held = checks.mint.make(BOT.spiffe_id)
    for _ in range(1000):
        checks.check(held)
        checks.check(held, ACK)
    assert checks.verified == 1
    checks.clock.advance(seconds=CACHE_S - 0.001)
    checks.check(held)
    assert checks.verified == 1
    checks.clock.advance(seconds=0.001)
    checks.check(held)
    assert checks.verified == 2


def test_I_15_a_revocation_is_felt_when_it_is_heard(checks: CapabilityChecks) -> None:
    held, other = checks.mint.make(BOT.spiffe_id), checks.mint.make(BOT.spiffe_id)
    checks.check(held)
    checks.revoke(held)
    assert checks.refused(held) == (Unauthenticated, "cap-revoked")
    checks.check(other)


def test_I_15_what_was_narrowed_from_a_revoked_one_is_revoked_too(checks: CapabilityChecks) -> None:
    held = checks.mint.make(BOT.spiffe_id)
    checks.revoke(held)
    assert checks.refused(held.attenuate(Caveat(topics=(TOPIC,)))) == (Unauthenticated, "cap-revoked")


def test_I_15_acks_in_flight_are_honoured_until_the_end_and_nothing_else_is(checks: CapabilityChecks) -> None:
    held = checks.mint.make(BOT.spiffe_id, ttl_s=600)
    checks.check(held, RECV)
    checks.revoke(held)
    checks.check(held, ACK)
    checks.check(held, NACK)
    for operation in set(Operation) - {ACK, NACK}:
        assert checks.refused(held, operation) == (Unauthenticated, "cap-revoked"), operation
    checks.clock.advance(seconds=599)
    checks.check(held, ACK)
    checks.clock.advance(seconds=1)
    assert checks.refused(held, ACK) == (Unauthenticated, "cap-expired")


def test_I_15_one_that_was_given_nothing_settles_nothing_once_revoked(checks: CapabilityChecks) -> None:
    held = checks.mint.make(BOT.spiffe_id)
    checks.revoke(held)
    assert checks.refused(held, ACK) == (Unauthenticated, "cap-revoked")


def test_I_15_a_revoked_ack_does_not_reach_beyond_its_topic(checks: CapabilityChecks) -> None:
    held = checks.mint.make(BOT.spiffe_id, realm=TOPIC)
    checks.check(held, RECV)
    checks.revoke(held)
    assert checks.refused(held, ACK, "acme/orders") == (NotAllowed, "cap-topic")


def test_I_15_a_revoked_holder_loses_what_was_issued_until_then(checks: CapabilityChecks) -> None:
    for holder in (BOT.spiffe_id, "tenant:acme"):
        before = checks.mint.make(BOT.spiffe_id)
        checks.check(before)
        checks.mint.revoke_holder(holder)
        checks.hear()
        assert checks.refused(before) == (Unauthenticated, "cap-revoked")
        checks.clock.advance(seconds=0.001)
        checks.check(checks.mint.make(BOT.spiffe_id))
        stranger = Identity("snavio.local", IdentityKind.SERVICE, "bot", "beta")
        checks.check(checks.mint.make(stranger.spiffe_id), identity=stranger)


def test_I_15_a_rotated_root_key_is_good_until_its_overlap_ends(checks: CapabilityChecks) -> None:
    old, new = (checks.mint.make(BOT.spiffe_id, realm=TOPIC, version=version) for version in (1, 2))
    checks.check(old)
    # The new version needs no announcement: only Signer can have made it.
    checks.check(new)
    ends = checks.clock.unix_ns() + 100_000_000_000
    checks.mint.put_line(TOPIC, version=2, minimum=1, old_version=[1], old_ends_unix_ns=[ends])
    checks.hear()
    checks.check(old)
    checks.clock.advance(seconds=100)
    checks.check(new)
    assert checks.refused(old) == (Unauthenticated, "cap-revoked")
    checks.check(old, ACK)


def test_I_15_a_revoked_root_key_ends_at_once_and_stays_so(checks: CapabilityChecks) -> None:
    old = checks.mint.make(BOT.spiffe_id, realm=TOPIC)
    checks.check(old)
    checks.mint.put_line(TOPIC, version=2, minimum=2)
    checks.hear()
    assert checks.refused(old) == (Unauthenticated, "cap-revoked")
    # A Signer that came from a backup knows nothing of it any more.
    checks.mint.lines.clear()
    checks.mint.put_line(TOPIC, version=1, minimum=1)
    checks.hear()
    assert checks.refused(old) == (Unauthenticated, "cap-revoked")


def test_I_15_a_secret_that_signer_dropped_makes_nothing_valid_but_still_settles(
    checks: CapabilityChecks,
) -> None:
    old = checks.mint.make(BOT.spiffe_id)
    checks.check(old)
    checks.roots.take_secrets({"1111111111111111": Secret(b"n" * 32, 0)}, max_ttl_s=3600)
    assert checks.refused(old) == (Unauthenticated, "cap-revoked")
    checks.check(old, ACK)
    checks.clock.advance(seconds=3601)
    checks.roots.take_secrets({"2222222222222222": Secret(b"m" * 32, 0)}, max_ttl_s=3600)
    assert checks.refused(old, ACK) == (Unauthenticated, "cap-unknown-root")


def test_C_6_a_spike_of_denials_purges_the_cache_and_asks_signer(checks: CapabilityChecks) -> None:
    held = checks.mint.make(BOT.spiffe_id)
    checks.check(held)
    for _ in range(SPIKE):
        checks.refused(None)
    assert (checks.capabilities.purges, checks.refreshed) == (1, 1)
    checks.check(held)
    assert checks.verified == 2


def test_C_6_whoever_makes_denials_cannot_keep_the_cache_empty(checks: CapabilityChecks) -> None:
    for _ in range(SPIKE * 50):
        checks.refused(None)
    assert checks.capabilities.purges == 1
    checks.clock.advance(ns=PURGE_QUIET_NS)
    for _ in range(SPIKE):
        checks.refused(None)
    assert checks.capabilities.purges == 2


def test_C_6_a_few_denials_over_a_long_time_are_no_spike(checks: CapabilityChecks) -> None:
    for _ in range(SPIKE * 3):
        checks.refused(None)
        checks.clock.advance(seconds=1)
    assert checks.capabilities.purges == 0


def test_I_15_an_unknown_root_asks_signer_but_not_all_the_time(checks: CapabilityChecks) -> None:
    strange = CapabilityMint(checks.clock, secrets={"ffff33445566ffff": b"r" * 32}).make(BOT.spiffe_id)
    for _ in range(SPIKE - 1):
        assert checks.refused(strange)[1] == "cap-unknown-root"
    assert checks.refreshed == 1


def test_C_6_cache_and_memory_of_leases_are_bounded(checks: CapabilityChecks) -> None:
    checks.capabilities = checks.build(most_cached=8, most_given=8)
    first, *others = (checks.mint.make(BOT.spiffe_id) for _ in range(9))
    checks.check(first)
    for held in others:
        checks.check(held)
    assert checks.capabilities.gauges()["cached"] == 8
    checks.revoke(first)
    checks.revoke(others[-1])
    # Forgotten: refused, and its messages come again. The safe side.
    assert checks.refused(first, ACK)[1] == "cap-revoked"
    checks.check(others[-1], ACK)


def refusal(admitted: QuotaTake | tuple[Verdict, int, str]) -> tuple[Verdict, int, str]:
    assert not isinstance(admitted, QuotaTake)
    return admitted


def test_C_6_a_dispatchers_capability_meets_any_number_of_topics(checks: CapabilityChecks) -> None:
    held = checks.mint.make(FAST.spiffe_id, operations=frozenset({SEND}))
    grant = checks.check(held, SEND, None, FAST)
    for number in range(MAX_ANSWERS * 3):
        assert grant.admits(f"acme/topic-{number}", 1) == QuotaTake(1)
    assert len(grant._verified.answers) <= MAX_ANSWERS


def test_C_6_a_narrowed_dispatcher_is_refused_per_topic(checks: CapabilityChecks) -> None:
    held = checks.mint.make(FAST.spiffe_id, Caveat(topics=("acme/*",)), operations=frozenset({SEND}))
    grant = checks.check(held, SEND, None, FAST)
    assert grant.admits("acme/a", 1) == QuotaTake(1)
    verdict, _, detail = refusal(grant.admits("beta/a", 1))
    assert verdict is Verdict.DELIVERY_FAILURE and detail.startswith("E_CAP_SCOPE")


def test_C_6_a_quota_is_enforced_per_interval_and_shared_by_what_is_narrowed(
    checks: CapabilityChecks,
) -> None:
    held = checks.mint.make(BOT.spiffe_id, Caveat(quota=Quota(10, 60_000)))
    child = held.attenuate(Caveat(quota=Quota(4, 60_000)))
    assert checks.check(child).take(100).messages == 4
    with pytest.raises(Saturated) as full:
        checks.check(child).take(1)
    assert (full.value.reason, full.value.retry_after_ms) == ("cap-quota", 60_000)
    # A sibling with the same words has a count of its own, under the same parent.
    assert checks.check(held.attenuate(Caveat(topics=(TOPIC,)))).take(100).messages == 6
    with pytest.raises(Saturated):
        checks.check(held).take(1)
    checks.clock.advance(seconds=60)
    assert checks.check(held).take(3).messages == 3


def test_C_6_what_is_taken_and_not_used_is_given_back(checks: CapabilityChecks) -> None:
    held = checks.mint.make(BOT.spiffe_id, Caveat(quota=Quota(10, 60_000)))
    taken = checks.check(held).take(8)
    count_received(b"", taken)
    assert checks.check(held).take(100).messages == 10


def test_C_6_a_send_beyond_the_quota_is_saturated_as_a_whole(checks: CapabilityChecks) -> None:
    held = checks.mint.make(FAST.spiffe_id, Caveat(quota=Quota(10, 60_000)), operations=frozenset({SEND}))
    grant = checks.check(held, SEND, None, FAST)
    assert isinstance(grant.admits("acme/a", 8), QuotaTake)
    assert refusal(grant.admits("acme/a", 3))[0] is Verdict.SATURATED
    assert isinstance(grant.admits("acme/a", 2), QuotaTake)
    verdict, hint, _ = refusal(grant.admits("acme/a", 1))
    assert verdict is Verdict.SATURATED and hint > 0


def test_C_6_the_table_of_quotas_is_bounded_and_shared_by_tenants() -> None:
    clock = ManualClock()
    quotas = Quotas(clock=clock, most=6, most_per_share=4)

    def metered(share: str, number: int) -> tuple[Metered, ...]:
        return (Metered(f"{share}{number}".encode(), Quota(1, 60_000), share),)

    for number in range(4):
        quotas.take(metered("acme", number), 1)
    with pytest.raises(Saturated):
        quotas.take(metered("acme", 4), 1)
    quotas.take(metered("beta", 0), 1)
    # Full or not: a count whose interval runs is kept.
    with pytest.raises(Saturated):
        quotas.take(metered("acme", 0), 1)
    clock.advance(seconds=60)
    quotas.take(metered("acme", 4), 1)
    assert len(quotas) == 1


def test_I_15_revocations_are_bounded_and_none_is_forgotten_for_another(
    checks: CapabilityChecks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.mailbox.access.roots.MAX_ENDED", 3)
    kept = [checks.mint.make(BOT.spiffe_id, ttl_s=100) for _ in range(3)]
    for held in kept:
        checks.revoke(held)
    checks.mint.revoke(checks.mint.make(BOT.spiffe_id))
    with pytest.raises(Saturated):
        checks.hear()
    for held in kept:
        assert checks.refused(held)[1] == "cap-revoked"
    checks.mint.revoked = checks.mint.revoked[-1:]
    checks.clock.advance(seconds=100 + 601)
    checks.hear()
    assert checks.roots.gauges()["revoked"] == 1


@pytest.mark.parametrize("skew_s", [-120, 120])
def test_I_17_a_signer_whose_clock_is_two_minutes_off_makes_good_capabilities(
    checks: CapabilityChecks, skew_s: int
) -> None:
    signer = CapabilityMint(ManualClock(checks.clock.unix_ns() + skew_s * 1_000_000_000))
    held = signer.make(BOT.spiffe_id, ttl_s=600)
    checks.check(held)
    # It is renewed when a third is left, so this is as long as it needs to be good.
    checks.clock.advance(seconds=400)
    checks.check(held)
