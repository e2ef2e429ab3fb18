"""Fast between scripted neighbours: permits, fairness, lists and duplicates."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from snavio.domain.verdict import Verdict
from snavio.v1 import registry_pb2 as reg
from tests.support.fast import (
    CACHE_MISS,
    COLD_ONLY,
    DEDUPE_REQUIRED,
    GOOD,
    NAME,
    RIVAL,
    SOURCE,
    TARGET,
    TOKEN_REQUIRED,
    WARM_BANNED,
    Scene,
    allow,
    fast,
    issued,
    put,
    refusing,
    rivals,
    route,
)
from tests.support.neighbours import commands_of, eventually

FULL = os.environ.get("SNAVIO_FULL") == "1"


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    async with rivals(tmp_path) as running:
        yield running


# --- the warm path is warm


async def test_warm_fast_makes_no_call_but_the_dispatch_and_the_pull(scene: Scene) -> None:
    await scene.send(10)
    changes, denylists = scene.registry.asked, scene.signer.asked_denylist
    before = (scene.slow.commands, scene.grants.calls, len(scene.registry.resolved), scene.signer.asked)
    batches = len(scene.mailbox.batches)
    for _ in range(20):
        assert (await scene.send(50)).codes == [GOOD] * 50
    assert len(scene.mailbox.batches) == batches + 20
    assert (
        scene.slow.commands,
        scene.grants.calls,
        len(scene.registry.resolved),
        scene.signer.asked,
    ) == before
    # The pulls go on by themselves, whatever the traffic.
    await eventually(lambda: scene.registry.asked > changes and scene.signer.asked_denylist > denylists)


async def test_the_cache_is_told_under_the_names_of_document_001(scene: Scene) -> None:
    await scene.send(3)
    told = await scene.status()
    assert told["Snavio.Cache.Usage.Fresh"] == 3
    assert told["Snavio.Cache.ACL.StaleWindowSeconds"] == told["Snavio.Cache.Routing.StaleWindowSeconds"] == 0
    assert told["Snavio.Cache.ACL.RefreshDuration"] == told["Snavio.Cache.Routing.RefreshDuration"] > 0
    scene.registry.away = True
    scene.clock.advance(seconds=62)
    await scene.send(4)
    scene.clock.advance(seconds=30)
    await scene.send(5)
    told = await scene.status()
    assert (told["Snavio.Cache.Usage.Stale"], told["Snavio.Cache.Usage.Expired"]) == (4, 5)
    assert (told["Snavio.Cache.ACL.Usage.Stale"], told["Snavio.Cache.Routing.Usage.Stale"]) == (4, 4)
    assert told["Snavio.Cache.ACL.StaleWindowSeconds"] > told["Snavio.Cache.Routing.StaleWindowSeconds"] > 30
    scene.registry.away = False
    await scene.registry.was_read()
    refreshed = [each.event.fields() for each in scene.app.refreshes.after(0, limit=10_000)]
    oldest = max(refreshed, key=lambda fields: float(str(fields["age_seconds"])))
    assert float(str(oldest["age_seconds"])) >= 92
    # Only those that ended something go to the archive, and not one every second.
    assert {each["reason"] for each in refreshed if float(str(each["age_seconds"])) < 2} <= {"due"}
    assert oldest["reason"] == "recovered"
    ttls = {(each["cache_type"], each["fresh_ttl"], each["stale_ttl"]) for each in refreshed}
    assert ttls == {("ACL", 30.0, 90.0), ("Routing", 60.0, 180.0)}


# --- permits


async def test_a_limited_route_goes_by_slow_until_permits_are_here_and_then_as_far_as_they_go(
    scene: Scene,
) -> None:
    await put(scene, route(limit=reg.Limit(max=100, interval_seconds=60)))
    scene.grants.permits[TARGET, NAME] = issued(6)
    assert (await scene.send(4)).codes == [GOOD] * 4
    assert scene.reasons() == [TOKEN_REQUIRED]
    await eventually(lambda: scene.grants.asked)
    wish = scene.grants.asked[0].wish[0]
    assert (wish.target, wish.name) == (TARGET, NAME)
    assert wish.permits >= 4
    scene.grants.permits.clear()
    before = scene.mailbox.commands
    await eventually(lambda: scene.app.grants.counters().get("permits") == 6)
    # The first six are warm, the rest is not; the order within the lane is kept.
    commands = [scene.forge.command(payload=b"%d" % number) for number in range(10)]
    assert await scene.ask(*commands) == [GOOD] * 10
    assert commands_of(scene.mailbox.batches[-1]) == commands[:6]
    assert commands_of(scene.slow.batches[-1]) == commands[6:]
    assert scene.mailbox.commands == before + 6


async def test_permits_end_with_their_life_counted_from_when_they_were_asked_for(scene: Scene) -> None:
    await put(scene, route(limit=reg.Limit(max=100, interval_seconds=60)))
    scene.grants.permits[TARGET, NAME] = issued(1000, life_ms=1000)
    await scene.send(1)
    await eventually(lambda: scene.app.grants.counters().get("permits", 0) >= 1000)
    scene.grants.away = True
    assert (await scene.way()) == "mailbox"
    scene.clock.advance(seconds=1)
    assert (await scene.way()) == TOKEN_REQUIRED


async def test_what_slow_does_not_want_to_be_asked_again_soon_is_not_asked_again_soon(scene: Scene) -> None:
    await put(scene, route(limit=reg.Limit(max=5, interval_seconds=60)))
    for _ in range(10):
        await scene.send(1)
    await eventually(lambda: scene.grants.asked)
    for _ in range(20):
        await scene.send(1)
    assert len(scene.grants.asked) == 1
    scene.clock.advance(seconds=11)
    await scene.registry.was_read()
    await scene.send(1)
    await eventually(lambda: len(scene.grants.asked) == 2)


async def test_permits_that_were_not_used_go_back_at_the_end(tmp_path: Path) -> None:
    async with fast(tmp_path) as scene:
        allow(scene.registry, SOURCE)
        await put(scene, route(limit=reg.Limit(max=100, interval_seconds=60)))
        scene.grants.permits[TARGET, NAME] = issued(50)
        await scene.send(1)
        await eventually(lambda: scene.app.grants.counters().get("permits", 0) >= 50)
        scene.grants.permits.clear()
        await scene.send(8)
        await scene.app.grants.stop()
        assert sum(each.permits for each in scene.grants.returned) >= 42
        assert {(each.target, each.name, each.interval) for each in scene.grants.returned} == {
            (TARGET, NAME, 7)
        }


async def test_without_slow_a_limited_route_gets_no_permits_and_recovers_by_itself(scene: Scene) -> None:
    await put(scene, route(limit=reg.Limit(max=100, interval_seconds=60)))
    scene.grants.permits[TARGET, NAME] = issued(50)
    scene.grants.away = True
    await scene.send(1)
    await eventually(lambda: scene.app.grants.counters().get("failed", 0) >= 1)
    assert await scene.way() == TOKEN_REQUIRED
    scene.grants.away = False

    async def warm() -> bool:
        return await scene.way() == "mailbox"

    for _ in range(1000):
        if await warm():
            break
    else:
        pytest.fail("no permits came")


async def test_a_limit_that_only_watches_sends_nobody_the_long_way(scene: Scene) -> None:
    await put(scene, route(limit=reg.Limit(max=1, interval_seconds=60, shadow=True)))
    assert (await scene.send(100)).codes == [GOOD] * 100
    assert scene.slow.commands == 0
    # Commands dispatched without a permit are counted all the same.
    await eventually(lambda: scene.grants.asked)
    assert scene.grants.asked[0].wish[0].permits >= 100


# --- fairness


async def test_a_source_that_floods_one_route_loses_the_warm_path_and_nobody_else_does(scene: Scene) -> None:
    scene.registry.allow(SOURCE, "other-bot", NAME)
    await scene.registry.was_read()
    await scene.send(30, source=RIVAL)
    assert (await scene.send(200)).codes == [GOOD] * 200
    # From the next batch on, for this route alone, and it is no failure.
    for _ in range(5):
        assert (await scene.send(10)).codes == [GOOD] * 10
    assert scene.reasons() == [WARM_BANNED] * 5
    warm = scene.mailbox.commands
    await scene.send(30, source=RIVAL)
    await scene.send(30, target="other-bot")
    assert scene.mailbox.commands == warm + 60
    # One event for the whole ban, and one report.
    [event] = [each.event.fields() for each in scene.app.events.after(0, limit=100)]
    assert (event["source"], event["target"], event["command.name"]) == (SOURCE, TARGET, NAME)
    assert float(str(event["source_share"])) == pytest.approx(200 / 230, rel=1e-5)
    # A share of the offered commands, not of the dispatched ones; here the numbers are equal.
    assert float(str(event["competing_share"])) == pytest.approx(30 / 230, rel=1e-5)
    assert (event["dispatch_volume"], event["retry_after_ms"]) == (230, 30_000)
    assert str(event["throttle_until"])[-1:] == "Z"
    await eventually(lambda: scene.grants.bans)
    assert [(each.source, each.dispatch_volume) for each in scene.grants.bans] == [(SOURCE, 230)]
    scene.clock.advance(seconds=30)
    await scene.registry.was_read()
    assert await scene.way() == "mailbox"


async def test_refused_traffic_does_not_frame_a_rival(scene: Scene) -> None:
    # Sources without a right send as much as they can; the only permitted one must not be banned for it.
    for number in range(5):
        await scene.send(500, source=f"evil/knock{number}")
    for _ in range(5):
        await scene.send(200)
    assert set(scene.reasons()) == {CACHE_MISS}
    assert scene.slow.commands == 2500
    assert await scene.way() == "mailbox"
    assert (await scene.status())["dispatch.warm_bans"] == 0


async def test_a_source_alone_is_never_dominant(scene: Scene) -> None:
    for _ in range(10):
        await scene.send(500)
    assert await scene.way() == "mailbox"


async def test_the_route_says_what_is_fair(scene: Scene) -> None:
    fairness = reg.Fairness(dominant_share=0.5, minimum_volume=4, competing_share=0.3, ban_seconds=5)
    await put(scene, route(fairness=fairness))
    await scene.send(2, source=RIVAL)
    await scene.send(3)
    assert await scene.way() == WARM_BANNED
    scene.clock.advance(seconds=5)
    await scene.registry.was_read()
    assert await scene.way() == "mailbox"


# --- lists


async def test_a_banned_source_goes_by_slow_and_a_suspension_is_none_of_fasts_business(scene: Scene) -> None:
    until = scene.clock.unix_ns() + 300 * 10**9
    ban = {"source": SOURCE, "target": TARGET, "name": NAME, "until_unix_ns": until}
    scene.registry.write(ban=reg.Ban(list=reg.BAN_LIST_WARM_BAN, **ban))
    scene.registry.write(suspension=reg.Suspension(source=RIVAL))
    await scene.registry.was_read()
    assert await scene.way() == WARM_BANNED
    slow = scene.slow.commands
    await scene.send(1, source=RIVAL)
    assert scene.slow.commands == slow
    # It ends by itself, even if it is not lifted.
    scene.clock.advance(seconds=300)
    await scene.registry.was_read()
    assert await scene.way() == "mailbox"


async def test_cold_only_holds_for_a_source_for_a_route_and_for_the_whole_dispatcher(tmp_path: Path) -> None:
    async with fast(tmp_path) as scene:
        scene.registry.allow(SOURCE, TARGET, NAME)
        cold = reg.Ban(list=reg.BAN_LIST_COLD_ONLY, source=SOURCE)
        scene.registry.write(ban=cold)
        await scene.registry.was_read()
        assert await scene.way() == COLD_ONLY
        scene.registry.write(ban=cold, deleted=True)
        await scene.registry.was_read()
        assert await scene.way() == "mailbox"
        await put(scene, route(dispatch_mode=reg.DISPATCH_MODE_COLD_ONLY))
        assert await scene.way() == COLD_ONLY
    async with fast(tmp_path / "cold", dispatch_mode="cold-only") as scene:
        scene.registry.allow(SOURCE, TARGET, NAME)
        await scene.registry.was_read()
        assert await scene.way() == COLD_ONLY


# --- strict routes


async def test_duplicates_of_what_was_delivered_are_answered_from_memory(scene: Scene) -> None:
    await put(scene, route(dedupe_mode=reg.DEDUPE_MODE_STRICT))
    first = scene.forge.command(id="018f0000-0000-7000-8000-000000000001")
    scene.slow.script = refusing(Verdict.RATE_LIMIT_EXCEEDED)
    assert await scene.ask(first) == [Verdict.RATE_LIMIT_EXCEEDED]
    scene.slow.script = None
    assert await scene.ask(first) == [GOOD]
    assert scene.reasons() == [DEDUPE_REQUIRED] * 2
    for _ in range(6):
        assert await scene.ask(first) == [Verdict.DUPLICATE]
    assert scene.slow.commands == 2
    # Another payload under the same id, and the same id of another source, are for Slow to judge.
    other = scene.forge.command(id="018f0000-0000-7000-8000-000000000001", payload=b"other")
    await scene.ask(other)
    await scene.ask(first, source=RIVAL)
    assert scene.slow.commands == 4
    told = await scene.status()
    assert told["Snavio.Dedup.DuplicatesPrevented"] == 6
    # Each is counted where it was decided: the other four of ten by Slow.
    assert (told["Snavio.Dedup.StrictModeUsage"], told["Snavio.Dedup.Escalations"]) == (6, 4)
