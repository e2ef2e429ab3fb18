"""`snavio bans` against a real Registry: its output, answers and exit codes."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import orjson
import pytest

from snavio.admin.bans import JOB_FOLDER, BanClient, Proposal
from tests.integration.test_registry import acme
from tests.support.control import Control, control_plane
from tests.support.terminal import snavio

MINUTE = 60_000_000_000


@pytest.fixture
async def control(tmp_path: Path) -> AsyncIterator[Control]:
    async with control_plane(tmp_path / "state", registry=True) as running:
        await acme(running)
        config = f'[mesh]\nstate_dir = "{running.mesh.state_dir}"\nregistry = "{running.mesh.registry}"\n'
        (tmp_path / "snavio.toml").write_text(config)
        yield running


async def run(folder: Path, *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    ran = await asyncio.to_thread(snavio, "bans", *words, folder=folder)
    assert ran.returncode == code, (ran.stdout, ran.stderr)
    return ran


async def test_a_ban_is_listed_explained_and_lifted(control: Control, tmp_path: Path) -> None:
    now = control.clock.unix_ns()
    proposal = Proposal(
        "v1:dominance:1", "v1", "dominance", "acme/billing", ("bot:Ping",), 7,
        now - 2 * MINUTE, now - MINUTE, now + 10 * MINUTE, evidence='{"share":0.97}', provisional=True,
    )  # fmt: skip
    async with BanClient(control.mesh.registry, certificates=control.mesh.certificates(JOB_FOLDER)) as client:
        await client.propose([proposal])
    (listed,) = orjson.loads((await run(tmp_path, "ls", "--json")).stdout)["bans"]
    assert (listed["list"], listed["source"], listed["command"]) == ("warm-ban", "acme/billing", "Ping")
    told = (await run(tmp_path, "explain", "acme/billing")).stdout
    assert "warm-ban on bot Ping, ends in " in told
    assert "proposal v1:dominance:1: provisional, applied " in told
    assert '"share":0.97' in told
    wrong = await run(tmp_path, "lift", "acme/billing", "--target", "bat", code=1)
    assert "It has bans on bot Ping." in wrong.stderr
    lifted = (await run(tmp_path, "lift", "acme/billing", "--reason", "they called")).stdout
    assert lifted == "acme/billing is back on the warm path of bot Ping.\n"
    assert (await run(tmp_path, "ls")).stdout == "No source is banned.\n"
