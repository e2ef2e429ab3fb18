"""Commands through the real mesh into a Redis stream and into an SQS queue."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pytest
import pytest_asyncio

from snavio.admin.directory import DirectoryClient
from snavio.domain.directory import AclEntry, QueueKind, Route, Target
from snavio.domain.identity import DEFAULT_TRUST_DOMAIN, Identity, IdentityKind
from snavio.domain.queue_address import queue_name, stream_key
from snavio.domain.verdict import Verdict
from snavio.errors import BadRequest, IntegrityError, NotFound, Unavailable
from snavio.sdk.queued import QueuedCommand, bury
from snavio.v1.registry_pb2 import PROFILE_SYNC, QUEUE_KIND_REDIS, QUEUE_KIND_SQS
from tests.contract.test_target_queue import make_queue
from tests.support.mesh import SOURCE, TENANT, DemoMesh, demo_mesh
from tests.support.moto import REGION, MotoServer, moto_server
from tests.support.redis import RedisServer, redis_server
from tests.support.terminal import snavio

STREAM, QUEUE, NAME = "stream-bot", "queue-bot", "notify-user"


@dataclass
class Scene:
    mesh: DemoMesh
    redis: RedisServer
    aws: MotoServer
    url: str


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def scene(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Scene]:
    folder: Path = tmp_path_factory.mktemp("queues")
    async with redis_server(folder / "redis") as redis, moto_server() as aws:
        url = await make_queue(aws, f"{TENANT}/{QUEUE}")
        settings: dict[str, object] = {
            "pull_interval_ms": 100,
            "redis_url": redis.url,
            "sqs_region": REGION,
            "aws_endpoint_url": aws.url,
        }
        async with demo_mesh(folder / "mesh", settings={"mesh": settings}) as mesh:
            async with mesh.operator() as operator:
                for target, kind in ((STREAM, QUEUE_KIND_REDIS), (QUEUE, QUEUE_KIND_SQS)):
                    await operator.claim_target(target, TENANT)
                    await operator.put_route(target, NAME, queue_kind=kind)
                    await operator.put_route(target, "by-slow", queue_kind=kind, profile=PROFILE_SYNC)
                    for name in (NAME, "by-slow"):
                        await operator.grant(SOURCE, target, name)
            yield Scene(mesh, redis, aws, url)


pytestmark = pytest.mark.asyncio(loop_scope="module")


async def _stream(scene: Scene) -> list[QueuedCommand]:
    async with scene.redis.client() as client:
        entries: Any = await client.xrange(stream_key(f"{TENANT}/{STREAM}"))
    return [QueuedCommand.from_redis(fields) for _, fields in entries]


async def test_commands_reach_a_redis_stream_by_fast_and_by_slow(scene: Scene) -> None:
    async with scene.mesh.producer() as producer:
        sent = [producer.send(STREAM, name, b"%d" % n) for n in range(50) for name in (NAME, "by-slow")]
        outcomes = await asyncio.gather(*sent)
    assert {outcome.verdict for outcome in outcomes} == {Verdict.DELIVERED}
    entries = await _stream(scene)
    assert {entry.command_id for entry in entries} >= {outcome.command_id for outcome in outcomes}
    assert {(entry.source, entry.target) for entry in entries} == {(SOURCE, STREAM)}


async def test_commands_reach_an_sqs_queue_by_fast_and_by_slow(scene: Scene) -> None:
    async with scene.mesh.producer() as producer:
        sent = [producer.send(QUEUE, name, b"%d" % n) for n in range(6) for name in (NAME, "by-slow")]
        outcomes = await asyncio.gather(*sent)
    assert {outcome.verdict for outcome in outcomes} == {Verdict.DELIVERED}
    found: set[str] = set()
    async with scene.aws.client("sqs") as client:
        while messages := (await client.receive_message(QueueUrl=scene.url, MaxNumberOfMessages=10)).get(
            "Messages"
        ):
            found |= {QueuedCommand.from_sqs(message).command_id for message in messages}
    assert found == {outcome.command_id for outcome in outcomes}


async def test_a_redis_that_restarted_is_used_again_without_help(scene: Scene) -> None:
    async with scene.mesh.producer() as producer:
        assert (await producer.send(STREAM, NAME, b"before")).verdict is Verdict.DELIVERED
        scene.redis.kill()
        late = asyncio.create_task(producer.send(STREAM, NAME, b"while away"))
        await scene.redis.start()
        assert (await late).verdict is Verdict.DELIVERED
        assert (await producer.send(STREAM, NAME, b"after")).verdict is Verdict.DELIVERED
    payloads = [entry.payload for entry in await _stream(scene)]
    assert [payloads.count(text) for text in (b"before", b"while away", b"after")] == [1, 1, 1]


async def test_an_entry_that_somebody_else_wrote_is_refused(scene: Scene) -> None:
    wrong: tuple[Callable[[], QueuedCommand], ...] = (
        lambda: QueuedCommand.from_redis({}),
        lambda: QueuedCommand.from_redis({b"run": b"\xff"}),
        lambda: QueuedCommand.from_sqs({"Body": "*"}),
        lambda: QueuedCommand.from_sqs({}),
    )
    for made in wrong:
        with pytest.raises(IntegrityError) as refused:
            made()
        assert refused.value.reason == "not-a-command"


async def test_a_route_is_accepted_only_to_a_queue_that_has_proved_itself(scene: Scene) -> None:
    target = "proved-bot"
    topic = f"{TENANT}/{target}"
    route = Route(target, NAME, queue_kind=QueueKind.SQS)
    async with scene.mesh.operator() as operator:
        await operator.claim_target(target, TENANT)

    async def refused(*, dry_run: bool) -> str:
        async with directory(scene) as client:
            with pytest.raises(BadRequest) as error:
                await client.apply([route], dry_run=dry_run)
            assert error.value.reason == "queue-unfit"
        with pytest.raises(BadRequest) as error:
            async with scene.mesh.operator() as operator:
                await operator.put_route(target, NAME, queue_kind=QUEUE_KIND_SQS)
        assert error.value.reason == "queue-unfit"
        return str(error.value)

    assert f"There is no queue {queue_name(topic)}" in await refused(dry_run=True)
    # Made and put right step by step; each look is a fresh one.
    flaws = (
        ({"tag": "someone/else"}, "does not say whose it is"),
        ({"dlq": False}, "has no dead-letter queue"),
        ({"sse": "false"}, "is not encrypted"),
    )
    for made, flaw in flaws:
        url = await make_queue(scene.aws, topic, **made)
        for dry_run in (True, False):
            assert flaw in await refused(dry_run=dry_run)
        async with scene.aws.client("sqs") as client:
            await client.delete_queue(QueueUrl=url)
    await make_queue(scene.aws, topic)
    right = AclEntry(SOURCE, target, NAME)
    async with directory(scene) as client:
        dry = await client.apply([route, right], dry_run=True, check=[(SOURCE, target, NAME)])
        assert not dry.changed
        (queue,) = [gate.detail for gate in dry.check[0].gate if gate.gate == "queue"]
        assert queue == "The queue can be reached: 0 wait."
        assert (await client.apply([route, right])).changed
        # What the directory has already is not proved again.
        async with scene.aws.client("sqs") as sqs:
            url = (await sqs.get_queue_url(QueueName=queue_name(topic)))["QueueUrl"]
            await sqs.delete_queue(QueueUrl=url)
        assert not (await client.apply([route, right])).changed
        check = await client.check(SOURCE, target, NAME)
        assert (check.failing_gate, check.verdict) == ("queue", "delivery-failure")
        assert "There is no queue" in check.gate[-1].detail


async def test_a_route_to_a_queue_that_cannot_be_asked_is_not_written(scene: Scene) -> None:
    target = "away-bot"
    async with scene.mesh.operator() as operator:
        await operator.claim_target(target, TENANT)
        async with scene.redis.client() as client:
            await client.set(stream_key(f"{TENANT}/{target}"), "no stream")
        with pytest.raises(BadRequest, match="no stream") as unfit:
            await operator.put_route(target, NAME, queue_kind=QUEUE_KIND_REDIS)
        assert unfit.value.reason == "queue-unfit"
        scene.redis.kill()
        try:
            with pytest.raises(Unavailable) as away:
                await operator.put_route(target, NAME, queue_kind=QUEUE_KIND_REDIS)
            assert away.value.reason == "queue-unproven"
            # A change of a route that is written already needs no queue.
            await operator.put_route(STREAM, NAME, queue_kind=QUEUE_KIND_REDIS, profile=PROFILE_SYNC)
        finally:
            await scene.redis.start()
    async with directory(scene) as client, scene.redis.client() as redis:
        await redis.delete(stream_key(f"{TENANT}/{target}"))
        route = Route(target, NAME, queue_kind=QueueKind.REDIS)
        assert (await client.apply([route])).changed
        too_many = [Route(f"bot-{n}", NAME, queue_kind=QueueKind.REDIS) for n in range(51)]
        with pytest.raises(BadRequest) as refused:
            await client.apply([*(Target(one.target, TENANT) for one in too_many), *too_many], dry_run=True)
        assert refused.value.reason == "too-many-queues"


def directory(scene: Scene) -> DirectoryClient:
    return DirectoryClient(
        scene.mesh.addresses["registry"], certificates=scene.mesh.certificates("operator-admin")
    )


async def test_dead_letters_of_a_running_mesh_are_listed_and_redriven_by_their_owner_alone(
    scene: Scene, tmp_path: Path
) -> None:
    target, group = "weary-bot", "bots"
    topic = f"{TENANT}/{target}"
    key = stream_key(topic)
    other = tmp_path / "globex-ci"
    async with scene.mesh.operator() as operator:
        await operator.claim_target(target, TENANT)
        await operator.put_route(target, NAME, queue_kind=QUEUE_KIND_REDIS)
        await operator.grant(SOURCE, target, NAME)
        await operator.create_tenant("globex")
        await operator.certify(Identity(DEFAULT_TRUST_DOMAIN, IdentityKind.PRINCIPAL, "ci", "globex"), other)
    async with scene.mesh.producer() as producer:
        sent = [await producer.send(target, NAME, b"%d" % number) for number in range(3)]
    assert {outcome.verdict for outcome in sent} == {Verdict.DELIVERED}
    async with scene.redis.client() as redis:
        await redis.xgroup_create(key, group, id="0")
        ((_, entries),) = await redis.xreadgroup(group, "one", {key: ">"}, count=2)
        for entry_id, fields in entries:
            await bury(redis, topic, group, entry_id, fields, reason="no such user")

    async def ran(*words: str) -> Any:
        config = str(scene.mesh.processes.config)
        done = await asyncio.to_thread(snavio, *words, "--config", config, "--json", folder=tmp_path)
        assert done.returncode == 0, done.stderr
        return orjson.loads(done.stdout)

    letters = (await ran("routes", "dead", target))["letters"]
    told = {(each["command_id"], each["source"], each["command"], each["reason"]) for each in letters}
    assert told == {(outcome.command_id, SOURCE, NAME, "no such user") for outcome in sent[:2]}
    # One answer for what is not there and what is another's: nothing is told, and nothing moves.
    stranger = DirectoryClient(scene.mesh.addresses["registry"], certificates=other)
    try:
        with pytest.raises(NotFound) as listed:
            await stranger.dead_letters(target, limit=10)
        with pytest.raises(NotFound) as moved:
            await stranger.redrive(target, [letters[0]["letter_id"]])
    finally:
        await stranger.close()
    assert {listed.value.reason, moved.value.reason} == {"unknown-target"}
    first, second = (each["letter_id"] for each in letters)
    assert await ran("routes", "redrive", target, first, first, "1-1") == {"moved": 1}
    assert [each["letter_id"] for each in (await ran("routes", "dead", target))["letters"]] == [second]
    async with scene.redis.client() as redis:
        waiting = [QueuedCommand.from_redis(fields) for _, fields in await redis.xrange(key)]
    assert [one.command_id for one in waiting] == [sent[2].command_id, letters[0]["command_id"]]
    assert await ran("routes", "redrive", target, first) == {"moved": 0}, "a letter goes back once"
