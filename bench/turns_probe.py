"""One turn of one commit: starts its mesh, measures it, ends it, and prints the figures as one line of JSON.

Runs on the code of the folder it is started in, with that folder's Python. It uses nothing of it but
`tests.support.mesh` and the wire, which other commits have too.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import grpc
import uvloop
from cryptography import x509

from snavio.v1.shield_pb2 import GreetRequest
from tests.support.mesh import NAME, TARGET, DemoMesh, demo_mesh

SERVICES = ("signer", "relay", "registry", "mailbox", "slow", "fast", "shield")
GREET = "/snavio.v1.Shield/Greet"
"""A method that only answers: the measurement is of the transport and the interceptor before it."""
WIRE_VERSION = 1
ROOMY: dict[str, dict[str, object]] = {
    "mesh": {"pull_interval_ms": 1000},
    "mailbox": {"max_topic_messages": 1_000_000_000, "max_replay_keys": 20_000_000},
}
SETTLE_S = 1.0
UNARY_CALLS = 1500
POUR_S = 3.0
LANES = 8
PAYLOAD = b"x" * 210
_TICK = os.sysconf("SC_CLK_TCK")


def cpu_s(pid: int) -> float:
    """User and system time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICK


def resident_mb(pid: int) -> float:
    """Resident memory of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def shield_channel(mesh: DemoMesh) -> Any:
    """A plain channel with the producer's certificate: no code of the SDK between the clock and the wire."""
    folder = mesh.certificates("acme-billing")
    chain, key, ca = _pem(folder)
    served = x509.load_pem_x509_certificate(_pem(mesh.certificates("shield"))[0])
    name = served.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    options = [("grpc.ssl_target_name_override", name.get_values_for_type(x509.DNSName)[0])]
    credentials = grpc.ssl_channel_credentials(ca, key, chain)
    return grpc.aio.secure_channel(mesh.addresses["shield"], credentials, options=options)


def _pem(folder: Path) -> tuple[bytes, bytes, bytes]:
    files = {path.name: path.read_bytes() for path in folder.glob("*.pem")}
    key = next(text for text in files.values() if b"PRIVATE KEY" in text)
    return files["cert.pem"], key, files["ca.pem"]


async def unary(mesh: DemoMesh) -> tuple[float, float]:
    """Median latency in ms, and CPU in µs of client and Shield together, of one call."""
    channel = shield_channel(mesh)
    call, request = channel.unary_unary(GREET), GreetRequest(wire_version=WIRE_VERSION).SerializeToString()
    for _ in range(UNARY_CALLS // 5):
        await call(request, timeout=10)
    pids, took = (os.getpid(), mesh.processes.pid("shield")), []
    before = sum(map(cpu_s, pids))
    for _ in range(UNARY_CALLS):
        begun = time.perf_counter()
        await call(request, timeout=10)
        took.append(time.perf_counter() - begun)
    used = sum(map(cpu_s, pids)) - before
    await channel.close()
    return statistics.median(took) * 1e3, used / UNARY_CALLS * 1e6


async def hops(mesh: DemoMesh) -> float:
    """CPU in µs of all processes, client too, for one command over three hops, in streams of 1000."""
    commands = [(TARGET, NAME, PAYLOAD)] * 1000

    async def pour(seconds: float) -> int:
        end = time.perf_counter() + seconds

        async def lane() -> int:
            delivered = 0
            while time.perf_counter() < end:
                delivered += (await producer.send_batch(commands)).delivered
            return delivered

        return sum(await asyncio.gather(*(lane() for _ in range(LANES))))

    pids = (os.getpid(), *(mesh.processes.pid(name) for name in SERVICES))
    async with mesh.producer() as producer:
        await pour(1.0)
        before = sum(map(cpu_s, pids))
        delivered = await pour(POUR_S)
        return (sum(map(cpu_s, pids)) - before) / delivered * 1e6


async def turn() -> dict[str, float]:
    """All figures of one start."""
    with tempfile.TemporaryDirectory(prefix="snavio-turn-") as folder:
        async with demo_mesh(Path(folder), settings=ROOMY) as mesh:
            pids = {name: mesh.processes.pid(name) for name in SERVICES}
            figures = {"start_cpu_s": sum(map(cpu_s, pids.values()))}
            await asyncio.sleep(SETTLE_S)
            figures |= {f"idle_mb.{name}": resident_mb(pid) for name, pid in pids.items()}
            figures["unary_p50_ms"], figures["unary_cpu_us"] = await unary(mesh)
            figures["command_cpu_us"] = await hops(mesh)
            return figures


if __name__ == "__main__":
    sys.stdout.write(json.dumps(uvloop.run(turn())) + "\n")
