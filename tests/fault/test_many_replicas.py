"""Many replicas of one service, each process with its own connections: all are served, and so is a neighbour.

bench/test_overload.py measures the effect on the neighbour.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.mesh import NAME, TARGET, TENANT, DemoMesh, demo_mesh

FULL = os.environ.get("SNAVIO_FULL") == "1"
CONNECTIONS, PROCESSES = (300, 20) if FULL else (60, 4)
NEIGHBOUR, WITHIN_S = "neighbour", 300.0


async def replicas(mesh: DemoMesh, service: str, connections: int, ready: asyncio.Barrier) -> Counter[str]:
    """The outcomes of one process with that many simultaneous connections."""
    told = {
        "shield": mesh.addresses["shield"],
        "signer": mesh.addresses["signer"],
        "certificates": str(mesh.certificates(f"{TENANT}-{service}")),
        "target": TARGET,
        "name": NAME,
        "payload": 100,
        "producers": connections,
        "every_s": 0.5,
        "seconds": 2.0,
    }
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.overload_process", json.dumps(told)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=1 << 24,
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        assert await process.stdout.readline() == b"ready\n"
        await ready.wait()
        process.stdin.write(b"go\n")
        answer = json.loads(await process.stdout.readline())
        await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
    return Counter(answer["reasons"])


@pytest.mark.timeout(600)
async def test_every_replica_of_one_service_is_served_and_its_neighbour_too(
    tmp_path: Path, figure: Callable[[str], None]
) -> None:
    async with demo_mesh(tmp_path) as mesh, asyncio.timeout(WITHIN_S):
        async with mesh.operator() as operator:
            await mesh.register_service(operator, NEIGHBOUR)
            await operator.grant(f"{TENANT}/{NEIGHBOUR}", TARGET, NAME)
        # No one sends before all are connected.
        ready = asyncio.Barrier(PROCESSES + 1)
        async with asyncio.TaskGroup() as group:
            crowd = [
                group.create_task(replicas(mesh, "billing", CONNECTIONS // PROCESSES, ready))
                for _ in range(PROCESSES)
            ]
            neighbour = group.create_task(replicas(mesh, NEIGHBOUR, 1, ready))
        outcomes = sum((task.result() for task in crowd), Counter[str]())
    assert outcomes.keys() == {"delivered"} and outcomes["delivered"] >= CONNECTIONS
    assert neighbour.result().keys() == {"delivered"}
    figure(f"{CONNECTIONS} connections of one source from {PROCESSES} processes: {dict(outcomes)}")
