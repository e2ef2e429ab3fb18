"""The mailbox in its own process, over mTLS, fsync before every answer; Redis Streams in the same run as the peer.

Messages are 400 bytes. SNAVIO_STEADY_SECONDS shortens each part (60 s); figures of short runs, or of a busy machine,
are printed, and neither recorded nor judged: such a test ends as skipped, and says why. A test that misses a target
fails when all of its figures are recorded.
"""

from __future__ import annotations

import asyncio
import compileall
import os
import signal
import statistics
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any, ClassVar

import pytest

from bench.meters import Stopwatch, cpu_seconds, percentile, record, resident_mb
from snavio.sdk import Consumer
from snavio.v1 import mailbox_pb2 as mail
from tests.support.killable import Killable, killable
from tests.support.mailbox import TOPIC, ReceivingPeer, SendingPeer, commands, send_batch
from tests.support.redis import redis_server

STEADY_SECONDS = float(os.environ.get("SNAVIO_STEADY_SECONDS", "60"))
PART_SECONDS = STEADY_SECONDS / 6
RESTARTS = 100 if STEADY_SECONDS >= 60 else 6
ROOT = Path(__file__).resolve().parents[1]
BATCH, WINDOW = 1000, 4
FILL = 200_000
BACKLOG = 1_000_000
MANY = 10_000_000
TURNS = 12 if STEADY_SECONDS >= 60 else 4
CALM_LOAD = 4.0
"""Load above which the machine is busy with other work; the benchmark itself makes about two."""
SETTINGS = (
    "max_topic_messages = 1000000000\nmax_inflight = 1000000\nmax_tenant_inflight = 1000000\n"
    "max_store_bytes = 60000000000\n"
)


def body_of(messages: int) -> bytes:
    """The bytes after the header in a batch of `messages` messages of 400 bytes each."""
    whole = send_batch(1, (TOPIC, commands(messages, size=240)))
    return whole[len(send_batch(1)) :]


class Office:
    """The mailbox's process with a sender and consumers; frames are made before the clock starts."""

    def __init__(self, office: Killable, folder: Path) -> None:
        self.office, self.folder = office, folder
        self.seq = 0
        self._bodies = {messages: body_of(messages) for messages in (10, 500, BATCH)}

    async def connect(self) -> None:
        self.sender: SendingPeer = await self.office.sender(epoch=7)
        self.consumers: list[ReceivingPeer] = [self.office.consumer(name=f"worker-{n}") for n in range(2)]

    async def restart(self) -> float:
        """Kill and start it again; seconds from the start of the new process to being ready."""
        await self.office.end(signal.SIGKILL)
        began = time.perf_counter()
        await self.office.start()
        took = time.perf_counter() - began
        await self.connect()
        return took

    @property
    def pid(self) -> int:
        assert self.office.process is not None
        return self.office.process.pid

    def frame(self, messages: int) -> bytes:
        self.seq += 1
        return send_batch(self.seq) + self._bodies[messages]

    async def send(self, wanted: Callable[[int], bool], messages: int = BATCH) -> tuple[int, list[float]]:
        """Keep `WINDOW` batches in flight while `wanted(sent)`; the messages sent, and the duration of each batch."""
        began: dict[int, float] = {}
        took: list[float] = []
        sent = 0
        while True:
            while len(began) < WINDOW and wanted(sent):
                frame = self.frame(messages)
                began[self.seq] = time.perf_counter()
                await self.sender.write(frame)
                sent += messages
            if not began:
                return sent, took
            verdicts = await self.sender.read()
            assert set(verdicts.codes) == {1}
            took.append((time.perf_counter() - began.pop(verdicts.batch_seq)) * 1000)

    async def fill(self, messages: int) -> None:
        await self.send(lambda sent: sent < messages)

    async def drain(self, most: int) -> int:
        """Two consumers receive and acknowledge batches until `wanted` are done, or nothing is left."""
        done = 0

        async def work(consumer: ReceivingPeer) -> None:
            nonlocal done
            while done < most:
                got = await consumer.receive(max_messages=BATCH)
                if not got.messages:
                    return
                done += len(got.messages)
                codes = await consumer.ack(got.receipts())
                assert set(codes) == {1}

        await asyncio.gather(*(work(consumer) for consumer in self.consumers))
        return done


def before(end: float) -> Callable[[int], bool]:
    return lambda _sent: time.perf_counter() < end


@pytest.fixture(scope="module")
def office(runner: asyncio.Runner, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Office]:
    folder = tmp_path_factory.mktemp("mailbox")
    stack = AsyncExitStack()

    async def build() -> Office:
        one = Office(await stack.enter_async_context(killable(folder, mailbox_lines=SETTINGS)), folder)
        await one.office.start()
        await one.connect()
        return one

    yield runner.run(build())
    runner.run(stack.aclose())


@pytest.fixture(autouse=True)
def known_load() -> Iterator[None]:
    """The load of the machine, printed with a figure."""
    Figures.begin()
    yield


class Figures:
    """Keeps figures of a calm machine and whole runs, and only prints the others."""

    load = 0.0
    missed: ClassVar[list[str]] = []

    @classmethod
    def note(
        cls,
        name: str,
        values: list[float],
        unit: str,
        *,
        at_least: float | None = None,
        at_most: float | None = None,
        target: str = "-",
        note: str = "",
    ) -> None:
        """Record; the median of `values` is compared with the target."""
        if at_least is not None:
            target = f"≥ {at_least:,g}" if at_least < 1000 else f"≥ {at_least:,.0f}"
        if at_most is not None:
            target = f"≤ {at_most:,g}"
        middle = statistics.median(values)
        if cls.unfit():
            print(f"\n  {name}: {middle:,.2f} {unit} (target {target}; not recorded) {note}")
            return
        record(name, values=values, unit=unit, target=target, note=note)
        if (at_least is not None and middle < at_least) or (at_most is not None and middle > at_most):
            cls.missed.append(f"{name}: {middle:,.2f} {unit}, target {target}")

    @classmethod
    def begin(cls) -> None:
        cls.load = os.getloadavg()[0]
        cls.missed.clear()
        why = "; figures are not recorded" if cls.unfit() else ""
        print(f"\n  load {cls.load:.1f}, {STEADY_SECONDS:g} s{why}")

    @classmethod
    def unfit(cls) -> str:
        """The reason why this run's figures are invalid; empty when they are valid."""
        if cls.load >= CALM_LOAD:
            return (
                f"The machine's load was {cls.load:.1f} before it began: figures count below {CALM_LOAD:g}."
            )
        if STEADY_SECONDS < 60:
            return f"Parts of {STEADY_SECONDS:g} s are too short: figures count from SNAVIO_STEADY_SECONDS=60 on."
        return ""

    @classmethod
    def judge(cls) -> None:
        """Judge after the last figure of a test. A test without judgement must not look passed."""
        if reason := cls.unfit():
            pytest.skip(reason)
        assert not cls.missed, "missed: " + "; ".join(cls.missed)


def test_send_batches_of_1000_and_its_cost_stays_the_same(runner: asyncio.Runner, office: Office) -> None:
    rates: list[float] = []
    slowest: list[float] = []
    costs: list[float] = []
    ever = 0

    async def work() -> None:
        nonlocal ever
        while len(rates) < 6 or (STEADY_SECONDS >= 60 and ever < MANY):
            watch = Stopwatch({"mailbox": office.pid})
            watch.start()
            sent, took = await office.send(before(time.perf_counter() + PART_SECONDS))
            sample = watch.stop(sent)
            rates.append(sample.rate)
            costs.append(sample.cpu_us_of("mailbox"))
            slowest.append(percentile(took, 0.99))
            ever += sent
            # Not counted: otherwise the disk, and not the mailbox, would set the end of this.
            while await office.drain(FILL):
                pass

    runner.run(work())
    Figures.note(
        "mailbox, send in batches of 1000, fsync before the answer", rates, "messages/s", at_least=300_000
    )
    Figures.note(
        "mailbox, p99 of a batch of 1000", slowest, "ms", at_most=15, note=f"{WINDOW} batches on their way"
    )
    Figures.note("mailbox, CPU of its process per message sent", costs, "µs")
    # Two parts of each end: a single one depends too much on other load at that moment.
    flat = [sum(costs[-2:]) / sum(costs[:2])]
    Figures.note(
        "mailbox, cost of a send at the end of the run against its beginning",
        flat,
        "x",
        at_most=1.2,
        note=f"{ever / 1e6:.1f} million messages",
    )
    Figures.judge()


def test_receive_and_ack_by_batch(runner: asyncio.Runner, office: Office) -> None:
    rates: list[float] = []

    async def work() -> None:
        spent = 0.0
        while spent < STEADY_SECONDS:
            await office.fill(FILL)
            began = time.perf_counter()
            done = await office.drain(FILL)
            took = time.perf_counter() - began
            assert done == FILL
            rates.append(done / took)
            spent += took

    runner.run(work())
    Figures.note(
        "mailbox, receive and ack in batches of 1000, two consumers", rates, "messages/s", at_least=150_000
    )
    Figures.judge()


def test_async_for_and_ack(runner: asyncio.Runner, office: Office) -> None:
    rates: list[float] = []

    async def work() -> None:
        certificates = office.office.authority.service("acme", "reader").certificate.parent
        spent = 0.0
        while spent < STEADY_SECONDS:
            await office.fill(FILL // 2)
            async with Consumer(
                mailbox=office.office.address,
                topic=TOPIC,
                certificates=certificates,
                signer=office.office.mesh.signer,
            ) as consumer:
                began, done = time.perf_counter(), 0
                async for command in consumer:
                    await command.ack()
                    done += 1
                    if done == FILL // 2:
                        break
                await consumer.flush()
                took = time.perf_counter() - began
            rates.append(done / took)
            spent += took

    runner.run(work())
    Figures.note("mailbox, `async for` and ack, one consumer", rates, "messages/s", at_least=35_000)
    Figures.judge()


@pytest.mark.parametrize(("messages", "at_a_time"), [(FILL // 2, BATCH), (2000, 10)])
def test_stream_costs_a_consumer_no_more_than_calls(
    runner: asyncio.Runner, office: Office, messages: int, at_a_time: int
) -> None:
    """By turns: all that waits at once, and a few at a time as they come."""
    ratios: list[float] = []
    costs: dict[bool, list[float]] = {True: [], False: []}
    certificates = office.office.authority.service("acme", "reader").certificate.parent

    async def turn(*, stream: bool) -> float:
        watch = Stopwatch({"mailbox": office.pid, "client": os.getpid()})
        if at_a_time == BATCH:
            await office.fill(messages)
        async with Consumer(
            mailbox=office.office.address,
            topic=TOPIC,
            certificates=certificates,
            signer=office.office.mesh.signer,
            stream=stream,
        ) as consumer:
            watch.start()
            done = 0
            while done < messages:
                if at_a_time != BATCH:
                    await office.send(lambda sent: sent < at_a_time, at_a_time)
                for _ in range(at_a_time):
                    await (await anext(consumer)).ack()
                done += at_a_time
            await consumer.flush()
            cost = watch.stop(done).cpu_us
        costs[stream].append(cost)
        return cost

    async def work() -> None:
        for number in range(TURNS):
            calls_first = number % 2 == 0
            first = await turn(stream=not calls_first)
            second = await turn(stream=calls_first)
            ratios.append(second / first if calls_first else first / second)

    runner.run(work())
    each = ", ".join(
        f"{'stream' if stream else 'calls'} {percentile(costs[stream], 0.5):.1f} µs" for stream in costs
    )
    what = "all that waits" if at_a_time == BATCH else f"{at_a_time} at a time"
    Figures.note(
        f"consumer by stream against calls, {what}: CPU per message", ratios, "x", at_most=1.05, note=each
    )
    Figures.judge()


def test_mixed(runner: asyncio.Runner, office: Office) -> None:
    """Of five calls two send 500, one receives 1000, two acknowledge 500; acknowledged messages count."""
    rates: list[float] = []
    costs: list[float] = []
    clients: list[float] = []

    async def part(seconds: float) -> None:
        watch = Stopwatch({"mailbox": office.pid, "client": os.getpid()})
        watch.start()
        end = time.perf_counter() + seconds
        done = 0

        async def consume(consumer: ReceivingPeer) -> None:
            nonlocal done
            while time.perf_counter() < end:
                got = await consumer.receive(max_messages=BATCH, wait_ms=100)
                for first in range(0, len(got.messages), 500):
                    codes = await consumer.ack(got.receipts(first, first + 500))
                    assert set(codes) == {1}
                    done += len(codes)

        await asyncio.gather(
            _paced(office, end, lambda: done),
            *(consume(consumer) for consumer in office.consumers),
        )
        sample = watch.stop(done)
        rates.append(sample.rate)
        costs.append(sample.cpu_us_of("mailbox"))
        clients.append(sample.cpu_us_of("client"))
        while await office.drain(FILL):
            pass

    async def work() -> None:
        for _ in range(6):
            await part(PART_SECONDS)

    runner.run(work())
    Figures.note(
        "mailbox, mixed 40/20/40 of sends, receives and acks",
        rates,
        "messages/s",
        at_least=80_000,
        note=f"CPU per message: mailbox {percentile(costs, 0.5):.1f} µs, client {percentile(clients, 0.5):.1f} µs",
    )
    Figures.judge()


async def _paced(office: Office, end: float, done: Callable[[], int]) -> None:
    """Send batches of 500 at the consumers' pace."""
    sent = 0
    while time.perf_counter() < end:
        if sent - done() < 20_000:
            more, _ = await office.send(lambda now: now < 4 * 500, 500)
            sent += more
        else:
            await asyncio.sleep(0.001)


def test_latency_at_5000_a_second(runner: asyncio.Runner, office: Office) -> None:
    """Time from writing a batch of ten until a waiting consumer has it; the verdict comes in between."""
    waited: list[float] = []

    async def work() -> None:
        written: list[float] = []
        end = time.perf_counter() + STEADY_SECONDS
        ended = False
        consumer = office.consumers[0]

        async def consume() -> None:
            got = 0
            while not ended or got < len(written) * 10:
                answer = await consumer.receive(wait_ms=200, max_messages=BATCH)
                now = time.perf_counter()
                for number in range(got, got + len(answer.messages), 10):
                    waited.append((now - written[number // 10]) * 1000)
                got += len(answer.messages)
                if answer.messages:
                    await consumer.ack(answer.receipts())

        async def answers() -> None:
            while True:
                await office.sender.read()

        reading, consuming = asyncio.create_task(answers()), asyncio.create_task(consume())
        start, sent = time.perf_counter(), 0
        while (now := time.perf_counter()) < end:
            while sent < (now - start) * 500:
                written.append(time.perf_counter())
                await office.sender.write(office.frame(10))
                sent += 1
            await asyncio.sleep(0.001)
        ended = True
        await consuming
        reading.cancel()
        with suppress(asyncio.CancelledError):
            await reading
        # A read that was cancelled takes the stream with it.
        office.sender = await office.office.sender(epoch=7)

    runner.run(work())
    parts = [waited[at::6] for at in range(6)]
    Figures.note(
        "mailbox, p95 of enqueue and dequeue at 5,000/s in batches of 10",
        [percentile(part, 0.95) for part in parts],
        "ms",
        at_most=10,
    )
    Figures.judge()


def test_backlog_of_a_million(runner: asyncio.Runner, office: Office) -> None:
    slower: list[float] = []
    starts: list[float] = []
    resident: list[float] = []

    async def through(messages: int) -> float:
        """Messages a second, sent and then as many received and acknowledged."""
        began = time.perf_counter()
        await office.fill(messages)
        await office.drain(messages)
        return messages / (time.perf_counter() - began)

    async def for_a_while() -> AsyncIterator[float]:
        began, rounds = time.perf_counter(), 0
        while rounds < 6 or time.perf_counter() - began < STEADY_SECONDS:
            yield await through(FILL)
            rounds += 1

    async def work() -> None:
        await through(FILL)
        empty = [rate async for rate in for_a_while()]
        await office.fill(BACKLOG)
        await through(FILL)
        async for rate in for_a_while():
            slower.append(statistics.median(empty) / rate)
            resident.append(resident_mb(office.pid))
        for _ in range(3):
            starts.append(await office.restart())
        while await office.drain(FILL):
            pass

    runner.run(work())
    Figures.note("mailbox, slower with a backlog of 1,000,000", slower, "x", at_most=1.3)
    Figures.note("mailbox, resident with a backlog of 1,000,000", resident, "MB", at_most=1000)
    Figures.note(
        "mailbox, start with a backlog of 1,000,000",
        starts,
        "s",
        at_most=5,
        note="from the start of the process",
    )
    Figures.judge()


def test_first_answer_after_a_kill(runner: asyncio.Runner, office: Office) -> None:
    """Time from the start of the process to the first answer to a sender; killed with work in progress."""
    answered: list[float] = []
    used: list[float] = []
    # As they are in an installation.
    for package in ("snavio", "services"):
        assert compileall.compile_dir(ROOT / package, quiet=2)

    async def work() -> None:
        for _ in range(RESTARTS):
            await office.send(lambda sent: sent < 20 * BATCH)
            for _ in range(WINDOW):
                await office.sender.write(office.frame(BATCH))
            await office.office.end(signal.SIGKILL)
            began = time.perf_counter()
            await office.office.start()
            await office.connect()
            answered.append(time.perf_counter() - began)
            used.append(cpu_seconds(office.pid))
        while await office.drain(FILL):
            pass

    runner.run(work())
    Figures.note(
        "mailbox, p95 of the first answer after kill -9",
        [percentile(answered, 0.95)],
        "s",
        at_most=0.5,
        note=f"{RESTARTS} kills, median {statistics.median(answered):.2f} s, most {max(answered):.2f} s",
    )
    Figures.note("mailbox, CPU of a start to the first answer", used, "s")
    Figures.judge()


@pytest.mark.parametrize("fsync", ["everysec", "always"])
def test_redis_streams(runner: asyncio.Runner, tmp_path: Path, fsync: str) -> None:
    """The peer: XADD in pipelines of 1000, then XREADGROUP and XACK of 1000, the same 400 bytes, on this machine."""
    sends: list[float] = []
    receives: list[float] = []
    value = {"m": os.urandom(200).hex().encode()}

    async def part(client: Any, name: str) -> None:
        end, sent = time.perf_counter() + PART_SECONDS, 0
        await client.xgroup_create(name, "g", id="0", mkstream=True)
        began = time.perf_counter()
        while time.perf_counter() < end:
            pipe = client.pipeline(transaction=False)
            for _ in range(BATCH):
                pipe.xadd(name, value)
            await pipe.execute()
            sent += BATCH
        sends.append(sent / (time.perf_counter() - began))
        began, done = time.perf_counter(), 0
        while done < sent:
            ((_, entries),) = await client.xreadgroup("g", "c", {name: ">"}, count=BATCH)
            done += await client.xack(name, "g", *(entry for entry, _ in entries))
        receives.append(done / (time.perf_counter() - began))
        await client.delete(name)

    async def work() -> None:
        async with redis_server(tmp_path / "redis", fsync=fsync) as server, server.client() as client:
            for number in range(6):
                await part(client, f"s{number}")

    runner.run(work())
    Figures.note(f"Redis Streams, {fsync}: XADD in pipelines of 1000", sends, "messages/s", target="the peer")
    Figures.note(
        f"Redis Streams, {fsync}: XREADGROUP and XACK of 1000", receives, "messages/s", target="the peer"
    )
    Figures.judge()


def test_payload_is_what_it_says() -> None:
    """400 bytes a message on the wire, headers and all."""
    assert 380 < len(body_of(BATCH)) / BATCH < 420
    assert mail.SendBatch.FromString(body_of(10)).topic[0].topic == TOPIC
