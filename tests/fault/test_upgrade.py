"""State folders of earlier versions, left behind by meshes that were killed: they open, and nothing is lost.

`make release-fixtures` makes the one of this version.
"""

from __future__ import annotations

import asyncio
import json
import tarfile
from pathlib import Path

import pytest

from services.signer.bootstrap import prepare
from services.signer.settings import SignerSettings
from snavio.admin.keys import KeyClient
from snavio.admin.operator import Operator
from snavio.admin.queue import QueueClient
from snavio.clock import SystemClock
from snavio.domain.identity import DEFAULT_TRUST_DOMAIN, Identity, IdentityKind
from snavio.errors import SnavioError
from snavio.launch.processes import MeshProcesses
from tests.support.mesh import NAME, SOURCE, TARGET, TENANT, TOPIC, DemoMesh

FIXTURES = Path(__file__).parents[1] / "vectors" / "state"


@pytest.mark.parametrize("version", ["15c7f7f", "0.1.0"])
async def test_state_folder_of_an_earlier_version_opens_and_has_all_that_was_acknowledged(
    tmp_path: Path, version: str
) -> None:
    with tarfile.open(FIXTURES / f"{version}.tar.gz") as tar:
        tar.extractall(tmp_path, filter="tar")
    state = tmp_path / "state"
    expected = json.loads((state / "expected.json").read_text())
    processes = MeshProcesses.temporary(state, settings={"mesh": {"pull_interval_ms": 100}})
    # Whatever ended since is renewed as `snavio up` renews it, from the CA in the sealed store.
    await prepare(processes.mesh, SignerSettings(), clock=SystemClock())
    processes.begin()
    try:
        mesh = DemoMesh(processes)
        async with mesh.operator() as operator:
            for service in ("billing", "bot"):
                identity = Identity(DEFAULT_TRUST_DOMAIN, IdentityKind.SERVICE, service, TENANT)
                await operator.certify(identity, mesh.certificates(f"{TENANT}-{service}"))
        await _messages(mesh, expected)
        await _rights(mesh, expected)
        await _archived(processes)
    finally:
        processes.stop()


async def _messages(mesh: DemoMesh, expected: dict[str, dict[str, str]]) -> None:
    ready = dict(expected["ready"])
    async with asyncio.timeout(60), mesh.consumer() as consumer:
        async for command in consumer:
            assert command.payload[:3].decode() == ready.pop(command.command_id)
            await command.ack(durable=True)
            if not ready:
                break
    admin = mesh.certificates("operator-admin")
    async with QueueClient(
        mesh.addresses["mailbox"], certificates=admin, signer=mesh.addresses["signer"]
    ) as queue:
        dead = {one.command_id async for one in queue.dlq(TOPIC)}
        (stats,) = [one for one in await queue.stats(TOPIC) if one.topic == TOPIC]
    assert dead == set(expected["dead"])
    assert stats.ready == 0


async def _rights(mesh: DemoMesh, expected: dict[str, str]) -> None:
    async with mesh.producer() as producer:
        assert (await producer.send(TARGET, NAME, b"after")).delivered
        assert (await producer.send(TARGET, "limited", b"after")).delivered
        refused = await producer.send(TARGET, "forbidden", b"after")
    assert (refused.delivered, refused.reason) == (False, "acl-deny")
    thief = Operator(
        signer_address=mesh.addresses["signer"],
        registry_address=mesh.addresses["registry"],
        certificates=mesh.certificates("operator-thief"),
    )
    async with thief:
        with pytest.raises(SnavioError):
            await thief.create_tenant("stolen")
    async with KeyClient(mesh.addresses["signer"], certificates=mesh.certificates("operator-admin")) as keys:
        status = await keys.status(SOURCE)
    assert expected["key"] in str(status.keyset)


async def _archived(processes: MeshProcesses) -> None:
    """Pages that waited in the outbox reach the archive."""
    async with asyncio.timeout(60):
        while not list((processes.state_dir / "archive").rglob("*.parquet")):
            await asyncio.sleep(0.1)
