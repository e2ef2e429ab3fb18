"""The freeze on a mesh of several instances, all real processes: each confirms it, or is reported as unconfirmed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import orjson
import pytest
import pytest_asyncio

from snavio.admin.freeze import Acknowledgement, FreezeOrder, FrozenSubject, KillSwitch
from snavio.clock import SystemClock
from snavio.domain.verdict import Verdict
from snavio.sdk import Producer
from snavio.v1.registry_pb2 import PROFILE_CRITICAL
from tests.conftest import MeshSections
from tests.support.mesh import SOURCE, TARGET, DemoMesh
from tests.support.redis import redis_server
from tests.support.terminal import snavio

CRITICAL = "open-door"
EVERYBODY = {"fast-0", "fast-1", "slow-0", "slow-1"}
pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def mesh_settings(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[MeshSections]:
    """One Redis under both Slows."""
    async with redis_server(tmp_path_factory.mktemp("several") / "redis", fsync=None) as redis:
        yield {"slow": {"coordination": "redis", "coordination_url": redis.url}}


async def furnish(mesh: DemoMesh) -> None:
    """Two paths: shield-0 over fast-0 and slow-0, shield-1 over fast-1 and slow-1."""
    slow = await mesh.another("slow", "slow-1")
    fast = await mesh.another("fast", "fast-1", slow=slow)
    mesh.addresses["shield-1"] = await mesh.another("shield", "shield-1", fast=fast)
    async with mesh.operator() as operator:
        await operator.put_route(TARGET, CRITICAL, profile=PROFILE_CRITICAL)
        await operator.grant(SOURCE, TARGET, CRITICAL)


def way(mesh: DemoMesh, shield: str) -> Producer:
    return Producer(
        shield=mesh.addresses[shield],
        signer=mesh.addresses["signer"],
        certificates=mesh.certificates("acme-billing"),
    )


def switch(mesh: DemoMesh) -> KillSwitch:
    return KillSwitch(
        mesh.addresses["registry"], certificates=mesh.certificates("operator-admin"), clock=SystemClock()
    )


async def words(kill: KillSwitch, order: FreezeOrder, within_s: float = 20) -> dict[str, Acknowledgement]:
    return {ack.instance: ack async for ack in kill.acknowledgements(order, within_s=within_s)}


@pytest.mark.parametrize(
    ("subject", "verdict", "instances"),
    [
        (FrozenSubject(target=TARGET, name=CRITICAL), Verdict.FROZEN, EVERYBODY),
        (FrozenSubject(source=SOURCE), Verdict.SUSPENDED, {"shield-0", "shield-1", "slow-0", "slow-1"}),
    ],
    ids=["command", "source"],
)
async def test_every_instance_gives_its_word_and_keeps_it(
    mesh: DemoMesh, subject: FrozenSubject, verdict: Verdict, instances: set[str]
) -> None:
    async with switch(mesh) as kill, way(mesh, "shield") as one, way(mesh, "shield-1") as two:
        for producer in (one, two):
            assert (await producer.send(TARGET, CRITICAL, b"")).delivered
        order = await kill.order(subject, frozen=True, reason="drill")
        assert order.bound_s == (180.0 if subject.source else 5.0)
        acks = await words(kill, order)
        assert {name: ack.obeys for name, ack in acks.items()} == dict.fromkeys(instances, True)
        for producer in (one, two):
            assert (await producer.send(TARGET, CRITICAL, b"")).verdict is verdict
        order = await kill.order(subject, frozen=False, reason="over")
        assert all(ack.obeys for ack in (await words(kill, order)).values())
        for producer in (one, two):
            assert (await producer.send(TARGET, CRITICAL, b"")).delivered


async def test_an_instance_that_ended_without_a_word_is_named_and_the_others_are_not_waited_for(
    mesh: DemoMesh, tmp_path: Path
) -> None:
    mesh.processes.kill("fast-1")
    asked = ("freeze", TARGET, CRITICAL, "--wait", "10", "--config", str(mesh.processes.config), "--json")
    ran = await asyncio.to_thread(snavio, *asked, folder=tmp_path)
    assert ran.returncode == 1, ran.stderr
    told = orjson.loads(ran.stdout)
    obeys = {ack["instance"]: ack["obeys"] for ack in told["acknowledgements"]}
    assert obeys == {**dict.fromkeys(EVERYBODY, True), "fast-1": False}
    (silent,) = (ack for ack in told["acknowledgements"] if not ack["obeys"])
    assert "when it last called" in silent["detail"]
    assert told["bound_s"] == 5.0
    await asyncio.to_thread(mesh.processes.restart, "fast-1")
    async with switch(mesh) as kill:
        order = await kill.order(FrozenSubject(target=TARGET, name=CRITICAL), frozen=False)
        acks = await words(kill, order)
        assert {name: ack.obeys for name, ack in acks.items()} == dict.fromkeys(EVERYBODY, True)
