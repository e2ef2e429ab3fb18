"""A second machine joins: Shield and Fast with nothing of the first machine but two tokens and its addresses."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from snavio.errors import SnavioError
from snavio.rpc.renewal import Leaf
from snavio.sdk import Producer
from tests.support.mesh import NAME, TARGET, DemoMesh, demo_mesh


async def signers_machine(mesh: DemoMesh, *words: str) -> subprocess.CompletedProcess[str]:
    """`python -m services.signer join-token` there."""
    return await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-P", "-m", "services.signer", "join-token", *words],
        env=mesh.processes._environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


async def joined(mesh: DemoMesh, machine: Path, service: str, **calls: str) -> str:
    """One more instance of `service` on `machine`; its address."""
    made = await signers_machine(mesh, service, "--config", str(mesh.processes.config))
    assert made.returncode == 0, made.stderr
    machine.mkdir(exist_ok=True)
    (machine / f"{service}.token").write_text(made.stdout)
    return await mesh.another(
        service,
        f"{service}-1",
        state_dir=str(machine),
        join_token=str(machine / f"{service}.token"),
        enrolment=mesh.processes.enrolment,
        **calls,
    )


async def test_commands_go_through_a_machine_that_joined(tmp_path: Path) -> None:
    machine = tmp_path / "second"
    async with demo_mesh(tmp_path / "first") as mesh:
        fast = await joined(mesh, machine, "fast")
        shield = await joined(mesh, machine, "shield", fast=fast)
        # What it has of the mesh is its own.
        assert {path.name for path in (machine / "certs").iterdir()} == {"fast", "shield"}
        first = Leaf.in_folder(mesh.certificates("fast"))
        assert Leaf.in_folder(machine / "certs" / "fast").serial != first.serial

        async with Producer(
            shield=shield,
            signer=mesh.addresses["signer"],
            certificates=mesh.certificates("acme-billing"),
        ) as producer:
            sent = await producer.send_batch([(TARGET, NAME, b"%d" % number) for number in range(100)])
            assert sent.delivered == 100
        got = set()
        async with mesh.consumer() as consumer:
            async for command in consumer:
                got.add(command.payload)
                await command.ack()
                if len(got) == 100:
                    break

        # The token is spent, and nobody needs it again.
        (machine / "shield.token").unlink()
        await asyncio.to_thread(mesh.processes.kill, "shield-1")
        mesh.processes.spawn("shield-1")
        await asyncio.to_thread(mesh.processes.wait_ready, "shield-1")


async def test_spent_token_is_told_in_one_sentence(tmp_path: Path) -> None:
    async with demo_mesh(tmp_path / "first") as mesh:
        await joined(mesh, tmp_path / "second", "fast")
        (tmp_path / "third").mkdir()
        (tmp_path / "third" / "fast.token").write_text((tmp_path / "second" / "fast.token").read_text())
        with pytest.raises(SnavioError, match="This token is not good"):
            await mesh.another(
                "fast",
                "fast-2",
                state_dir=str(tmp_path / "third"),
                join_token=str(tmp_path / "third" / "fast.token"),
                enrolment=mesh.processes.enrolment,
            )
        refused = await signers_machine(mesh, "signer", "--config", str(mesh.processes.config))
        assert refused.returncode == 2 and "Traceback" not in refused.stderr
