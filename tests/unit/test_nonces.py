"""The nonce table remembers as long as the window could accept a nonce again, refuses when full, and never evicts."""

from __future__ import annotations

import hashlib
import random

import pytest

from snavio import native
from snavio.domain.verdict import Verdict
from snavio.host.shares import MESH, ShareLimit, Shares

NS = 1_000_000_000
NOW = 1_790_000_000 * NS
SOURCE = "acme/billing"


def tag(number: int) -> bytes:
    return hashlib.sha256(number.to_bytes(8, "big")).digest()


def test_first_claim_is_taken_and_every_later_one_is_a_replay() -> None:
    nonces = native.NonceSet(capacity=10, share_per_tenant=10)
    assert nonces.claim(SOURCE, tag(1), NOW + 60 * NS, NOW) == Verdict.UNDECIDED
    for later in range(4):
        assert nonces.claim(SOURCE, tag(1), NOW + 60 * NS, NOW + later) == Verdict.REPLAYED
    assert len(nonces) == 1


def test_claim_is_remembered_through_its_last_nanosecond() -> None:
    nonces = native.NonceSet(capacity=10, share_per_tenant=10)
    until = NOW + 60 * NS
    nonces.claim(SOURCE, tag(1), until, NOW)
    assert nonces.claim(SOURCE, tag(1), until, until) == Verdict.REPLAYED


def test_claim_whose_time_is_over_is_refused_because_nobody_remembers_it() -> None:
    nonces = native.NonceSet(capacity=10, share_per_tenant=10)
    assert nonces.claim(SOURCE, tag(1), NOW - 1, NOW) == Verdict.REPLAYED
    assert len(nonces) == 0


def test_entries_are_given_back_after_their_second() -> None:
    nonces = native.NonceSet(capacity=1000, share_per_tenant=1000)
    for number in range(500):
        nonces.claim(SOURCE, tag(number), NOW + number % 5 * NS, NOW)
    assert len(nonces) == 500
    lengths = []
    for second in range(1, 7):
        nonces.claim(SOURCE, tag(0), NOW, NOW + second * NS)
        lengths.append(len(nonces))
    assert lengths == [400, 300, 200, 100, 0, 0]


def test_full_table_refuses_new_claims_and_still_knows_the_old_ones() -> None:
    nonces = native.NonceSet(capacity=100, share_per_tenant=100)
    until = NOW + 60 * NS
    assert {nonces.claim(SOURCE, tag(number), until, NOW) for number in range(100)} == {Verdict.UNDECIDED}
    assert {nonces.claim("b/c", tag(number), until, NOW) for number in range(100, 200)} == {Verdict.SATURATED}
    assert {nonces.claim(SOURCE, tag(number), until, NOW) for number in range(100)} == {Verdict.REPLAYED}
    assert len(nonces) == 100


def test_full_table_takes_claims_again_once_entries_expire() -> None:
    nonces = native.NonceSet(capacity=1, share_per_tenant=1)
    nonces.claim(SOURCE, tag(1), NOW, NOW)
    assert nonces.claim(SOURCE, tag(2), NOW + 9 * NS, NOW + NS - 1) == Verdict.SATURATED
    assert nonces.claim(SOURCE, tag(2), NOW + 9 * NS, NOW + NS) == Verdict.UNDECIDED


def test_one_source_fills_its_share_and_not_the_table() -> None:
    nonces = native.NonceSet(capacity=100, share_per_tenant=10)
    until = NOW + 60 * NS
    codes = [nonces.claim(SOURCE, tag(number), until, NOW) for number in range(50)]
    assert codes == [Verdict.UNDECIDED] * 10 + [Verdict.SATURATED] * 40
    assert nonces.claim("globex/mailer", tag(99), until, NOW) == Verdict.UNDECIDED


def test_share_counts_only_what_is_live() -> None:
    nonces = native.NonceSet(capacity=100, share_per_tenant=2)
    for round_ in range(20):
        now = NOW + 2 * round_ * NS
        codes = [nonces.claim(SOURCE, tag(10 * round_ + number), now, now) for number in range(3)]
        assert codes == [Verdict.UNDECIDED, Verdict.UNDECIDED, Verdict.SATURATED]


def test_clock_that_steps_back_resurrects_nothing() -> None:
    nonces = native.NonceSet(capacity=10, share_per_tenant=10)
    nonces.claim(SOURCE, tag(1), NOW + 60 * NS, NOW)
    nonces.claim(SOURCE, tag(2), NOW + 300 * NS, NOW + 200 * NS)
    assert nonces.claim(SOURCE, tag(1), NOW + 60 * NS, NOW) == Verdict.REPLAYED
    assert nonces.claim(SOURCE, tag(2), NOW + 300 * NS, NOW) == Verdict.REPLAYED


def test_many_entries_of_one_second_are_all_remembered() -> None:
    nonces = native.NonceSet(capacity=100_000, share_per_tenant=100_000)
    until = NOW + 60 * NS
    tags = [tag(number) for number in range(20_000)]
    assert {nonces.claim(SOURCE, each, until, NOW) for each in tags} == {Verdict.UNDECIDED}
    assert {nonces.claim(SOURCE, each, until, NOW) for each in tags} == {Verdict.REPLAYED}


def test_tags_that_begin_with_zeros_are_told_apart_from_empty_slots() -> None:
    nonces = native.NonceSet(capacity=10, share_per_tenant=10)
    assert nonces.claim(SOURCE, bytes(32), NOW, NOW) == Verdict.UNDECIDED
    assert nonces.claim(SOURCE, bytes(32), NOW, NOW) == Verdict.REPLAYED


def test_times_at_the_ends_of_the_scale_do_not_overflow() -> None:
    nonces = native.NonceSet(capacity=10, share_per_tenant=10)
    assert nonces.claim(SOURCE, tag(1), 2**63 - 1, -(2**63)) == Verdict.UNDECIDED
    assert nonces.claim(SOURCE, tag(1), 2**63 - 1, 2**63 - 1) == Verdict.REPLAYED


def test_tag_too_short_to_tell_apart_is_an_error() -> None:
    nonces = native.NonceSet(capacity=10, share_per_tenant=10)
    with pytest.raises(ValueError, match="tag"):
        nonces.claim(SOURCE, b"1234567", NOW, NOW)


@pytest.mark.parametrize("seed", range(20))
def test_the_table_is_divided_as_every_other_bound_is(seed: int) -> None:
    """The native rule against `Shares`, claim by claim: tenants with several services, and callers without a tenant."""
    chance = random.Random(seed)
    total = chance.randint(4, 40)
    limit = ShareLimit(total, chance.randint(1, total), chance.randint(0, total - 1))
    shares = Shares("nonces", limit)
    nonces = native.NonceSet(capacity=limit.total, share_per_tenant=limit.per_tenant, reserve=limit.reserve)
    ends: list[tuple[int, str]] = []
    now = NOW
    for number in range(400):
        now += chance.choice((0, 0, 0, NS))
        # A second is given back when it is over.
        for end, tenant in [each for each in ends if each[0] // NS < now // NS]:
            shares.give_back(tenant)
            ends.remove((end, tenant))
        source = chance.choice(("acme/billing", "acme/courier", "globex/mailer", "initech/a", "mesh"))
        tenant = source.partition("/")[0] if "/" in source else MESH
        until = now + chance.randint(0, 9) * NS
        room = shares.room(tenant)
        verdict = nonces.claim(source, tag(number), until, now)
        assert verdict == (Verdict.UNDECIDED if room else Verdict.SATURATED)
        if room:
            shares.take(tenant)
            ends.append((until, tenant))
        assert (len(nonces), nonces.holders()) == (shares.used, shares.holders())
