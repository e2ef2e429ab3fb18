"""Looks at queues that are not our own: a real Redis, and moto's server in place of SQS."""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aioboto3
import pytest
from botocore.exceptions import ClientError

from snavio.adapters.aws.sqs_looks import SqsLooks
from snavio.adapters.redis.stream_looks import RedisStreamLooks
from snavio.clock import ManualClock, SystemClock
from snavio.domain.queue_address import dead_stream_key, queue_name, stream_key
from snavio.domain.route_health import RouteStatus, judge
from tests.support.moto import REGION, moto_process
from tests.support.redis import RedisServer, redis_server

TOPIC = "acme/bot"


@pytest.fixture
async def redis(tmp_path: Path) -> AsyncIterator[RedisServer]:
    async with redis_server(tmp_path / "redis") as server:
        yield server


@asynccontextmanager
async def opened(redis: RedisServer) -> AsyncIterator[Any]:
    async with redis.client() as client:
        yield client


async def test_a_redis_stream_tells_depth_age_leases_and_dead_letters(redis: RedisServer) -> None:
    clock = SystemClock()
    looks = RedisStreamLooks(redis.url, clock=clock)
    async with opened(redis) as client:
        never = (await looks.look([TOPIC]))[TOPIC]
        assert (never.failure, never.depth) == ("", 0)
        key = stream_key(TOPIC)
        old = clock.unix_ns() // 1_000_000 - 90_000
        await client.xadd(key, {"run": b"x"}, id=f"{old}-0")
        for _ in range(4):
            await client.xadd(key, {"run": b"x"})
        await client.xadd(dead_stream_key(TOPIC), {"run": b"x"})
        told = (await looks.look([TOPIC, "acme/other"]))[TOPIC]
        assert (told.depth, told.inflight, told.dead, told.last_received_unix_ns) == (5, 0, 1, 0)
        assert told.oldest_s is not None and 89 < told.oldest_s < 150 and not told.oldest_estimated
        await client.xgroup_create(key, "bots", id="0")
        ((_, entries),) = await client.xreadgroup("bots", "one", {key: ">"}, count=2)
        told = (await looks.look([TOPIC]))[TOPIC]
        assert (told.inflight, told.last_received_unix_ns > 0, told.settled_total) == (2, True, 0)
        for entry_id, _ in entries:
            await client.xack(key, "bots", entry_id)
            await client.xdel(key, entry_id)
        told = (await looks.look([TOPIC]))[TOPIC]
        assert (told.depth, told.inflight, told.settled_total) == (3, 0, 2)
    await looks.close()


async def test_a_redis_stream_that_is_deleted_or_replaced_is_unreachable(redis: RedisServer) -> None:
    looks = RedisStreamLooks(redis.url, clock=SystemClock())
    async with opened(redis) as client:
        await client.xadd(stream_key(TOPIC), {"run": b"x"})
        assert not (await looks.look([TOPIC]))[TOPIC].failure
        await client.delete(stream_key(TOPIC))
        gone = (await looks.look([TOPIC]))[TOPIC]
        assert judge([gone], drain_s=300).status is RouteStatus.UNREACHABLE and "deleted" in gone.failure
        await client.set(stream_key(TOPIC), "text")
        assert "no stream" in (await looks.look([TOPIC]))[TOPIC].failure
    redis.kill()
    found = await looks.look([TOPIC, "acme/b"])
    assert all("does not answer" in look.failure for look in found.values())
    await looks.close()


@pytest.fixture(scope="module")
def aws() -> Any:
    with moto_process() as server:
        yield server


async def queue(aws: Any, topic: str) -> tuple[Any, str, str]:
    """A queue with a dead-letter queue, as its owner would make it."""
    await aws.reset()
    session = aioboto3.Session(region_name=REGION)
    async with session.client("sqs", endpoint_url=aws.url) as client:
        dead = (await client.create_queue(QueueName=f"dead-{uuid.uuid4().hex}"))["QueueUrl"]
        arn = (await client.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"]))["Attributes"]
        policy = {"deadLetterTargetArn": arn["QueueArn"], "maxReceiveCount": "5"}
        made = await client.create_queue(
            QueueName=queue_name(topic), Attributes={"RedrivePolicy": json.dumps(policy)}
        )
    return session, made["QueueUrl"], dead


async def test_an_sqs_queue_has_an_age_that_is_estimated_and_said_to_be(aws: Any) -> None:
    clock = ManualClock()
    topic = f"acme/{uuid.uuid4().hex}"
    session, url, dead = await queue(aws, topic)
    looks = SqsLooks(region=REGION, clock=clock, endpoint_url=aws.url)
    assert (await looks.look([topic]))[topic].depth == 0
    async with session.client("sqs", endpoint_url=aws.url) as client:
        for _ in range(3):
            await client.send_message(QueueUrl=url, MessageBody="x")
        await client.send_message(QueueUrl=dead, MessageBody="x")
        clock.advance(seconds=700)
        told = (await looks.look([topic]))[topic]
        assert (told.depth, told.dead, told.oldest_s, told.oldest_estimated) == (3, 1, 700.0, True)
        found = judge([told], drain_s=300)
        assert found.status is RouteStatus.SLOW and "estimated" in found.evidence[0]
        await client.receive_message(QueueUrl=url, MaxNumberOfMessages=2)
        told = (await looks.look([topic]))[topic]
        assert (told.depth, told.inflight, told.last_received_unix_ns) == (3, 2, clock.unix_ns())
        await client.delete_queue(QueueUrl=url)
        gone = (await looks.look([topic]))[topic]
        assert gone.certain and "there is no queue" in gone.failure
    await looks.close()


async def test_an_sqs_that_throttles_leaves_the_last_look_as_it_was(
    aws: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = f"acme/{uuid.uuid4().hex}"
    await queue(aws, topic)
    looks = SqsLooks(region=REGION, clock=ManualClock(), endpoint_url=aws.url)
    before = (await looks.look([topic]))[topic]
    client = await looks._open()

    async def throttled(**_named: Any) -> Any:
        raise ClientError(
            {"Error": {"Code": "ThrottlingException"}, "ResponseMetadata": {"HTTPStatusCode": 400}},
            "GetQueueAttributes",
        )

    monkeypatch.setattr(client, "get_queue_attributes", throttled)
    for _ in range(5):
        assert (await looks.look([topic]))[topic] is before
    assert looks.throttled == 5
    assert judge([before] * 4, drain_s=300).status is RouteStatus.HEALTHY
    await looks.close()


async def test_an_sqs_that_is_away_is_said_to_be() -> None:
    looks = SqsLooks(region=REGION, clock=ManualClock(), endpoint_url="http://127.0.0.1:9")
    told = (await looks.look([TOPIC]))[TOPIC]
    assert "does not answer" in told.failure and not told.certain
    await looks.close()
