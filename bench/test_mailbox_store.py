"""Cost of the mailbox per message without the wire: storing with fsync before the answer, leasing, acknowledging.

Batches of 1000 messages of 400 bytes. CPU is that of the whole process: committing, checkpointing and event loop.
"""

from __future__ import annotations

import asyncio
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.meters import percentile, record
from services.mailbox.delivery.batch_reader import BatchReader
from services.mailbox.delivery.receiving import Receiving, Wanted
from services.mailbox.delivery.waiters import Waiters
from services.mailbox.intake.batch_intake import BatchIntake, Sender
from services.mailbox.intake.commits import Commits
from services.mailbox.settle.settlements import Settlements
from services.mailbox.state.delivery import Delivery
from services.mailbox.state.receipts import DONE
from snavio.adapters.embedded.sqlite_mailbox_store import SqliteMailboxStore
from snavio.clock import SystemClock
from snavio.host.process import keep_freed_memory
from snavio.host.store_worker import StoreWorker
from snavio.native import Sending, blake3_digest
from snavio.ports.mailbox_store import Keys, NewBatch, Origin, Progress, Send
from snavio.v1.mailbox_pb2 import Receipts
from tests.support.mailbox import commands, send_batch

MESSAGES = 1000
BATCHES = 200
ROUNDS = 7
TOPIC = "acme/billing"
ME = "spiffe://snavio.local/tenant/acme/service/worker"
ALL = (1 << MESSAGES) - 1


@pytest.fixture(scope="module", autouse=True)
def as_in_the_service() -> None:
    """Keep freed memory, as the service does; otherwise allocating buffers of half a megabyte dominates the cost."""
    keep_freed_memory()


@pytest.fixture(scope="module")
def frame_of() -> Callable[[int], bytes]:
    body = send_batch(1, (TOPIC, commands(MESSAGES, size=240)))
    head = len(send_batch(1))
    assert 380 < len(body) / MESSAGES < 420
    return lambda seq: send_batch(seq) + body[head:]


@pytest.fixture(scope="module")
def runs(frame_of: Callable[[int], bytes]) -> bytes:
    return Sending.open(frame_of(1)).topics[0][2]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteMailboxStore]:
    one = SqliteMailboxStore(tmp_path / "mailbox.db", digest=blake3_digest)
    yield one
    one.close()


def note(what: str, costs: list[float], *, target: str = "≤ 0.9") -> None:
    record(what, values=costs, unit="µs", target=target)


@pytest.mark.parametrize("group", [1, 4])
def test_append_and_remove(benchmark: Any, store: SqliteMailboxStore, runs: bytes, group: int) -> None:
    """The store alone: every batch is stored, and removed once forty newer ones are stored."""
    alive: list[int] = []
    slowest: list[float] = []
    ended = threading.Event()

    def checkpoint() -> None:
        while not ended.wait(0.02):
            store.checkpoint()

    housekeeping = threading.Thread(target=checkpoint)
    housekeeping.start()
    seq = 0

    def work() -> None:
        nonlocal seq
        took: list[float] = []
        for _ in range(BATCHES // group):
            sends = []
            for _ in range(group):
                seq += 1
                sends.append(Send(Origin("fast/0", 1, seq), b"", (NewBatch(TOPIC, MESSAGES, runs),)))
            done = [Progress(TOPIC, alive.pop(0), MESSAGES, ALL) for _ in range(max(0, len(alive) - 40))]
            began = time.perf_counter()
            alive.extend(ids[0] for ids in store.commit(sends, done, now_unix_ns=time.time_ns()))
            took.append((time.perf_counter() - began) * 1000)
        slowest.append(percentile(took, 0.99))

    costs: list[float] = []

    def timed() -> None:
        before = time.process_time()
        work()
        costs.append((time.process_time() - before) / (BATCHES * MESSAGES) * 1e6)

    try:
        benchmark.pedantic(timed, rounds=ROUNDS, warmup_rounds=1)
    finally:
        ended.set()
        housekeeping.join()
    name = f"mailbox store, {group} batches of 1000 per commit"
    note(f"{name}: CPU per message", costs[1:], target="≤ 0.5")
    record(f"{name}: p99 of a commit", values=slowest[1:], unit="ms", target="≤ 10")
    print(f"{BATCHES / benchmark.stats.stats.median:.0f} batches/s")


def batch_id_of(response: bytes) -> int:
    """The batch of the first leased batch in a response; opening the whole response is the consumer's cost."""
    position, number = 10, 0  # after the boot epoch and the tag of the leased batch
    while response[position] & 0x80:
        position += 1
    assert response[position + 1] == 0x08
    for index, byte in enumerate(response[position + 2 :]):
        number |= (byte & 0x7F) << 7 * index
        if not byte & 0x80:
            break
    return number


class Parts:
    """The mailbox without its server."""

    def __init__(self, store: SqliteMailboxStore) -> None:
        self.store, self.clock, self.waiters = store, SystemClock(), Waiters()
        self.commits = Commits(store, clock=self.clock)
        self.worker = StoreWorker("reads")
        self.rows = BatchReader(store, worker=self.worker)
        self.delivery = Delivery(
            clock=self.clock,
            boot_epoch=store.begin_epoch(self.clock.unix_ns()),
            records=store.topics(),
            woken=self.waiters.wake,
            record=lambda state: self.commits.submit(progress=(state,)),
        )
        self.settlements = Settlements(delivery=self.delivery, commits=self.commits, rows=self.rows)
        self.intake = BatchIntake(
            store=store,
            commits=self.commits,
            delivery=self.delivery,
            settlements=self.settlements,
            rows=self.rows,
            clock=self.clock,
        )
        self.receiving = Receiving(
            delivery=self.delivery, rows=self.rows, waiters=self.waiters, stopping=lambda: False
        )
        self.seq = 0
        self._receipts = Receipts(msg_id=range(MESSAGES), attempt=[1] * MESSAGES).SerializeToString()

    async def send(self, frame_of: Callable[[int], bytes], batches: int) -> None:
        window, left = asyncio.Semaphore(16), asyncio.Event()
        answered = 0

        def answer(_verdicts: bytes) -> None:
            nonlocal answered
            answered += 1
            window.release()
            if answered == batches:
                left.set()

        for _ in range(batches):
            self.seq += 1
            await window.acquire()
            sender = Sender("fast/fast-0", 1)
            await self.intake.take(frame_of(self.seq), sender, final=answer)
        await left.wait()

    async def receive_and_ack(self, batches: int) -> None:
        """Two consumers. Receipts come as they do on the wire; writing them is the consumer's cost."""
        taken = 0

        async def consume() -> None:
            nonlocal taken
            while taken < batches:
                taken += 1
                response = await self.receiving.receive(
                    Wanted(TOPIC, ME, 30_000, MESSAGES, 1 << 20, 0.0, lambda: None)
                )
                first = batch_id_of(response) * 1024
                receipts = Receipts.FromString(self._receipts)
                codes = await self.settlements.settle(
                    TOPIC,
                    self.delivery.boot_epoch,
                    [first + offset for offset in receipts.msg_id],
                    list(receipts.attempt),
                    holder=ME,
                    final=True,
                )
                assert codes == DONE * MESSAGES

        await asyncio.gather(consume(), consume())


@pytest.fixture
def parts(store: SqliteMailboxStore, runner: asyncio.Runner) -> Iterator[Parts]:
    async def build() -> Parts:
        built = Parts(store)
        built.commits.start()
        return built

    one = runner.run(build())
    yield one
    runner.run(one.commits.close())
    runner.run(one.worker.close(lambda: None))


def test_send_receive_and_ack(
    benchmark: Any, parts: Parts, runner: asyncio.Runner, frame_of: Callable[[int], bytes]
) -> None:
    """Sends from one stream, then two consumers; what has just been stored is read from memory."""
    sent: list[float] = []
    seconds: list[float] = []
    received: list[float] = []

    async def round_trip() -> None:
        for _ in range(BATCHES // 50):
            started = time.process_time()
            await parts.send(frame_of, 50)
            sent[-1] += time.process_time() - started
            started, wall = time.process_time(), time.perf_counter()
            await parts.receive_and_ack(50)
            received[-1] += time.process_time() - started
            seconds[-1] += time.perf_counter() - wall

    def work() -> None:
        for one in (sent, received, seconds):
            one.append(0.0)
        runner.run(round_trip())

    benchmark.pedantic(work, rounds=ROUNDS, warmup_rounds=1)
    total = BATCHES * MESSAGES
    note("mailbox, sending without the wire: CPU per message", [one / total * 1e6 for one in sent[1:]])
    note(
        "mailbox, receive and ack without the wire: CPU per message",
        [one / total * 1e6 for one in received[1:]],
        # Two hashes of each message, which its consumer compares it with, are more than half of it.
        target="≤ 2",
    )
    rates = [total / one for one in seconds[1:]]
    record("mailbox, receive and ack without the wire", values=rates, unit="messages/s", target="≥ 150,000")


def test_receive_from_disk(
    benchmark: Any, parts: Parts, runner: asyncio.Runner, frame_of: Callable[[int], bytes]
) -> None:
    """A backlog larger than memory: every batch is read back, checked, leased and acknowledged."""
    parts.rows = parts.receiving._rows = BatchReader(parts.store, worker=parts.worker, max_bytes=0)
    seconds: list[float] = []

    def fill() -> None:
        runner.run(parts.send(frame_of, BATCHES))

    def work() -> None:
        started = time.perf_counter()
        runner.run(parts.receive_and_ack(BATCHES))
        seconds.append(time.perf_counter() - started)

    benchmark.pedantic(work, setup=fill, rounds=ROUNDS, warmup_rounds=1)
    rates = [BATCHES * MESSAGES / one for one in seconds[1:]]
    record(
        "mailbox, receive and ack of a backlog on disk", values=rates, unit="messages/s", target="≥ 150,000"
    )


def once_frame(seq: int, messages: int) -> bytes:
    return send_batch(seq, (TOPIC, commands(messages, size=240)), once=True)


def test_send_once(benchmark: Any, parts: Parts, runner: asyncio.Runner) -> None:
    """Batches of 100 commands that are stored once, sixteen in flight, as a strict route sends them."""
    batches, messages, rounds = 200, 100, 5
    frames = iter([once_frame(seq, messages) for seq in range(1, batches * (rounds + 1) + 1)])
    costs: list[float] = []
    rates: list[float] = []

    def work() -> None:
        started, wall = time.process_time(), time.perf_counter()
        runner.run(parts.send(lambda _seq: next(frames), batches))
        costs.append((time.process_time() - started) / (batches * messages) * 1e6)
        rates.append(batches * messages / (time.perf_counter() - wall))

    benchmark.pedantic(work, rounds=rounds, warmup_rounds=1)
    note("mailbox, stored once in batches of 100: CPU per message", costs[1:], target="-")
    record("mailbox, stored once in batches of 100", values=rates[1:], unit="messages/s", target="≥ 30,000")


def test_restart_with_a_million_keys(benchmark: Any, tmp_path: Path) -> None:
    """Time from opening the store to being ready, with the keys of a million messages acknowledged long ago."""
    path, keys, took = tmp_path / "mailbox.db", 1_000_000, []
    store = SqliteMailboxStore(path, digest=blake3_digest)
    # Numbers instead of fingerprints: the window takes any 32 bytes, and making real ones would be the bench.
    for first in range(0, keys, MESSAGES):
        columns = b"".join(
            blake3_digest(number.to_bytes(8, "little")) for number in range(first, first + MESSAGES)
        )
        batch = NewBatch(TOPIC, MESSAGES, b"", Keys(columns, 86_400_000))
        ((batch_id,),) = store.commit([Send(None, b"", (batch,))], [], now_unix_ns=1)
        store.commit([], [Progress(TOPIC, batch_id, MESSAGES, ALL)], now_unix_ns=1)
    store.close()

    def open_it() -> None:
        started = time.perf_counter()
        opened = SqliteMailboxStore(path, digest=blake3_digest)
        opened.topics()
        took.append(time.perf_counter() - started)
        assert opened.gauges()["replay_keys"] == keys
        opened.close()

    benchmark.pedantic(open_it, rounds=3)
    record("mailbox, start with 1,000,000 keys", values=took, unit="s", target="≤ 5")


def test_cost_of_a_send_does_not_grow(store: SqliteMailboxStore, runs: bytes) -> None:
    """CPU per message at the start, and again after ten million messages were stored and removed."""
    alive: list[int] = []
    seq = 0

    def cost(batches: int) -> float:
        nonlocal seq
        before = time.process_time()
        for _ in range(batches):
            seq += 1
            send = Send(Origin("fast/0", 1, seq), b"", (NewBatch(TOPIC, MESSAGES, runs),))
            done = [Progress(TOPIC, alive.pop(0), MESSAGES, ALL)] if len(alive) > 40 else []
            alive.extend(store.commit([send], done, now_unix_ns=time.time_ns())[0])
            if seq % 20 == 0:
                store.checkpoint()
        return (time.process_time() - before) / (batches * MESSAGES) * 1e6

    cost(BATCHES)
    first = [cost(BATCHES) for _ in range(3)]
    cost(10_000 - seq)
    last = [cost(BATCHES) for _ in range(3)]
    ratios = [after / before for before, after in zip(sorted(first), sorted(last), strict=True)]
    record("mailbox, cost of a send after 10,000,000 messages", values=ratios, unit="x", target="≤ 1.2")


WAITING = (1, 100, 500)
WOKEN_ROUNDS = 150


def test_a_stored_message_costs_the_same_however_many_wait(parts: Parts, runner: asyncio.Runner) -> None:
    """One message at a time, received by one of N waiting receives, which then waits again; by turns."""
    frames = [send_batch(0, (TOPIC, commands(1, size=240)))[len(send_batch(0)) :]]

    async def cost(waiting: int) -> float:
        done = asyncio.Event()

        async def consume() -> None:
            while True:
                await parts.receiving.receive(Wanted(TOPIC, ME, 30_000, 10, 1 << 20, 60.0, lambda: None))
                done.set()

        tasks = [asyncio.create_task(consume()) for _ in range(waiting)]
        await asyncio.sleep(0.1)
        before = time.process_time()
        for _ in range(WOKEN_ROUNDS):
            done.clear()
            await parts.send(lambda seq: send_batch(seq) + frames[0], 1)
            await done.wait()
        used = time.process_time() - before
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        return used / WOKEN_ROUNDS * 1e6

    costs: dict[int, list[float]] = {waiting: [] for waiting in WAITING}
    for _ in range(ROUNDS):
        for waiting in WAITING:
            costs[waiting].append(runner.run(cost(waiting)))
    for waiting in WAITING:
        note(f"mailbox, a message stored while {waiting} receives wait: CPU", costs[waiting], target="≤ 2000")
    ratio = statistics.median(costs[500]) / statistics.median(costs[1])
    record(
        "mailbox, CPU of a stored message: 500 waiting receives to 1",
        values=[ratio],
        unit="x",
        target="≤ 1.5",
    )
    assert ratio <= 1.5
