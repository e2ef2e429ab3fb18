"""Dead letters of a real Redis: with their reasons, in one step, and back again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from snavio.adapters.redis.dead_letters import RedisDeadLetters
from snavio.clock import ManualClock
from snavio.domain.queue_address import dead_stream_key, stream_key
from snavio.errors import BadRequest, Unavailable
from snavio.sdk.queued import bury
from tests.support.redis import RedisServer, redis_server

TOPIC, GROUP = "acme/bot", "bots"
KEY, DEAD = stream_key(TOPIC), dead_stream_key(TOPIC)


@pytest.fixture
async def redis(tmp_path: Path) -> AsyncIterator[RedisServer]:
    async with redis_server(tmp_path / "redis") as server:
        yield server


@asynccontextmanager
async def opened(redis: RedisServer) -> AsyncIterator[Any]:
    async with redis.client() as client:
        yield client


def letters(redis: RedisServer, **more: Any) -> RedisDeadLetters:
    settings = {"max_stream_length": 100, "max_attempts": 3, "idle_ms": 0, **more}
    return RedisDeadLetters(redis.url, clock=ManualClock(), **settings)


async def deliver(client: Any, times: int) -> None:
    """Deliver everything that waits so many times, and settle nothing."""
    ((_, entries),) = await client.xreadgroup(GROUP, "one", {KEY: ">"}, count=100)
    ids = [entry_id for entry_id, _ in entries]
    for _ in range(times - 1):
        await client.xclaim(KEY, GROUP, "one", 0, ids)


async def test_what_was_delivered_too_often_becomes_a_dead_letter_and_can_be_sent_again(
    redis: RedisServer,
) -> None:
    dead = letters(redis)
    async with opened(redis) as client:
        for at in range(3):
            await client.xadd(KEY, {"run": b"run-%d" % at})
        await client.xgroup_create(KEY, GROUP, id="0")
        await deliver(client, 2)
        assert await dead.sweep([TOPIC, "acme/none"]) == {}, "not often enough yet"
        await client.xadd(KEY, {"run": b"fresh"})
        pending = await client.xpending_range(KEY, GROUP, "-", "+", 10)
        await client.xclaim(KEY, GROUP, "one", 0, [row["message_id"] for row in pending])
        assert await dead.sweep([TOPIC]) == {TOPIC: 3}
        assert await client.xlen(KEY) == 1 and (await client.xpending(KEY, GROUP))["pending"] == 0
        found = await dead.listed(TOPIC, limit=2)
        assert [(each.reason, each.attempts, each.run) for each in found] == [
            ("max-attempts", 3, b"run-0"),
            ("max-attempts", 3, b"run-1"),
        ]
        assert found[0].stored_unix_ns > 0
        (last,) = await dead.listed(TOPIC, limit=9, after=found[-1].letter_id)
        assert await dead.redrive(TOPIC, [found[0].letter_id, last.letter_id]) == 2
        assert await dead.redrive(TOPIC, [found[0].letter_id]) == 0, "once"
        runs = [fields[b"run"] for _, fields in await client.xrange(KEY)]
        assert runs == [b"fresh", b"run-0", b"run-2"]
        assert await client.xlen(DEAD) == 1
    await dead.close()


async def test_a_consumer_buries_what_it_cannot_do_with_its_own_reason(redis: RedisServer) -> None:
    dead = letters(redis)
    async with opened(redis) as client:
        await client.xadd(KEY, {"run": b"poison"})
        await client.xgroup_create(KEY, GROUP, id="0")
        ((_, ((entry_id, fields),)),) = await client.xreadgroup(GROUP, "one", {KEY: ">"})
        await bury(client, TOPIC, GROUP, entry_id, fields, reason="no such user")
        (letter,) = await dead.listed(TOPIC, limit=9)
        assert (letter.reason, letter.run) == ("no such user", b"poison")
        assert await client.xlen(KEY) == 0
    await dead.close()


async def test_what_a_consumer_works_on_is_left_alone(redis: RedisServer) -> None:
    dead = letters(redis, idle_ms=60_000)
    async with opened(redis) as client:
        await client.xadd(KEY, {"run": b"long"})
        await client.xgroup_create(KEY, GROUP, id="0")
        await deliver(client, 9)
        assert await dead.sweep([TOPIC]) == {}
    await dead.close()


async def test_full_dead_letters_are_never_trimmed(redis: RedisServer) -> None:
    dead = letters(redis, max_letters=2)
    async with opened(redis) as client:
        for _ in range(4):
            await client.xadd(KEY, {"run": b"x"})
        await client.xgroup_create(KEY, GROUP, id="0")
        await deliver(client, 5)
        assert await dead.sweep([TOPIC]) == {TOPIC: 2}
        assert await dead.sweep([TOPIC]) == {}
        assert (await client.xlen(KEY), await client.xlen(DEAD)) == (2, 2)
    await dead.close()


async def test_bad_ids_and_a_redis_that_is_away_have_reasons(redis: RedisServer) -> None:
    dead = letters(redis)
    for wrong in ("x", "1-1 ", "(1-1", ""):
        with pytest.raises(BadRequest):
            await dead.redrive(TOPIC, [wrong])
    with pytest.raises(BadRequest):
        await dead.listed(TOPIC, limit=1, after="x")
    redis.kill()
    with pytest.raises(Unavailable):
        await dead.listed(TOPIC, limit=1)
    await dead.close()
