"""A sector that the disk does not give any more: the messages behind it come, those in it end in the DLQ."""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from services.mailbox.delivery.unreadable import TRIES
from services.mailbox.settings import MailboxSettings
from snavio.adapters.embedded.disk import SystemDisk
from snavio.admin.queue import QueueClient
from snavio.clock import ManualClock
from snavio.domain.message import DeadReason
from snavio.errors import Unavailable
from tests.support.mailbox import TOPIC, MailboxFixture, commands, running_mailbox, send_batch

SIZE = 9000
"""So large that a batch stands in a segment."""


@pytest.fixture
async def office(tmp_path: Path) -> AsyncIterator[MailboxFixture]:
    async with running_mailbox(tmp_path, settings=MailboxSettings(cached_bytes=0)) as one:
        sender = await one.sender()
        for seq in range(1, 5):
            await sender.send(send_batch(seq, (TOPIC, commands(2, size=SIZE, mark=f"{seq}-"))))
        yield one


@pytest.fixture
def bad_sector(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """The first batch cannot be read any more, until it is called."""
    read, bad = SystemDisk.read, True

    def failing(disk: SystemDisk, descriptor: int, length: int, offset: int) -> bytes:
        if bad and offset == 0:
            raise OSError(errno.EIO, "simulated")
        return read(disk, descriptor, length, offset)

    def heal() -> None:
        nonlocal bad
        bad = False

    monkeypatch.setattr(SystemDisk, "read", failing)
    return heal


def passed(office: MailboxFixture, seconds: float) -> None:
    assert isinstance(office.clock, ManualClock)
    office.clock.advance(seconds=seconds)


@pytest.mark.usefixtures("bad_sector")
async def test_I_1_bad_sector_does_not_hold_up_what_is_behind_it_and_ends_in_the_dlq(
    office: MailboxFixture,
) -> None:
    consumer = office.consumer()
    got = await consumer.receive(visibility_ms=600_000)
    assert got.marks == ["2-0", "2-1", "3-0", "3-1", "4-0", "4-1"]
    await consumer.ack(got.receipts())
    for _ in range(TRIES - 1):
        assert await consumer.stats() == {TOPIC: (2, 0)}
        passed(office, 60)
        assert (await consumer.receive()).messages == []
    client = QueueClient.over(office.operator().channel)
    dead = [one async for one in client.dlq(TOPIC)]
    assert [(one.reason, one.unreadable) for one in dead] == [(DeadReason.INTEGRITY, True)] * 2
    assert all("E_INTEGRITY" in one.last_error and "cannot be read" in one.last_error for one in dead)


async def test_I_1_sector_that_can_be_read_again_is_delivered(
    office: MailboxFixture, bad_sector: Callable[[], None]
) -> None:
    consumer = office.consumer()
    await consumer.receive()
    for _ in range(TRIES - 2):
        passed(office, 20)
        await consumer.receive()
    bad_sector()
    passed(office, 20)
    assert (await consumer.receive()).marks[:2] == ["1-0", "1-1"]


async def test_I_1_disk_that_is_away_loses_nothing_however_often_it_is_asked(
    office: MailboxFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert office.app is not None
    store = office.app.parts.retention._store
    consumer = office.consumer()

    def away(_topic: str, _batch_id: int) -> bytes:
        raise Unavailable("The store did not answer in time.")

    with monkeypatch.context() as patch:
        patch.setattr(store, "read", away)
        for _ in range(8 * TRIES):
            with pytest.raises(Unavailable):
                await consumer.receive()
            passed(office, 60)
    assert len((await consumer.receive()).marks) == 8


async def test_I_1_batch_that_hangs_the_disk_is_passed_by_and_given_up_while_others_are_read(
    office: MailboxFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert office.app is not None
    store = office.app.parts.retention._store
    consumer, read = office.consumer(), store.read

    def hangs(topic: str, batch_id: int) -> bytes:
        if batch_id == 1:
            raise Unavailable("The store did not answer in time.")
        return read(topic, batch_id)

    monkeypatch.setattr(store, "read", hangs)
    with pytest.raises(Unavailable):
        await consumer.receive(max_messages=4)
    assert (await consumer.receive(max_messages=4)).marks == ["2-0", "2-1", "3-0", "3-1"]
    died = 0
    for _ in range(4 * TRIES):
        passed(office, 60)
        try:
            await consumer.receive()
        except Unavailable:
            await consumer.receive()
        (numbers,) = await QueueClient.over(office.operator().channel).stats(TOPIC)
        died = numbers.dead
        if died:
            break
    assert died == 2
