"""kill -9 of a real mailbox under load: what was acknowledged is there, what was finished does not come again.

The page cache survives a killed process, so this holds the order of commit and answer, not the fsync.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import grpc
import pytest

from snavio.clock import SystemClock
from snavio.errors import SnavioError
from snavio.v1.batch_pb2 import Verdicts
from tests.support.mailbox import TOPIC, PostOffice, ReceivingPeer, SendingPeer, commands, send_batch

ROOT = Path(__file__).resolve().parents[2]
ROUNDS = 40 if os.environ.get("SNAVIO_FULL") == "1" else 3
WINDOW = 16
SECONDS = 30.0


class Killable(PostOffice):
    """A mailbox in a process of its own."""

    process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        if self.signer is None:
            await self.start_signer()
        config = self.folder / "snavio.toml"
        config.write_text(
            f'[mesh]\nstate_dir = "{self.folder}"\nmailbox = "127.0.0.1:0"\nsigner = "{self.mesh.signer}"\n'
        )
        with (self.folder / "mailbox.log").open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-m", "services.mailbox", "--config", str(config)),
                cwd=ROOT,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env={**os.environ, "SNAVIO_FOLLOW_PARENT": str(os.getpid())},
            )
        assert self.process.stdout is not None
        async with asyncio.timeout(SECONDS):
            ready = await self.process.stdout.readline()
        assert ready.startswith(b"ready mailbox "), (self.folder / "mailbox.log").read_text()
        self.address = f"127.0.0.1:{ready.split()[2].decode()}"

    async def end(self, number: signal.Signals) -> None:
        if self.process is not None:
            with suppress(ProcessLookupError):
                self.process.send_signal(number)
            async with asyncio.timeout(SECONDS):
                await self.process.wait()
            self.process = None
        await self.hang_up()


@asynccontextmanager
async def killable(folder: Path) -> AsyncIterator[Killable]:
    office = Killable(folder, clock=SystemClock())
    try:
        yield office
    finally:
        await office.end(signal.SIGKILL)
        if office.signer is not None:
            await office.signer.drain(0)


class Load:
    """A sender that resends what got no answer, and a consumer; both remember what they were promised."""

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self.seq = 0
        self.unanswered: dict[int, tuple[bytes, set[str]]] = {}
        self.delivered: set[str] = set()
        self.finished: set[str] = set()
        self.undecided: set[str] = set()

    def compose(self) -> bytes:
        self.seq += 1
        count, size = self.dice.choice([(1, 20), (30, 400), (1000, 300), (3, 200_000)])
        frame = send_batch(self.seq, (TOPIC, commands(count, size=size, mark=f"{self.seq}-")))
        self.unanswered[self.seq] = (frame, {f"{self.seq}-{number}" for number in range(count)})
        return frame

    def answered(self, verdicts: Verdicts) -> None:
        frame_and_marks = self.unanswered.pop(verdicts.batch_seq)
        assert set(verdicts.codes) == {1} and verdicts.final
        self.delivered |= frame_and_marks[1]

    async def send(self, sender: SendingPeer, answers: int) -> None:
        """Keep the window full until so many batches are answered."""
        for frame, _ in list(self.unanswered.values()):
            await sender.write(frame)
        while answers:
            while len(self.unanswered) < WINDOW:
                await sender.write(self.compose())
            self.answered(await sender.read())
            answers -= 1

    async def settle(self, sender: SendingPeer) -> None:
        """Resend what is open and hear all of it."""
        for frame, _ in list(self.unanswered.values()):
            await sender.write(frame)
        while self.unanswered:
            self.answered(await sender.read())

    async def consume(self, consumer: ReceivingPeer) -> None:
        """Receive and acknowledge until the mailbox is gone."""
        while True:
            got = await consumer.receive(wait_ms=1000, max_messages=self.dice.choice([1, 70, 5000]))
            chosen = self.dice.randint(0, len(got.messages))
            if not chosen:
                continue
            marks = got.marks[:chosen]
            self.undecided |= set(marks)
            codes = await consumer.ack(got.receipts(0, chosen))
            assert set(codes) == {1}
            self.undecided -= set(marks)
            self.finished |= set(marks)


@pytest.mark.timeout(600)
async def test_I_1_kill_under_load_loses_no_acknowledged_send_and_repeats_no_acknowledged_ack(
    tmp_path: Path,
) -> None:
    dice = random.Random(os.environ.get("SNAVIO_SEED", "mailbox"))
    load = Load(dice)
    async with killable(tmp_path) as office:
        for _ in range(ROUNDS):
            await office.start()
            consuming = asyncio.create_task(load.consume(office.consumer()))
            await load.send(await office.sender(epoch=7), answers=dice.randint(1, 60))
            await office.end(signal.SIGKILL)
            with suppress(asyncio.CancelledError, SnavioError, grpc.aio.UsageError):
                await consuming
        await office.start()
        await load.settle(await office.sender(epoch=7))
        consumer = office.consumer()
        left: list[str] = []
        while (got := await consumer.receive()).messages:
            left += got.marks
            assert set(await consumer.ack(got.receipts())) == {1}
        await office.end(signal.SIGTERM)
    assert len(left) == len(set(left)), "a resend was stored twice"
    assert not set(left) & load.finished
    # An ack that was cut off may or may not have reached the disk; nothing else may be missing.
    missing = load.delivered - load.finished - set(left)
    assert missing <= load.undecided
    assert set(left) <= load.delivered
