"""Every service is ended with SIGTERM under load and started again: no outcome is unknown, none fails after retries."""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from snavio.config.sections import SERVICES
from snavio.sdk import Producer
from snavio.sdk.outcome import Outcome
from snavio.v1 import registry_pb2 as reg
from tests.support.mesh import NAME, SOURCE, TARGET, DemoMesh, demo_mesh

FULL = os.environ.get("SNAVIO_FULL") == "1"
STATELESS = ("fast", "shield", "slow", "gateway")
STORES = ("mailbox", "registry", "signer", "relay")
ROUNDS = 5 if FULL else 1
STRICT, SENDERS, SOME, WITHIN_S = "refund", 12, 40, 90.0


class Load:
    """Warm and strict commands, one after another from each sender; every outcome is kept."""

    def __init__(self) -> None:
        self.ending = asyncio.Event()
        self.delivered: Counter[str] = Counter()
        self.failed: list[Outcome] = []
        self.retried = 0
        self.longest_s = 0.0
        self._numbers = itertools.count()

    async def send(self, producer: Producer, name: str) -> None:
        while not self.ending.is_set():
            began = time.monotonic()
            outcome = await producer.send(TARGET, name, b"%d" % next(self._numbers))
            self.longest_s = max(self.longest_s, time.monotonic() - began)
            self.retried += outcome.attempts > 1
            if outcome.delivered:
                self.delivered[name] += 1
            else:
                self.failed.append(outcome)
                await asyncio.sleep(0.05)

    async def grows(self) -> None:
        """Some more commands of each kind are delivered, all of them sent from now on."""
        goal = {name: self.delivered[name] + SOME + SENDERS for name in (NAME, STRICT)}
        async with asyncio.timeout(WITHIN_S):
            while any(self.delivered[name] < goal[name] for name in goal):
                await asyncio.sleep(0.01)


@asynccontextmanager
async def loaded(mesh: DemoMesh) -> AsyncIterator[Load]:
    load = Load()
    async with mesh.producer() as one, mesh.producer() as other, asyncio.TaskGroup() as group:
        for number in range(SENDERS):
            producer = one if number % 2 else other
            group.create_task(load.send(producer, NAME if number % 4 < 2 else STRICT))
        try:
            await load.grows()
            yield load
        finally:
            load.ending.set()


async def restart(mesh: DemoMesh, service: str) -> float:
    """End it in order and start it again; the seconds of the start."""
    mesh.processes.terminate(service)
    while mesh.processes.ended(service) is None:
        await asyncio.sleep(0.005)
    assert mesh.processes.ended(service) == 0, mesh.processes.last_words(service)
    mesh.processes.forget(service)
    ended = time.monotonic()
    # Not on another thread: the process ends with the thread that started it.
    mesh.processes.spawn(service)
    await asyncio.to_thread(mesh.processes.wait_ready, service)
    return time.monotonic() - ended


@pytest.mark.timeout(900)
async def test_planned_restart_of_any_service_leaves_nothing_unknown_and_fails_nothing(
    tmp_path: Path, figure: Callable[[str], None]
) -> None:
    assert {*STATELESS, *STORES} == set(SERVICES)
    async with demo_mesh(tmp_path) as mesh:
        async with mesh.operator() as operator:
            route = reg.Route(target=TARGET, name=STRICT, dedupe_mode=reg.DEDUPE_MODE_STRICT)
            await operator._write("PutRoute", reg.PutRouteRequest(route=route))
            await operator.grant(SOURCE, TARGET, STRICT)
        told: list[str] = []
        for service in (STATELESS + STORES) * ROUNDS:
            async with loaded(mesh) as load:
                began = time.monotonic()
                starting_s = await restart(mesh, service)
                whole_s = time.monotonic() - began
                await load.grows()
            sent = sum(load.delivered.values()) + len(load.failed)
            verdicts = Counter((outcome.reason, outcome.detail) for outcome in load.failed)
            assert not verdicts, (service, verdicts)
            told.append(
                f"{service}: {sent} commands, {load.retried} retried, longest {load.longest_s:.2f} s "
                f"(SIGTERM to ready {whole_s:.2f} s, {starting_s:.2f} s of it to start)"
            )
    figure("planned restarts under load, 0 unknown, 0 failed: " + "; ".join(told))
