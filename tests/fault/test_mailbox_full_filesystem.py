"""A file system that is really full under a real mailbox: sends are refused, receives go on, and room is found again.

It is a small tmpfs, so this needs root; where nothing may be mounted it is skipped, and the disk that only pretends to
be full (test_mailbox_disk_service.py) stands for it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from snavio.domain.verdict import Verdict
from snavio.errors import SnavioError
from tests.support.killable import Killable, killable
from tests.support.mailbox import SECONDS, TOPIC, commands, send_batch

ROUNDS = 10 if os.environ.get("SNAVIO_FULL") == "1" else 1
SIZE_MB = 28
COUNT, BYTES = 200, 2000


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own for the mailbox's store."""
    place = tmp_path / "mailbox"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE_MB}m", "tmpfs", str(place)]
    try:
        made = subprocess.run(mount, capture_output=True, text=True, timeout=30, check=False)
    except FileNotFoundError:
        pytest.skip("there is no mount here")
    if made.returncode != 0:
        pytest.skip(f"nothing may be mounted here: {made.stderr.strip()}")
    yield place
    subprocess.run(["umount", "-l", str(place)], timeout=30, check=True)


class Load:
    """Messages acknowledged to the sender, and messages received."""

    def __init__(self, office: Killable) -> None:
        self._office = office
        self._seq = 0
        self.delivered: set[str] = set()
        self.refused: set[str] = set()
        self.finished: set[str] = set()
        self.undecided: set[str] = set()

    async def connect(self) -> None:
        self._sender = await self._office.sender(epoch=7)
        self._consumer = self._office.consumer()

    async def send(self) -> Verdict:
        self._seq += 1
        marks = {f"{self._seq}-{number}" for number in range(COUNT)}
        frame = send_batch(self._seq, (TOPIC, commands(COUNT, size=BYTES, mark=f"{self._seq}-")))
        (code,) = set(await self._sender.send(frame))
        verdict = Verdict(code)
        if verdict is Verdict.DELIVERED:
            self.delivered |= marks
        elif verdict is Verdict.SATURATED:
            self.refused |= marks
        return verdict

    async def until(self, wanted: Verdict) -> None:
        async with asyncio.timeout(3 * SECONDS):
            while await self.send() is not wanted:
                await asyncio.sleep(0.01)

    async def take(self, *, most: int = 1 << 30, tolerant: bool = False) -> int:
        """Receive and acknowledge; the number received. A tolerant one goes on after acks that the disk refuses."""
        came = 0
        while came < most:
            got = await self._consumer.receive()
            if not got.messages:
                break
            came += len(got.messages)
            assert not self.finished & set(got.marks), "what was acknowledged does not come again"
            self.undecided |= set(got.marks)
            try:
                codes = await self._consumer.ack(got.receipts())
            except SnavioError:
                if not tolerant:
                    raise
                continue
            for mark, code in zip(got.marks, codes, strict=True):
                if code == 1:
                    self.finished.add(mark)
                    self.undecided.discard(mark)
                assert code == 1 or tolerant
        return came


@pytest.mark.timeout(300)
async def test_P_2_really_full_file_system_refuses_sends_serves_receives_and_recovers(
    small: Path, tmp_path: Path, figure: Callable[[str], None]
) -> None:
    ballast = small / "somebody-elses"
    async with killable(tmp_path) as office:
        await office.start()
        load = Load(office)
        await load.connect()
        for _ in range(ROUNDS):
            # Our own messages fill it: the reserve is left, so acknowledgements make room.
            await load.until(Verdict.SATURATED)
            assert await load.send() is Verdict.SATURATED
            # Half is enough: the rest of a mostly settled segment is moved, and the segment removed.
            waiting = len(load.delivered) - len(load.finished)
            assert await load.take(most=waiting * 6 // 10) < waiting
            await load.until(Verdict.DELIVERED)
            # Another program takes the reserve as well: not a byte is free.
            await load.until(Verdict.SATURATED)
            with ballast.open("wb", buffering=0) as file, suppress(OSError):
                while True:
                    file.write(bytes(1 << 16))
            left = os.statvfs(small)
            assert left.f_bavail * left.f_frsize < 1 << 16
            assert await load.send() is not Verdict.DELIVERED
            assert await load.take(most=COUNT * 2, tolerant=True) > 0, "a full disk keeps nobody from reading"
            ballast.unlink()
            await load.take()
            await load.until(Verdict.DELIVERED)
            # The files that it left are enough for the next life.
            await load.until(Verdict.SATURATED)
            await office.end(signal.SIGKILL)
            await office.start()
            await load.connect()
        await load.take()
        await office.end(signal.SIGTERM)
    assert load.delivered == load.finished | (load.undecided & load.delivered)
    assert not load.refused & (load.finished | load.undecided)
    figure(
        f"a file system of {SIZE_MB} MB was full {3 * ROUNDS} times: {len(load.delivered)} messages delivered, "
        f"{len(load.finished)} acknowledged once, {len(load.refused)} refused, none lost"
    )
