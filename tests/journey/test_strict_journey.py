"""A strict command through the real processes: once, whatever is sent again and whoever was restarted meanwhile."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from snavio.domain.verdict import Verdict
from snavio.v1 import registry_pb2 as reg
from tests.support.mesh import SOURCE, TARGET, DemoMesh, demo_mesh

STRICT = "refund"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def mesh(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[DemoMesh]:
    # A window of the mailbox's own that is shorter than a restart takes must not matter.
    short: dict[str, dict[str, object]] = {"mailbox": {"replay_window_ms": 1000}}
    async with demo_mesh(tmp_path_factory.mktemp("strict"), settings=short) as running:
        async with running.operator() as operator:
            route = reg.Route(target=TARGET, name=STRICT, dedupe_mode=reg.DEDUPE_MODE_STRICT)
            await operator._write("PutRoute", reg.PutRouteRequest(route=route))
            await operator.grant(SOURCE, TARGET, STRICT)
        yield running


pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_duplicates_get_the_first_outcome_seven_times_and_arrive_once(mesh: DemoMesh) -> None:
    command_id = str(uuid.uuid4())
    async with mesh.producer() as producer, mesh.consumer() as consumer:
        first = await producer.send(TARGET, STRICT, b"10 EUR", command_id=command_id)
        assert first.verdict is Verdict.DELIVERED
        for _ in range(7):
            again = await producer.send(TARGET, STRICT, b"10 EUR", command_id=command_id)
            assert (again.verdict, again.delivered) == (Verdict.DUPLICATE, True)
        other = await producer.send(TARGET, STRICT, b"1000 EUR", command_id=command_id)
        assert other.verdict is Verdict.CONFLICT
        marker = await producer.send(TARGET, STRICT, b"the end")
        received = []
        async for command in consumer:
            received.append(command.command_id)
            await command.ack()
            if command.command_id == marker.command_id:
                break
        assert received == [command_id, marker.command_id]


async def test_a_restart_of_fast_and_slow_forgets_no_id(mesh: DemoMesh) -> None:
    command_id = str(uuid.uuid4())
    async with mesh.producer() as producer:
        first = await producer.send(TARGET, STRICT, b"x", command_id=command_id)
        assert first.verdict is Verdict.DELIVERED
        for service in ("fast", "slow"):
            mesh.processes.kill(service)
            await asyncio.to_thread(mesh.processes.restart, service)
        verdicts = set()
        async with asyncio.timeout(60):
            while Verdict.DUPLICATE not in verdicts:
                verdicts.add((await producer.send(TARGET, STRICT, b"x", command_id=command_id)).verdict)
        assert Verdict.DELIVERED not in verdicts
