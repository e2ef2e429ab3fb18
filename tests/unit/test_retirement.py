"""The conditions for retiring an old key version, and for warning its source."""

from __future__ import annotations

from dataclasses import replace

import pytest

from snavio.domain.key_retirement import (
    DAY_NS,
    HOUR_NS,
    IMMINENT_NS,
    Rehearsal,
    Use,
    expiry_is_imminent,
    is_legacy,
    retirement,
)
from snavio.domain.keyset import Keyset, create, promote, raise_minimum, rotate

SECOND = 1_000_000_000
NOW = 1_700_000_000 * SECOND
DELAY, OVERLAP = 10 * SECOND, 7 * DAY_NS
ROTATED = NOW + HOUR_NS
LATER = ROTATED + 3 * DAY_NS
UNUSED = Use()


@pytest.fixture
def keyset() -> Keyset:
    first = create("acme/billing", secret=b"1" * 32, now_ns=NOW)
    spreading = rotate(first, secret=b"2" * 32, now_ns=ROTATED - DELAY)
    return promote(spreading, "hmac-v2", now_ns=ROTATED, overlap_ns=OVERLAP)


def ask(
    keyset: Keyset,
    position: int = 0,
    *,
    use: Use = UNUSED,
    polled_at_ns: int | None = ROTATED + 1,
    observed_since_ns: int = NOW,
    now_ns: int = LATER,
) -> tuple[bool, str]:
    answer = retirement(
        keyset,
        keyset.versions[position],
        use=use,
        polled_at_ns=polled_at_ns,
        observed_since_ns=observed_since_ns,
        now_ns=now_ns,
    )
    return answer.safe, answer.reason


def test_unused_version_of_a_source_that_asked_since_may_go(keyset: Keyset) -> None:
    assert ask(keyset) == (True, "no traffic in the last 48 h, and the source has asked since the rotation")


def test_version_with_traffic_in_the_last_day_stays(keyset: Keyset) -> None:
    safe, reason = ask(keyset, use=Use(0, 3, LATER - 20 * HOUR_NS))
    assert (safe, "it signed 3 commands" in reason) == (False, True)


@pytest.mark.parametrize("polled_at_ns", [None, ROTATED - 1])
def test_version_of_a_source_that_was_not_told_to_sign_with_the_new_one_stays(
    keyset: Keyset, polled_at_ns: int | None
) -> None:
    assert not ask(keyset, polled_at_ns=polled_at_ns)[0]


def test_traffic_of_the_day_before_yesterday_keeps_a_version(keyset: Keyset) -> None:
    safe, reason = ask(keyset, use=Use(0, 0, LATER - 40 * HOUR_NS, 2))
    assert (safe, "2 commands in the last 48 h" in reason) == (False, True)


def test_less_than_two_days_of_watching_is_not_silence(keyset: Keyset) -> None:
    assert ask(keyset, observed_since_ns=LATER - 2 * DAY_NS)[0]
    safe, reason = ask(keyset, observed_since_ns=LATER - 2 * DAY_NS + 1)
    assert (safe, "watched for 47 h" in reason) == (False, True)


def test_a_rehearsal_counts_what_it_would_refuse_and_nothing_else() -> None:
    rehearsal = Rehearsal("hmac-v3", NOW)
    for version, commands in (("hmac-v2", 5), ("hmac-v3", 7), ("hmac-v10", 9), ("hmac-v1", 1)):
        rehearsal = rehearsal.noted(version, commands, NOW + commands)
    assert (rehearsal.would_refuse, rehearsal.last_ns, rehearsal.since_ns) == (6, NOW + 1, NOW)


def test_primary_and_spreading_versions_stay(keyset: Keyset) -> None:
    assert ask(keyset, 1) == (False, "producers sign with it")
    assert not ask(keyset, 1, now_ns=ROTATED - 1)[0]


def test_what_is_not_accepted_any_more_has_gone_already(keyset: Keyset) -> None:
    assert ask(keyset, now_ns=ROTATED + OVERLAP)[0]
    assert ask(raise_minimum(keyset, "hmac-v2", now_ns=LATER))[0]


def test_use_is_legacy_from_the_moment_the_next_version_is_primary(keyset: Keyset) -> None:
    old = keyset.versions[0]
    assert not is_legacy(keyset, old, ROTATED - 1)
    assert is_legacy(keyset, old, ROTATED)
    assert not is_legacy(keyset, keyset.versions[1], LATER)


def test_expiry_is_imminent_two_days_before_the_end_for_who_has_not_asked(keyset: Keyset) -> None:
    old = keyset.versions[0]
    close = old.not_after_ns - IMMINENT_NS
    for polled in (None, ROTATED - 1):
        assert expiry_is_imminent(keyset, old, polled_at_ns=polled, now_ns=close)
        assert not expiry_is_imminent(keyset, old, polled_at_ns=polled, now_ns=close - 1)
    assert not expiry_is_imminent(keyset, old, polled_at_ns=ROTATED, now_ns=close)


def test_version_without_an_end_is_never_imminent(keyset: Keyset) -> None:
    endless = replace(keyset, versions=(replace(keyset.versions[0], not_after_ns=0), *keyset.versions[1:]))
    assert not expiry_is_imminent(endless, endless.versions[0], polled_at_ns=None, now_ns=LATER)
