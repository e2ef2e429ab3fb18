"""The machine's clock is set by an hour while a mailbox runs: nothing comes back, expires or is forgotten early.

libfaketime (`apt install libfaketime`) moves the clock of the real process; without it, that test is skipped.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from snavio.admin.queue import QueueClient
from snavio.clock import SystemClock
from snavio.domain.verdict import Verdict
from snavio.native import uuid7
from tests.support.killable import killable
from tests.support.mailbox import TOPIC, commands, send_batch

HOUR_S = 3600
ROUNDS = 20 if os.environ.get("SNAVIO_FULL") == "1" else 1
LIBRARY = next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)
STRICT = "acme/strict"


def test_I_17_clock_of_the_process_follows_no_jump(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SystemClock()
    before, wall = clock.unix_ns(), time.time_ns
    for hours in (1, -1):
        monkeypatch.setattr(time, "time_ns", lambda hours=hours: wall() + hours * HOUR_S * 10**9)
        assert 0 <= clock.unix_ns() - before < 60 * 10**9


class Wall:
    """The wall clock of processes that start with its environment."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.set(0)
        self.environment = {
            "LD_PRELOAD": str(LIBRARY),
            "FAKETIME_TIMESTAMP_FILE": str(file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }

    def set(self, offset_s: int) -> None:
        # In one step: a reader of half a number would see yet another time.
        fresh = self._file.with_suffix(".new")
        fresh.write_text(f"{offset_s:+d}\n")
        fresh.rename(self._file)

    def offset_s(self) -> float:
        """The offset in a process that starts now; its monotonic clock must not move along."""
        script = "import time; print(time.time(), time.clock_gettime(time.CLOCK_BOOTTIME))"
        told = subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, **self.environment},
            capture_output=True,
            check=True,
            timeout=30,
        )
        wall, boot = map(float, told.stdout.split())
        assert abs(boot - time.clock_gettime(time.CLOCK_BOOTTIME)) < 60
        return wall - time.time()


@pytest.mark.skipif(LIBRARY is None, reason="libfaketime is not installed")
async def test_I_17_hour_forward_and_back_redelivers_and_expires_nothing_early(
    tmp_path: Path, figure: Callable[[str], None]
) -> None:
    wall = Wall(tmp_path / "wall")
    async with killable(
        tmp_path, mailbox_lines="retention_ready_s = 1800\nretention_dlq_s = 1800\n"
    ) as office:
        office.environment = wall.environment
        await office.start()
        # Open connections stay: TLS checks certificates by the machine's clock at the handshake.
        sender, holder, other = await office.sender(), office.consumer(name="holder"), office.consumer()
        client = QueueClient.over(office.operator().channel)
        await sender.send(send_batch(1, (TOPIC, commands(4))))
        once = commands(1, ids=[uuid7()])
        assert await sender.send(send_batch(2, (STRICT, once), once=True)) == bytes([Verdict.DELIVERED])
        held = await holder.receive(max_messages=1, visibility_ms=600_000)
        again = await holder.receive(max_messages=2, visibility_ms=600_000)
        await holder.nack(again.receipts(0, 1), delay_ms=600_000)
        await holder.nack(again.receipts(1, 2), dead=True)
        await other.stats()

        async def unchanged(seq: int) -> None:
            (now,) = await client.stats(TOPIC)
            assert (now.ready, now.inflight, now.dead) == (2, 1, 1)
            # The one that was never received; neither the leased nor the delayed one.
            got = await other.receive(wait_ms=300, visibility_ms=30_000)
            assert {one.msg_id for one in got.messages}.isdisjoint(
                {one.msg_id for one in held.messages + again.messages}
            )
            assert await other.nack(got.receipts(), unseen=True) == b"\x01" * len(got.messages)
            known = await sender.send(send_batch(seq, (STRICT, once), once=True))
            assert known == bytes([Verdict.DUPLICATE])

        await unchanged(3)
        jumps = (HOUR_S, -HOUR_S, 0) * ROUNDS
        for seq, offset_s in enumerate(jumps, 4):
            wall.set(offset_s)
            assert abs(wall.offset_s() - offset_s) < 60
            await unchanged(seq)
        # A deadline that is over ends, whatever the wall says.
        wall.set(-HOUR_S)
        (short,) = (await other.receive(max_messages=1, visibility_ms=250)).messages
        (back,) = (await holder.receive(max_messages=1, wait_ms=9000)).messages
        assert (back.msg_id, back.attempt) == (short.msg_id, short.attempt + 1)
        assert await holder.ack(held.receipts()) == b"\x01"
        wall.set(0)
        await office.end(signal.SIGTERM)
    figure(f"{len(jumps) + 2} jumps of an hour or two: nothing was redelivered, expired or forgotten early")
