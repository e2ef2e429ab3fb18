"""The followers of the directory, as Registry records them."""

from __future__ import annotations

from typing import cast

from services.registry.reads.followers import FORGOTTEN_MS, MAX_FOLLOWERS, Followers
from snavio.clock import ManualClock
from snavio.domain.identity import DEFAULT_TRUST_DOMAIN, Identity, IdentityKind
from snavio.rpc.server import Call
from snavio.v1.registry_pb2 import FollowersRequest, FollowersResponse

FAST = Identity(DEFAULT_TRUST_DOMAIN, IdentityKind.MESH, "fast")


async def told(followers: Followers) -> FollowersResponse:
    return await followers.list(FollowersRequest(), cast(Call, None))


async def test_each_process_has_what_it_said_last_and_how_long_ago_that_was() -> None:
    clock = ManualClock()
    followers = Followers(clock)
    for instance, version in (("fast-0", 7), ("fast-1", 6), ("fast-0", 8)):
        followers.heard(FAST, instance, version=version, bound_ms=120_000)
        clock.advance(seconds=2)
    answer = await told(followers)
    assert answer.listening_ms == 6000
    assert [(each.service, each.instance, each.version, each.silent_ms) for each in answer.follower] == [
        ("fast", "fast-1", 6, 4000),
        ("fast", "fast-0", 8, 2000),
    ]


async def test_only_the_mesh_follows_and_only_under_a_name() -> None:
    followers = Followers(ManualClock())
    followers.heard(
        Identity(DEFAULT_TRUST_DOMAIN, IdentityKind.OPERATOR, "admin"), "fast-0", version=1, bound_ms=1
    )
    for name in ("", "Fast 0", "x" * 64):
        followers.heard(FAST, name, version=1, bound_ms=1)
    assert not (await told(followers)).follower


async def test_who_is_silent_for_long_is_forgotten_but_never_within_its_bound() -> None:
    clock = ManualClock()
    followers = Followers(clock)
    followers.heard(FAST, "short", version=1, bound_ms=1000)
    followers.heard(FAST, "long", version=1, bound_ms=2 * FORGOTTEN_MS)
    clock.advance(seconds=FORGOTTEN_MS // 1000 + 1)
    assert [each.instance for each in (await told(followers)).follower] == ["long"]


async def test_the_table_is_bounded() -> None:
    followers = Followers(ManualClock())
    for number in range(MAX_FOLLOWERS + 5):
        followers.heard(FAST, f"fast-{number}", version=1, bound_ms=1)
    names = {each.instance for each in (await told(followers)).follower}
    assert len(names) == MAX_FOLLOWERS
    assert "fast-0" not in names
