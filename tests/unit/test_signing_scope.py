"""The signing and the verifying Ed25519 keys of a scope, before, during and after a rotation."""

from __future__ import annotations

import pytest

from snavio.domain.signing_scope import (
    MAX_KEYS,
    Pair,
    Rotation,
    Scope,
    ScopeKey,
    key_id_of,
    provision,
    require_scope,
    rotate_scope,
)
from snavio.errors import BadRequest, Conflict, NotFound
from snavio.native import ed25519_public_key

SECOND = 1_000_000_000
NOW = 1_700_000_000 * SECOND
DELAY, OVERLAP = 10 * SECOND, 3600 * SECOND


def pair(number: int) -> Pair:
    seed = bytes([number]) * 32
    return Pair(ed25519_public_key(seed), seed)


def rotated(scope: Scope, number: int, now_ns: int, *, emergency: bool = False) -> Scope:
    return rotate_scope(
        scope, pair(number), now_ns=now_ns, delay_ns=DELAY, overlap_ns=OVERLAP, emergency=emergency
    )


def ids(*numbers: int) -> list[str]:
    return [key_id_of(pair(number).public_key) for number in numbers]


def verifying(scope: Scope, now_ns: int) -> list[str]:
    return [key.key_id for key in scope.verifying(now_ns)]


@pytest.fixture
def first() -> Scope:
    return provision("tenant:acme", pair(1), now_ns=NOW)


@pytest.mark.parametrize("name", ["platform", "tenant:acme", "tenant:a-1"])
def test_good_scope_names(name: str) -> None:
    require_scope(name)


@pytest.mark.parametrize(
    "name",
    ["", "tenant", "tenant:", "tenant:A", "tenant:a/b", "Platform", "platform:", "mesh:x", "tenant:a\n"],
)
def test_bad_scope_names_are_refused(name: str) -> None:
    with pytest.raises(BadRequest):
        require_scope(name)


def test_new_key_is_known_before_it_signs_and_the_old_one_verifies_until_its_end(first: Scope) -> None:
    second = rotated(first, 2, NOW)
    assert verifying(second, NOW) == ids(1, 2)
    assert second.active(NOW + DELAY - 1).key_id == ids(1)[0]
    assert second.active(NOW + DELAY).key_id == ids(2)[0]
    end = NOW + DELAY + OVERLAP
    assert verifying(second, end - 1) == ids(1, 2)
    assert verifying(second, end) == ids(2)


def test_last_rotation_is_part_of_the_scope(first: Scope) -> None:
    assert first.rotation is None
    planned, urgent = rotated(first, 2, NOW), rotated(first, 2, NOW, emergency=True)
    old, new = ids(1, 2)
    assert planned.rotation == Rotation(old, new, NOW, NOW + DELAY + OVERLAP)
    assert urgent.rotation == Rotation(old, new, NOW, NOW)


def test_rotation_under_way_is_a_conflict(first: Scope) -> None:
    with pytest.raises(Conflict) as refusal:
        rotated(rotated(first, 2, NOW), 3, NOW + DELAY - 1)
    assert refusal.value.reason == "rotation-under-way"


def test_named_key_signs_only_while_it_may(first: Scope) -> None:
    second = rotated(first, 2, NOW)
    old, new = ids(1, 2)
    assert second.signer(old, NOW + DELAY).key_id == old
    for key_id, at in ((new, NOW + DELAY - 1), (old, NOW + DELAY + OVERLAP)):
        with pytest.raises(Conflict) as refusal:
            second.signer(key_id, at)
        assert refusal.value.reason == "key-not-active"
    with pytest.raises(NotFound) as unknown:
        second.signer("ed25519-none", NOW)
    assert unknown.value.reason == "unknown-key"


def test_emergency_ends_every_former_key_even_one_that_spreads(first: Scope) -> None:
    third = rotated(rotated(first, 2, NOW), 3, NOW + 1, emergency=True)
    assert verifying(third, NOW + 1) == ids(3)
    assert third.active(NOW + 1).key_id == ids(3)[0]


def test_ended_keys_go_with_their_seeds_and_living_ones_are_bounded(first: Scope) -> None:
    scope, now = first, NOW
    for number in range(2, 20):
        now += DELAY + OVERLAP
        scope = rotated(scope, number, now)
    assert len(scope.keys) <= 3
    crowded, now = first, NOW
    with pytest.raises(Conflict) as refusal:
        for number in range(2, MAX_KEYS + 3):
            now += DELAY
            crowded = rotated(crowded, number, now)
    assert refusal.value.reason == "too-many-keys"


def test_a_key_that_ended_in_good_order_is_kept_without_its_seed(first: Scope) -> None:
    later = NOW + DELAY + OVERLAP
    third = rotated(rotated(first, 2, NOW), 3, later)
    assert [key.key_id for key in third.keys] == ids(2, 3)
    assert [key.key_id for key in third.retired] == ids(1)
    assert not hasattr(third.retired[0], "seed")
    assert [key.key_id for key in third.ever()] == ids(1, 2, 3)
    # A thief could have signed anything with the keys that were still here, with any date.
    fourth = rotated(third, 4, later + 1, emergency=True)
    assert [key.key_id for key in fourth.ever()] == ids(1, 4)


def test_clock_that_went_back_still_finds_a_key(first: Scope) -> None:
    assert rotated(first, 2, NOW).active(NOW - 3600 * SECOND).key_id == ids(1)[0]


def test_repr_shows_no_seed_and_ids_belong_to_their_keys(first: Scope) -> None:
    assert "seed" not in repr(first) + repr(pair(1))
    with pytest.raises(BadRequest):
        ScopeKey("ed25519-other", pair(1).public_key, pair(1).seed, NOW, NOW)
