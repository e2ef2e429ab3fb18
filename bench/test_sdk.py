"""Latency and throughput of the SDK: single sends, unary latency, receiving; and memory of an idle mesh."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

from bench.meters import Sample, Stopwatch, percentile, record, resident_mb
from bench.targets import Targets
from snavio.launch.processes import SERVICES
from snavio.native import sign_command, uuid7
from snavio.rpc.channel import MeshChannel
from snavio.rpc.credentials import CertificateFiles
from snavio.v1.batch_pb2 import Hello
from snavio.v1.shield_pb2 import GreetRequest, SubmitRequest
from snavio.v1.signer_pb2 import TenantConfigRequest, TenantConfigResponse
from tests.support.mesh import NAME, TARGET, DemoMesh

REPEATS = 6
TASKS = 1000
SENDS_PER_TASK = 100
UNARY_CALLS = 500
PAYLOAD = b"x" * 210


def test_idle_memory_of_each_service(mesh: DemoMesh, benchmark: Any) -> None:
    seen: dict[str, list[float]] = {name: [] for name in SERVICES}

    def look() -> None:
        time.sleep(0.5)
        for name, values in seen.items():
            values.append(resident_mb(mesh.processes.pid(name)))

    benchmark.pedantic(look, rounds=REPEATS)
    targets = Targets()
    for name, values in seen.items():
        targets.at_most(f"idle memory of {name}", values, ceiling=120, unit="MB", by=max)
    targets.require()


def test_single_sends_from_1000_tasks(benchmark: Any, runner: asyncio.Runner, mesh: DemoMesh) -> None:
    producer = runner.run(mesh.producer().__aenter__())
    samples: list[Sample] = []

    async def task() -> int:
        delivered = 0
        for _ in range(SENDS_PER_TASK):
            delivered += (await producer.send(TARGET, NAME, PAYLOAD)).delivered
        return delivered

    async def everybody() -> int:
        return sum(await asyncio.gather(*(task() for _ in range(TASKS))))

    def repeat() -> None:
        watch = Stopwatch({"client": os.getpid(), **{name: mesh.processes.pid(name) for name in SERVICES}})
        watch.start()
        samples.append(watch.stop(runner.run(everybody())))

    benchmark.pedantic(repeat, rounds=REPEATS, iterations=1, warmup_rounds=1)
    samples = samples[1:]
    assert all(sample.count == TASKS * SENDS_PER_TASK for sample in samples)
    targets = Targets()
    targets.at_least(
        "await producer.send(), 1000 tasks: rate",
        [sample.rate for sample in samples],
        floor=40_000,
        unit="commands/s",
    )
    record(
        "await producer.send(), 1000 tasks: CPU per command, client",
        values=[sample.cpu_us_of("client") for sample in samples],
        unit="µs",
        target="-",
    )
    runner.run(producer.__aexit__(None, None, None))
    targets.require()


def test_unary_one_caller(benchmark: Any, runner: asyncio.Runner, mesh: DemoMesh) -> None:
    p50: list[float] = []
    p99: list[float] = []

    async def calls(shield: MeshChannel, signer: MeshChannel) -> None:
        config = await signer.call(
            "/snavio.v1.Signer/TenantConfig", TenantConfigRequest(), TenantConfigResponse, timeout_s=5.0
        )
        hello = await shield.call(
            "/snavio.v1.Shield/Greet", GreetRequest(wire_version=1), Hello, timeout_s=5.0
        )
        key = next(key for key in config.keyset.version if key.version == config.primary)
        waits: list[float] = []
        for _ in range(UNARY_CALLS):
            command = sign_command(
                key.secret,
                key_version=key.version,
                audience=hello.audience,
                command_id=uuid7(),
                timestamp_unix_ns=time.time_ns(),
                target=TARGET,
                name=NAME,
                payload=PAYLOAD,
            )
            request = SubmitRequest(command=command).SerializeToString()
            began = time.perf_counter()
            await shield.call_raw("/snavio.v1.Shield/Submit", request, timeout_s=5.0)
            waits.append((time.perf_counter() - began) * 1000)
        p50.append(percentile(waits, 0.50))
        p99.append(percentile(waits, 0.99))

    files = CertificateFiles.in_folder(mesh.certificates("acme-billing"))
    shield = MeshChannel(mesh.addresses["shield"], files=files, service="shield")
    signer = MeshChannel(mesh.addresses["signer"], files=files, service="signer")
    benchmark.pedantic(
        lambda: runner.run(calls(shield, signer)), rounds=REPEATS, iterations=1, warmup_rounds=1
    )
    targets = Targets()
    targets.at_most("unary Submit, one caller: p50", p50[1:], ceiling=3.5, unit="ms")
    record("unary Submit, one caller: p99", values=p99[1:], unit="ms", target="-")
    runner.run(shield.close())
    runner.run(signer.close())
    targets.require()


def test_receiving_with_async_for(benchmark: Any, runner: asyncio.Runner, mesh: DemoMesh) -> None:
    messages = 30_000
    samples: list[Sample] = []
    producer = runner.run(mesh.producer().__aenter__())

    async def fill() -> None:
        for _ in range(messages // 1000):
            await producer.send_batch([(TARGET, NAME, PAYLOAD)] * 1000)

    async def drain() -> int:
        received = 0
        async with mesh.consumer() as consumer:
            async for command in consumer:
                await command.ack()
                received += 1
                if received == messages:
                    break
            await consumer.flush()
        return received

    def setup() -> None:
        runner.run(fill())

    def repeat() -> None:
        watch = Stopwatch({"client": os.getpid(), "mailbox": mesh.processes.pid("mailbox")})
        watch.start()
        samples.append(watch.stop(runner.run(drain())))

    benchmark.pedantic(repeat, setup=setup, rounds=REPEATS, iterations=1, warmup_rounds=0)
    targets = Targets()
    targets.at_least(
        "async for + ack: rate", [sample.rate for sample in samples], floor=30_000, unit="messages/s"
    )
    record(
        "async for + ack: CPU per message, client and mailbox",
        values=[sample.cpu_us for sample in samples],
        unit="µs",
        target="-",
    )
    runner.run(producer.__aexit__(None, None, None))
    targets.require()
