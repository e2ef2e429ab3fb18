"""Fast is killed in mid-traffic, and everything that got no answer is sent again: nothing is stored twice."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from snavio.sdk import Producer
from snavio.v1 import registry_pb2 as reg
from tests.support.mesh import SOURCE, TARGET, demo_mesh

STRICT = "refund"
KILLS = 20 if os.environ.get("SNAVIO_FULL") == "1" else 2
SENDERS, SOME, WITHIN_S = 8, 60, 60.0


class Till:
    """Sends each command under one id until it is delivered, however often that takes."""

    def __init__(self) -> None:
        self.verdicts: Counter[str] = Counter()
        self.delivered: set[str] = set()
        self.ending = asyncio.Event()

    async def work(self, producer: Producer) -> None:
        while not self.ending.is_set():
            command_id = str(uuid.uuid4())
            outcome = await producer.send(TARGET, STRICT, command_id.encode(), command_id=command_id)
            while not outcome.delivered:
                self.verdicts[outcome.verdict.name] += 1
                await asyncio.sleep(0.02)
                outcome = await producer.send(TARGET, STRICT, command_id.encode(), command_id=command_id)
            self.verdicts[outcome.verdict.name] += 1
            self.delivered.add(command_id)

    async def grows(self) -> None:
        goal = len(self.delivered) + SOME
        async with asyncio.timeout(WITHIN_S):
            while len(self.delivered) < goal:
                await asyncio.sleep(0.01)


@pytest.mark.timeout(900)
async def test_I_2_killed_fast_and_its_resends_double_nothing(
    tmp_path: Path, figure: Callable[[str], None]
) -> None:
    till = Till()
    stored: Counter[str] = Counter()
    async with demo_mesh(tmp_path) as mesh:
        async with mesh.operator() as operator:
            route = reg.Route(target=TARGET, name=STRICT, dedupe_mode=reg.DEDUPE_MODE_STRICT)
            await operator._write("PutRoute", reg.PutRouteRequest(route=route))
            await operator.grant(SOURCE, TARGET, STRICT)
        async with (
            Producer(
                shield=mesh.addresses["shield"],
                signer=mesh.addresses["signer"],
                certificates=mesh.certificates("acme-billing"),
                max_attempts=1,
            ) as producer,
            asyncio.TaskGroup() as group,
        ):
            for _ in range(SENDERS):
                group.create_task(till.work(producer))
            for _ in range(KILLS):
                await till.grows()
                mesh.processes.kill("fast")
                await asyncio.to_thread(mesh.processes.restart, "fast")
            await till.grows()
            till.ending.set()
        async with mesh.consumer() as consumer, asyncio.timeout(WITHIN_S):
            while till.delivered - stored.keys():
                command = await anext(consumer)
                stored[command.command_id] += 1
                await command.ack()
            # A second copy would be behind its first, but not behind this one.
            async with mesh.producer() as producer:
                marker = await producer.send(TARGET, STRICT, b"the end")
            while (command := await anext(consumer)).command_id != marker.command_id:
                stored[command.command_id] += 1
                await command.ack()
            await command.ack()
    assert stored.keys() == till.delivered and set(stored.values()) == {1}
    figure(f"{KILLS} kills of Fast: {len(stored)} strict commands, each stored once; {dict(till.verdicts)}")
