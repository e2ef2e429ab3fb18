"""Three hops with real services: streams of 1000 through Shield, Fast and the mailbox, fsync before the answer.

Twice: the path alone, and with telemetry of every command in the archive. Each with its own target.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from bench.conftest import ROOMY
from bench.meters import Sample, Stopwatch, record, resident_mb
from snavio.launch.processes import SERVICES
from snavio.sdk import Producer
from tests.support.mesh import NAME, TARGET, DemoMesh, demo_mesh

HOPS = ("shield", "fast", "mailbox")
REPEATS = 6
ROUND_SECONDS = 4.0
STEADY_SECONDS = float(os.environ.get("SNAVIO_STEADY_SECONDS", "180"))
CONCURRENT_BATCHES = 8
MOST_GROWTH = 1.15
"""Largest growth that counts as steady; it allows for the machine's own phases."""
# With its other fields, a command of 400 encoded bytes.
PAYLOAD = b"x" * 210


@dataclass(frozen=True)
class Shape:
    """A running mesh, and the target cost of a command in it."""

    name: str
    most_us: float
    mesh: DemoMesh

    @property
    def target(self) -> str:
        return f"≤ {self.most_us:g}"


@pytest.fixture(
    scope="module", params=[("the path alone", 6.0, False), ("telemetry to the archive", 8.0, True)]
)
def shape(
    request: pytest.FixtureRequest, runner: asyncio.Runner, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Shape]:
    name, most_us, telemetry = request.param
    settings = {**ROOMY, "mesh": {**ROOMY["mesh"], "telemetry": telemetry}}
    context = demo_mesh(tmp_path_factory.mktemp("hops"), settings=settings)
    yield Shape(name, most_us, runner.run(context.__aenter__()))
    runner.run(context.__aexit__(None, None, None))


async def _pour(producer: Producer, seconds: float) -> int:
    """Send batches of 1000, several at a time, until the time is over; the number delivered."""
    end = time.perf_counter() + seconds
    commands = [(TARGET, NAME, PAYLOAD)] * 1000

    async def lane() -> int:
        delivered = 0
        while time.perf_counter() < end:
            outcomes = await producer.send_batch(commands)
            delivered += outcomes.delivered
        return delivered

    return sum(await asyncio.gather(*(lane() for _ in range(CONCURRENT_BATCHES))))


def _watch(mesh: DemoMesh) -> Stopwatch:
    return Stopwatch({"client": os.getpid(), **{name: mesh.processes.pid(name) for name in SERVICES}})


def _run(
    benchmark: Any, runner: asyncio.Runner, shape: Shape, *, seconds: float, warm_up: int
) -> list[Sample]:
    producer = runner.run(shape.mesh.producer().__aenter__())
    samples: list[Sample] = []

    def repeat() -> None:
        watch = _watch(shape.mesh)
        watch.start()
        samples.append(watch.stop(runner.run(_pour(producer, seconds))))

    benchmark.pedantic(repeat, rounds=REPEATS, iterations=1, warmup_rounds=warm_up)
    runner.run(producer.__aexit__(None, None, None))
    return samples[warm_up:]


def test_three_hops_streams_of_1000(benchmark: Any, runner: asyncio.Runner, shape: Shape) -> None:
    samples = _run(benchmark, runner, shape, seconds=ROUND_SECONDS, warm_up=1)
    what = f"three hops, streams of 1000, {shape.name}"
    middle = record(
        f"{what}: CPU per command, all processes",
        values=[sample.cpu_us for sample in samples],
        unit="µs",
        target=shape.target,
        note=f"client, {', '.join(SERVICES)}",
    )
    for name in ("client", *HOPS, "relay"):
        values = [sample.cpu_us_of(name) for sample in samples]
        record(f"{what}: CPU per command, {name}", values=values, unit="µs", target="-")
    values = [sample.rate for sample in samples]
    record(f"{what}: rate", values=values, unit="commands/s", target="about 220,000")
    assert middle <= shape.most_us


@pytest.mark.skipif(STEADY_SECONDS <= 0, reason="SNAVIO_STEADY_SECONDS=0")
def test_three_hops_steady(benchmark: Any, runner: asyncio.Runner, shape: Shape) -> None:
    samples = _run(benchmark, runner, shape, seconds=STEADY_SECONDS / REPEATS, warm_up=0)
    what = f"three hops, steady for {STEADY_SECONDS:.0f} s, {shape.name}"
    middle = record(
        f"{what}: CPU per command, all processes",
        values=[sample.cpu_us for sample in samples],
        unit="µs",
        target=shape.target,
        note="slice by slice: " + ", ".join(f"{sample.cpu_us:.2f}" for sample in samples),
    )
    values = [sample.rate for sample in samples]
    record(f"{what}: rate", values=values, unit="commands/s", target="about 220,000")
    growth = statistics.mean([one.cpu_us for one in samples[-2:]]) / statistics.mean(
        [one.cpu_us for one in samples[:2]]
    )
    record(
        f"{what}: CPU per command in the last third ÷ in the first",
        values=[growth],
        unit="x",
        target=f"≤ {MOST_GROWTH}",
    )
    record(
        f"{what}: memory of shield afterwards",
        values=[resident_mb(shape.mesh.processes.pid("shield"))],
        unit="MB",
        target="-",
        note="holds the nonces of the last minute",
    )
    assert middle <= shape.most_us
    assert growth <= MOST_GROWTH
