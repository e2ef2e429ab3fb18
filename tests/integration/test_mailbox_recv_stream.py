"""C-1, the stream form of RECV: credit decides how much is leased, and nothing is leased to nobody."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from services.mailbox.settings import MailboxSettings
from tests.support.mailbox import (
    TOPIC,
    MailboxFixture,
    ReceivingStream,
    commands,
    running_mailbox,
    send_batch,
)

DONE = b"\x01"


@pytest.fixture
async def office(tmp_path: Path) -> AsyncIterator[MailboxFixture]:
    async with running_mailbox(tmp_path) as one:
        yield one


async def sent(office: MailboxFixture, count: int, *, seq: int = 1) -> None:
    sender = await office.sender()
    assert await sender.send(send_batch(seq, (TOPIC, commands(count)))) == DONE * count


async def test_C_1_stream_leases_no_more_than_its_credit(office: MailboxFixture) -> None:
    await sent(office, 100)
    consumer = office.consumer()
    stream = await ReceivingStream(consumer, credit=30).open()
    got = await stream.some(30)
    assert sum(len(one.messages) for one in got) == 30
    assert await consumer.stats() == {TOPIC: (70, 30)}
    for one in got:
        await consumer.ack(one.receipts())
    assert await consumer.stats() == {TOPIC: (70, 0)}, "an ack is no credit"
    await stream.add(50)
    assert sum(len(one.messages) for one in await stream.some(50)) == 50
    assert await consumer.stats() == {TOPIC: (20, 50)}
    stream.cancel()


async def test_C_1_stream_brings_what_is_sent_while_it_stands(office: MailboxFixture) -> None:
    consumer = office.consumer()
    await sent(office, 1)
    stream = await ReceivingStream(consumer, credit=10).open()
    assert len((await stream.read()).messages) == 1
    await sent(office, 3, seq=2)
    assert sum(len(one.messages) for one in await stream.some(3)) == 3
    stream.cancel()


async def test_C_1_response_stays_within_the_bounds_of_the_opening(office: MailboxFixture) -> None:
    await sent(office, 20)
    stream = await ReceivingStream(office.consumer(), credit=20, max_messages=6).open()
    got = await stream.some(20)
    assert [len(one.messages) for one in got] == [6, 6, 6, 2]
    stream.cancel()


@pytest.mark.parametrize(
    ("asked", "credit"), [({"visibility_ms": 249}, 1), ({}, 20_001), ({"topic": "evil/x"}, 1)]
)
async def test_C_1_opening_that_is_wrong_is_refused(
    office: MailboxFixture, asked: dict[str, Any], credit: int
) -> None:
    stream = await ReceivingStream(office.consumer(), credit=credit, **asked).open()
    assert await stream.code() in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.PERMISSION_DENIED)


async def test_C_1_stream_needs_an_opening_and_only_one(office: MailboxFixture) -> None:
    stream = ReceivingStream(office.consumer(), credit=1)
    await stream.add(5)
    assert await stream.code() is grpc.StatusCode.INVALID_ARGUMENT
    twice = await ReceivingStream(office.consumer(), credit=1).open()
    await twice.open()
    assert await twice.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_C_1_stream_that_ends_while_it_waits_leases_nothing(office: MailboxFixture) -> None:
    stream = await ReceivingStream(office.consumer(), credit=10).open()
    await office.operator().stats()
    stream.cancel()
    await office.operator().stats()
    await sent(office, 2)
    got = await office.consumer(name="second").receive(wait_ms=5000)
    assert len(got.messages) == 2


async def test_I_5_ceiling_keeps_a_stream_waiting_and_not_ended(tmp_path: Path) -> None:
    async with running_mailbox(tmp_path, settings=MailboxSettings(max_tenant_inflight=5)) as office:
        await sent(office, 12)
        consumer = office.consumer()
        stream = await ReceivingStream(consumer, credit=12).open()
        seen = 0
        while seen < 12:
            got = await stream.read()
            seen += len(got.messages)
            assert len(got.messages) <= 5
            assert await consumer.ack(got.receipts()) == DONE * len(got.messages)
        stream.cancel()


async def test_drain_ends_a_stream_in_order(office: MailboxFixture) -> None:
    stream = await ReceivingStream(office.consumer(), credit=10).open()
    await office.operator().stats()
    assert office.app is not None
    await office.app.drain()
    with pytest.raises(EOFError):
        await stream.read()
    office.app = None
