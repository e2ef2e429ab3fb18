"""What Signer signs in a second over the wire, and what a rotation costs the commands that flow meanwhile."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

from bench.meters import Sample, Stopwatch, record
from snavio.launch.probes import Probes
from snavio.launch.processes import SERVICES
from snavio.native import ed25519_verify
from snavio.sdk import Producer
from snavio.sdk.keys import KeyDesk
from snavio.transport.channel import MeshChannel
from snavio.transport.credentials import CertificateFiles
from snavio.v1 import signer_pb2 as wire
from tests.support.mesh import NAME, SOURCE, TARGET, DemoMesh

REPEATS = 6
ROUND_SECONDS = 3.0
BATCH = 1000
CONCURRENT = 4
ENVELOPE = b"e" * 600
# A rotation spreads for ten seconds; traffic before and after it counts as well.
LOAD_SECONDS = 16.0
REFUSED_FOR_KEYS = ("unknown-key-version", "key-expired", "key-revoked", "hmac-mismatch")


async def _sign(channel: MeshChannel, seconds: float) -> int:
    request = wire.SignRequest(scope="platform", message=[ENVELOPE] * BATCH)
    end = time.perf_counter() + seconds

    async def lane() -> int:
        signed = 0
        while time.perf_counter() < end:
            answer = await channel.call("/snavio.v1.Signer/Sign", request, wire.SignResponse, timeout_s=10.0)
            signed += len(answer.signature)
        return signed

    return sum(await asyncio.gather(*(lane() for _ in range(CONCURRENT))))


def test_sign_in_batches(benchmark: Any, runner: asyncio.Runner, mesh: DemoMesh) -> None:
    channel = MeshChannel(
        mesh.addresses["signer"],
        files=CertificateFiles.in_folder(mesh.certificates("registry")),
        service="signer",
    )
    keys = runner.run(
        channel.call(
            "/snavio.v1.Signer/ProvisionScope",
            wire.ProvisionScopeRequest(scope="platform"),
            wire.PublicKeys,
            timeout_s=5.0,
        )
    )
    once = wire.SignRequest(scope="platform", message=[ENVELOPE])
    signed = runner.run(channel.call("/snavio.v1.Signer/Sign", once, wire.SignResponse, timeout_s=5.0))
    assert ed25519_verify(keys.key[0].public_key, ENVELOPE, signed.signature[0])
    samples: list[Sample] = []

    def repeat() -> None:
        watch = Stopwatch({"client": os.getpid(), "signer": mesh.processes.pid("signer")})
        watch.start()
        samples.append(watch.stop(runner.run(_sign(channel, ROUND_SECONDS))))

    benchmark.pedantic(repeat, rounds=REPEATS, iterations=1, warmup_rounds=1)
    samples = samples[1:]
    record(
        "Sign, batches of 1000 over mTLS: rate",
        values=[sample.rate for sample in samples],
        unit="signatures/s",
        target="≥ 30,000",
        note="four calls at once, 600 bytes each",
    )
    record(
        "Sign, batches of 1000 over mTLS: CPU per signature, signer",
        values=[sample.cpu_us_of("signer") for sample in samples],
        unit="µs",
        target="-",
    )
    runner.run(channel.close())


async def _refused_for_keys(mesh: DemoMesh) -> int:
    async with Probes(mesh.processes.mesh, certificates=mesh.certificates("operator-admin")) as probes:
        status = await probes.status("shield")
    assert status is not None
    counts = {counter.name: counter.value for counter in status.counter}
    return sum(counts[f"admission.{reason}"] for reason in REFUSED_FOR_KEYS)


async def _rotate_under_load(mesh: DemoMesh, producer: Producer) -> tuple[int, int, int]:
    """How many were sent, how many did not arrive, and how many Shield refused for their key."""
    sent = lost = 0
    before = await _refused_for_keys(mesh)
    end = time.perf_counter() + LOAD_SECONDS

    async def lane() -> None:
        nonlocal sent, lost
        while time.perf_counter() < end:
            outcomes = await producer.send_batch([(TARGET, NAME, b"x" * 210)] * BATCH)
            sent += BATCH
            lost += BATCH - outcomes.delivered

    async def rotate() -> None:
        await asyncio.sleep(1.0)
        async with KeyDesk(
            mesh.addresses["signer"], certificates=mesh.certificates("operator-admin")
        ) as keys:
            await keys.rotate(SOURCE)

    await asyncio.gather(rotate(), *(lane() for _ in range(CONCURRENT)))
    return sent, lost, await _refused_for_keys(mesh) - before


def test_rotation_under_load_refuses_nobody(benchmark: Any, runner: asyncio.Runner, mesh: DemoMesh) -> None:
    assert set(SERVICES) >= {"shield", "signer"}
    producer = runner.run(mesh.producer().__aenter__())
    results: list[tuple[int, int, int]] = []

    def repeat() -> None:
        results.append(runner.run(_rotate_under_load(mesh, producer)))

    benchmark.pedantic(repeat, rounds=1, iterations=1, warmup_rounds=0)
    runner.run(producer.__aexit__(None, None, None))
    sent, lost, refused = results[0]
    record(
        "rotation under load: valid commands refused",
        values=[float(lost + refused)],
        unit="commands",
        target="0",
        note=f"of {sent:,} sent",
    )
    assert (lost, refused) == (0, 0)
