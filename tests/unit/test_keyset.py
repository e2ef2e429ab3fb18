from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snavio.domain.keyset import (
    BACKDATE_NS,
    MAX_VERSIONS,
    REMEMBER_NS,
    Keyset,
    KeyState,
    create,
    promote,
    raise_minimum,
    revoke,
    rotate,
    rotation_due_ns,
)
from snavio.errors import BadRequest, Conflict, NotFound

SECOND = 1_000_000_000
NOW = 1_700_000_000 * SECOND
DELAY = 10 * SECOND
OVERLAP = 7 * 24 * 3600 * SECOND


def secret(number: int) -> bytes:
    return bytes([number % 256]) * 32


def rotated(keyset: Keyset, now_ns: int) -> Keyset:
    """With a new version that has reached every Shield."""
    spreading = spread(keyset, now_ns)
    return promote(spreading, spreading.versions[-1].name, now_ns=now_ns + DELAY, overlap_ns=OVERLAP)


def spread(keyset: Keyset, now_ns: int) -> Keyset:
    """With a new version that is spreading."""
    return rotate(keyset, secret=secret(keyset.versions[-1].number + 1), now_ns=now_ns)


def accepted(keyset: Keyset, signed_ns: int) -> list[str]:
    return [version.name for version in keyset.versions if version.accepts(signed_ns)]


def primary(keyset: Keyset, now_ns: int) -> str:
    found = keyset.primary(now_ns)
    assert found is not None
    return found.name


@pytest.fixture
def first() -> Keyset:
    return create("acme/billing", secret=secret(1), now_ns=NOW)


def test_first_key_signs_at_once_even_for_a_producer_whose_clock_is_behind(first: Keyset) -> None:
    assert primary(first, NOW) == "hmac-v1"
    assert primary(first, NOW - BACKDATE_NS) == "hmac-v1"
    assert accepted(first, NOW - BACKDATE_NS) == ["hmac-v1"]
    assert accepted(first, NOW - BACKDATE_NS - 1) == []


def test_rotated_key_is_accepted_before_anybody_signs_with_it(first: Keyset) -> None:
    second = spread(first, NOW)
    assert primary(second, NOW + 100 * OVERLAP) == "hmac-v1"
    assert accepted(second, NOW) == ["hmac-v1", "hmac-v2"]
    assert second.versions[0].not_after_ns == 0
    promoted = promote(second, "hmac-v2", now_ns=NOW + DELAY, overlap_ns=OVERLAP)
    assert primary(promoted, NOW + DELAY - 1) == "hmac-v1"
    assert primary(promoted, NOW + DELAY) == "hmac-v2"


def test_only_the_version_that_waits_is_promoted_and_only_once(first: Keyset) -> None:
    second = rotated(first, NOW)
    for keyset, name in [(first, "hmac-v1"), (second, "hmac-v2"), (spread(second, NOW + DELAY), "hmac-v2")]:
        assert promote(keyset, name, now_ns=NOW + 2 * DELAY, overlap_ns=OVERLAP) is keyset
    gone = revoke(spread(first, NOW), "hmac-v2", secret=secret(9), now_ns=NOW)
    assert promote(gone, "hmac-v2", now_ns=NOW, overlap_ns=OVERLAP) is gone


def test_promotion_after_a_clock_was_set_back_still_comes_after_every_primary_before(first: Keyset) -> None:
    third = spread(rotated(first, NOW), NOW + DELAY)
    after = promote(third, "hmac-v3", now_ns=NOW - 3600 * SECOND, overlap_ns=OVERLAP)
    times = [version.primary_from_ns for version in after.versions]
    assert times == sorted(set(times))


def test_previous_key_ends_with_its_overlap_and_not_a_nanosecond_later(first: Keyset) -> None:
    second = rotated(first, NOW)
    end = NOW + DELAY + OVERLAP
    assert accepted(second, end - 1) == ["hmac-v1", "hmac-v2"]
    assert accepted(second, end) == ["hmac-v2"]


def test_third_key_puts_the_first_one_out_when_it_becomes_primary(first: Keyset) -> None:
    later = NOW + 60 * SECOND
    third = rotated(rotated(first, NOW), later)
    assert accepted(third, later + DELAY - 1) == ["hmac-v1", "hmac-v2", "hmac-v3"]
    assert accepted(third, later + DELAY) == ["hmac-v2", "hmac-v3"]


def test_rotation_is_refused_while_one_is_spreading(first: Keyset) -> None:
    with pytest.raises(Conflict) as refusal:
        spread(spread(first, NOW), NOW + 100 * OVERLAP)
    assert refusal.value.reason == "rotation-under-way"
    assert primary(rotated(rotated(first, NOW), NOW + DELAY), NOW + 2 * DELAY) == "hmac-v3"


def test_revoked_primary_is_replaced_at_once(first: Keyset) -> None:
    after = revoke(first, "hmac-v1", secret=secret(2), now_ns=NOW)
    assert primary(after, NOW) == "hmac-v2"
    assert accepted(after, NOW) == ["hmac-v2"]


def test_revoked_previous_key_leaves_the_primary_alone(first: Keyset) -> None:
    second = rotated(first, NOW)
    now = NOW + DELAY
    after = revoke(second, "hmac-v1", secret=secret(9), now_ns=now)
    assert [version.name for version in after.versions] == ["hmac-v1", "hmac-v2"]
    assert accepted(after, now) == ["hmac-v2"]
    assert primary(after, now) == "hmac-v2"


def test_revoking_the_primary_while_another_spreads_promotes_that_one(first: Keyset) -> None:
    after = revoke(spread(first, NOW), "hmac-v1", secret=secret(9), now_ns=NOW + 1)
    assert [version.name for version in after.versions] == ["hmac-v1", "hmac-v2"]
    assert primary(after, NOW + 1) == "hmac-v2"


@pytest.mark.parametrize("turn", [rotated, spread])
def test_revoking_the_spreading_key_leaves_the_primary_without_an_end(
    first: Keyset, turn: Callable[[Keyset, int], Keyset]
) -> None:
    """Also after a clock was set back to before its promotion."""
    after = revoke(turn(first, NOW), "hmac-v2", secret=secret(9), now_ns=NOW + 1)
    assert primary(after, NOW + DELAY + OVERLAP) == "hmac-v1"
    assert accepted(after, NOW + DELAY + OVERLAP) == ["hmac-v1"]
    again = rotated(after, NOW + 2)
    assert again.versions[-1].name == "hmac-v3"


def test_successor_of_a_young_primary_still_comes_after_it(first: Keyset) -> None:
    now = NOW + DELAY + SECOND
    after = revoke(rotated(first, NOW), "hmac-v2", secret=secret(9), now_ns=now)
    times = [version.primary_from_ns for version in after.versions]
    assert times == sorted(set(times))
    assert primary(after, now) == "hmac-v3"


def test_revoking_twice_changes_nothing(first: Keyset) -> None:
    once = revoke(first, "hmac-v1", secret=secret(2), now_ns=NOW)
    assert revoke(once, "hmac-v1", secret=secret(3), now_ns=NOW + 1) == once


def test_unknown_version_cannot_be_revoked(first: Keyset) -> None:
    with pytest.raises(NotFound):
        revoke(first, "hmac-v7", secret=secret(2), now_ns=NOW)


def test_ended_versions_are_forgotten_after_a_while(first: Keyset) -> None:
    keyset = first
    for step in range(5):
        keyset = rotated(keyset, NOW + step * (OVERLAP + REMEMBER_NS + DELAY))
    assert [version.name for version in keyset.versions] == ["hmac-v5", "hmac-v6"]


def test_versions_stay_bounded_when_somebody_revokes_in_a_loop(first: Keyset) -> None:
    keyset = first
    for _ in range(100):
        keyset = revoke(keyset, keyset.versions[-1].name, secret=secret(2), now_ns=NOW)
    assert len(keyset.versions) == MAX_VERSIONS
    assert primary(keyset, NOW) == "hmac-v101"


def test_secret_is_not_in_a_keysets_text() -> None:
    planted = b"planted-secret-0123456789abcdef!"
    keyset = create("acme/billing", secret=planted, now_ns=NOW)
    for text in (repr(keyset), str(keyset), f"{keyset.versions[0]}"):
        assert "planted" not in text
        assert planted.hex() not in text


def test_short_secret_is_refused() -> None:
    with pytest.raises(BadRequest):
        create("acme/billing", secret=b"short", now_ns=NOW)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["rotate", "promote", "revoke-primary", "revoke-newest"]), st.integers(1, 10**15)
        )
    )
)
def test_whatever_operators_do_there_is_one_primary_and_at_most_three_live_keys(
    steps: list[tuple[str, int]],
) -> None:
    keyset, now = create("acme/billing", secret=secret(1), now_ns=NOW), NOW
    highest = 1
    for step, pause in steps:
        now += pause
        if step == "rotate":
            try:
                keyset = spread(keyset, now)
            except Conflict:
                assert keyset.spreading(now) is not None
        elif step == "promote":
            keyset = promote(keyset, keyset.versions[-1].name, now_ns=now, overlap_ns=OVERLAP)
        else:
            name = primary(keyset, now) if step == "revoke-primary" else keyset.versions[-1].name
            keyset = revoke(keyset, name, secret=secret(7), now_ns=now)
        assert keyset.primary(now) is not None
        assert len(accepted(keyset, now)) <= 3
        numbers = [version.number for version in keyset.versions]
        assert len(numbers) <= MAX_VERSIONS
        assert max(numbers) >= highest
        highest = max(numbers)


def test_states_tell_what_each_version_is_good_for(first: Keyset) -> None:
    second = rotated(first, NOW)
    third = rotated(second, NOW + DELAY)
    later = NOW + 2 * DELAY
    states = [third.state(version, later).value for version in third.versions]
    assert states == ["ended", "previous", "primary"]
    assert second.state(second.versions[1], NOW) is KeyState.SPREADING
    assert spread(third, later).state(spread(third, later).versions[-1], later) is KeyState.SPREADING
    assert revoke(third, "hmac-v2", secret=secret(9), now_ns=later).versions[1].revoked
    assert [version.name for version in third.accepted(later)] == ["hmac-v2", "hmac-v3"]


def test_versions_below_the_minimum_are_refused_at_once_whatever_the_signed_time(first: Keyset) -> None:
    second = rotated(first, NOW)
    raised = raise_minimum(second, "hmac-v2", now_ns=NOW + DELAY)
    assert raised.minimum == 2
    assert [version.revoked for version in raised.versions] == [True, False]
    assert accepted(raised, NOW) == ["hmac-v2"]
    assert primary(raised, NOW + DELAY) == "hmac-v2"


def test_minimum_cannot_pass_the_version_that_signs(first: Keyset) -> None:
    second = rotated(first, NOW)
    with pytest.raises(Conflict) as refusal:
        raise_minimum(second, "hmac-v2", now_ns=NOW + DELAY - 1)
    assert refusal.value.reason == "minimum-above-primary"
    with pytest.raises(NotFound):
        raise_minimum(second, "hmac-v3", now_ns=NOW)


def test_minimum_only_rises_and_survives_rotation_and_revocation(first: Keyset) -> None:
    raised = raise_minimum(rotated(first, NOW), "hmac-v2", now_ns=NOW + DELAY)
    assert raise_minimum(raised, "hmac-v2", now_ns=NOW + DELAY) is raised
    with pytest.raises(Conflict) as refusal:
        raise_minimum(raised, "hmac-v1", now_ns=NOW + DELAY)
    assert refusal.value.reason == "minimum-only-rises"
    third = rotated(raised, NOW + DELAY)
    assert third.minimum == 2
    assert revoke(third, "hmac-v3", secret=secret(9), now_ns=NOW + DELAY).minimum == 2


def test_keyset_with_a_living_version_below_its_minimum_cannot_be_built(first: Keyset) -> None:
    with pytest.raises(BadRequest):
        Keyset(first.source, first.versions, minimum=2)


CADENCE = 30 * 24 * 3600 * SECOND


def test_rotation_is_due_within_a_cadence_and_not_much_sooner(first: Keyset) -> None:
    due = rotation_due_ns(first, cadence_ns=CADENCE)
    assert NOW + CADENCE * 9 // 10 - BACKDATE_NS <= due <= NOW + CADENCE
    moved = rotation_due_ns(rotated(first, due), cadence_ns=CADENCE)
    assert moved >= due + CADENCE * 9 // 10


def test_sources_made_together_are_due_apart() -> None:
    made = [create(f"acme/service-{n}", secret=secret(1), now_ns=NOW) for n in range(50)]
    due = sorted(rotation_due_ns(keyset, cadence_ns=CADENCE) for keyset in made)
    assert due[-1] - due[0] > CADENCE // 20


def test_revoked_primary_starts_a_new_cadence_and_a_revoked_newcomer_does_not(first: Keyset) -> None:
    later = NOW + CADENCE // 2
    replaced = revoke(first, "hmac-v1", secret=secret(2), now_ns=later)
    assert rotation_due_ns(replaced, cadence_ns=CADENCE) > rotation_due_ns(first, cadence_ns=CADENCE)
    undone = revoke(spread(first, later), "hmac-v2", secret=secret(3), now_ns=later)
    assert rotation_due_ns(undone, cadence_ns=CADENCE) == rotation_due_ns(first, cadence_ns=CADENCE)
