"""Fast between scripted neighbours: its bounds, its queues, and faults around it."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from snavio.domain.verdict import Verdict
from snavio.v1 import registry_pb2 as reg
from tests.support.fast import (
    ACL_EXPIRED,
    CACHE_MISS,
    GOOD,
    NAME,
    RIVAL,
    ROUTE_EXPIRED,
    SOURCE,
    TARGET,
    Scene,
    allow,
    fast,
    issued,
    put,
    refusing,
    rivals,
    route,
)
from tests.support.neighbours import answering, commands_of, eventually
from tests.support.wire import mesh_batch, run

FULL = os.environ.get("SNAVIO_FULL") == "1"


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    async with rivals(tmp_path) as running:
        yield running


# --- unknown routes


async def test_a_hundred_thousand_unknown_targets_fill_one_share_and_no_memory(scene: Scene) -> None:
    scene.slow.script = refusing(Verdict.ROUTE_MISSING)
    targets = 100_000 if FULL else 20_000
    codes: list[Verdict] = []
    for start in range(0, targets, 500):
        commands = [scene.forge.command(target=f"t{start + number}") for number in range(500)]
        codes += await scene.ask(*commands, source="evil/prober")
    # Slow was asked for one share, and the rest was refused; the table never held more.
    assert codes.count(Verdict.ROUTE_MISSING) == 1024
    assert codes.count(Verdict.SATURATED) == targets - 1024
    assert scene.slow.commands == 1024
    told = await scene.status()
    assert told["dispatch.unknown_routes"] == 1024
    # No other source is refused, with an existing route or without.
    assert (await scene.send(5)).codes == [GOOD] * 5
    assert await scene.ask(scene.forge.command(target="t1"), source=RIVAL) == [Verdict.ROUTE_MISSING]
    scene.clock.advance(seconds=2)
    [code] = await scene.ask(scene.forge.command(target="t99"), source="evil/prober")
    assert code is Verdict.ROUTE_MISSING


async def test_a_missing_route_is_refused_here_for_at_most_two_seconds_after_slow_said_so(
    scene: Scene,
) -> None:
    scene.slow.script = refusing(Verdict.ROUTE_MISSING)
    unknown = scene.forge.command(target="nowhere")
    assert await scene.ask(unknown) == [Verdict.ROUTE_MISSING]
    for _ in range(10):
        answer = await scene.stream.ask(scene.batch(unknown), scene.seq)
        assert answer.codes == [Verdict.ROUTE_MISSING]
        assert answer.refusals[0].detail
    assert scene.slow.commands == 1
    # A route that is registered meanwhile is known at once, despite earlier refusals.
    scene.registry.allow(SOURCE, "nowhere", NAME)
    await scene.registry.was_read()
    assert await scene.ask(unknown) == [GOOD]
    scene.clock.advance(seconds=2)
    scene.registry.write(deleted=True, route=reg.Route(target="nowhere", name=NAME))
    await scene.registry.was_read()
    assert await scene.ask(unknown) == [Verdict.ROUTE_MISSING]
    assert scene.slow.commands == 2


# --- escalations


async def test_a_banned_flood_does_not_keep_the_escalations_of_others_waiting(tmp_path: Path) -> None:
    async with fast(tmp_path, escalations_per_source=3000) as scene:
        allow(scene.registry, SOURCE, RIVAL)
        scene.registry.write(ban=reg.Ban(list=reg.BAN_LIST_COLD_ONLY, source="evil/flood"))
        allow(scene.registry, "evil/flood")
        await put(scene, route(dedupe_mode=reg.DEDUPE_MODE_STRICT))
        scene.slow.script = scene.slow.hold
        flood = [scene.forge.command() for _ in range(250)]
        for _ in range(15):
            # As many as Slow takes at once, and a full share behind them.
            await scene.stream.send(scene.batch(*flood, source="evil/flood"))
        await eventually(lambda: len(scene.slow.held) >= 2)
        await scene.stream.send(scene.batch(scene.forge.command(), source=RIVAL))
        wanted = scene.seq
        held = len(scene.slow.held)
        # The moment Slow has room again, the rival is in the very next batch.
        batch, stream = scene.slow.held.pop(0)
        stream.reply(answering(batch, [GOOD] * len(commands_of(batch))), True)
        await eventually(lambda: len(scene.slow.held) >= held)
        # It may still be on its way: nothing else is let go for it.
        await eventually(lambda: RIVAL in {each.source for each in _runs(scene.slow.batches)})
        scene.slow.release()
        assert (await scene.stream.answer(wanted)).codes == [GOOD]


def _runs(batches: list[Any]) -> list[Any]:
    return [run for batch in batches for each in batch.escalation for run in each.run]


async def test_a_source_whose_line_is_full_is_refused_with_a_hint_and_alone(tmp_path: Path) -> None:
    async with fast(tmp_path, escalations_per_source=100) as scene:
        await scene.bench.neighbours["slow"].stop()
        await eventually(lambda: not scene.app.slow.connected.is_set())
        await scene.stream.send(scene.batch(*(scene.forge.command() for _ in range(80)), source="evil/flood"))
        answer = await scene.send(80, source="evil/flood")
        assert answer.codes == [Verdict.SATURATED] * 80
        assert answer.refusals[0].retry_after_ms > 0
        await scene.stream.send(scene.batch(scene.forge.command(), source=RIVAL))
        wanted = scene.seq
        await scene.bench.neighbours["slow"].start()
        assert (await scene.stream.answer(wanted)).codes == [GOOD]


async def test_a_tenant_with_many_sources_leaves_room_for_the_escalations_of_others(tmp_path: Path) -> None:
    async with fast(tmp_path, escalation_bytes=1 << 20) as scene:
        await scene.bench.neighbours["slow"].stop()
        await eventually(lambda: not scene.app.slow.connected.is_set())
        flood = [scene.forge.command() for _ in range(600)]
        for number in range(14):
            await scene.stream.send(scene.batch(*flood, source=f"evil/flood-{number}"))
        await scene.stream.send(scene.batch(*flood, source=RIVAL))
        wanted = scene.seq
        await scene.bench.neighbours["slow"].start()
        assert (await scene.stream.answer(wanted)).codes == [GOOD] * 600


async def test_sources_of_one_batch_are_answered_each_by_itself(scene: Scene) -> None:
    scene.slow.script = scene.slow.hold
    scene.seq += 1
    runs = [run(SOURCE, [scene.forge.command()]), run("evil/x", [scene.forge.command()])]
    await scene.stream.send(mesh_batch(runs, batch_seq=scene.seq))
    partial = await scene.stream.partial(scene.seq)
    assert partial.codes == [GOOD]
    await eventually(lambda: scene.slow.held)
    scene.slow.release(Verdict.ACL_DENY)
    assert (await scene.stream.answer(scene.seq)).codes == [GOOD, Verdict.ACL_DENY]


# --- faults


async def test_an_acl_that_is_revoked_in_mid_stream_ends_within_the_next_pull(scene: Scene) -> None:
    ways = []
    for number in range(30):
        if number == 10:
            scene.registry.write(deleted=True, acl=reg.AclEntry(source=SOURCE, target=TARGET, name=NAME))
        if number == 20:
            await scene.registry.was_read()
        ways.append(await scene.way())
    assert ways[:10] == ["mailbox"] * 10
    assert ways[20:] == [CACHE_MISS] * 10
    # It never comes back in between.
    switched = ways.index(CACHE_MISS)
    assert set(ways[switched:]) == {CACHE_MISS}


async def test_registry_down_for_ten_minutes_low_goes_on_until_its_limit_and_critical_does_not(
    scene: Scene,
) -> None:
    scene.registry.allow(SOURCE, "vault", NAME, profile=reg.PROFILE_CRITICAL)
    await scene.registry.was_read()
    scene.registry.away = True

    async def way(target: str) -> str | int:
        cold = scene.slow.commands
        assert (await scene.send(1, target=target)).codes == [GOOD]
        return "mailbox" if scene.slow.commands == cold else scene.reasons()[-1]

    ways = {}
    for second in range(0, 600, 3):
        ways[second] = (await way(TARGET), await way("vault"))
        scene.clock.advance(seconds=3)
    assert {low for second, (low, _) in ways.items() if second < 90} == {"mailbox"}
    assert {low for second, (low, _) in ways.items() if 90 <= second < 180} == {ACL_EXPIRED}
    assert {low for second, (low, _) in ways.items() if second >= 180} == {ROUTE_EXPIRED}
    assert [critical for second, (_, critical) in ways.items() if second < 4] == ["mailbox"] * 2
    assert {critical for second, (_, critical) in ways.items() if 4 <= second < 180} == {ACL_EXPIRED}
    scene.registry.away = False
    await scene.registry.was_read()
    assert (await way(TARGET), await way("vault")) == ("mailbox", "mailbox")


@pytest.mark.parametrize("step_s", [3600, -3600], ids=["forward", "back"])
async def test_a_wall_clock_that_is_set_by_an_hour_changes_no_decision(scene: Scene, step_s: int) -> None:
    until = scene.clock.unix_ns() + 60 * 10**9
    ban = {"source": RIVAL, "target": TARGET, "name": NAME, "until_unix_ns": until}
    scene.registry.write(ban=reg.Ban(list=reg.BAN_LIST_WARM_BAN, **ban))
    scene.registry.write(route=reg.Route(target="limited", name=NAME, topic="acme/limited", limit={"max": 9}))
    scene.registry.write(acl=reg.AclEntry(source=SOURCE, target="limited", name=NAME))
    await scene.registry.was_read()
    scene.grants.permits["limited", NAME] = issued(50)
    await scene.send(1, target="limited")
    await eventually(lambda: scene.app.grants.counters().get("permits", 0) >= 50)
    scene.slow.script = refusing(Verdict.ROUTE_MISSING)
    await scene.send(1, target="nowhere")
    scene.slow.script = None
    # Nor are there more permits: the next fetch may come before what is sent after the clock was moved.
    scene.registry.away = scene.grants.away = True

    async def ways() -> list[bool]:
        """Those of four commands that went by Slow."""
        went = []
        for told in ({}, {"target": "limited"}, {"source": RIVAL}, {"target": "nowhere"}):
            cold = scene.slow.commands
            await scene.send(1, **told)
            went.append(scene.slow.commands > cold)
        return went

    assert await ways() == [False, False, True, False]
    scene.clock._unix_ns += step_s * 10**9
    assert await ways() == [False, False, True, False]
    scene.clock.advance(seconds=60)
    # Stale and used, the ban over, the permits over, and the missing route asked for again.
    assert await ways() == [False, True, False, True]
