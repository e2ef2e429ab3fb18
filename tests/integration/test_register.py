"""`snavio register`, `try`, `acl` and `access` against a real Registry, as a user runs them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import orjson
import pytest

from snavio.domain.directory import AclEntry
from snavio.errors import Unavailable
from snavio.v1 import registry_pb2 as wire
from tests.support.acme import apply, settle, version
from tests.support.control import Control, control_plane
from tests.support.enrolling import door
from tests.support.terminal import snavio

FILE = """\
tenant = "acme"
principals = ["ci"]
service = [{ name = "billing", principals = ["ci"] }, { name = "courier" }]
target = [{ name = "bot" }]

[[route]]
target = "bot"
command = "Ping"
profile = "critical"

[[route]]
target = "bot"
command = "Pong"
limit = { max = 100, interval_seconds = 60 }

[[acl]]
source = "billing"
target = "bot"
command = "Ping"

[[acl]]
source = "courier"
target = "bot"
command = "Pong"
"""


@dataclass
class CommandLine:
    """A folder with a registration file, whose snavio.toml leads to a running Registry."""

    folder: Path
    control: Control

    async def run(self, *words: str) -> CompletedProcess[str]:
        # On a thread: Registry is served by this test's own event loop.
        return await asyncio.to_thread(snavio, *words, folder=self.folder)

    async def told(self, *words: str, code: int = 0) -> Any:
        ran = await self.run(*words, "--json")
        assert ran.returncode == code, (ran.stdout, ran.stderr)
        return orjson.loads(ran.stdout)

    def write(self, text: str) -> None:
        (self.folder / "service.toml").write_text(text)


@pytest.fixture
async def cli(tmp_path: Path) -> AsyncIterator[CommandLine]:
    async with control_plane(tmp_path / "state", registry=True) as control:
        await settle(control)
        lines = ("[mesh]", f'state_dir = "{control.mesh.state_dir}"')
        addresses = (f'signer = "{control.mesh.signer}"', f'registry = "{control.mesh.registry}"')
        (tmp_path / "snavio.toml").write_text("\n".join([*lines, *addresses, ""]))
        running = CommandLine(tmp_path, control)
        running.write(FILE)
        yield running


async def test_registering_shows_the_difference_then_what_commands_meet(cli: CommandLine) -> None:
    before = await version(cli.control)
    told = await cli.told("register", "-f", "service.toml", "--dry-run", "--as", "acme")
    assert (told["dry_run"], told["changed"]) == (True, False)
    assert [(d["change"], d["kind"]) for d in told["differences"]] == [
        ("+", "principal"), ("~", "service"), ("+", "service"), ("~", "route"), ("+", "route"), ("+", "acl"),
    ]  # fmt: skip
    assert [(f["source"], f["passes"]) for f in told["forecast"]] == [
        ("acme/billing", True), ("acme/courier", True),
    ]  # fmt: skip
    assert await version(cli.control) == before
    ran = await cli.run("register", "-f", "service.toml", "--as", "acme")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "~ route bot Ping mailbox  profile: low → critical" in ran.stdout
    assert f"6 entries changed; the directory is at version {before + 6}." in ran.stdout
    assert "acme/courier → bot Pong: would be delivered (100 in 60 s" in ran.stdout
    again = await cli.run("register", "-f", "service.toml", "--as", "acme")
    assert "Nothing to change" in again.stdout
    assert await version(cli.control) == before + 6


async def test_wrong_file_applies_nothing_and_says_why(cli: CommandLine) -> None:
    before = await version(cli.control)
    cli.write(FILE.replace("profile", "profil"))
    ran = await cli.run("register", "-f", "service.toml")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "service.toml:9: unknown key 'profil' in [[route]]: did you mean 'profile'?" in ran.stderr
    # Well written, and half of it refused by Registry: a name that belongs to someone else.
    cli.write(FILE.replace('tenant = "acme"', 'tenant = "rival"'))
    ran = await cli.run("register", "-f", "service.toml")
    assert (ran.returncode, ran.stdout) == (1, ""), ran.stderr
    assert ran.stderr == "snavio: service.toml:4: The target name bot is taken.\n"
    # Several are told at once, each with its line.
    strange = '[[acl]]\nsource = "nosuch"\ntarget = "bot"\ncommand = "Ping"\n'
    cli.write(FILE + "\n" + strange + strange.replace("Ping", "Pang").replace("nosuch", "billing"))
    ran = await cli.run("register", "-f", "service.toml", "--dry-run")
    assert (ran.returncode, ran.stdout) == (1, ""), ran.stderr
    said = ran.stderr.splitlines()
    assert said[0] == "snavio: service.toml has 2 mistakes; nothing was registered:"
    assert [line.split(":")[1] for line in said[1:]] == ["26", "30"]
    assert await version(cli.control) == before


async def test_refused_command_is_explained_and_asked_for(cli: CommandLine) -> None:
    right = ("rival/shop", "bot", "Ping")
    ran = await cli.run("try", *right, "--as", "rival")
    assert (ran.returncode, ran.stderr) == (1, "")
    assert "FAIL  acl" in ran.stdout
    assert "refused with acl-deny at acl" in ran.stdout
    asked = await cli.run("access", "request", *right, "--reason", "receipts", "--as", "rival")
    assert (asked.returncode, asked.stdout) == (0, "Asked: the owner of bot decides.\n")
    told = await cli.control.ask(
        "acme", "ListAccessRequests", wire.ListAccessRequestsRequest(), wire.ListAccessRequestsResponse
    )
    assert [(request.source, request.reason) for request in told.incoming] == [("rival/shop", "receipts")]


async def test_past_rights_are_answered_from_the_log(cli: CommandLine) -> None:
    cli.control.clock.advance(seconds=3600)
    await apply(cli.control, AclEntry("rival/shop", "bot", "Ping"), reason="ticket 17")
    # The command line reads the machine's clock, which stands where the directory's began; "now" is Registry's.
    told = await cli.told("acl", "diff", "--from", "0s", "--to", "now")
    assert [(d["source"], d["reason"]) for d in told["differences"]] == [("rival/shop", "ticket 17")]
    ran = await cli.run("acl", "at", "bot", "Ping", "0s")
    assert ran.stdout.splitlines()[1].startswith("acme/billing  20")
    assert "rival/shop" not in ran.stdout


async def test_a_new_tenant_is_let_in_by_the_token_that_its_registration_shows_and_renews_itself(
    cli: CommandLine,
) -> None:
    cli.write('tenant = "fresh"\n')
    told = await cli.told("register", "-f", "service.toml", "--dry-run")
    assert told["enrolments"] == []
    ran = await cli.run("register", "-f", "service.toml")
    assert ran.returncode == 0
    (token,) = [line.strip() for line in ran.stdout.splitlines() if line.startswith("  snv1.")]
    again = await cli.run("register", "-f", "service.toml")
    assert "snv1." not in again.stdout
    out = str(cli.folder / "owner")
    enrolled = await cli.told("enroll", token, "--signer", door(cli.control), "--name", "owner", "--out", out)
    renewed = await cli.told("certs", "renew", out)
    assert renewed["identity"] == enrolled["identity"]
    assert renewed["serial"] != enrolled["serial"]
    refused = await cli.run("certs", "renew", str(cli.control.mesh.certificates("fast")))
    assert refused.returncode == 2
    assert "no principal's certificate" in refused.stderr


def _large() -> str:
    """1,403 entries: more than Registry writes in one call, and rights that need what an earlier call wrote."""
    names = [f"Command{number}" for number in range(700)]
    routes = [f'[[route]]\ntarget = "bot"\ncommand = "{name}"\n' for name in names]
    rights = [
        f'[[acl]]\nsource = "courier"\ntarget = "bot"\ncommand = "{name}"\n' for name in reversed(names)
    ]
    head = 'tenant = "acme"\nservice = [{ name = "courier" }]\ntarget = [{ name = "bot" }]\n\n'
    return head + "\n".join([*routes, *rights])


async def test_registration_larger_than_one_call_is_written_in_several(cli: CommandLine) -> None:
    before = await version(cli.control)
    cli.write(_large())
    tried = await cli.told("register", "-f", "service.toml", "--dry-run", "--as", "acme")
    assert (tried["calls"], len(tried["differences"]), len(tried["forecast"])) == (2, 1401, 100)
    assert all(forecast["passes"] for forecast in tried["forecast"])
    assert await version(cli.control) == before
    ran = await cli.run("register", "-f", "service.toml", "--as", "acme")
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr.splitlines() == [
        "1,403 entries are more than one call takes: they are written in 2.",
        "  1 of 2: 1,000 entries are written.",
        "  2 of 2: 1,403 entries are written.",
    ]
    assert f"1,401 entries changed, in 2 calls; the directory is at version {before + 1401}." in ran.stdout
    assert "and 600 more; `snavio try` shows each." in ran.stdout
    again = await cli.run("register", "-f", "service.toml", "--as", "acme")
    assert "Nothing to change" in again.stdout
    assert await version(cli.control) == before + 1401


async def test_mistakes_of_a_large_registration_are_all_told_before_anything_is_written(
    cli: CommandLine,
) -> None:
    before = await version(cli.control)
    strange = '\n[[acl]]\nsource = "nosuch"\ntarget = "bot"\ncommand = "Command1"\n'
    other = '\n[[acl]]\nsource = "courier"\ntarget = "bot"\ncommand = "Command9999"\n'
    cli.write(_large() + strange + other)
    ran = await cli.run("register", "-f", "service.toml", "--as", "acme")
    assert (ran.returncode, ran.stdout) == (1, ""), ran.stderr
    said = ran.stderr.splitlines()
    assert said[0] == "snavio: service.toml has 2 mistakes; nothing was registered:"
    assert [line.partition(": ")[2] for line in said[1:]] == [
        "There is no service acme/nosuch.", "The target bot has no route for Command9999.",
    ]  # fmt: skip
    assert await version(cli.control) == before


async def test_large_registration_that_fails_halfway_says_what_is_written_and_goes_on(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = await version(cli.control)
    cli.write(_large())
    assert cli.control.registry is not None
    directory = cli.control.registry.directory
    whole, calls = directory.write, 0

    async def full_at_the_second(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise Unavailable("The disk of the directory is full.", reason="disk-full")
        return await whole(*args, **kwargs)

    monkeypatch.setattr(directory, "write", full_at_the_second)
    ran = await cli.run("register", "-f", "service.toml", "--as", "acme")
    assert (ran.returncode, ran.stdout) == (3, ""), ran.stderr
    assert ran.stderr.splitlines()[-1] == (
        "snavio: The disk of the directory is full. Of 1,403 entries the first 1,000 are written, the last of them "
        "that of line 4285: register the same file again to go on; what is written is not written twice."
    )
    halfway = await version(cli.control)
    assert before < halfway < before + 1401
    ran = await cli.run("register", "-f", "service.toml", "--as", "acme")
    assert ran.returncode == 0, ran.stderr
    assert f"{before + 1401 - halfway:,} entries changed, in 2 calls" in ran.stdout
    assert await version(cli.control) == before + 1401


async def test_a_principal_may_leave_its_own_tenant_out(cli: CommandLine) -> None:
    shown = await cli.told("service", "show", "billing", "--as", "acme")
    assert shown == await cli.told("service", "show", "acme/billing", "--as", "acme")
    # Never from what was typed: under another certificate the same word is another tenant's.
    other = await cli.told("service", "show", "billing", "--as", "rival", code=1)
    assert other["error"]["message"] == "There is no service rival billing."
    # An operator has no tenant.
    assert (await cli.told("service", "show", "billing", code=2))["error"]["reason"] == "bad-field"
