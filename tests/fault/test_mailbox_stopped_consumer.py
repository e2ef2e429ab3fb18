"""A consumer that is stopped (SIGSTOP) past its lease: one redelivery, and its late acks change nothing."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from snavio.clock import SystemClock
from tests.support.mailbox import TOPIC, commands, running_mailbox, send_batch

ROOT = Path(__file__).resolve().parents[2]
ROUNDS = 10 if os.environ.get("SNAVIO_FULL") == "1" else 2
SECONDS = 30.0
DONE = b"\x01"

CONSUMER = """
import asyncio, sys
from pathlib import Path
from snavio.sdk import Consumer

async def main() -> None:
    mailbox, topic, certificates = sys.argv[1:]
    async with Consumer(
        mailbox=mailbox,
        topic=topic,
        certificates=Path(certificates),
        visibility_s=0.5,
        max_unsettled=1,  # or a Receive of its own would wait at the mailbox for what it loses
    ) as consumer:
        async for command in consumer:
            print("got", command.attempt, flush=True)
            await asyncio.to_thread(sys.stdin.readline)
            print((await command.ack(durable=True)).name, flush=True)
            break

asyncio.run(main())
"""


async def line(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    async with asyncio.timeout(SECONDS):
        return (await process.stdout.readline()).decode().strip()


@pytest.mark.parametrize("round_number", range(ROUNDS))
async def test_G_3_stopped_consumer_is_redelivered_once_and_its_late_ack_is_harmless(
    tmp_path: Path, round_number: int, figure: Callable[[str], None]
) -> None:
    async with running_mailbox(tmp_path, clock=SystemClock()) as office:
        await (await office.sender()).send(send_batch(1, (TOPIC, commands(1, mark=f"{round_number}-"))))
        folder = office.authority.service("acme", "sleeper").certificate.parent
        stopped = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-c", CONSUMER, office.address, TOPIC, str(folder)),
            cwd=ROOT,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            # The second or third, if a busy machine kept it waiting for longer than its lease.
            word, attempt = (await line(stopped)).split()
            assert word == "got"
            stopped.send_signal(signal.SIGSTOP)
            other = office.consumer(name="other")
            got = await other.receive(wait_ms=9000, visibility_ms=60_000)
            assert [one.attempt for one in got.messages] == [int(attempt) + 1]
            stopped.send_signal(signal.SIGCONT)
            assert stopped.stdin is not None
            stopped.stdin.write(b"go on\n")
            await stopped.stdin.drain()
            said = await line(stopped)
            assert said in ("LATE", "GONE")
            assert await other.stats() == {TOPIC: (0, 1)}, "the late ack took nothing away"
            assert await other.ack(got.receipts()) == DONE
            assert await other.stats() == {TOPIC: (0, 0)}
            async with asyncio.timeout(SECONDS):
                await stopped.wait()
            figure(
                f"round {round_number + 1} of {ROUNDS}: redelivered once, the late ack was answered {said}"
            )
        finally:
            if stopped.returncode is None:
                stopped.send_signal(signal.SIGCONT)
                stopped.kill()
                await stopped.wait()
