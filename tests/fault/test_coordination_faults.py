"""Limits and strict ids while the coordination store, a Slow or a clock misbehaves."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from snavio.adapters.redis.coordination import RedisCoordination
from snavio.clock import ManualClock, SystemClock
from snavio.domain.claim import Claimed
from snavio.domain.quota import LimitRule, Permits
from snavio.domain.verdict import Verdict
from snavio.errors import StateError
from snavio.ports.coordination import Coordination, PermitAsk
from snavio.v1 import registry_pb2 as reg
from snavio.wiring import CoordinationChoice, open_coordination
from tests.support.arbiter import arbiter_stage
from tests.support.claiming_process import BEGINNING_NS, ROUTE, RULE, TERMS, claim, open_store
from tests.support.frames import RunOf, command
from tests.support.neighbours import eventually
from tests.support.redis import RedisServer, redis_server
from tests.support.slow import GOOD, Scene, always, limit, resolution, slow

NOT_NOW = Verdict.DELIVERY_FAILURE
WARM_BANNED = 6
LIMITED = Verdict.RATE_LIMIT_EXCEEDED
ROOT = Path(__file__).resolve().parents[2]


def redis_store(server: RedisServer, clock: ManualClock, *, timeout_s: float = 5.0) -> RedisCoordination:
    return RedisCoordination(
        server.url,
        prefix="snavio:test",
        known_epoch=None,
        fresh_epoch="first",
        terms=TERMS,
        max_claims=1000,
        max_claims_per_source=1000,
        timeout_s=timeout_s,
        clock=clock,
    )


def chosen(folder: Path, kind: str = "embedded", url: str = "") -> CoordinationChoice:
    """The choice as Slow's settings would make it."""
    return CoordinationChoice(
        kind=kind,
        folder=folder,
        instance="slow-0",
        url=url,
        prefix="snavio:test",
        table="",
        region="",
        endpoint_url=None,
        terms=TERMS,
        max_claims=1000,
        max_claims_per_source=1000,
        timeout_s=1.0,
    )


async def until(scene: Scene, wanted: Verdict) -> None:
    """Repeat until the answer is `wanted`, without any other help."""
    async with asyncio.timeout(20):
        while (await scene.ask(*scene.commands(1))).codes != [wanted]:
            await asyncio.sleep(0.05)


# -- the store


class Sluggish:
    """A store whose answers do not come while `stuck`."""

    def __init__(self, store: Coordination) -> None:
        self._store = store
        self.stuck = False

    async def take(self, asks: Sequence[PermitAsk]) -> list[Permits]:
        if self.stuck:
            await asyncio.sleep(60)
        return await self._store.take(asks)

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)


async def test_a_store_that_times_out_refuses_with_a_hint_and_is_used_again_by_itself(tmp_path: Path) -> None:
    clock = ManualClock(BEGINNING_NS)
    store = Sluggish(await open_store(tmp_path / "c.db", clock, known=None))
    async with slow(tmp_path, store=store, coordination_timeout_ms=500) as scene:  # type: ignore[arg-type]
        scene.registry.resolve = always(resolution(limit=limit(1000)))
        await until(scene, GOOD)
        store.stuck = True
        answer = await scene.ask(*scene.commands(2))
        assert answer.codes == [NOT_NOW] * 2
        assert answer.refusals[0].retry_after_ms > 0
        # A route without a limit needs no store, and a shadow limit refuses nothing.
        for harmless in (resolution(), resolution(limit=limit(1, shadow=True))):
            scene.registry.resolve = always(harmless)
            assert (await scene.ask(*scene.commands(2))).codes == [GOOD] * 2
        scene.registry.resolve = always(resolution(limit=limit(1000)))
        store.stuck = False
        await until(scene, GOOD)


async def test_a_store_that_dies_refuses_with_a_hint_and_counts_on_when_it_is_back(tmp_path: Path) -> None:
    clock = ManualClock(BEGINNING_NS)
    async with redis_server(tmp_path / "redis") as server:
        store = redis_store(server, clock, timeout_s=1.0)
        async with slow(tmp_path / "slow", store=store) as scene:
            scene.registry.resolve = always(resolution(limit=limit(10)))
            assert (await scene.ask(*scene.commands(6))).codes == [GOOD] * 6
            server.kill()
            answer = await scene.ask(*scene.commands(3))
            assert answer.codes == [NOT_NOW] * 3
            assert answer.refusals[0].retry_after_ms > 0
            await server.start()
            await until(scene, GOOD)
            codes = (await scene.ask(*scene.commands(10))).codes
            assert codes == [GOOD] * 3 + [LIMITED] * 7


async def test_a_store_that_comes_back_empty_makes_limits_wait_for_the_next_interval_and_ids_for_their_time(
    tmp_path: Path,
) -> None:
    clock = ManualClock(BEGINNING_NS + 1_000_000_000)
    async with redis_server(tmp_path / "redis", fsync=None) as server:
        store = redis_store(server, clock)
        async with slow(tmp_path / "slow", store=store) as scene, arbiter_stage(store, clock) as strict:
            scene.registry.resolve = always(resolution(limit=limit(10)))
            assert (await scene.ask(*scene.commands(6))).codes == [GOOD] * 6
            again = command()
            assert await strict.ask(again) == [GOOD]
            await server.lose_everything()
            await until(scene, LIMITED)
            assert await strict.ask(again) == [NOT_NOW]
            clock.advance(seconds=60)
            assert (await scene.ask(*scene.commands(11))).codes == [GOOD] * 10 + [LIMITED]
            assert await strict.ask(again) == [NOT_NOW]
            clock.advance(seconds=240)
            assert await strict.ask(again) == [GOOD]


async def test_a_server_that_may_evict_is_not_trusted(tmp_path: Path) -> None:
    evicting = ("--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
    async with redis_server(tmp_path / "redis", fsync=None, extra=evicting) as server:
        store = redis_store(server, ManualClock(BEGINNING_NS))
        with pytest.raises(StateError, match="noeviction"):
            await store.check()
        async with slow(tmp_path / "slow", store=store) as scene:
            scene.registry.resolve = always(resolution(limit=limit(10)))
            assert (await scene.ask(*scene.commands(1))).codes == [NOT_NOW]


async def test_a_second_slow_on_the_embedded_store_is_told_what_to_do(tmp_path: Path) -> None:
    choice = chosen(tmp_path)
    clock = ManualClock(BEGINNING_NS)
    store = await open_coordination(choice, clock=clock)
    with pytest.raises(StateError, match='"redis" or "aws"'):
        await open_coordination(choice, clock=clock)
    await store.close()


async def test_an_embedded_store_whose_file_was_lost_is_met_as_one_without_a_memory(tmp_path: Path) -> None:
    clock = ManualClock(BEGINNING_NS + 1_000_000_000)
    choice = chosen(tmp_path)
    store = await open_coordination(choice, clock=clock)
    assert (await store.take([PermitAsk(ROUTE, RULE, 1)]))[0].count == 1
    await store.close()
    for file in tmp_path.glob("coordination.db*"):
        file.unlink()
    store = await open_coordination(choice, clock=clock)
    assert (await store.take([PermitAsk(ROUTE, RULE, 1)]))[0].count == 0
    await store.close()


async def test_a_redis_that_was_emptied_while_no_slow_ran_is_recognised_by_what_slow_kept(
    tmp_path: Path,
) -> None:
    day, clock = LimitRule(max=10, interval_ms=86_400_000), SystemClock()
    async with redis_server(tmp_path / "redis", fsync=None) as server:
        choice = chosen(tmp_path / "slow", "redis", server.url)
        for expected in (6, 4):
            store = await open_coordination(choice, clock=clock)
            assert (await store.take([PermitAsk(ROUTE, day, 6)]))[0].count == expected
            await store.close()
        await server.lose_everything()
        store = await open_coordination(choice, clock=clock)
        assert (await store.take([PermitAsk(ROUTE, day, 6)]))[0].count == 0
        await store.close()
        # An instance that has never seen this server cannot notice that it lost records.
        await server.lose_everything()
        store = await open_coordination(chosen(tmp_path / "another", "redis", server.url), clock=clock)
        assert (await store.take([PermitAsk(ROUTE, day, 6)]))[0].count == 6
        await store.close()


@pytest.mark.parametrize("damaged", [b"", b"\xff\xfe", b"x" * 5000])
async def test_an_epoch_that_slow_kept_and_cannot_read_does_not_make_an_emptied_redis_a_new_one(
    tmp_path: Path, damaged: bytes
) -> None:
    async with redis_server(tmp_path / "redis", fsync=None) as server:
        (tmp_path / "slow-0.epoch").write_bytes(damaged)
        store = await open_coordination(chosen(tmp_path, "redis", server.url), clock=SystemClock())
        [permits] = await store.take([PermitAsk(ROUTE, LimitRule(max=10, interval_ms=3_600_000), 1)])
        assert permits.count == 0
        await store.close()


async def test_a_slow_starts_without_its_redis_and_refuses_until_it_is_there(tmp_path: Path) -> None:
    server = RedisServer(tmp_path / "redis", fsync=None)
    settings: dict[str, Any] = {
        "coordination": "redis",
        "coordination_url": server.url,
        "coordination_timeout_ms": 300,
    }
    async with slow(tmp_path / "slow", **settings) as scene:
        scene.registry.resolve = always(resolution(limit=limit(1000)))
        assert (await scene.ask(*scene.commands(1))).codes == [NOT_NOW]
        await server.start()
        try:
            await until(scene, GOOD)
        finally:
            server.kill()


# -- a Slow


async def test_a_slow_that_is_killed_between_claim_and_commit_leaves_every_id_in_a_true_state(
    tmp_path: Path,
) -> None:
    path = tmp_path / "c.db"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.support.claiming_process", path, cwd=ROOT, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    async with asyncio.timeout(20):
        assert await process.stdout.readline() == b"claimed 70\n"
    process.kill()
    await process.wait()
    clock = ManualClock(BEGINNING_NS)
    store = await open_store(path, clock, known="first")
    try:
        answers = await store.claim([claim(number) for number in range(51)], owner="heir")
        assert [answer.claimed for answer in answers[:20]] == [Claimed.DUPLICATE] * 20
        assert [answer.claimed for answer in answers[20:50]] == [Claimed.PENDING] * 30
        assert answers[50].claimed is Claimed.NEW
        assert (await store.take([PermitAsk(ROUTE, RULE, 100)]))[0].count == 30
        clock.advance(seconds=15)
        answers = await store.claim([claim(number) for number in range(50)], owner="heir")
        assert [answer.claimed for answer in answers] == [Claimed.DUPLICATE] * 20 + [Claimed.TAKEN_OVER] * 30
    finally:
        await store.close()


# -- clocks


class Stepped(ManualClock):
    """The wall clock of a process started after the clock was set; its monotonic clock is not affected."""

    def __init__(self, before: ManualClock, *, step_s: int, away_s: int) -> None:
        super().__init__(before.unix_ns() + (away_s + step_s) * 1_000_000_000)
        self._mono_ns = before.mono_ns() + away_s * 1_000_000_000


@pytest.mark.parametrize("step_s", [3600, -3600])
async def test_a_wall_clock_that_is_set_an_hour_while_no_slow_runs_moves_no_strict_id(
    tmp_path: Path, step_s: int
) -> None:
    before = ManualClock(BEGINNING_NS)
    store = await open_store(tmp_path / "c.db", before, known=None)
    await store.claim([claim(1), claim(2)], owner="a")
    await store.commit([claim(1)], owner="a")
    await store.close()
    after = Stepped(before, step_s=step_s, away_s=5)
    store = await open_store(tmp_path / "c.db", after, known="first")

    async def states() -> list[Claimed]:
        return [answer.claimed for answer in await store.claim([claim(1), claim(2)], owner="b")]

    assert await states() == [Claimed.DUPLICATE, Claimed.PENDING]
    after.advance(seconds=10)
    assert await states() == [Claimed.DUPLICATE, Claimed.TAKEN_OVER]
    after.advance(seconds=284)
    assert (await states())[0] is Claimed.DUPLICATE
    after.advance(seconds=1)
    assert (await states())[0] is Claimed.NEW
    await store.close()


@pytest.mark.parametrize("step_s", [3600, -3600])
async def test_a_wall_clock_that_is_set_an_hour_costs_a_limit_at_most_one_interval_and_never_overruns_it(
    tmp_path: Path, step_s: int
) -> None:
    before = ManualClock(BEGINNING_NS)
    store = await open_store(tmp_path / "c.db", before, known=None)
    assert (await store.take([PermitAsk(ROUTE, RULE, 70)]))[0].count == 70
    await store.close()
    after = Stepped(before, step_s=step_s, away_s=1)
    store = await open_store(tmp_path / "c.db", after, known="first")
    [permits] = await store.take([PermitAsk(ROUTE, RULE, 200)])
    # Forward is a new interval; back is one that was used before, so its cost is unknown.
    assert permits.count == (100 if step_s > 0 else 0)
    after.advance(seconds=60)
    assert (await store.take([PermitAsk(ROUTE, RULE, 200)]))[0].count == 100
    await store.close()


# -- a flood


async def test_a_source_that_floods_does_not_hold_up_the_turn_of_another(tmp_path: Path) -> None:
    clock = ManualClock(BEGINNING_NS)
    store = await open_store(tmp_path / "c.db", clock, known=None)
    async with arbiter_stage(store, clock, dedupe_mode=reg.DEDUPE_MODE_NONE) as slow:
        slow.directory.open.clear()
        flood = [
            slow.send(RunOf([command() for _ in range(100)], source="mallory/bot"), reason=WARM_BANNED)
            for _ in range(140)
        ]
        await eventually(lambda: slow.directory.asked == 1)
        quiet = slow.send(RunOf([command() for _ in range(50)]))
        await asyncio.sleep(0)
        slow.directory.open.set()
        assert (await quiet).codes == [GOOD] * 50
        sent = [(run.source, len(run.command)) for body in slow.redis.bodies for run in body.topic[0].run]
        ahead = sum(count for _, count in sent[: [source for source, _ in sent].index("acme/billing")])
        # One round that had begun before it came, and of that a fifth.
        assert ahead <= 1000 // 5
        told = [verdict for task in flood for verdict in (await task).codes]
        # The flood's own queue is bounded: the rest was refused at once, and no other source is affected.
        assert 0 < told.count(Verdict.SATURATED) == 14_000 - told.count(GOOD)
    await store.close()
