"""Three hops with everything real: streams of 1000 through Shield, Fast and the mailbox, fsync before the answer."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

import pytest

from bench.meters import Sample, Stopwatch, record, resident_mb
from snavio.launch.processes import SERVICES
from snavio.sdk import Producer
from tests.support.mesh import NAME, TARGET, DemoMesh

HOPS = ("shield", "fast", "mailbox")
REPEATS = 6
ROUND_SECONDS = 4.0
STEADY_SECONDS = float(os.environ.get("SNAVIO_STEADY_SECONDS", "180"))
CONCURRENT_BATCHES = 8
# With its other fields, a command of 400 encoded bytes.
PAYLOAD = b"x" * 210


async def _pour(producer: Producer, seconds: float) -> int:
    """Send batches of 1000, some at a time, until the time is over; how many were delivered."""
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


def test_three_hops_streams_of_1000(benchmark: Any, runner: asyncio.Runner, mesh: DemoMesh) -> None:
    producer = runner.run(mesh.producer().__aenter__())
    samples: list[Sample] = []

    def repeat() -> None:
        watch = _watch(mesh)
        watch.start()
        samples.append(watch.stop(runner.run(_pour(producer, ROUND_SECONDS))))

    benchmark.pedantic(repeat, rounds=REPEATS, iterations=1, warmup_rounds=1)
    samples = samples[1:]
    record(
        "three hops, streams of 1000: CPU per command, all processes",
        values=[sample.cpu_us for sample in samples],
        unit="µs",
        target="≤ 6",
        note="client, shield, fast, mailbox, slow, signer, registry",
    )
    for name in ("client", *HOPS):
        record(
            f"three hops, streams of 1000: CPU per command, {name}",
            values=[sample.cpu_us_of(name) for sample in samples],
            unit="µs",
            target="-",
        )
    record(
        "three hops, streams of 1000: rate",
        values=[sample.rate for sample in samples],
        unit="commands/s",
        target="about 220,000",
    )
    runner.run(producer.__aexit__(None, None, None))


@pytest.mark.skipif(STEADY_SECONDS <= 0, reason="SNAVIO_STEADY_SECONDS=0")
def test_three_hops_steady(benchmark: Any, runner: asyncio.Runner, mesh: DemoMesh) -> None:
    producer = runner.run(mesh.producer().__aenter__())
    samples: list[Sample] = []
    slices = 6

    def repeat() -> None:
        watch = _watch(mesh)
        watch.start()
        samples.append(watch.stop(runner.run(_pour(producer, STEADY_SECONDS / slices))))

    benchmark.pedantic(repeat, rounds=slices, iterations=1, warmup_rounds=0)
    record(
        f"three hops, steady for {STEADY_SECONDS:.0f} s: CPU per command, all processes",
        values=[sample.cpu_us for sample in samples],
        unit="µs",
        target="≤ 6",
        note="six slices of the run; a rising range would show a growing cost",
    )
    record(
        f"three hops, steady for {STEADY_SECONDS:.0f} s: rate",
        values=[sample.rate for sample in samples],
        unit="commands/s",
        target="about 220,000",
    )
    record(
        f"three hops, steady for {STEADY_SECONDS:.0f} s: memory of shield afterwards",
        values=[resident_mb(mesh.processes.pid("shield"))],
        unit="MB",
        target="-",
        note="holds the nonces of the last minute",
    )
    runner.run(producer.__aexit__(None, None, None))
