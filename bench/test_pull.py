"""The Pull API beside a mailbox of its own: batches, one by one, idle workers; and a group into a full topic.

Three processes on the machine: the mailbox, the gateway (this one, which makes capabilities, too) and the workers.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from bench.meters import record, resident_mb
from snavio.edge.topics import HTTP_CONTENT_TYPE, route_topic
from snavio.sdk.group_mailer import GroupMailer, MessageGroup
from snavio.sdk.mailer import Mailer, NewMessage
from tests.support.killable import ROOT, Killable, killable
from tests.support.pulling import pulling, stored, table

ROUNDS = 3
BATCHES_OF = 30_000
SINGLES = 4_000
WAITING = int(os.environ.get("SNAVIO_BENCH_WAITING", "1000000"))
LINES = "max_topic_messages = 1000000000\nmax_replay_keys = 20000000\n"
TOPIC = route_topic("acme", "/hooks/a").topic


@asynccontextmanager
async def office_of(folder: Path) -> AsyncIterator[Killable]:
    async with killable(folder, mailbox_lines=LINES) as office:
        await office.start()
        yield office


async def fill(office: Killable, messages: int, body: bytes) -> None:
    mailer = Mailer.over(office.consumer(name="edge").channel, TOPIC)
    one = NewMessage(body, content_type=HTTP_CONTENT_TYPE)
    part = min(1000, (900 << 10) // (len(body) + 200))
    for _ in range(0, messages, part):
        await mailer.send_all([one] * part)


async def workers(port: int, mode: str, count: int, seconds: float) -> tuple[int, float]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.pull_workers", str(port), "/pull/a", mode, str(count), str(seconds)),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await process.communicate()
    assert process.returncode == 0
    done, took = out.split() or (b"0", b"1")
    return int(done), float(took)


def load() -> str:
    return f"load of the machine {os.getloadavg()[0]:.1f}"


async def test_messages_are_fetched_and_acknowledged(tmp_path: Path) -> None:
    async with office_of(tmp_path) as office, pulling(office, table("a")) as pull:
        for mode, count, messages, target in (
            ("batch", 4, BATCHES_OF, 10_000),
            ("single", 16, SINGLES, 1_000),
        ):
            rates = []
            for _ in range(ROUNDS):
                await fill(office, messages, stored(bytes(1024)))
                done, took = await workers(pull.port, mode, count, 120)
                assert done >= messages
                rates.append(done / took)
            words = "in batches of 100, 4 workers" if mode == "batch" else "one by one, 16 workers"
            record(
                f"Pull API: dequeue and ack {words}",
                values=rates,
                unit="messages/s",
                target=f"≥ {target:,}",
                note=f"1 KiB each, fsync before the answer; {load()}",
            )


async def test_idle_workers_cost_little(tmp_path: Path) -> None:
    async with office_of(tmp_path) as office, pulling(office, table("a")) as pull:
        assert office.process is not None
        pids = (os.getpid(), office.process.pid)
        await fill(office, 1, stored(b"x"))
        await workers(pull.port, "single", 1, 5)
        before = sum(map(resident_mb, pids))
        idle = asyncio.create_task(workers(pull.port, "idle", 200, 12))
        while pull.app.waiting.used < 200:
            await asyncio.sleep(0.05)
        await asyncio.sleep(3)
        more = sum(map(resident_mb, pids)) - before
        record(
            "Pull API: 200 idle long polls",
            values=[more],
            unit="MB",
            target="≤ 25",
            note="of gateway and mailbox together",
        )
        await idle


async def test_a_group_costs_the_same_into_a_full_topic(tmp_path: Path) -> None:
    async with office_of(tmp_path) as office:
        mailer, numbers = GroupMailer.over(office.consumer(name="edge").channel), iter(range(1 << 40))
        body = stored(bytes(1024))

        async def p50() -> float:
            took = []
            for _ in range(600):
                one = NewMessage(body, f"k{next(numbers)}", content_type=HTTP_CONTENT_TYPE, replay_ms=600_000)
                began = time.perf_counter()
                outcome = await mailer.send(MessageGroup.of((TOPIC,), one, refuse_duplicates=True))
                took.append(time.perf_counter() - began)
                assert outcome.stored
            return statistics.median(took) * 1000

        await p50()
        empty = [await p50() for _ in range(ROUNDS)]
        await fill(office, WAITING, stored(b"x"))
        full = [await p50() for _ in range(ROUNDS)]
        note = f"one keyed message of 1 KiB, with its fsync; {load()}"
        record("SendAll: one group into an empty topic, p50", values=empty, unit="ms", target="", note=note)
        record(
            f"SendAll: one group behind {WAITING:,} waiting, p50",
            values=full,
            unit="ms",
            target="as the row above",
            note=note,
        )
