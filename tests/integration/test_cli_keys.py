"""`snavio keys` against a real Signer: its output, answers and exit codes."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from typer.testing import CliRunner

from snavio.cli.key_views import spread_line
from snavio.cli.keys import keys
from snavio.v1 import signer_pb2 as wire
from tests.support.control import ADMIN, Control, control_plane
from tests.support.terminal import snavio

SOURCE = "acme/billing"
DAY_S = 24 * 3600


class CommandLine:
    """An operator's terminal beside a Signer whose clock the test moves."""

    def __init__(self, control: Control, folder: Path) -> None:
        self.control, self.folder = control, folder
        config = f'[mesh]\nstate_dir = "{control.mesh.state_dir}"\nsigner = "{control.mesh.signer}"\n'
        (folder / "snavio.toml").write_text(config)

    async def run(self, *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        ran = await asyncio.to_thread(snavio, "keys", *words, folder=self.folder)
        assert ran.returncode == code, (ran.stdout, ran.stderr)
        return ran

    async def told(self, *words: str, code: int = 0) -> Any:
        return orjson.loads((await self.run(*words, "--json", code=code)).stdout)

    async def poll(self) -> None:
        await self.control.certify("tenant/acme/service/billing", "billing")
        await self.control.sign(
            "billing", "TenantConfig", wire.TenantConfigRequest(), wire.TenantConfigResponse
        )

    async def heard(self, shield: str, *, has: bool) -> None:
        """A Shield reports its version: the newest, or none."""
        request = wire.KeysetChangesRequest()
        there = await self.control.sign("shield", "KeysetChanges", request, wire.KeysetChangesResponse)
        request = wire.KeysetChangesRequest(
            holder=shield,
            store_epoch=there.store_epoch,
            since_version=there.version if has else 0,
            good_for_ms=180_000,
        )
        await self.control.sign("shield", "KeysetChanges", request, wire.KeysetChangesResponse)

    async def use(self, version: str, commands: int) -> None:
        row = wire.KeyUse(source=SOURCE, key_version=version, commands=commands)
        await self.control.sign(
            "shield", "ReportKeyUsage", wire.ReportKeyUsageRequest(use=[row]), wire.ReportKeyUsageResponse
        )


@pytest.fixture
async def cli(tmp_path: Path) -> AsyncIterator[CommandLine]:
    async with control_plane(tmp_path / "state") as control:
        request = wire.CreateKeysetRequest(source=SOURCE)
        await control.sign(ADMIN, "CreateKeyset", request, wire.KeysetStatus)
        yield CommandLine(control, tmp_path)


async def test_a_rotation_from_its_start_until_the_old_key_may_go(cli: CommandLine) -> None:
    await cli.heard("shield-0:1", has=True)
    await cli.heard("shield-1:1", has=False)
    rotated = await cli.told("rotate", SOURCE)
    assert [shield["up_to_date"] for shield in rotated["shields"]] == [False, False]
    await cli.heard("shield-0:1", has=True)
    waits = (await cli.run("status", SOURCE)).stdout
    assert "1 of 2 Shields have these keys: shield-0. hmac-v2 waits for: shield-1 (heard 0 s ago)." in waits
    await cli.heard("shield-1:1", has=True)
    assert [version["state"] for version in rotated["versions"]] == ["primary", "spreading"]
    await cli.control.spread_keys()
    await cli.poll()
    cli.control.clock.advance(seconds=2 * DAY_S)
    await cli.use("hmac-v1", 1)
    await cli.use("hmac-v2", 3)

    busy = (await cli.run("status", SOURCE)).stdout
    assert "Safe to retire hmac-v1? No: it signed 1 command in the last 48 h." in busy
    assert "25.0 %" in busy
    assert "in 5 d 0 h" in busy or "in 4 d 23 h" in busy
    assert "last poll 2 d 0 h ago" in busy

    cli.control.clock.advance(seconds=2 * DAY_S + 3600)
    quiet = await cli.told("status", SOURCE)
    old = quiet["versions"][0]
    assert (old["state"], old["safe_to_retire"], old["last_24h"]) == ("previous", True, 0)
    assert "asked since the rotation" in old["reason"]

    raised = await cli.told("minimum", SOURCE, "hmac-v2")
    assert (raised["minimum"], raised["versions"][0]["state"]) == ("hmac-v2", "revoked")


async def test_list_shows_every_source_and_revocation_its_successor(cli: CommandLine) -> None:
    (listed,) = (await cli.told("ls"))["keysets"]
    assert (listed["source"], listed["primary"], listed["last_poll"]) == (SOURCE, "hmac-v1", None)
    shown = (await cli.run("ls")).stdout.splitlines()
    assert shown[0].split() == ["source", "primary", "also", "accepted", "last", "poll", "next", "rotation"]
    assert shown[1].split()[:2] == [SOURCE, "hmac-v1"]
    assert (await cli.told("revoke", SOURCE, "hmac-v1"))["primary"] == "hmac-v2"


async def test_refusals_are_one_sentence_and_exit_code_one(cli: CommandLine) -> None:
    await cli.control.sign(ADMIN, "RotateKeyset", wire.RotateKeysetRequest(source=SOURCE), wire.KeysetStatus)
    refused = await asyncio.gather(
        cli.told("rotate", SOURCE, "--newest", "hmac-v1", code=1),
        cli.told("minimum", SOURCE, "hmac-v2", code=1),
        cli.told("revoke", SOURCE, "hmac-v9", code=1),
        cli.told("status", "acme/nobody", code=1),
    )
    assert [answer["error"]["reason"] for answer in refused] == [
        "rotation-under-way",
        "minimum-above-primary",
        "unknown-key-version",
        "no-keyset",
    ]


def test_a_silent_shield_is_told_from_one_that_is_only_late() -> None:
    now = 1_700_000_000 * 10**9
    status = wire.KeysetStatus(now_unix_ns=now)
    assert spread_line(status) == "No Shield has been heard."
    status.holder.add(name="shield-0:1", heard_unix_ns=now - 40 * 10**9, ends_unix_ns=now + 140 * 10**9)
    assert spread_line(status) == (
        "0 of 1 Shields have these keys. Not yet: shield-0 (last heard 40 s ago, waited for 2 min more at most)."
    )
    status.keyset.version.add(version="hmac-v2", state=wire.KEY_STATE_SPREADING)
    assert "hmac-v2 waits for: shield-0" in spread_line(status)
    status.holder[0].up_to_date = True
    assert spread_line(status) == "1 of 1 Shields have these keys: shield-0."


async def test_without_a_mesh_one_sentence_says_what_to_do(tmp_path: Path) -> None:
    ran = snavio("keys", "ls", folder=tmp_path)
    assert (ran.returncode, ran.stdout) == (3, "")
    assert "start one with `snavio up`" in ran.stderr


@pytest.mark.parametrize("command", ["ls", "status", "rotate", "revoke", "minimum"])
def test_every_command_teaches_with_examples(command: str) -> None:
    shown = CliRunner().invoke(keys, [command, "--help"])
    assert (shown.exit_code, f"snavio keys {command}" in shown.stdout) == (0, True)
