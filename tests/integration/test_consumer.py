"""The consumer against a mailbox that uses the real wire and answers as scripted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from snavio.errors import BadRequest, NotAllowed
from snavio.native import sign_command, uuid7
from snavio.sdk import consumer as consuming
from snavio.sdk.consumer import Consumer
from snavio.sdk.delivery import Command, Settlement
from snavio.sdk.message_source import ReceiveCalls
from snavio.sdk.settings import Endpoints
from tests.support.docs import example
from tests.support.pki import Authority
from tests.support.scripted import SOURCE, TOPIC, ScriptedMailbox
from tests.support.servers import Served, serving


@dataclass
class Stage:
    mailbox: ScriptedMailbox
    server: Served
    authority: Authority
    certificates: Path

    def consumer(self, **options: Any) -> Consumer:
        return Consumer(
            mailbox=self.server.address, topic=TOPIC, certificates=self.certificates, stream=False, **options
        )


@pytest.fixture
async def scripted(tmp_path: Path) -> AsyncIterator[Stage]:
    authority = Authority(tmp_path)
    mailbox = ScriptedMailbox()
    files = authority.mesh("mailbox")
    async with serving(authority, methods=mailbox.methods(), files=files) as served:
        yield Stage(mailbox, served, authority, authority.service("acme", "bot").certificate.parent)


def command(payload: bytes, command_id: str = "") -> bytes:
    return sign_command(
        b"k" * 32,
        key_version="hmac-v1",
        audience="a",
        command_id=command_id or uuid7(),
        timestamp_unix_ns=1_700_000_000_123_456_789,
        target="discord-bot",
        name="notify-user",
        payload=payload,
        content_type="text/plain",
    )


async def eventually(condition: Any) -> None:
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.005)


async def test_a_command_is_received_with_all_that_is_known_about_it(scripted: Stage) -> None:
    sent = uuid7()
    scripted.mailbox.store(command(b"hello", sent))
    async with scripted.consumer() as consumer:
        received = await anext(consumer)
        assert (received.command_id, received.payload, received.source) == (sent, b"hello", SOURCE)
        assert (received.target, received.name) == ("discord-bot", "notify-user")
        assert (received.content_type, received.traceparent) == ("text/plain", "")
        assert (received.msg_id, received.attempt) == (1024, 1)
        assert received.timestamp == "2023-11-14T22:13:20.123456789Z"
        assert await received.ack(durable=True) is Settlement.DONE
    assert scripted.mailbox.acked == [1024]


async def test_acks_travel_together_and_are_home_after_a_flush(scripted: Stage) -> None:
    scripted.mailbox.store(*(command(b"%d" % n) for n in range(1000)))
    payloads = []
    async with scripted.consumer() as consumer:
        async for received in consumer:
            payloads.append(received.payload)
            assert await received.ack() is Settlement.BUFFERED
            if len(payloads) == 1000:
                break
        await consumer.flush()
        assert len(scripted.mailbox.acked) == 1000
        assert scripted.mailbox.calls["Ack"] < 50
        assert consumer.unsettled == 0
    assert payloads == [b"%d" % n for n in range(1000)]
    assert scripted.mailbox.nacked == []


async def test_an_ack_needs_no_flush_to_arrive(scripted: Stage) -> None:
    scripted.mailbox.store(command(b""))
    async with scripted.consumer() as consumer:
        await (await anext(consumer)).ack()
        await eventually(lambda: scripted.mailbox.acked)


async def test_a_nack_gives_the_message_back_with_delay_and_reason(scripted: Stage) -> None:
    scripted.mailbox.store(command(b""))
    async with scripted.consumer() as consumer:
        first = await anext(consumer)
        assert await first.nack(delay_s=1.5, reason="not now", durable=True) is Settlement.DONE
        second = await anext(consumer)
        assert (second.command_id, second.attempt) == (first.command_id, 2)
        await second.ack()
    assert scripted.mailbox.nacked == [(1024, 1500, "not now")]


async def test_a_message_is_settled_only_once(scripted: Stage) -> None:
    scripted.mailbox.store(command(b""))
    async with scripted.consumer() as consumer:
        received = await anext(consumer)
        assert await received.ack() is Settlement.BUFFERED
        assert await received.ack(durable=True) is Settlement.GONE
        assert await received.nack() is Settlement.GONE
    assert (scripted.mailbox.acked, scripted.mailbox.nacked) == ([1024], [])


async def test_a_negative_delay_is_refused_and_the_message_stays_ours(scripted: Stage) -> None:
    scripted.mailbox.store(command(b""))
    async with scripted.consumer() as consumer:
        received = await anext(consumer)
        with pytest.raises(BadRequest, match="delay_s"):
            await received.nack(delay_s=-1)
        assert await received.ack(durable=True) is Settlement.DONE


async def test_what_was_not_handed_out_is_given_back_on_exit(scripted: Stage) -> None:
    scripted.mailbox.store(*(command(b"%d" % n) for n in range(10)))
    async with scripted.consumer() as consumer:
        first = await anext(consumer)
        await eventually(lambda: consumer.unsettled == 10)
        await first.ack()
    assert scripted.mailbox.acked == [first.msg_id]
    assert sorted(msg_id for msg_id, _, _ in scripted.mailbox.nacked) == list(range(1025, 1034))
    assert {delay for _, delay, _ in scripted.mailbox.nacked} == {0}
    assert scripted.mailbox.leased == {}


async def test_what_was_handed_out_and_not_settled_stays_leased_on_exit(scripted: Stage) -> None:
    scripted.mailbox.store(command(b""))
    async with scripted.consumer() as consumer:
        await anext(consumer)
    assert (list(scripted.mailbox.leased), scripted.mailbox.nacked) == ([1024], [])


async def test_no_more_is_held_than_allowed(scripted: Stage) -> None:
    scripted.mailbox.store(*(command(b"%d" % n) for n in range(100)))
    async with scripted.consumer(max_unsettled=8) as consumer:
        held = [await anext(consumer) for _ in range(8)]
        await asyncio.sleep(0.05)
        assert consumer.unsettled == len(scripted.mailbox.leased) == 8
        for received in held:
            await received.ack()
        assert (await anext(consumer)).payload == b"8"
        assert len(scripted.mailbox.leased) <= 8


async def test_leases_are_extended_while_a_command_is_worked_on(scripted: Stage) -> None:
    scripted.mailbox.store(command(b"worked on"), command(b"prefetched"), command(b"settled"))
    async with scripted.consumer(visibility_s=0.4) as consumer:
        working = await anext(consumer)
        await eventually(lambda: len(scripted.mailbox.extended) >= 6)
        assert set(scripted.mailbox.extended) == {1024, 1025, 1026}
        assert not working.lost
        await working.ack(durable=True)
        scripted.mailbox.extended.clear()
        await eventually(lambda: len(scripted.mailbox.extended) >= 4)
        assert 1024 not in scripted.mailbox.extended


async def test_a_lost_lease_is_noticed_and_its_ack_is_late(scripted: Stage) -> None:
    scripted.mailbox.store(command(b"a"), command(b"b"))
    async with scripted.consumer(visibility_s=0.4) as consumer:
        received = await anext(consumer)
        scripted.mailbox.leased.clear()
        await eventually(lambda: received.lost)
        assert await received.ack() is Settlement.LATE
        assert consumer.late_acks == 1
        # The other one was prefetched: it is leased to another consumer now and must not be handed out.
        scripted.mailbox.store(command(b"c"))
        assert (await anext(consumer)).payload == b"c"


async def test_an_ack_that_the_mailbox_finds_late_is_told_or_counted(scripted: Stage) -> None:
    scripted.mailbox.store(command(b"a"), command(b"b"))
    async with scripted.consumer() as consumer:
        first, second = await anext(consumer), await anext(consumer)
        scripted.mailbox.leased.clear()
        assert await first.ack(durable=True) is Settlement.LATE
        await second.ack()
        await consumer.flush()
        assert consumer.late_acks == 2


async def test_after_a_restart_of_the_mailbox_old_leases_are_lost_and_messages_come_again(
    scripted: Stage,
) -> None:
    scripted.mailbox.store(*(command(b"%d" % n) for n in range(3)))
    async with scripted.consumer() as consumer:
        old = await anext(consumer)
        await eventually(lambda: consumer.unsettled == 3)
        scripted.mailbox.restart()
        again = []
        async for received in consumer:
            # Messages prefetched before the restart may still come out before the restart is noticed.
            again += [received] if received.attempt == 2 else []
            if len(again) == 3:
                break
        assert old.lost
        assert await old.ack(durable=True) is Settlement.LATE
        assert sorted(received.payload for received in again) == [b"0", b"1", b"2"]
        for received in again:
            assert await received.ack(durable=True) is Settlement.DONE
    assert scripted.mailbox.leased == {}


async def test_a_mailbox_that_was_away_is_found_again(scripted: Stage) -> None:
    scripted.mailbox.away = True
    async with scripted.consumer() as consumer:
        waiting = asyncio.ensure_future(anext(consumer))
        await eventually(lambda: scripted.mailbox.calls.get("Receive", 0) >= 2)
        scripted.mailbox.away = False
        scripted.mailbox.store(command(b"back"))
        received = await waiting
        scripted.mailbox.away = True
        await received.ack()
        await eventually(lambda: scripted.mailbox.calls.get("Ack", 0) >= 2)
        scripted.mailbox.away = False
        await consumer.flush()
    assert scripted.mailbox.acked == [1024]


async def test_a_consumer_without_the_right_is_told_so(scripted: Stage) -> None:
    certificates = scripted.authority.operator("eve").certificate.parent
    consumer = Consumer(mailbox=scripted.server.address, topic=TOPIC, certificates=certificates, stream=False)
    async with consumer:
        with pytest.raises(NotAllowed):
            await anext(consumer)


async def test_iteration_ends_when_the_consumer_is_closed(scripted: Stage) -> None:
    consumer = scripted.consumer()
    await consumer.start()
    waiting = asyncio.ensure_future(anext(consumer, None))
    await asyncio.sleep(0.05)
    await consumer.close()
    assert await waiting is None


async def test_a_cancelled_wait_loses_no_message_and_leaves_no_task(scripted: Stage) -> None:
    before = asyncio.all_tasks()
    async with scripted.consumer() as consumer:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await anext(consumer)
        scripted.mailbox.store(command(b"later"))
        received = await anext(consumer)
        assert received.payload == b"later"
        await received.ack()
    left = {task for task in asyncio.all_tasks() - before if task.get_name().startswith("consumer")}
    assert left == set()


async def test_a_body_that_never_waits_still_lets_acks_go_home(scripted: Stage) -> None:
    scripted.mailbox.store(*(command(b"%d" % n) for n in range(3000)))
    seen = 0
    async with scripted.consumer(max_unsettled=500) as consumer:
        async for received in consumer:
            await received.ack()
            seen += 1
            if seen == 3000:
                break
    assert len(scripted.mailbox.acked) == 3000


async def test_the_guides_example_of_receiving_works(
    scripted: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The mailbox of this file answers calls; streams have a real one in test_mailbox_chunks.py.
    monkeypatch.setattr(consuming, "ReceiveStream", partial(ReceiveCalls, wait_s=1.0))
    scripted.mailbox.store(command(b"fine"), command(b"odd"), command(b"last"))

    async def handle(received: Command) -> bool:
        if received.payload == b"odd":
            raise ValueError("odd")
        return received.payload != b"last"

    await example("receive").names()["work"](
        Endpoints(mailbox=scripted.server.address), scripted.certificates, handle
    )
    assert scripted.mailbox.acked == [1024, 1026]
    assert scripted.mailbox.nacked == [(1025, 5000, "odd")]
