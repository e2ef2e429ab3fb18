"""Retention beside operators: what one of them changes, the other sees; nothing is removed as it was a moment ago."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from services.mailbox.oversight.metrics import counters
from services.mailbox.retention import pruning as retention
from services.mailbox.retention.pruning import Retention
from services.mailbox.settings import MailboxSettings
from snavio.admin.queue import QueueClient
from snavio.clock import ManualClock
from snavio.ports.mailbox_store import MailboxStore, Progress, Send
from tests.support.mailbox import TOPIC, Got, MailboxFixture, commands, running_mailbox, send_batch


@pytest.fixture(autouse=True)
def still(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retention looks when the test says so."""
    monkeypatch.setattr(retention, "TICK_SECONDS", 3600.0)


def retention_of(office: MailboxFixture) -> Retention:
    assert office.app is not None
    return office.app.parts.retention


def queue_client(office: MailboxFixture) -> QueueClient:
    return QueueClient.over(office.operator().channel)


async def received(office: MailboxFixture, count: int, *, size: int = 20) -> Got:
    """A batch of messages `x0`, `x1` …, behind one with `first0`."""
    sender = await office.sender()
    await sender.send(send_batch(1, (TOPIC, commands(1, mark="first"))))
    await sender.send(send_batch(2, (TOPIC, commands(count, size=size))))
    got = await office.consumer().receive()
    return Got(got.boot_epoch, got.messages[1:], got.raw)


async def begin_anew(office: MailboxFixture) -> None:
    """Memory has nothing of the topic: what comes back stays on disk until its turn comes."""
    await office.stop()
    await office.start()


@asynccontextmanager
async def slow_commit(store: MailboxStore, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[threading.Event]:
    """The next change waits at the disk until the end of the block; the event says that it is there."""
    commit, reached, gate = store.commit, threading.Event(), threading.Event()

    def slow(sends: Sequence[Send], progress: Sequence[Progress], **more: Any) -> Any:
        if progress and not reached.is_set():
            reached.set()
            assert gate.wait(10)
        return commit(sends, progress, **more)

    monkeypatch.setattr(store, "commit", slow)
    try:
        yield reached
    finally:
        gate.set()


async def retained_while_requeued(
    office: MailboxFixture,
    msg_ids: list[int],
    monkeypatch: pytest.MonkeyPatch,
    *,
    work: Callable[[], Awaitable[object]] | None = None,
    caller_leaves: bool = False,
) -> None:
    """Retention, or one part of it, begins while a requeue is on its way to the disk."""
    keeper = retention_of(office)
    async with slow_commit(keeper._store, monkeypatch) as reached:
        requeue = asyncio.create_task(queue_client(office).requeue(TOPIC, msg_ids))
        while not reached.is_set():
            await asyncio.sleep(0.005)
        if caller_leaves:
            requeue.cancel()
            await asyncio.wait((requeue,))
            await asyncio.sleep(0.05)
        step = asyncio.ensure_future(work() if work else keeper.step())
        await asyncio.sleep(0.1)
    if not caller_leaves:
        assert await requeue == len(msg_ids)
    await step


def numbers(office: MailboxFixture) -> tuple[int, int, int]:
    topic = retention_of(office)._delivery.topics.topic(TOPIC)
    assert topic is not None
    return topic.messages, topic.delivered, topic.dead


@pytest.mark.parametrize("caller_leaves", [False, True])
async def test_I_14_delivered_message_that_is_requeued_while_retention_looks_is_not_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caller_leaves: bool
) -> None:
    settings = MailboxSettings(retention_delivered_s=1000, retention_delivered_messages=1, cached_bytes=0)
    async with running_mailbox(tmp_path, settings=settings) as office:
        got = await received(office, 4)
        await office.consumer().ack(got.receipts())
        await begin_anew(office)
        await retained_while_requeued(
            office, [got.messages[1].msg_id], monkeypatch, caller_leaves=caller_leaves
        )
        assert numbers(office) == (2, 3, 0)
        assert (await office.consumer().receive()).marks == ["first0", "x1"]


@pytest.mark.parametrize("caller_leaves", [False, True])
async def test_I_14_dead_message_that_is_requeued_while_retention_looks_is_not_pruned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caller_leaves: bool
) -> None:
    async with running_mailbox(tmp_path, settings=MailboxSettings(retention_dlq_messages=1)) as office:
        got = await received(office, 4)
        await office.consumer().nack(got.receipts(), dead=True, reason="bad")
        await begin_anew(office)
        ids = [message.msg_id for message in got.messages]
        await retained_while_requeued(office, ids, monkeypatch, caller_leaves=caller_leaves)
        assert numbers(office) == (5, 0, 0)
        assert (await office.consumer().receive()).marks == ["first0", "x0", "x1", "x2", "x3"]


async def test_I_14_batch_that_is_requeued_while_retention_looks_keeps_its_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = MailboxSettings(retention_delivered_s=1, cached_bytes=0)
    async with running_mailbox(tmp_path, settings=settings) as office:
        got = await received(office, 100, size=400)
        consumer = office.consumer()
        await consumer.nack(got.receipts(0, 1), dead=True)
        await consumer.ack(got.receipts(1))
        await begin_anew(office)
        assert isinstance(office.clock, ManualClock)
        office.clock.advance(seconds=60)
        ids = [message.msg_id for message in got.messages[1:]]
        keeper = retention_of(office)
        topic, policy = keeper._delivery.topics.topic(TOPIC), keeper._delivery.policies.of(TOPIC)
        assert topic is not None
        work = partial(keeper._batch_rewrite.look_through, topic, policy)
        await retained_while_requeued(office, ids, monkeypatch, work=work)
        again = await office.consumer().receive()
        assert again.marks == ["first0", *(f"x{number}" for number in range(1, 100))]


async def test_I_14_message_that_is_gone_from_the_disk_is_counted_as_lost(tmp_path: Path) -> None:
    async with running_mailbox(tmp_path, settings=MailboxSettings(cached_bytes=0)) as office:
        sender = await office.sender()
        await sender.send(send_batch(1, (TOPIC, commands(3))))
        keeper = retention_of(office)
        gone = Progress(TOPIC, 1, 3, 0b111, forget=True)
        await asyncio.to_thread(keeper._store.commit, [], [gone], now_unix_ns=1)
        assert (await office.consumer().receive()).messages == []
        assert counters(keeper._delivery) == {f'lost_total{{topic="{TOPIC}"}}': 3}


async def test_I_14_batch_that_is_purged_while_somebody_receives_of_it_is_not_called_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_mailbox(tmp_path, settings=MailboxSettings(cached_bytes=0)) as office:
        sender = await office.sender()
        await sender.send(send_batch(1, (TOPIC, commands(3))))
        keeper = retention_of(office)
        read, reached, gate = keeper._store.read, threading.Event(), threading.Event()

        def slow(topic: str, batch_id: int) -> bytes:
            reached.set()
            assert gate.wait(10)
            return read(topic, batch_id)

        monkeypatch.setattr(keeper._store, "read", slow)
        receive = asyncio.create_task(office.consumer().receive())
        while not reached.is_set():
            await asyncio.sleep(0.005)
        topic = keeper._delivery.topics.topic(TOPIC)
        assert topic is not None
        everything = Progress(TOPIC, 1, 3, 0b111, forget=True)
        topic.batches[1].settled = 0b111  # as a purge on its way leaves it
        await asyncio.to_thread(keeper._store.commit, [], [everything], now_unix_ns=1)
        gate.set()
        assert (await receive).messages == [] and topic.lost == 0
