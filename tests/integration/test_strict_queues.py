"""Strict delivery into real queues that do not recognise ids, over a real store: the stored messages are counted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from snavio.adapters.redis.coordination import RedisCoordination
from snavio.clock import ManualClock, SystemClock
from snavio.domain.claim import Terms
from snavio.domain.verdict import Verdict
from snavio.v1.registry_pb2 import QUEUE_KIND_REDIS, QUEUE_KIND_SQS
from tests.contract.test_target_queue import BOT, Yard, payloads, redis_yard, sqs_yard
from tests.support.arbiter import ArbiterStage, arbiter_stage
from tests.support.frames import RunOf, command
from tests.support.moto import MotoServer, moto_process
from tests.support.redis import RedisServer, redis_server

TERMS = Terms(lease_ms=15_000, keep_ms=300_000)
ID = "0190c1e0-0000-7000-8000-000000000001"
GOOD, TWICE, CONFLICT = Verdict.DELIVERED, Verdict.DUPLICATE, Verdict.CONFLICT


@dataclass
class Scene:
    yard: Yard
    kind: int
    server: RedisServer
    """The server of the coordination store, whose clock the test sets."""
    clock: ManualClock = field(default_factory=lambda: ManualClock(1_700_000_040_000_000_000))
    lives: int = 0

    @asynccontextmanager
    async def slow(self) -> AsyncIterator[tuple[ArbiterStage, RedisCoordination]]:
        """A new Slow, which has no memory of its own."""
        self.lives += 1
        store = RedisCoordination(
            self.server.url,
            prefix="strict",
            known_epoch=None,
            fresh_epoch="e",
            terms=TERMS,
            max_claims=1000,
            max_claims_per_source=1000,
            timeout_s=5.0,
            clock=self.clock,
        )
        try:
            async with arbiter_stage(
                store,
                SystemClock(),
                instance=f"slow-{self.lives}",
                real=self.yard.queue,
                topic=BOT,
                queue_kind=self.kind,
            ) as running:
                yield running, store
        finally:
            await store.close()

    async def stored(self) -> list[bytes]:
        return sorted(payloads(await self.yard.contents(BOT)))


@pytest.fixture(scope="module")
def aws() -> Iterator[MotoServer]:
    with moto_process() as server:
        yield server


@pytest.fixture(params=["redis", "sqs"])
async def scene(request: pytest.FixtureRequest, tmp_path: Path, aws: MotoServer) -> AsyncIterator[Scene]:
    yards = {
        "redis": (redis_yard(tmp_path), QUEUE_KIND_REDIS),
        "sqs": (sqs_yard(tmp_path, server=aws), QUEUE_KIND_SQS),
    }
    made, kind = yards[request.param]
    async with redis_server(tmp_path / "store", fsync=None) as server, made as yard:
        await yard.queue.start()
        yield Scene(yard, kind, server)


async def test_an_id_is_stored_once_and_every_duplicate_gets_the_first_outcome(scene: Scene) -> None:
    async with scene.slow() as (first, _):
        assert await first.ask(command(command_id=ID, payload=b"10 EUR")) == [GOOD]
        for _ in range(3):
            assert await first.ask(command(command_id=ID, payload=b"10 EUR")) == [TWICE]
    async with scene.slow() as (second, _):
        for _ in range(3):
            assert await second.ask(command(command_id=ID, payload=b"10 EUR")) == [TWICE]
    assert await scene.stored() == [b"10 EUR"]


async def test_other_contents_under_the_same_id_are_a_conflict_and_are_not_stored(scene: Scene) -> None:
    async with scene.slow() as (slow, _):
        assert await slow.ask(command(command_id=ID, payload=b"10 EUR")) == [GOOD]
        for other in (
            command(command_id=ID, payload=b"1000 EUR"),
            command(command_id=ID, payload=b"10 EUR", name="refund-twice"),
            command(command_id=ID, payload=b"10 EUR", target="another-bot"),
        ):
            assert await slow.ask(other) == [CONFLICT]
    assert await scene.stored() == [b"10 EUR"]


async def test_what_a_slow_claimed_before_it_died_is_taken_over_after_its_lease(scene: Scene) -> None:
    async with scene.slow() as (dying, store):
        held = asyncio.Event()

        async def never(_asks: object) -> list[object]:
            held.set()
            await asyncio.Event().wait()
            return []

        # Between claim and dispatch: the limit is the question in between.
        store.take = never  # type: ignore[method-assign, assignment]
        dying.directory.route["limit"] = {"max": 10, "interval_seconds": 60}
        waiting = dying.send(RunOf([command(command_id=ID, payload=b"x")]))
        await held.wait()
        waiting.cancel()
        # As a killed process would: nothing is released.
        store.release = never  # type: ignore[method-assign, assignment]
    async with scene.slow() as (heir, _):
        assert await heir.ask(command(command_id=ID, payload=b"x")) == [Verdict.OUTCOME_UNKNOWN]
        assert await scene.stored() == []
        scene.clock.advance(seconds=15)
        assert await heir.ask(command(command_id=ID, payload=b"x")) == [GOOD]
        for _ in range(5):
            assert await heir.ask(command(command_id=ID, payload=b"x")) == [TWICE]
    assert await scene.stored() == [b"x"]


async def test_what_a_slow_stored_and_never_committed_arrives_again_rather_than_not_at_all(
    scene: Scene,
) -> None:
    async with scene.slow() as (dying, store):
        stored = asyncio.Event()

        async def never(_asks: object, *, owner: str) -> None:
            stored.set()
            await asyncio.Event().wait()

        store.commit = never  # type: ignore[method-assign, assignment]
        waiting = dying.send(RunOf([command(command_id=ID, payload=b"x")]))
        await stored.wait()
        waiting.cancel()
        for task in list(dying.arbiter._settling):
            task.cancel()
    async with scene.slow() as (heir, _):
        assert await heir.ask(command(command_id=ID, payload=b"x")) == [Verdict.OUTCOME_UNKNOWN]
        assert await heir.ask(command(command_id=ID, payload=b"y")) == [CONFLICT]
        scene.clock.advance(seconds=15)
        assert await heir.ask(command(command_id=ID, payload=b"x")) == [GOOD]
        assert await heir.ask(command(command_id=ID, payload=b"x")) == [TWICE]
    # Once from each: this is what the manual says can still happen, and no more than that.
    assert await scene.stored() == [b"x", b"x"]


async def test_a_queue_that_is_away_frees_the_id_and_the_next_attempt_is_stored_once(scene: Scene) -> None:
    async with scene.slow() as (slow, _):
        slow.arbiter._budget_ms = 1000
        await scene.yard.stop()
        (verdict,) = await slow.ask(command(command_id=ID, payload=b"x"))
        assert verdict in (Verdict.DELIVERY_FAILURE, Verdict.OUTCOME_UNKNOWN)
        await scene.yard.start()
        slow.arbiter._budget_ms = 5000
        if verdict is Verdict.OUTCOME_UNKNOWN:
            scene.clock.advance(seconds=15)
        assert await slow.ask(command(command_id=ID, payload=b"x")) == [GOOD]
        assert await slow.ask(command(command_id=ID, payload=b"x")) == [TWICE]
    assert await scene.stored() == [b"x"]
