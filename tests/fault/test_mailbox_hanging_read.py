"""A read of the mailbox's disk that hangs delays what needs it, and nothing else."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from services.mailbox.settings import MailboxSettings
from snavio.adapters.embedded import mailbox_database
from snavio.adapters.embedded.disk import SystemDisk
from snavio.v1.introspection_pb2 import StatusRequest, StatusResponse
from tests.support.mailbox import (
    SECONDS,
    TOPIC,
    MailboxFixture,
    ReceivingPeer,
    commands,
    running_mailbox,
    send_batch,
)

OTHER = "acme/mail"
BIG = 4096
"""Bytes of a message: a batch of them goes to a segment and not to the database."""


class Hanging:
    """Reads that are `stuck` wait until the end of the test."""

    def __init__(self) -> None:
        self.end = threading.Event()
        self.stuck = 0
        self.waiting = 0

    def read(self) -> None:
        if self.stuck:
            self.stuck -= 1
            self.waiting += 1
            self.end.wait(60)


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hanging]:
    fault, read = Hanging(), SystemDisk.read

    def perhaps(disk: SystemDisk, descriptor: int, length: int, offset: int) -> bytes:
        fault.read()
        return read(disk, descriptor, length, offset)

    monkeypatch.setattr(SystemDisk, "read", perhaps)
    yield fault
    fault.end.set()


async def until(condition: Any) -> None:
    async with asyncio.timeout(SECONDS):
        while not condition():
            await asyncio.sleep(0.005)


async def told(office: MailboxFixture) -> dict[str, float]:
    answer = await office.operator().channel.call(
        "/snavio.v1.Introspection/Status", StatusRequest(), StatusResponse, timeout_s=SECONDS
    )
    return {one.name: one.value for one in (*answer.gauge, *answer.counter)}


async def sent(office: MailboxFixture, *, size: int) -> None:
    sender = await office.sender()
    for seq, topic in enumerate((TOPIC, OTHER), 1):
        codes = await sender.send(send_batch(seq, (topic, commands(4, size=size))))
        assert codes == b"\x01" * 4


async def serves(consumer: ReceivingPeer) -> None:
    """Reads and acknowledges the other topic."""
    got = await consumer.receive(OTHER)
    assert len(got.messages) == 4
    assert await consumer.ack(got.receipts(), OTHER) == b"\x01" * 4


async def test_I_5_hanging_read_of_one_topic_holds_up_no_other_and_is_told(
    tmp_path: Path, hanging: Hanging
) -> None:
    async with running_mailbox(tmp_path, settings=MailboxSettings(cached_bytes=0)) as office:
        await sent(office, size=BIG)
        hanging.stuck = 1
        held_up = asyncio.create_task(office.consumer(name="slow").receive())
        await until(lambda: hanging.waiting == 1)
        await serves(office.consumer())
        assert not held_up.done()
        async with asyncio.timeout(SECONDS):
            while (gauges := await told(office))["reads_hanging"] != 1:
                await asyncio.sleep(0.01)
        assert gauges["reads_hung_total"] == 1
        assert office.app is not None
        # Neither waits for the read nor fails because of it.
        await asyncio.to_thread(office.app.parts.store.checkpoint)
        hanging.end.set()
        assert len((await held_up).messages) == 4
        async with asyncio.timeout(SECONDS):
            while (await told(office))["reads_hanging"]:
                await asyncio.sleep(0.01)


async def test_I_5_hanging_page_of_the_database_holds_up_no_other_read_and_no_commit(
    tmp_path: Path, hanging: Hanging, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mailbox_database, "CHECKPOINT_BYTES", 0)
    async with running_mailbox(tmp_path, settings=MailboxSettings(cached_bytes=0)) as office:
        await sent(office, size=20)
        assert office.app is not None
        database: Any = office.app.parts.store._database  # type: ignore[attr-defined]
        connect = database._readers._connect

        def hangs(_statement: str, _values: object) -> bool:
            hanging.read()
            return True

        def traced() -> apsw.Connection:
            connection = connect()
            connection.exec_trace = lambda _cursor, statement, values: hangs(statement, values)
            return connection

        database._readers._connect = traced
        for connection in database._readers._idle:
            connection.exec_trace = lambda _cursor, statement, values: hangs(statement, values)
        hanging.stuck = 1
        held_up = asyncio.create_task(office.consumer(name="slow").receive())
        await until(lambda: hanging.waiting == 1)
        await serves(office.consumer())
        assert not held_up.done()
        hanging.end.set()
        assert len((await held_up).messages) == 4


async def test_mailbox_with_a_hanging_read_ends_in_time(tmp_path: Path, hanging: Hanging) -> None:
    async with running_mailbox(tmp_path, settings=MailboxSettings(cached_bytes=0)) as office:
        await sent(office, size=BIG)
        hanging.stuck = 1
        held_up = asyncio.create_task(office.consumer(name="slow").receive())
        await until(lambda: hanging.waiting == 1)
        async with asyncio.timeout(SECONDS):
            while (await told(office))["reads_hanging"] != 1:
                await asyncio.sleep(0.01)
        held_up.cancel()
        async with asyncio.timeout(30):
            await office.stop()
        assert not hanging.end.is_set()
