"""Ends, ages, leases and limits of single rights, each where it is decided."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from services.fast.dispatch_tables import make_tables
from services.fast.grants import GrantKeeper
from services.fast.settings import FastSettings
from services.relay.revocations import _ended_unix_ns
from services.slow.grants import Grants
from snavio.adapters.embedded.sqlite_coordination import SqliteCoordination
from snavio.clock import ManualClock
from snavio.config import MeshSettings
from snavio.config.safety import LONGEST_RIGHTS_MS, RULES
from snavio.domain.claim import Terms
from snavio.domain.directory import AclEntry, Limit, Profile, Route, SourceQuota, expiry_of, is_over
from snavio.domain.directory.route import ProfileLimit
from snavio.domain.revocation import CEILING_S
from snavio.errors import BadRequest
from snavio.native import Dispatch
from snavio.rpc.channel import MeshChannel
from snavio.v1 import registry_pb2 as reg
from snavio.v1 import slow_pb2 as slow
from tests.support.frames import RunOf, batch, command

SOURCE, TARGET, NAME = "acme/billing", "bot", "say"
SECOND = 1_000_000_000


def test_a_right_with_a_life_ends_so_long_after_its_grant_and_one_without_never() -> None:
    granted = AclEntry(SOURCE, TARGET, NAME, ttl_seconds=60).beginning(5 * SECOND)
    assert expiry_of(granted) == 65 * SECOND
    assert [is_over(granted, at * SECOND) for at in (64, 65)] == [False, True]
    assert not is_over(AclEntry(SOURCE, TARGET, NAME).beginning(5), 2**62)


def test_an_end_that_a_request_names_is_not_taken_over() -> None:
    from snavio.replication.directory_wire import acl_from_wire, route_from_wire

    acl = reg.AclEntry(
        source=SOURCE,
        target=TARGET,
        name=NAME,
        profile=reg.PROFILE_CRITICAL,
        ttl_seconds=9,
        expires_unix_ns=2**62,
    )
    assert acl_from_wire(acl) == AclEntry(SOURCE, TARGET, NAME, Profile.CRITICAL, 9)
    limit = reg.Limit(max=5, interval_seconds=1, by_profile=True)
    taken = route_from_wire(reg.Route(target=TARGET, name=NAME, limit=limit))
    # It would be taken away with the target's limit for the profile, which is not where it came from.
    assert taken.limit == Limit(5, 1)


@pytest.mark.parametrize("terms", [{"burst": 2}, {"cooldown_seconds": 1}, {"shadow": True}])
def test_a_quota_of_banned_sources_has_no_more_terms_than_it_had(terms: dict[str, Any]) -> None:
    with pytest.raises(BadRequest, match="always"):
        SourceQuota(SOURCE, TARGET, NAME, 5, 60, **terms)
    assert SourceQuota(SOURCE, TARGET, NAME, 5, 60, always=True, **terms).always


def test_a_routes_own_limit_stands_before_that_of_its_profile() -> None:
    by_profile = ProfileLimit(TARGET, Profile.LOW, Limit(7, 60))
    own, bare = Route(TARGET, NAME, limit=Limit(3, 60)), Route(TARGET, NAME)
    assert own.limited_by(by_profile) == own
    limited = bare.limited_by(by_profile)
    assert limited.limit == Limit(7, 60, by_profile=True)
    assert limited.limited_by(None) == bare


def test_the_end_of_a_right_is_when_it_ended_and_not_when_that_was_written_down() -> None:
    def change(end: int) -> reg.Change:
        acl = reg.AclEntry(source=SOURCE, target=TARGET, name=NAME, expires_unix_ns=end)
        return reg.Change(at_unix_ns=100, deleted=True, acl=acl)

    assert [_ended_unix_ns(change(end)) for end in (0, 90, 110)] == [100, 90, 100]


def test_ages_that_the_installation_sets_are_those_of_fast() -> None:
    mesh = MeshSettings(acl_critical_fresh_ms=500, acl_critical_stale_ms=1500)
    tables = make_tables(mesh, FastSettings())
    tables.put_route(TARGET, NAME, queue=0, topic="acme/bot", profile=1, strict=False)
    tables.allow(SOURCE, TARGET, NAME, 1)
    tables.renewed(0)
    frame = batch(RunOf([command(target=TARGET, name=NAME)], SOURCE))
    sends = [len(tables.plan(frame, now_mono_ns=ms * 1_000_000).sends) for ms in (0, 1499, 1500)]
    assert sends == [1, 1, 0]


def test_ages_beyond_what_a_profile_promises_need_a_second_word() -> None:
    assert [CEILING_S[Profile[name.upper()]] * 1000 for name in LONGEST_RIGHTS_MS] == list(
        LONGEST_RIGHTS_MS.values()
    )
    (rule,) = (rule for rule in RULES if rule.word_key == "i_accept_late_revocations")
    assert not list(rule.offenders({"mesh": MeshSettings()}))
    for profile, longest_ms in LONGEST_RIGHTS_MS.items():
        late = MeshSettings.model_validate({f"acl_{profile}_stale_ms": longest_ms + 1})
        assert list(rule.offenders({"mesh": late})) == [("mesh", f"acl_{profile}_stale_ms")]
    with pytest.raises(ValueError, match="fresh first and stale later"):
        MeshSettings(acl_low_fresh_ms=90_001)


class Registry:
    """Two routes with a limit, of which one says how many instances may prefetch."""

    async def resolve(self, keys: Any, *, timeout_ms: int) -> dict[Any, reg.Resolution]:
        del timeout_ms
        limits = {"narrow": reg.Limit(max=1000, interval_seconds=60, leases=1)}
        plain = reg.Limit(max=1000, interval_seconds=60)
        return {
            key: reg.Resolution(
                route=reg.Route(target=key[1], name=key[2], limit=limits.get(key[2], plain)), allowed=True
            )
            for key in keys
        }


async def test_a_route_says_how_many_instances_prefetch_its_permits(tmp_path: Path) -> None:
    clock = ManualClock(1_700_000_000_500_000_000)
    store = await SqliteCoordination.open(
        tmp_path / "coordination.db",
        clock=clock,
        known_epoch=None,
        fresh_epoch="one",
        boot="boot-1",
        terms=Terms(lease_ms=2000, keep_ms=300_000),
        max_claims=10,
        max_claims_per_source=10,
    )
    # The interval that runs had begun before the store remembered anything.
    clock.advance(seconds=60)
    grants = Grants(lane_rules=Registry(), store=store, leases=2, timeout_ms=1000)  # type: ignore[arg-type]
    states: dict[str, list[int]] = {"narrow": [], "wide": []}
    for number in range(3):
        wishes = [slow.GrantWish(target=TARGET, name=name, permits=10) for name in ("wide", "narrow")]
        request = slow.GrantsRequest(instance=f"fast-{number}", wish=wishes)
        answer = await grants.issue(request, cast("Any", None))
        for wish, grant in zip(wishes, answer.grant, strict=True):
            states[wish.name].append(grant.state)
    await store.close()
    issued, without = slow.GRANT_STATE_ISSUED, slow.GRANT_STATE_NO_LEASE
    assert states == {"narrow": [issued, without, without], "wide": [issued, issued, without]}


class OldSlow:
    """A Slow that knows no limits of sources: it answers a wish for one with permits of the route."""

    def __init__(self) -> None:
        self.returned: list[slow.PermitReturn] = []

    async def call(self, method: str, request: Any, _type: type[Any], *, timeout_s: float) -> Any:
        del timeout_s
        if method.endswith("/ReturnPermits"):
            self.returned += request.permit
            return slow.ReturnPermitsResponse()
        grants = [
            slow.Grant(state=slow.GRANT_STATE_ISSUED, permits=5, life_ms=1000, interval=7)
            for _ in request.wish
        ]
        return slow.GrantsResponse(grant=grants)


async def test_permits_of_a_route_never_serve_for_a_sources_own_limit() -> None:
    clock, wire = ManualClock(), OldSlow()
    dispatch = Dispatch()
    dispatch.put_route(TARGET, NAME, queue=0, topic="acme/bot", profile=3, strict=False)
    dispatch.allow(SOURCE, TARGET, NAME, 1)
    dispatch.limit_source(SOURCE, TARGET, NAME, limited=True)
    dispatch.renewed(clock.mono_ns())
    keeper = GrantKeeper(
        dispatch=dispatch, slow=cast("MeshChannel", wire), clock=clock, instance="fast-0", pause_s=0.05
    )
    frame = batch(RunOf([command(target=TARGET, name=NAME)] * 3, SOURCE))
    for _ in range(2):
        assert not dispatch.plan(frame, now_mono_ns=clock.mono_ns()).sends
        await keeper.fetch()
    assert [(back.source, back.target, back.permits, back.interval) for back in wire.returned] == [
        ("", TARGET, 5, 7)
    ] * 2
