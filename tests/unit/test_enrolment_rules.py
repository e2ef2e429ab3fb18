"""Tokens, delegations, and the rate limit for callers without a certificate: the rules alone."""

from __future__ import annotations

import random

import pytest

from snavio.clock import ManualClock
from snavio.domain.delegation import Delegation, require_delegated
from snavio.domain.enrolment import Enrolment, Enrolments, Token, parse_token
from snavio.domain.identity import Identity, IdentityKind
from snavio.errors import BadRequest, NotAllowed, Saturated
from snavio.rpc.throttle import MAX_ADDRESSES, Rate, Throttle, address_of

TOKEN = Token(bytes(range(32)), bytes(range(32, 64)))
CI = Identity("snavio.local", IdentityKind.PRINCIPAL, "ci", "acme")


def test_token_is_read_back_as_it_was_written() -> None:
    assert parse_token(TOKEN.text) == TOKEN
    assert TOKEN.text.startswith(f"snv1.{TOKEN.fingerprint.hex()}.")


def test_every_single_wrong_letter_is_noticed() -> None:
    text, chance = TOKEN.text, random.Random(1)
    for place in range(len(text)):
        letter = chance.choice([c for c in "abcdef234567." if c != text[place]])
        with pytest.raises(BadRequest):
            parse_token(text[:place] + letter + text[place + 1 :])


def test_token_shows_no_secret_in_repr() -> None:
    assert TOKEN.secret.hex() not in repr(TOKEN)
    assert repr(TOKEN.secret)[2:-1] not in repr(TOKEN)
    assert TOKEN.digest.hex() not in repr(Enrolments(0, (enrolment(1),)))


def enrolment(number: int, *, expires_ns: int = 100, tenant: str = "acme") -> Enrolment:
    return Enrolment(Token(bytes(32), bytes([number]) * 32).digest, tenant, "", expires_ns, "admin")


def test_expired_ones_are_gone_and_time_does_not_go_back() -> None:
    enrolments = Enrolments().added(enrolment(1, expires_ns=50), now_ns=10).added(enrolment(2), now_ns=20)
    later = enrolments.at(50)
    assert (later.latest_ns, len(later.open)) == (50, 1)
    assert later.at(10) is later
    assert later.at(99) is later
    assert Enrolments(100, enrolments.open).at(10).open == ()


def test_taken_one_is_gone() -> None:
    enrolments = Enrolments().added(enrolment(1), now_ns=10).added(enrolment(2), now_ns=10)
    digest = enrolment(1).digest
    assert enrolments.find(digest) == enrolment(1)
    left = enrolments.without(digest, now_ns=30)
    assert left.find(digest) is None
    assert left.find(enrolment(2).digest) == enrolment(2)
    assert left.latest_ns == 30


@pytest.mark.parametrize(
    ("delegation", "delegate", "reason"),
    [
        (None, CI, "unregistered-service"),
        (Delegation("acme/billing", ("ci",), suspended=True), CI, "suspended"),
        (Delegation("acme/billing", ("ci",), suspended=True), None, "suspended"),
        (Delegation("acme/billing", ("cd",)), CI, "not-delegated"),
        (Delegation("acme/billing"), CI, "not-delegated"),
        (Delegation("rival/billing", ("ci",)), CI, "not-delegated"),
        (
            Delegation("acme/billing", ("ci",)),
            Identity("snavio.local", IdentityKind.SERVICE, "ci", "acme"),
            "not-delegated",
        ),
    ],
)
def test_nobody_acts_without_a_right(
    delegation: Delegation | None, delegate: Identity | None, reason: str
) -> None:
    with pytest.raises(NotAllowed) as refusal:
        require_delegated(delegation, "acme/billing", delegate)
    assert refusal.value.reason == reason


def test_named_principal_and_operators_service_act() -> None:
    require_delegated(Delegation("acme/billing", ("ci",)), "acme/billing", CI)
    require_delegated(Delegation("acme/billing"), "acme/billing", None)


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        ("ipv4:192.0.2.1:5000", "192.0.2.1"),
        ("ipv6:%5B2001:db8:1:2:3:4:5:6%5D:5000", "2001:db8:1:2::/64"),
        ("ipv6:[2001:db8:1:2:ffff::1]:1", "2001:db8:1:2::/64"),
        ("ipv6:[::ffff:192.0.2.1]:1", "192.0.2.1"),
        ("ipv6:[fe80::1%25eth0]:1", "fe80::/64"),
        ("unix:/tmp/x", "other"),
        ("ipv6:nonsense", "other"),
        ("", "other"),
    ],
)
def test_addresses_of_one_site_are_one(peer: str, address: str) -> None:
    assert address_of(peer) == address


def throttled(throttle: Throttle, peer: str) -> bool:
    try:
        throttle.admit(peer)
    except Saturated as error:
        assert error.retry_after_ms > 0
        return True
    return False


def test_greedy_address_is_held_and_takes_nothing_from_others() -> None:
    clock = ManualClock()
    throttle = Throttle(clock=clock, each=Rate(2, 1.0), all_together=Rate(5, 1.0))
    greedy = [throttled(throttle, "ipv4:192.0.2.1:1") for _ in range(100)]
    assert greedy == [False, False] + [True] * 98
    assert [throttled(throttle, f"ipv4:192.0.2.{n}:1") for n in range(2, 6)] == [False, False, False, True]
    clock.advance(seconds=1)
    assert not throttled(throttle, "ipv4:192.0.2.1:1")


def test_addresses_that_are_remembered_are_bounded() -> None:
    throttle = Throttle(clock=ManualClock(), each=Rate(1, 1.0), all_together=Rate(10**6, 1.0))
    for number in range(MAX_ADDRESSES + 10):
        assert not throttled(throttle, f"ipv4:10.0.{number >> 8}.{number & 255}:1")
    assert len(throttle._each._by_name) == MAX_ADDRESSES
