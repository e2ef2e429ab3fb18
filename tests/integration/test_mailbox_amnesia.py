"""Amnesia: a real process under load leaves nothing on disk, wipes what is settled, and says what it is."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from services.mailbox.settings import MailboxSettings
from services.mailbox.state.receipts import DONE, GONE, ID_STRIDE
from snavio.adapters.memory.mailbox_store import MemoryMailboxStore
from snavio.admin.queue import QueueClient
from snavio.domain.message import MessageState
from snavio.native import uuid7
from snavio.ports.mailbox_store import NewBatch, Origin, Progress, Send
from snavio.v1 import mailbox_pb2 as mail
from tests.support.killable import killable
from tests.support.mailbox import (
    SECONDS,
    SERVICE,
    TOPIC,
    MailboxFixture,
    commands,
    running_mailbox,
    send_batch,
)

BATCHES = 400 if os.environ.get("SNAVIO_FULL") == "1" else 40
MINE = frozenset({"snavio.toml", "mailbox.log"})


def files(folder: Path) -> dict[str, int]:
    """Every file below `folder`, and when it was last written to."""
    return {
        str(path.relative_to(folder)): path.stat().st_mtime_ns
        for path in folder.rglob("*")
        if path.is_file() and path.name not in MINE
    }


def written_by(pid: int) -> list[str]:
    """Files, even without a name, that a process has open for writing; sockets, pipes and its log are not meant."""
    found = []
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        target = str(entry.readlink())
        flags = int(Path(f"/proc/{pid}/fdinfo/{entry.name}").read_text().split("flags:")[1].split()[0], 8)
        named = target.startswith("/") and not target.startswith(("/dev/", "/proc/"))
        if named and flags & (os.O_WRONLY | os.O_RDWR) and not target.endswith("mailbox.log"):
            found.append(target)
    return found


async def test_G_6_soak_of_a_process_without_a_disk_leaves_nothing_behind(tmp_path: Path) -> None:
    lines = "amnesia = true\ni_accept_losing_messages = true\n"
    async with killable(tmp_path, mailbox_lines=lines) as office:
        await office.start()
        assert office.process is not None
        sender, consumer = await office.sender(), office.consumer()
        before = files(tmp_path)
        for seq in range(1, BATCHES + 1):
            once = send_batch(seq, (TOPIC, commands(100, ids=[uuid7() for _ in range(100)])), once=True)
            assert set(await sender.send(once)) == {1}
            got = await consumer.receive(max_messages=60)
            await consumer.ack(got.receipts(0, 50))
            if seq % 10 == 0:
                dead = mail.NackRequest(topic=TOPIC, receipts=got.receipts(50, 60), dead=True)
                await consumer.channel.call(SERVICE + "Nack", dead, mail.SettleResponse, timeout_s=SECONDS)
        assert written_by(office.process.pid) == []
        stats = await consumer.channel.call(
            SERVICE + "Stats", mail.StatsRequest(topic=TOPIC), mail.StatsResponse, timeout_s=SECONDS
        )
        assert stats.topic[0].dlq_profile == "ephemeral" and stats.topic[0].dead == BATCHES // 10 * 10
        assert files(tmp_path) == before
        await office.end(signal.SIGKILL)
        assert files(tmp_path) == before
        await office.start()
        assert await office.consumer().stats() == {}, "a restart has forgotten all of it, the DLQ too"


async def test_I_16_durable_mailbox_says_so_and_keeps_its_dlq(tmp_path: Path) -> None:
    async with running_mailbox(tmp_path, settings=MailboxSettings()) as office:
        sender, consumer = await office.sender(), office.consumer()
        await sender.send(send_batch(1, (TOPIC, commands(2))))
        got = await consumer.receive()
        dead = mail.NackRequest(topic=TOPIC, receipts=got.receipts(), dead=True)
        await consumer.channel.call(SERVICE + "Nack", dead, mail.SettleResponse, timeout_s=SECONDS)
        await office.stop()
        await office.start()
        peer = office.consumer()
        stats = await peer.channel.call(
            SERVICE + "Stats", mail.StatsRequest(topic=TOPIC), mail.StatsResponse, timeout_s=SECONDS
        )
        assert (stats.topic[0].dlq_profile, stats.topic[0].dead) == ("durable", 2)


def held_by(office: MailboxFixture, msg_id: int) -> bytearray:
    """The bytes that the store has of a message's batch."""
    assert office.app is not None
    store = office.app.parts.store
    assert isinstance(store, MemoryMailboxStore)
    return store._topics[TOPIC][msg_id // ID_STRIDE].runs


@pytest.fixture
async def forgetful(tmp_path: Path) -> AsyncIterator[MailboxFixture]:
    settings = MailboxSettings(amnesia=True, i_accept_losing_messages=True)
    async with running_mailbox(tmp_path, settings=settings) as office:
        yield office


@pytest.mark.parametrize("state", [MessageState.READY, MessageState.INFLIGHT, MessageState.CANCELED])
async def test_I_9_purged_message_is_wiped_at_once_and_the_others_of_its_batch_are_delivered(
    forgetful: MailboxFixture, state: MessageState
) -> None:
    queue, consumer = QueueClient.over(forgetful.operator().channel), forgetful.consumer()
    await (await forgetful.sender()).send(send_batch(1, (TOPIC, commands(3, size=200, mark="secret-"))))
    ids = [one.msg_id for one in await queue.peek(TOPIC)]
    got = await consumer.receive(max_messages=2) if state is MessageState.INFLIGHT else None
    if state is MessageState.CANCELED:
        assert await queue.cancel(TOPIC, ids[1:2]) == 1
    before = held_by(forgetful, ids[1])
    assert b"secret-1." in before
    assert await queue.purge(TOPIC, ids[1:2]) == 1
    assert not any(before), "overwritten, and not only let go of"
    assert b"secret-1." not in held_by(forgetful, ids[1])
    if got is not None:
        assert await consumer.ack(got.receipts()) == DONE + GONE
        assert (await consumer.receive()).marks == ["secret-2"]
    else:
        assert (await consumer.receive()).marks == ["secret-0", "secret-2"]


@pytest.mark.parametrize("alone", [True, False])
async def test_I_9_dead_message_that_is_deleted_is_wiped_and_before_that_it_is_not(
    forgetful: MailboxFixture, alone: bool
) -> None:
    queue, consumer = QueueClient.over(forgetful.operator().channel), forgetful.consumer()
    await (await forgetful.sender()).send(send_batch(1, (TOPIC, commands(2, size=200, mark="secret-"))))
    got = await consumer.receive()
    assert await consumer.nack(got.receipts(0, 1), dead=True) == DONE
    if alone:
        assert await consumer.ack(got.receipts(1, 2)) == DONE
    before = held_by(forgetful, got.messages[0].msg_id)
    (dead,) = [one async for one in queue.dlq(TOPIC, payload=True)]
    assert dead.payload is not None and dead.payload.startswith(b"secret-0.") and dead.payload in before
    assert await (await queue.preview_delete_dead(TOPIC)).apply() == 1
    assert not any(before)
    if not alone:
        assert b"secret-0." not in held_by(forgetful, got.messages[0].msg_id)
        assert await consumer.nack(got.receipts(1, 2)) == DONE
        assert (await consumer.receive()).marks == ["secret-1"]


def test_I_9_settled_and_closed_rows_are_wiped() -> None:
    store = MemoryMailboxStore()
    sends = [Send(Origin("fast/0", 1, seq), b"", (NewBatch(TOPIC, 1, b"secret"),)) for seq in (1, 2)]
    (first,), (second,) = store.commit(sends, [], now_unix_ns=1)
    held = [store._topics[TOPIC][one].runs for one in (first, second)]
    store.commit([], [Progress(TOPIC, first, 1, 1)], now_unix_ns=1)
    assert held == [bytes(6), b"secret"]
    store.close()
    assert held == [bytes(6), bytes(6)]
