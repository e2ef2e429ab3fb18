"""Cost of a decision of Slow: a debit in each store, strict delivery in batches of 100, and a flood beside it.

Run: `python -m pytest bench/test_slow.py -q -s`; with SNAVIO_BENCH_SHORT=1 only to see that it runs through.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from pathlib import Path
from typing import Any

from bench.meters import Stopwatch, record
from bench.targets import SHORT, Targets
from snavio.adapters.embedded.sqlite_coordination import SqliteCoordination
from snavio.adapters.redis.coordination import RedisCoordination
from snavio.admin.directory import DirectoryClient
from snavio.clock import SystemClock
from snavio.domain.claim import Terms
from snavio.domain.directory import AclEntry, DedupeMode, Route
from snavio.domain.quota import LimitRule
from snavio.launch.processes import SERVICES
from snavio.ports.coordination import Coordination, PermitAsk
from snavio.sdk import Producer
from snavio.v1 import registry_pb2 as reg
from tests.support.arbiter import MAILBOX, ArbiterStage, arbiter_stage
from tests.support.frames import RunOf, command, escalated
from tests.support.mesh import SOURCE, TARGET, TENANT, DemoMesh
from tests.support.redis import RedisServer

REPEATS = 2 if SHORT else 6
ROUND_SECONDS = 1.0 if SHORT else 3.0
CONCURRENT_BATCHES = 32
# With its other fields, a command of 400 encoded bytes.
PAYLOAD = b"x" * 210
TERMS = Terms(lease_ms=15_000, keep_ms=300_000)
RULE = LimitRule(max=1_000_000_000, interval_ms=3_600_000)
WARM_BANNED, STRICT_REASON = 6, 4
STRICT_NAME = "bench-strict"
FLOODED_NAME, FLOODER = "bench-flooded", "flooder"
STRICT_FLOOR, FLOODED_FLOOR = 30_000, 0.8
# Batches of 100 per second: many times the share of a banned source beside others.
FLOOD_BATCHES = 50
DECIDED = 40_000 if SHORT else 240_000


def test_a_debit_in_the_embedded_store(benchmark: Any, runner: asyncio.Runner, tmp_path: Path) -> None:
    store = runner.run(
        SqliteCoordination.open(
            tmp_path / "c.db",
            clock=SystemClock(),
            known_epoch=None,
            fresh_epoch="e",
            boot="",
            terms=TERMS,
            max_claims=1000,
            max_claims_per_source=1000,
        )
    )
    _debits(benchmark, runner, store, "embedded")
    runner.run(store.close())


def test_a_debit_in_redis(benchmark: Any, runner: asyncio.Runner, tmp_path: Path) -> None:
    server = RedisServer(tmp_path, fsync="always")
    runner.run(server.start())
    store = RedisCoordination(
        server.url,
        prefix="bench",
        known_epoch=None,
        fresh_epoch="e",
        terms=TERMS,
        max_claims=1000,
        max_claims_per_source=1000,
        timeout_s=5.0,
    )
    _debits(benchmark, runner, store, "Redis, fsync always")
    runner.run(store.close())
    server.kill()


def _debits(benchmark: Any, runner: asyncio.Runner, store: Coordination, kind: str) -> None:
    """One call with ten routes, of which Slow makes one per round, whatever the number of commands."""
    asks = [PermitAsk((f"target-{number}", "name"), RULE, 100) for number in range(10)]
    found: list[float] = []

    async def calls() -> None:
        for _ in range(300):
            await store.take(asks)

    def repeat() -> None:
        began = time.perf_counter()
        runner.run(calls())
        found.append((time.perf_counter() - began) / 300 * 1e6)

    benchmark.pedantic(repeat, rounds=REPEATS, iterations=1, warmup_rounds=1)
    record(f"debit of ten limits, {kind}", values=found[1:], unit="µs", target="-", note="one call")


def test_strict_on_mailbox_targets(benchmark: Any, runner: asyncio.Runner, mesh: DemoMesh) -> None:
    """The whole path, producer to disk; every id new."""
    runner.run(_register(mesh))
    producer = runner.run(mesh.producer().__aenter__())
    samples = []

    def repeat() -> None:
        watch = Stopwatch({"client": os.getpid(), **{name: mesh.processes.pid(name) for name in SERVICES}})
        watch.start()
        samples.append(watch.stop(runner.run(_pour(producer))))

    benchmark.pedantic(repeat, rounds=REPEATS, iterations=1, warmup_rounds=1)
    runner.run(producer.__aexit__(None, None, None))
    rates = [sample.rate for sample in samples[1:]]
    targets = Targets()
    targets.at_least(
        "strict on mailbox targets, batches of 100", rates, floor=STRICT_FLOOR, unit="commands/s"
    )
    for name, cost in (
        ("all processes", [sample.cpu_us for sample in samples[1:]]),
        ("Slow", [sample.cpu_us_of("slow") for sample in samples[1:]]),
    ):
        record(f"strict on mailbox targets: CPU per command, {name}", values=cost, unit="µs", target="-")
    targets.require()


def test_a_banned_flood_beside_strict_traffic_in_the_mesh(runner: asyncio.Runner, mesh: DemoMesh) -> None:
    """The whole path, with a flood of a source that a ban sends to Slow. Client and services share the cores, so the
    cost of Shield and of the flooding client is included.
    """
    runner.run(_register(mesh))
    runner.run(_register_flooder(mesh))
    alone: list[float] = []
    beside: list[float] = []
    flooded: list[float] = []

    async def run() -> None:
        async with mesh.producer() as honest, mesh.producer(FLOODER) as flooder:
            for turn in range(REPEATS + 1):
                began = time.perf_counter()
                count = await _pour(honest)
                alone.append(count / (time.perf_counter() - began))
                stop = asyncio.Event()
                flood = asyncio.create_task(_offer_flood(flooder, stop))
                began = time.perf_counter()
                count = await _pour(honest)
                beside.append(count / (time.perf_counter() - began))
                stop.set()
                flooded.append(await flood / (time.perf_counter() - began))
                if not turn:
                    # The first warms up.
                    del alone[:], beside[:], flooded[:]

    runner.run(run())
    targets = Targets()
    record("a banned flood: delivered of it", values=flooded, unit="commands/s", target="-")
    ratios = [with_flood / without for with_flood, without in zip(beside, alone, strict=True)]
    targets.at_least(
        "strict traffic beside a banned flood ÷ alone, whole way",
        ratios,
        floor=FLOODED_FLOOR,
        unit="x",
        note=f"{FLOOD_BATCHES * 100:,} commands/s offered by the banned source",
    )
    targets.require()


async def _register_flooder(mesh: DemoMesh) -> None:
    async with mesh.operator() as operator:
        await mesh.register_service(operator, FLOODER)
        await operator.put_route(TARGET, FLOODED_NAME)
        await operator.grant(f"{TENANT}/{FLOODER}", TARGET, FLOODED_NAME)
        ban = reg.Ban(
            list=reg.BAN_LIST_WARM_BAN,
            source=f"{TENANT}/{FLOODER}",
            target=TARGET,
            name=FLOODED_NAME,
            until_unix_ns=time.time_ns() + 3_600_000_000_000,
        )
        await operator._write("SetBan", reg.SetBanRequest(ban=ban))
    await asyncio.sleep(2)  # the next pull


async def _offer_flood(producer: Producer, stop: asyncio.Event) -> int:
    """A steady flood, whatever its result; the number delivered."""
    commands = [(TARGET, FLOODED_NAME, PAYLOAD)] * 100
    sending: set[asyncio.Task[Any]] = set()
    delivered = 0

    async def send() -> None:
        nonlocal delivered
        delivered += (await producer.send_batch(commands, timeout_s=1.0)).delivered

    while not stop.is_set():
        # No more under way than a producer would have.
        if len(sending) < 32:
            task = asyncio.create_task(send())
            sending.add(task)
            task.add_done_callback(sending.discard)
        await asyncio.sleep(1 / FLOOD_BATCHES)
    await asyncio.gather(*sending)
    return delivered


async def _pour(producer: Producer) -> int:
    """Send batches of 100, several at a time; the number delivered."""
    commands = [(TARGET, STRICT_NAME, PAYLOAD)] * 100
    end = time.perf_counter() + ROUND_SECONDS

    async def lane() -> int:
        delivered = 0
        while time.perf_counter() < end:
            outcomes = await producer.send_batch(commands)
            assert outcomes.delivered == len(commands), outcomes.refused[0]
            delivered += outcomes.delivered
        return delivered

    return sum(await asyncio.gather(*(lane() for _ in range(CONCURRENT_BATCHES))))


async def _register(mesh: DemoMesh) -> None:
    route = Route(TARGET, STRICT_NAME, dedupe_mode=DedupeMode.STRICT)
    operator = DirectoryClient(mesh.addresses["registry"], certificates=mesh.certificates("operator-admin"))
    async with operator:
        await operator.apply([route, AclEntry(SOURCE, TARGET, STRICT_NAME)])
    await asyncio.sleep(2)  # the next pull


def test_a_banned_flood_beside_strict_traffic(benchmark: Any, runner: asyncio.Runner, tmp_path: Path) -> None:
    """Slow's own share of the cost: rounds, directory and store, without the wire. Interleaved, alone and beside a
    flood.
    """
    alone: list[float] = []
    beside: list[float] = []
    paths = itertools.count()

    async def run(*, flooded: bool) -> float:
        clock = SystemClock()
        store = await SqliteCoordination.open(
            tmp_path / f"{next(paths)}.db",
            clock=clock,
            known_epoch=None,
            fresh_epoch="e",
            boot="",
            terms=TERMS,
            max_claims=1000,
            max_claims_per_source=1000,
        )
        limit = reg.Limit(max=1_000_000_000, interval_seconds=3600)
        async with arbiter_stage(store, clock, queue_kind=MAILBOX, limit=limit) as slow:
            stop = asyncio.Event()
            flood = asyncio.create_task(_flood(slow, stop)) if flooded else None
            frames = [_frame("acme/billing", STRICT_REASON) for _ in range(10)]
            began = time.perf_counter()
            # Long enough that a hiccup of the machine is not the whole round.
            for _ in range(DECIDED // 1000):
                await asyncio.gather(*(_decided(slow, frame) for frame in frames))
            rate = DECIDED / (time.perf_counter() - began)
            stop.set()
            if flood is not None:
                await flood
        await store.close()
        return rate

    def repeat() -> None:
        alone.append(runner.run(run(flooded=False)))
        beside.append(runner.run(run(flooded=True)))

    benchmark.pedantic(repeat, rounds=REPEATS, iterations=1, warmup_rounds=1)
    ratios = [with_flood / without for with_flood, without in zip(beside[1:], alone[1:], strict=True)]
    targets = Targets()
    targets.at_least(
        "strict traffic beside a banned flood ÷ alone, at Slow", ratios, floor=FLOODED_FLOOR, unit="x"
    )
    targets.require()


def _frame(source: str, reason: int) -> bytes:
    return escalated((reason, [RunOf([command() for _ in range(100)], source=source)]))


async def _decided(slow: ArbiterStage, frame: bytes) -> None:
    done = asyncio.Event()
    await slow.arbiter.decide(frame, lambda _verdicts, final: done.set() if final else None)
    await done.wait()


async def _flood(slow: ArbiterStage, stop: asyncio.Event) -> None:
    """As many batches as Fast keeps in flight, all of one banned source: its queue at Slow is never empty."""
    frame = _frame("mallory/bot", WARM_BANNED)
    waiting: set[asyncio.Task[None]] = set()
    while not stop.is_set():
        while len(waiting) < 16:
            waiting.add(asyncio.create_task(_decided(slow, frame)))
        _, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    await asyncio.gather(*waiting)
