"""The promises of every target queue, for each kind."""

from __future__ import annotations

import asyncio
import base64
import json
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from services.mailbox.settings import MailboxSettings
from snavio.adapters.aws.sqs_queue import OWNER_TAG, SqsDriver, unfit
from snavio.adapters.redis.stream_queue import RedisStreamDriver
from snavio.adapters.retrying_queue import RetryingQueue
from snavio.clock import SystemClock
from snavio.domain.directory.route import QueueKind
from snavio.domain.queue_address import queue_name, stream_key
from snavio.domain.queue_traits import TRAITS, Traits
from snavio.domain.verdict import Verdict
from snavio.errors import Saturated
from snavio.native import read_single, split_batch
from snavio.ports.queue import TargetQueue
from snavio.ports.queue_driver import DriverFailed, OutgoingMessage
from snavio.wiring import mailbox_queue
from tests.support.batch_parts import commands, part_of
from tests.support.mailbox import running_mailbox
from tests.support.moto import REGION, MotoServer, moto_process
from tests.support.redis import redis_server

BOT, PAY = "acme/billing", "acme/refunds"
CAPACITY = 50

Told = tuple[str, bytes]
"""Source and payload."""


@dataclass
class Yard:
    """A queue with the operations of a test around it."""

    queue: TargetQueue
    traits: Traits
    contents: Callable[[str], Awaitable[list[Told]]]
    stop: Callable[[], Awaitable[None]]
    start: Callable[[], Awaitable[None]]


@asynccontextmanager
async def mailbox_yard(folder: Path) -> AsyncIterator[Yard]:
    settings = MailboxSettings(max_topic_messages=CAPACITY)
    async with running_mailbox(folder, settings=settings, clock=SystemClock()) as office:
        queue = mailbox_queue(
            office.channel(office.authority.mesh("fast")), clock=SystemClock(), instance="fast-9", epoch=1
        )

        async def contents(topic: str) -> list[Told]:
            got = await office.consumer().receive(topic, max_messages=1000)
            return [(message.source, message.payload) for message in got.messages]

        async def stop() -> None:
            assert office.app is not None
            port = office.address.rpartition(":")[2]
            await office.app.drain()
            office.mesh = office.mesh.model_copy(update={"mailbox": f"127.0.0.1:{port}"})

        await queue.start()
        try:
            yield Yard(queue, TRAITS[QueueKind.MAILBOX], contents, stop, office.start)
        finally:
            await queue.close()


@asynccontextmanager
async def redis_yard(folder: Path) -> AsyncIterator[Yard]:
    async with redis_server(folder / "redis") as server:
        driver = RedisStreamDriver(server.url, max_stream_length=CAPACITY)
        queue = RetryingQueue(
            driver, clock=SystemClock(), instance="fast-0", epoch=1, recognises_resends=True, max_waiting=4
        )

        async def contents(topic: str) -> list[Told]:
            async with server.client() as client:
                entries: Any = await client.xrange(stream_key(topic))
            letters = [read_single(fields[b"run"]) for _, fields in entries]
            return [(letter[0], letter[6]) for letter in letters]

        async def stop() -> None:
            server.kill()

        try:
            yield Yard(queue, TRAITS[QueueKind.REDIS], contents, stop, server.start)
        finally:
            await queue.close()


async def make_queue(
    server: MotoServer, topic: str, *, tag: str | None = None, dlq: bool = True, sse: str = "true"
) -> str:
    """A queue as its owner would set it up; its URL."""
    async with server.client("sqs") as client:
        attributes = {"SqsManagedSseEnabled": sse}
        if dlq:
            dead = await client.create_queue(QueueName=queue_name(topic)[:70] + "-dlq")
            told = await client.get_queue_attributes(QueueUrl=dead["QueueUrl"], AttributeNames=["QueueArn"])
            arn = told["Attributes"]["QueueArn"]
            attributes["RedrivePolicy"] = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 5})
        made = await client.create_queue(
            QueueName=queue_name(topic),
            Attributes=attributes,
            tags={OWNER_TAG: topic if tag is None else tag},
        )
        url: str = made["QueueUrl"]
        return url


@asynccontextmanager
async def sqs_yard(_folder: Path, server: MotoServer) -> AsyncIterator[Yard]:
    await server.reset()
    urls = {topic: await make_queue(server, topic) for topic in (BOT, PAY)}
    driver = SqsDriver(region=REGION, clock=SystemClock(), endpoint_url=server.url)
    queue = RetryingQueue(
        driver, clock=SystemClock(), instance="fast-0", epoch=1, recognises_resends=False, max_waiting=4
    )

    async def contents(topic: str) -> list[Told]:
        found: list[Told] = []
        async with server.client("sqs") as client:
            while True:
                got = await client.receive_message(QueueUrl=urls[topic], MaxNumberOfMessages=10)
                if not got.get("Messages"):
                    return found
                for message in got["Messages"]:
                    letter = read_single(base64.b64decode(message["Body"]))
                    found.append((letter[0], letter[6]))

    async def stop() -> None:
        server.kill()

    async def start() -> None:
        await server.start()
        for topic in (BOT, PAY):
            await make_queue(server, topic)

    try:
        yield Yard(queue, TRAITS[QueueKind.SQS], contents, stop, start)
    finally:
        await queue.close()


@pytest.fixture(scope="module")
def aws() -> Iterator[MotoServer]:
    with moto_process() as server:
        yield server


@pytest.fixture(params=["mailbox", "redis", "sqs"])
async def yard(request: pytest.FixtureRequest, tmp_path: Path, aws: MotoServer) -> AsyncIterator[Yard]:
    makers: dict[str, Any] = {
        "mailbox": mailbox_yard,
        "redis": redis_yard,
        "sqs": partial(sqs_yard, server=aws),
    }
    async with makers[request.param](tmp_path) as made:
        yield made


def payloads(told: list[Told]) -> list[bytes]:
    return [payload.rstrip(b".") for _, payload in told]


async def test_every_command_is_stored_with_its_source(yard: Yard) -> None:
    sent = part_of((BOT, commands(23, mark="c")))
    yard.queue.put(sent)
    assert set(await sent.verdicts()) == {Verdict.DELIVERED}
    told = await yard.contents(BOT)
    wanted = [f"c{number}".encode() for number in range(23)]
    assert (payloads(told) if yard.traits.keeps_order else sorted(payloads(told))) == (
        wanted if yard.traits.keeps_order else sorted(wanted)
    )
    assert {source for source, _ in told} == {"acme/shop"}


async def test_topics_of_one_consignment_do_not_mix(yard: Yard) -> None:
    sent = part_of((BOT, commands(3, mark="b")), (PAY, commands(2, mark="p")))
    yard.queue.put(sent)
    assert await sent.verdicts() == [Verdict.DELIVERED] * 5
    assert sorted(payloads(await yard.contents(BOT))) == [b"b0", b"b1", b"b2"]
    assert sorted(payloads(await yard.contents(PAY))) == [b"p0", b"p1"]


async def test_a_full_queue_refuses_as_saturated_and_keeps_what_it_has(yard: Yard) -> None:
    if not yard.traits.bounded:
        pytest.skip("the provider's bound is the only one")
    first, second = part_of((BOT, commands(CAPACITY - 10))), part_of((BOT, commands(20)))
    yard.queue.put(first)
    assert set(await first.verdicts()) == {Verdict.DELIVERED}
    yard.queue.put(second)
    verdicts = await second.verdicts()
    stored = verdicts.count(Verdict.DELIVERED)
    assert set(verdicts) <= {Verdict.DELIVERED, Verdict.SATURATED}
    assert verdicts.count(Verdict.SATURATED) >= 10
    assert len(await yard.contents(BOT)) == CAPACITY - 10 + stored


async def test_a_queue_that_is_away_is_a_failure_when_the_budget_ends(yard: Yard) -> None:
    await yard.stop()
    sent = part_of((BOT, commands(2)), budget_s=0.5)
    yard.queue.put(sent)
    assert set(await sent.verdicts()) <= {Verdict.DELIVERY_FAILURE, Verdict.OUTCOME_UNKNOWN}
    await yard.start()


async def test_a_queue_that_comes_back_within_the_budget_gets_its_commands(yard: Yard) -> None:
    warm = part_of((BOT, commands(1, mark="warm")))
    yard.queue.put(warm)
    await warm.verdicts()
    await yard.stop()
    sent = part_of((BOT, commands(4, mark="late")), budget_s=60)
    yard.queue.put(sent)
    await asyncio.sleep(0)
    await yard.start()
    assert await sent.verdicts() == [Verdict.DELIVERED] * 4
    assert [told for told in payloads(await yard.contents(BOT)) if told.startswith(b"late")].count(
        b"late3"
    ) == 1


async def test_bytes_that_cannot_be_read_are_refused_and_store_nothing(yard: Yard) -> None:
    sent = part_of((BOT, commands(2)), budget_s=1)
    sent.body = sent.body[:-3]
    yard.queue.put(sent)
    verdicts = await sent.verdicts()
    assert not any(verdict.delivered for verdict in verdicts)
    assert await yard.contents(BOT) == []
    behind = part_of((BOT, commands(2)))
    yard.queue.put(behind)
    assert await behind.verdicts() == [Verdict.DELIVERED] * 2, "what is behind them goes on"


async def test_a_redis_that_lost_everything_is_used_again(tmp_path: Path) -> None:
    async with redis_server(tmp_path / "redis") as server:
        driver = RedisStreamDriver(server.url, max_stream_length=CAPACITY)
        queue = RetryingQueue(driver, clock=SystemClock(), instance="f", epoch=1, recognises_resends=True)
        for lose in (False, True):
            if lose:
                await server.lose_everything()
            sent = part_of((BOT, commands(3)))
            queue.put(sent)
            assert await sent.verdicts() == [Verdict.DELIVERED] * 3
        await queue.close()


async def test_a_delivery_that_redis_had_before_is_told_and_not_made_again(tmp_path: Path) -> None:
    async with redis_server(tmp_path / "redis") as server:
        driver = RedisStreamDriver(server.url, max_stream_length=CAPACITY)
        (_, _, letters), *_ = split_batch(part_of((BOT, commands(3))).body)
        some = [OutgoingMessage(*letter) for letter in letters]
        first, second = [await driver.deliver(BOT, some, token="f:1:1", timeout_s=10) for _ in range(2)]
        assert first == second
        async with server.client() as client:
            assert await client.xlen(stream_key(BOT)) == 3
        await driver.close()


async def test_a_redis_that_stops_in_mid_delivery_stores_it_once(tmp_path: Path) -> None:
    async with redis_server(tmp_path / "redis") as server:
        driver = RedisStreamDriver(server.url, max_stream_length=CAPACITY)
        queue = RetryingQueue(driver, clock=SystemClock(), instance="f", epoch=1, recognises_resends=True)
        warm = part_of((BOT, commands(1)))
        queue.put(warm)
        await warm.verdicts()
        server.freeze()
        short = part_of((BOT, commands(2, mark="unknown")), budget_s=0.3)
        queue.put(short)
        # It was written to a server that may yet read it.
        assert set(await short.verdicts()) == {Verdict.OUTCOME_UNKNOWN}
        server.thaw()
        sent = part_of((BOT, commands(2, mark="known")))
        queue.put(sent)
        assert await sent.verdicts() == [Verdict.DELIVERED] * 2
        await queue.close()


@pytest.mark.parametrize(
    ("fsync", "extra", "sentence"),
    [
        (None, (), "appendonly yes"),
        ("everysec", (), "appendfsync always"),
        ("always", ("--maxmemory-policy", "allkeys-lru"), "noeviction"),
    ],
)
async def test_a_redis_that_would_lose_commands_is_refused_with_what_to_set(
    tmp_path: Path, fsync: str | None, extra: tuple[str, ...], sentence: str
) -> None:
    async with redis_server(tmp_path / "redis", fsync=fsync, extra=extra) as server:
        driver = RedisStreamDriver(server.url, max_stream_length=CAPACITY)
        queue = RetryingQueue(driver, clock=SystemClock(), instance="f", epoch=1, recognises_resends=True)
        sent = part_of((BOT, commands(2)), budget_s=0.3)
        queue.put(sent)
        assert await sent.verdicts() == [Verdict.DELIVERY_FAILURE] * 2
        assert sentence in sent.details[0]
        async with server.client() as client:
            assert await client.xlen(stream_key(BOT)) == 0
        await queue.close()


async def test_a_redis_that_syncs_by_itself_is_used_when_the_operator_says_so(tmp_path: Path) -> None:
    async with redis_server(tmp_path / "redis", fsync="everysec") as server:
        driver = RedisStreamDriver(server.url, max_stream_length=CAPACITY, require_fsync=False)
        queue = RetryingQueue(driver, clock=SystemClock(), instance="f", epoch=1, recognises_resends=True)
        sent = part_of((BOT, commands(2)))
        queue.put(sent)
        assert await sent.verdicts() == [Verdict.DELIVERED] * 2
        await queue.close()


@pytest.mark.parametrize(
    ("made", "sentence"),
    [
        (None, "There is no queue"),
        ({"tag": "zeta/billing"}, "whose it is"),
        ({"dlq": False}, "dead-letter"),
        ({"sse": "false"}, "encrypted"),
    ],
)
async def test_an_sqs_queue_that_proves_nothing_gets_nothing(
    aws: MotoServer, made: dict[str, Any] | None, sentence: str
) -> None:
    await aws.reset()
    url = await make_queue(aws, BOT, **made) if made is not None else None
    driver = SqsDriver(region=REGION, clock=SystemClock(), endpoint_url=aws.url)
    queue = RetryingQueue(driver, clock=SystemClock(), instance="f", epoch=1, recognises_resends=False)
    sent = part_of((BOT, commands(2)))
    queue.put(sent)
    assert await sent.verdicts() == [Verdict.DELIVERY_FAILURE] * 2
    assert sentence in sent.details[0]
    if url is not None:
        async with aws.client("sqs") as client:
            assert "Messages" not in await client.receive_message(QueueUrl=url)
    await queue.close()


def test_a_fifo_queue_is_not_fit() -> None:
    redrive = json.dumps({"deadLetterTargetArn": "arn:aws:sqs:eu-central-1:1:dlq"})
    fit = {"SqsManagedSseEnabled": "true", "RedrivePolicy": redrive}
    assert unfit(BOT, fit, {OWNER_TAG: BOT}) == ""
    assert "FIFO" in unfit(BOT, {**fit, "FifoQueue": "true"}, {OWNER_TAG: BOT})
    assert "dead-letter" in unfit(BOT, {**fit, "RedrivePolicy": "{"}, {OWNER_TAG: BOT})


def test_two_topics_never_share_an_sqs_queue() -> None:
    names = {
        queue_name(topic)
        for topic in ("a-b/c", "a/b-c", "a/b.c", "a/b_c", "a/" + "x" * 120, "a/" + "x" * 121)
    }
    assert len(names) == 6
    assert all(len(name) <= 80 for name in names)


async def test_a_command_too_long_for_sqs_fails_alone(aws: MotoServer) -> None:
    await aws.reset()
    await make_queue(aws, BOT)
    driver = SqsDriver(region=REGION, clock=SystemClock(), endpoint_url=aws.url)
    queue = RetryingQueue(driver, clock=SystemClock(), instance="f", epoch=1, recognises_resends=False)
    sent = part_of(
        (BOT, [*commands(1), *commands(1, size=250_000), *commands(1), *commands(2, size=100_000)])
    )
    queue.put(sent)
    good, bad = Verdict.DELIVERED, Verdict.DELIVERY_FAILURE
    assert await sent.verdicts() == [good, bad, good, good, good]
    await queue.close()


@pytest.mark.parametrize("ending", ["reset", "server error", "cut answer"])
async def test_an_sqs_that_fails_after_it_has_the_message_may_have_stored_it(
    ending: str, aws: MotoServer
) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        await reader.readexactly(int(head.split("content-length:")[1].split()[0]))
        if ending == "reset":
            linger = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        else:
            status = "500 Oops" if ending == "server error" else "200 OK"
            length = 2 if ending == "server error" else 200
            writer.write(f"HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n{{}}".encode())
        writer.close()

    await aws.reset()
    await make_queue(aws, BOT)
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    driver = SqsDriver(region=REGION, clock=SystemClock(), endpoint_url=aws.url)
    proof = await driver._proof(BOT)
    port = server.sockets[0].getsockname()[1]
    await driver.close()
    driver = SqsDriver(region=REGION, clock=SystemClock(), endpoint_url=f"http://127.0.0.1:{port}")
    driver._proofs[BOT] = proof
    (_, _, letters), *_ = split_batch(part_of((BOT, commands(2))).body)
    delivery = await driver.deliver(
        BOT, [OutgoingMessage(*letter) for letter in letters], token="t", timeout_s=10
    )
    assert delivery.verdicts == (Verdict.OUTCOME_UNKNOWN,) * 2
    await driver.close()
    server.close()


async def test_a_redis_that_has_the_commands_and_cannot_say_that_it_synced_may_have_stored_them(
    tmp_path: Path,
) -> None:
    async with redis_server(tmp_path / "redis", fsync=None) as server:
        driver = RedisStreamDriver(server.url, max_stream_length=CAPACITY)
        # It synced when it was examined; since then another server, or another setting, has taken over.
        driver._waits_for_fsync = True
        (_, _, letters), *_ = split_batch(part_of((BOT, commands(2))).body)
        with pytest.raises(DriverFailed) as failure:
            await driver.deliver(
                BOT, [OutgoingMessage(*letter) for letter in letters], token="t", timeout_s=10
            )
        assert failure.value.perhaps
        async with server.client() as client:
            assert await client.xlen(stream_key(BOT)) == 2
        await driver.close()


async def test_more_than_the_bound_is_refused_at_once() -> None:
    class Stuck:
        async def deliver(self, *_args: object, **_named: object) -> None:
            await asyncio.Event().wait()

        async def close(self) -> None: ...

    queue = RetryingQueue(
        Stuck(),  # type: ignore[arg-type]
        clock=SystemClock(),
        instance="fast-0",
        epoch=1,
        recognises_resends=True,
        max_waiting=2,
    )
    waiting = [part_of((BOT, commands(1))) for _ in range(2)]
    for sent in waiting:
        queue.put(sent)
    with pytest.raises(Saturated) as refused:
        queue.put(part_of((BOT, commands(1))))
    assert refused.value.retry_after_ms > 0
    for task in list(queue._deliveries):
        task.cancel()
    # Broken off after it may have been stored: the outcome is unknown.
    assert [await sent.verdicts() for sent in waiting] == [[Verdict.OUTCOME_UNKNOWN]] * 2
    await queue.room()
    await queue.close()
