"""A mailbox whose disk is full or fails while it serves: sends are refused or unknown, receives go on."""

from __future__ import annotations

import asyncio
import errno
import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from snavio.adapters.embedded.disk import SystemDisk
from snavio.domain.verdict import Verdict
from tests.support.mailbox import SECONDS, TOPIC, MailboxFixture, commands, running_mailbox, send_batch
from tests.support.power import FailingSync, on

FULL = os.environ.get("SNAVIO_FULL") == "1"
ROUNDS, FAILURES = (20, 100) if FULL else (2, 5)
LARGE, SMALL = 40, 2
"""A batch that goes to a segment, and one that goes to the database."""


@contextmanager
def failing(call: str, code: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Make every such system call fail meanwhile."""

    def fail(*_args: Any) -> None:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patched:
        patched.setattr(SystemDisk, call, fail)
        yield


class Sends:
    """The sends, and the answers to them."""

    def __init__(self, office: MailboxFixture) -> None:
        self._office = office
        self.seq = 0
        self.delivered: set[str] = set()
        self.refused: set[str] = set()

    async def connect(self) -> None:
        self._sender = await self._office.sender()

    async def send(self, count: int = LARGE) -> set[int]:
        self.seq += 1
        mark = f"{self.seq}-"
        codes = await self._sender.send(send_batch(self.seq, (TOPIC, commands(count, size=1000, mark=mark))))
        marks = {f"{mark}{number}" for number in range(count)}
        if set(codes) == {Verdict.DELIVERED}:
            self.delivered |= marks
        elif set(codes) == {Verdict.SATURATED}:
            self.refused |= marks
        return set(codes)

    async def until(self, verdict: Verdict) -> None:
        async with asyncio.timeout(SECONDS):
            while await self.send() != {verdict}:
                await asyncio.sleep(0.02)


async def drained(office: MailboxFixture) -> list[str]:
    consumer, marks = office.consumer(), []
    while (got := await consumer.receive()).messages:
        marks += got.marks
        assert set(await consumer.ack(got.receipts())) == {1}
    return marks


def no_space(monkeypatch: pytest.MonkeyPatch) -> Any:
    return failing("write", errno.ENOSPC, monkeypatch)


@contextmanager
def nothing_free(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patched:
        patched.setattr(SystemDisk, "free_bytes", lambda *_: 0)
        yield


@pytest.mark.parametrize("full", [no_space, nothing_free])
async def test_P_2_full_disk_refuses_sends_serves_receives_and_recovers(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    full: Callable[[pytest.MonkeyPatch], Any],
    figure: Callable[[str], None],
) -> None:
    received: set[str] = set()
    async with running_mailbox(tmp_path) as office:
        sends = Sends(office)
        await sends.connect()
        for _ in range(ROUNDS):
            for _ in range(5):
                assert await sends.send() == {Verdict.DELIVERED}
            with full(monkeypatch):
                await sends.until(Verdict.SATURATED)
                for _ in range(5):
                    assert await sends.send() == {Verdict.SATURATED}
                received |= set(await drained(office))
                assert received == sends.delivered, "a full disk keeps nobody from reading and acknowledging"
            await sends.until(Verdict.DELIVERED)
        await office.stop()
        await office.start()
        again = set(await drained(office))
    assert again == sends.delivered - received, (
        "what was acknowledged stays so, what was refused is not there"
    )
    assert not sends.refused & (received | again)
    figure(
        f"full {ROUNDS} times ({full.__name__}): {len(sends.delivered)} delivered and received, "
        f"{len(sends.refused)} refused"
    )


async def test_I_1_send_whose_payload_failed_to_sync_is_never_called_delivered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, figure: Callable[[str], None]
) -> None:
    async with running_mailbox(tmp_path) as office:
        sends = Sends(office)
        await sends.connect()
        assert await sends.send() == {Verdict.DELIVERED}
        with failing("sync", errno.EIO, monkeypatch):
            for _ in range(FAILURES):
                assert Verdict.DELIVERED not in await sends.send()
        assert await sends.send() == {Verdict.DELIVERED}, "in a new segment"
        await office.stop()
        await office.start()
        assert sends.delivered <= set(await drained(office))
    figure(f"{FAILURES} syncs of a payload failed: none was called delivered")


async def test_I_1_send_whose_commit_failed_to_sync_is_never_called_delivered(
    tmp_path: Path, figure: Callable[[str], None]
) -> None:
    disk = FailingSync(dice=random.Random(1), chances={}, witness=lambda: None)
    with on(disk):
        async with running_mailbox(tmp_path) as office:
            sends = Sends(office)
            await sends.connect()
            assert await sends.send(SMALL) == {Verdict.DELIVERED}
            for count in (SMALL, LARGE) * ROUNDS:
                disk.armed = True
                assert Verdict.DELIVERED not in await sends.send(count)
                assert not disk.armed, "the sync that failed was that of this send"
                async with asyncio.timeout(SECONDS):
                    while await sends.send(count) != {Verdict.DELIVERED}:
                        await asyncio.sleep(0.02)
            await office.stop()
            await office.start()
            assert sends.delivered <= set(await drained(office))
    figure(f"{2 * ROUNDS} syncs of a commit failed: none was called delivered")
