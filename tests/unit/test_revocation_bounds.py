"""A right that was revoked while Registry is away: the time for which Fast goes on using it, on a clock that tests
move.
"""

from __future__ import annotations

import pytest

from snavio.clock import ManualClock
from snavio.domain.directory import Profile
from snavio.domain.revocation import CEILING_S, RevocationTimes, last_accepted_s, percentile
from snavio.native import Dispatch
from tests.support.wire import Forge, Key, mesh_batch, run

SOURCE, TARGET, NAME = "acme/billing", "discord-bot", "notify-user"
STEP_S = 0.25


def dispatch_for(profile: Profile, clock: ManualClock) -> Dispatch:
    dispatch = Dispatch()
    dispatch.put_route(TARGET, NAME, queue=0, topic="acme/discord-bot", profile=int(profile), strict=False)
    dispatch.allow(SOURCE, TARGET, NAME, 7)
    dispatch.renewed(clock.mono_ns())
    return dispatch


def sends(dispatch: Dispatch, clock: ManualClock) -> bool:
    forge = Forge(Key("hmac-v1", b"k" * 32), "audience", clock=clock)
    batch = mesh_batch([run(SOURCE, [forge.command()])])
    return bool(dispatch.plan(batch, now_mono_ns=clock.mono_ns()).sends)


@pytest.mark.parametrize("profile", list(Profile), ids=lambda profile: profile.name.lower())
def test_a_right_revoked_at_the_worst_moment_is_used_no_longer_than_its_profile_allows(
    profile: Profile,
) -> None:
    clock = ManualClock()
    dispatch = dispatch_for(profile, clock)
    # The worst moment is just after a pull; from then on there is no answer.
    revoked = clock.mono_ns()
    sent = []
    for _ in range(round(200 / STEP_S)):
        sent.append((clock.mono_ns(), sends(dispatch, clock)))
        clock.advance(seconds=STEP_S)
    last = last_accepted_s(sent, revoked)
    assert last <= CEILING_S[profile]
    # The bound is of use only if the warm path lives for a good part of it.
    assert last >= CEILING_S[profile] * 0.6
    assert not sent[-1][1]


@pytest.mark.parametrize("profile", [Profile.CRITICAL, Profile.MODERATE, Profile.LOW])
def test_a_revocation_that_is_heard_ends_it_at_once(profile: Profile) -> None:
    clock = ManualClock()
    dispatch = dispatch_for(profile, clock)
    assert sends(dispatch, clock)
    dispatch.deny(SOURCE, TARGET, NAME)
    assert not sends(dispatch, clock)


def test_only_commands_sent_after_the_revocation_count() -> None:
    second = 1_000_000_000
    assert last_accepted_s([], 5) == 0.0
    assert last_accepted_s([(4 * second, True), (5 * second - 1, True)], 5 * second) == 0.0
    sent = [(5 * second, True), (6 * second, False), (7 * second, True), (8 * second, False)]
    assert last_accepted_s(sent, 5 * second) == 2.0


def test_percentiles_are_times_that_were_measured_and_never_flatter() -> None:
    assert percentile([], 0.5) == 0.0
    assert percentile([3.0], 0.99) == 3.0
    hundred = [float(number) for number in range(1, 101)]
    assert (percentile(hundred, 0.5), percentile(hundred, 0.99)) == (50.0, 99.0)
    assert percentile([1.0, 2.0], 0.5) == 1.0
    times = RevocationTimes(Profile.CRITICAL, (0.1, 5.1))
    assert (times.p50, times.p99, times.max, times.kept) == (0.1, 5.1, 5.1, False)
    assert RevocationTimes(Profile.SYNC, (0.0,)).kept
