"""Overload: goodput of many saturating streams against few, and a neighbour of 300 connections of one source."""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import pytest

from bench.conftest import ROOMY
from bench.targets import SHORT, Targets
from tests.support.mesh import NAME, SOURCE, TARGET, TENANT, DemoMesh, demo_mesh

SECONDS, WARM_UP = (9.0, 3.0) if SHORT else (24.0, 4.0)
REPEATS = 1 if SHORT else 5
# Of goodput: a pair takes a minute and a half.
PAIRS = 1 if SHORT else 3
FEW, MANY = 8, 500
CONNECTIONS, PROCESSES = 300, 20
NEIGHBOUR = "neighbour"
LOWEST = ("nice", "-n", "19")
# Beyond the longest wait at the bounds, so that the figure is the work done.
PATIENT: dict[str, dict[str, object]] = {
    "mesh": {**ROOMY["mesh"], "budget_ms": 40_000},
    "slow": {"claim_lease_ms": 60_000},
    # Nobody receives: a tenant's share of the default would be full in the third pair of large batches.
    "mailbox": {**ROOMY["mailbox"], "max_store_bytes": 1 << 40},
}


@pytest.fixture(scope="module")
def mesh(runner: asyncio.Runner, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DemoMesh]:
    context = demo_mesh(tmp_path_factory.mktemp("overload"), settings={**ROOMY, **PATIENT})
    running = runner.run(context.__aenter__())

    async def register() -> None:
        async with running.operator() as operator:
            await running.register_service(operator, NEIGHBOUR)
            await operator.grant(f"{TENANT}/{NEIGHBOUR}", TARGET, NAME)

    runner.run(register())
    yield running
    runner.run(context.__aexit__(None, None, None))


class Crowd:
    """Processes of bench/overload_process.py, connected and waiting for the start line.

    `aside` gives them the lowest priority: clients have machines of their own, and what they take of these two cores is
    not the mesh's doing.
    """

    def __init__(
        self,
        mesh: DemoMesh,
        processes: int,
        service: str = SOURCE.partition("/")[2],
        *,
        aside: bool = False,
        **told: Any,
    ) -> None:
        given = {
            "shield": mesh.addresses["shield"],
            "signer": mesh.addresses["signer"],
            "certificates": str(mesh.certificates(f"{TENANT}-{service}")),
            "target": TARGET,
            "name": NAME,
            "payload": 200,
            "seconds": SECONDS,
            "warm_up": WARM_UP,
            **told,
        }
        self._running = [
            subprocess.Popen(
                [
                    *(LOWEST if aside else ()),
                    sys.executable,
                    "-m",
                    "bench.overload_process",
                    json.dumps(given),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for _ in range(processes)
        ]
        for process in self._running:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"

    def go(self) -> None:
        for process in self._running:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()

    def seen(self) -> tuple[Counter[str], list[float]]:
        reasons: Counter[str] = Counter()
        waits_s: list[float] = []
        for process in self._running:
            assert process.stdout is not None
            told = json.loads(process.stdout.readline())
            reasons.update(told["reasons"])
            waits_s += told["waits_s"]
            process.wait(60)
        return reasons, waits_s


@dataclass(frozen=True)
class Shape:
    """Batches of the saturating streams; `warm_up` is longer than it takes to fill every bound on the way."""

    batch: int
    payload: int
    seconds: float
    warm_up: float


# A thousand large batches are 200 MB: at the streams' start they only fill what waits.
SHAPES = [Shape(50, 200, SECONDS, WARM_UP), Shape(200, 1000, SECONDS + 12.0, WARM_UP + 8.0)]


def goodput(mesh: DemoMesh, streams: int, shape: Shape) -> tuple[float, Counter[str]]:
    """Deliveries per second of `streams` saturating streams, and every outcome; from two processes each time."""
    crowd = Crowd(mesh, 2, producers=streams // 2, at_once=2, **asdict(shape))
    crowd.go()
    reasons, _ = crowd.seen()
    return reasons["delivered"] / (shape.seconds - shape.warm_up), reasons


def p95_ms(waits_s: list[float]) -> float:
    return 1000 * statistics.quantiles(waits_s, n=20)[-1]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: f"{shape.batch} x {shape.payload} B")
def test_many_saturating_streams_get_as_much_done_as_few(mesh: DemoMesh, shape: Shape) -> None:
    targets, ratios = Targets(), list[float]()
    refused: Counter[str] = Counter()
    for _ in range(PAIRS):
        few, alone = goodput(mesh, FEW, shape)
        assert alone.keys() == {"delivered"}, "few streams meet no bound"
        many, reasons = goodput(mesh, MANY, shape)
        ratios.append(many / few)
        refused.update({reason: count for reason, count in reasons.items() if reason != "delivered"})
        print(f"goodput: {few:,.0f} /s at {FEW} streams, {many:,.0f} /s at {MANY}; refused {dict(refused)}")
    targets.at_least(
        f"goodput at {MANY} saturating streams, of that at {FEW}, batches of {shape.batch} x {shape.payload} B",
        ratios,
        floor=0.8,
        unit="x",
        note=f"refused meanwhile: {dict(refused) or 'nothing'}",
    )
    targets.require()


def test_neighbour_of_300_connections_of_one_source_waits_at_most_twice_as_long(mesh: DemoMesh) -> None:
    targets, ratios = Targets(), list[float]()
    for _ in range(REPEATS):
        alone = Crowd(mesh, 1, NEIGHBOUR, producers=1, every_s=0.02)
        alone.go()
        _, alone_s = alone.seen()
        crowd = Crowd(mesh, PROCESSES, aside=True, producers=CONNECTIONS // PROCESSES, every_s=1.0)
        neighbour = Crowd(mesh, 1, NEIGHBOUR, producers=1, every_s=0.02)
        crowd.go()
        neighbour.go()
        _, beside_s = neighbour.seen()
        reasons, _ = crowd.seen()
        assert reasons.keys() == {"delivered"}, "all of them are served"
        assert reasons["delivered"] >= CONNECTIONS
        ratios.append(p95_ms(beside_s) / p95_ms(alone_s))
        print(f"p95 alone {p95_ms(alone_s):.2f} ms, beside {CONNECTIONS} {p95_ms(beside_s):.2f} ms")
    targets.at_most(
        f"p95 beside {CONNECTIONS} connections of one source from {PROCESSES} processes, of that alone",
        ratios,
        ceiling=2.0,
        unit="x",
    )
    targets.require()
