"""The mailbox's background work goes on: past a damaged topic, past its own faults, and while there is work."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from services.mailbox.retention import pruning as retention
from services.mailbox.retention.pruning import Retention
from services.mailbox.settings import MailboxSettings
from snavio.errors import IntegrityError
from snavio.host.background import Background, host
from snavio.host.introspection import METHOD
from snavio.ports.mailbox_store import MailboxStore
from snavio.v1.introspection_pb2 import StatusRequest, StatusResponse
from tests.support.mailbox import SECONDS, TOPIC, MailboxFixture, commands, running_mailbox, send_batch

DAMAGED = "acme/a-damaged"


def parts(office: MailboxFixture) -> tuple[Retention, MailboxStore]:
    assert office.app is not None
    return office.app.parts.retention, office.app.parts.retention._store


async def counters(office: MailboxFixture) -> dict[str, int]:
    channel = office.operator().channel
    answer = await channel.call(METHOD, StatusRequest(), StatusResponse, timeout_s=SECONDS)
    return {one.name: one.value for one in answer.counter}


async def dead(office: MailboxFixture) -> int:
    topic = parts(office)[0]._delivery.topics.topic(TOPIC)
    assert topic is not None
    return topic.dead


async def until_dead(office: MailboxFixture, messages: int) -> None:
    async with asyncio.timeout(SECONDS):
        while await dead(office) != messages:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("fault", [IntegrityError("a damaged page"), TypeError("a bug")])
async def test_P_9_damaged_topic_keeps_retention_from_no_other_and_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    monkeypatch.setattr(retention, "TICK_SECONDS", 0.01)
    async with running_mailbox(tmp_path, settings=MailboxSettings(retention_dlq_messages=1)) as office:
        sender, consumer = await office.sender(), office.consumer()
        await sender.send(send_batch(1, (DAMAGED, commands(1))))
        _, store = parts(office)
        records = store.records

        def damaged(topic: str, **asked: Any) -> Any:
            if topic == DAMAGED:
                raise fault
            return records(topic, **asked)

        monkeypatch.setattr(store, "records", damaged)
        await sender.send(send_batch(2, (TOPIC, commands(5))))
        for _ in range(2):
            await consumer.nack((await consumer.receive()).receipts(), dead=True)
            await until_dead(office, 1)
            await sender.send(send_batch(3, (TOPIC, commands(5))))
        assert (await counters(office))['background_failures_total{work="retention"}'] > 0


async def test_P_9_topics_take_turns_also_when_the_first_ones_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "TICK_SECONDS", 3600.0)
    monkeypatch.setattr(retention, "TOPICS_PER_TICK", 2)
    async with running_mailbox(tmp_path) as office:
        sender = await office.sender()
        for number in range(5):
            await sender.send(send_batch(number + 1, (f"acme/t{number}", commands(1))))
        keeper, _ = parts(office)
        seen: list[str] = []

        async def look_after(topic: Any) -> bool:
            seen.append(topic.name)
            raise IntegrityError("damaged")

        monkeypatch.setattr(keeper, "look_after", look_after)
        for _ in range(3):
            await keeper.step()
        assert seen == [f"acme/t{number}" for number in range(5)]


async def test_checkpoints_go_on_after_a_fault_of_our_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host(Background(ends=False))
    async with running_mailbox(tmp_path) as office:
        _, store = parts(office)
        checkpoint, calls = store.checkpoint, 0

        def fails_once() -> bool:
            nonlocal calls
            calls += 1
            if calls == 1:
                raise TypeError("a bug")
            return checkpoint()

        monkeypatch.setattr(store, "checkpoint", fails_once)
        sender = await office.sender()
        await sender.send(send_batch(1, (TOPIC, commands(1))))
        async with asyncio.timeout(SECONDS):
            while calls < 2:
                await asyncio.sleep(0.01)
        assert (await counters(office))['background_failures_total{work="checkpoint"}'] == 1


async def test_leases_go_on_ending_after_a_fault_of_our_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host(Background(ends=False))
    async with running_mailbox(tmp_path) as office:
        delivery = parts(office)[0]._delivery
        tick, calls = delivery.tick, 0

        def fails_once() -> None:
            nonlocal calls
            calls += 1
            if calls == 1:
                raise KeyError("a bug")
            tick()

        monkeypatch.setattr(delivery, "tick", fails_once)
        async with asyncio.timeout(SECONDS):
            while calls < 2:
                await asyncio.sleep(0.01)
        assert (await counters(office))['background_failures_total{work="scan"}'] == 1


async def test_P_9_dlq_of_small_batches_is_back_within_its_bound_after_one_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "TICK_SECONDS", 3600.0)
    monkeypatch.setattr(retention, "BUDGET_SECONDS", 60.0)
    async with running_mailbox(tmp_path, settings=MailboxSettings(retention_dlq_messages=10)) as office:
        sender, consumer = await office.sender(), office.consumer()
        for seq in range(1, 201):
            await sender.send(send_batch(seq, (TOPIC, commands(1))))
        got = await consumer.receive()
        await consumer.nack(got.receipts(), dead=True)
        assert await dead(office) == 200
        await parts(office)[0].step()
        assert await dead(office) == 10


async def test_P_9_topic_that_is_over_its_bound_is_looked_after_before_its_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "TICK_SECONDS", 3600.0)
    monkeypatch.setattr(retention, "TOPICS_PER_TICK", 1)
    async with running_mailbox(tmp_path, settings=MailboxSettings(retention_dlq_messages=1)) as office:
        sender, consumer = await office.sender(), office.consumer()
        for number in range(5):
            await sender.send(send_batch(number + 1, (f"acme/t{number}", commands(1))))
        await sender.send(send_batch(9, (TOPIC, commands(5))))
        await consumer.nack((await consumer.receive()).receipts(), dead=True)
        await parts(office)[0].step()
        assert await dead(office) == 1


async def test_P_9_look_ends_when_its_time_is_over_and_goes_on_at_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "TICK_SECONDS", 3600.0)
    monkeypatch.setattr(retention, "BUDGET_SECONDS", 0.0)
    async with running_mailbox(tmp_path, settings=MailboxSettings(retention_dlq_messages=10)) as office:
        sender, consumer = await office.sender(), office.consumer()
        for seq in range(1, 151):
            await sender.send(send_batch(seq, (TOPIC, commands(1))))
        await consumer.nack((await consumer.receive()).receipts(), dead=True)
        left = []
        for _ in range(4):
            await parts(office)[0].step()
            left.append(await dead(office))
        assert left == [86, 22, 10, 10]
