"""Sends that are stored once, over the wire: what a strict route builds on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from services.mailbox.settings import MailboxSettings
from snavio.clock import ManualClock
from snavio.domain.verdict import Verdict
from snavio.native import uuid7
from snavio.v1.command_pb2 import Command
from tests.support.mailbox import TOPIC, MailboxFixture, commands, running_mailbox, send_batch

NEW, DUPLICATE, CONFLICT = (bytes([one]) for one in (Verdict.DELIVERED, Verdict.DUPLICATE, Verdict.CONFLICT))
DONE = b"\x01"


@pytest.fixture
async def office(tmp_path: Path) -> AsyncIterator[MailboxFixture]:
    async with running_mailbox(tmp_path) as one:
        yield one


async def test_I_2_duplicate_of_an_acknowledged_command_is_told_so_by_every_instance(
    office: MailboxFixture,
) -> None:
    fast, slow, consumer = await office.sender(), await office.sender(service="slow"), office.consumer()
    ids = [uuid7() for _ in range(3)]
    assert await fast.send(send_batch(1, (TOPIC, commands(3, ids=ids)), once=True)) == NEW * 3
    got = await consumer.receive()
    assert await consumer.ack(got.receipts()) == DONE * 3
    for seq in (1, 2, 3):
        # Signed anew, so that nothing but id and payload is the same.
        again = send_batch(seq, (TOPIC, commands(3, ids=ids)), once=True)
        assert await slow.send(again) == DUPLICATE * 3
    other = send_batch(4, (TOPIC, commands(4, mark="y", ids=[*ids, uuid7()])), once=True)
    assert await slow.send(other) == CONFLICT * 3 + NEW
    assert (await consumer.receive()).marks == ["y3"]
    assert await consumer.stats() == {TOPIC: (0, 1)}


async def test_I_13_duplicates_are_recognised_after_a_restart(tmp_path: Path) -> None:
    ids = [uuid7()]
    async with running_mailbox(tmp_path) as office:
        sender = await office.sender()
        assert await sender.send(send_batch(1, (TOPIC, commands(1, ids=ids)), once=True)) == NEW
        await office.stop()
        assert isinstance(office.clock, ManualClock)
        office.clock.advance(seconds=600)
        await office.start()
        sender = await office.sender(epoch=2)
        assert await sender.send(send_batch(1, (TOPIC, commands(1, ids=ids)), once=True)) == DUPLICATE
        office.clock.advance(seconds=301)
        assert await sender.send(send_batch(2, (TOPIC, commands(1, ids=ids)), once=True)) == NEW


async def test_resend_of_the_same_batch_gets_the_first_answer(office: MailboxFixture) -> None:
    sender = await office.sender()
    frame = send_batch(7, (TOPIC, commands(1) * 2), once=True)
    assert await sender.send(frame) == NEW + DUPLICATE
    assert await sender.send(frame) == NEW + DUPLICATE
    assert await office.consumer().stats() == {TOPIC: (1, 0)}


async def test_I_2_racing_copies_of_one_command_are_stored_once(office: MailboxFixture) -> None:
    senders = [await office.sender(instance=f"fast-{number}") for number in range(5)]
    ids = [uuid7() for _ in range(50)]
    answers = await asyncio.gather(
        *(sender.send(send_batch(1, (TOPIC, commands(50, ids=ids)), once=True)) for sender in senders)
    )
    assert sum(codes.count(NEW) for codes in answers) == 50
    assert sum(codes.count(DUPLICATE) for codes in answers) == 200
    assert len((await office.consumer().receive()).messages) == 50


async def test_once_holds_for_its_topic_and_others_of_the_batch_are_stored_as_ever(
    office: MailboxFixture,
) -> None:
    sender = await office.sender()
    ids = [uuid7()]
    await sender.send(send_batch(1, (TOPIC, commands(1, ids=ids)), once=True))
    plain = send_batch(2, ("acme/mail", commands(2)), (TOPIC, commands(1, ids=ids)))
    assert await sender.send(plain) == NEW * 3, "not asked to be stored once"
    keyed = send_batch(3, ("acme/mail", commands(1, ids=ids)), (TOPIC, commands(1, ids=ids)), once=True)
    assert await sender.send(keyed) == NEW + DUPLICATE, "another topic is another key"


async def test_more_than_a_row_of_once_commands_keeps_its_verdicts_in_place(office: MailboxFixture) -> None:
    sender = await office.sender()
    ids = [uuid7() for _ in range(1500)]
    assert (
        await sender.send(send_batch(1, (TOPIC, commands(2, ids=[ids[1200], ids[3]])), once=True)) == NEW * 2
    )
    mixed = await sender.send(send_batch(2, (TOPIC, commands(1500, ids=ids)), once=True))
    odd = {number: code for number, code in enumerate(mixed) if code != NEW[0]}
    assert odd == {3: Verdict.CONFLICT, 1200: Verdict.CONFLICT}
    assert await office.consumer().stats() == {TOPIC: (1500, 0)}


async def test_an_id_is_known_for_as_long_as_the_sender_promises_whatever_the_topic_says(
    tmp_path: Path,
) -> None:
    settings = MailboxSettings(replay_window_ms=1000, topic_rules=f"{TOPIC} replay_ms=2000")
    async with running_mailbox(tmp_path, settings=settings) as office:
        sender, ids = await office.sender(service="slow"), [uuid7(), uuid7()]
        assert isinstance(office.clock, ManualClock)
        promised = send_batch(1, (TOPIC, commands(1, ids=ids[:1])), once_ms=300_000)
        assert await sender.send(promised) == NEW
        assert await sender.send(send_batch(2, (TOPIC, commands(1, ids=ids[1:])), once=True)) == NEW
        for seq in range(3, 8):
            office.clock.advance(seconds=59)
            again = send_batch(seq, (TOPIC, commands(1, ids=ids[:1])), once_ms=300_000)
            assert await sender.send(again) == DUPLICATE
        # And the topic's own window holds where nobody promised more.
        assert await sender.send(send_batch(9, (TOPIC, commands(1, ids=ids[1:])), once=True)) == NEW
        office.clock.advance(seconds=6)
        assert await sender.send(send_batch(10, (TOPIC, commands(1, ids=ids[:1])), once_ms=300_000)) == NEW


async def test_another_command_under_the_same_id_is_a_conflict_and_not_lost_as_a_duplicate(
    office: MailboxFixture,
) -> None:
    sender, ids = await office.sender(service="slow"), [uuid7()]
    lock, unlock = (Command(id=str(ids[0]), target="door", name=name) for name in ("lock", "unlock"))
    assert await sender.send(send_batch(1, (TOPIC, [lock.SerializeToString()]), once=True)) == NEW
    assert await sender.send(send_batch(2, (TOPIC, [unlock.SerializeToString()]), once=True)) == CONFLICT
    assert await sender.send(send_batch(3, (TOPIC, [lock.SerializeToString()]), once=True)) == DUPLICATE
