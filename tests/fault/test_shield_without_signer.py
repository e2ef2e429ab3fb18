"""Signer is killed, then Shield too; Shield restarts alone and admits commands, from the sealed snapshot."""

from __future__ import annotations

import asyncio

import pytest

from snavio.launch.probes import Probes
from snavio.signed.snapshot_manifest import PLACES, read_manifest
from snavio.signed.snapshot_reader import LOADED
from tests.support.mesh import NAME, TARGET, DemoMesh

WITHIN_S = 20.0
pytestmark = pytest.mark.asyncio(loop_scope="module")


SETTINGS: dict[str, dict[str, object]] = {"signer": {"snapshot_interval_s": 1.0}}


async def published(mesh: DemoMesh) -> None:
    """A snapshot from after the demo tenant was registered."""
    path = mesh.processes.mesh.snapshots() / PLACES["hmac"]
    async with asyncio.timeout(WITHIN_S):
        while not path.exists() or read_manifest(path.read_bytes()).manifest.parts[0].rows < 2:
            await asyncio.sleep(0.05)


async def counter(mesh: DemoMesh, name: str) -> int:
    operator = mesh.certificates("operator-admin")
    async with Probes(mesh.processes.mesh, certificates=operator) as probes:
        status = await probes.status("shield")
        assert status is not None
        return sum(count.value for count in status.counter if count.name == name)


async def test_shield_starts_and_serves_while_signer_is_away(mesh: DemoMesh) -> None:
    await published(mesh)
    async with mesh.producer() as producer:
        assert (await producer.send(TARGET, NAME, b"before")).delivered
        mesh.processes.kill("signer")
        mesh.processes.kill("shield")
        await asyncio.to_thread(mesh.processes.restart, "shield")
        # With keys that the producer has; those of Shield are from the snapshot.
        assert (await producer.send(TARGET, NAME, b"alone", timeout_s=WITHIN_S)).delivered
        assert await counter(mesh, LOADED) == 1
        await asyncio.to_thread(mesh.processes.restart, "signer")
        assert (await producer.send(TARGET, NAME, b"after")).delivered
