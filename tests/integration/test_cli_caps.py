"""`snavio caps` against a real Signer: its output, offline narrowing, and refusals."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest
import pytest_asyncio
import structlog
from typer.testing import CliRunner

from snavio.cli.caps import caps
from snavio.cli.output import quiet_logs
from snavio.domain.capability import read_text
from snavio.domain.caveat import Operation
from snavio.errors import BadRequest, NotAllowed, NotFound, SnavioError
from tests.support.control import Control, control_plane
from tests.support.terminal import snavio

pytestmark = pytest.mark.asyncio(loop_scope="module")

TOPIC = "acme/discord-bot"


class CommandLine:
    """A terminal beside a Signer. Most of it runs in this process: starting Python costs more than the command."""

    def __init__(self, control: Control, folder: Path) -> None:
        self.folder = folder
        config = f'[mesh]\nstate_dir = "{control.mesh.state_dir}"\nsigner = "{control.mesh.signer}"\n'
        (folder / "snavio.toml").write_text(config)

    async def run(self, *words: str, given: str = "") -> str:
        """The output; raises what the command raises."""
        where = (
            ["--config", str(self.folder / "snavio.toml")] if words[0] not in ("attenuate", "show") else []
        )
        ran = await asyncio.to_thread(CliRunner().invoke, caps, [*words, *where], input=given)
        if isinstance(ran.exception, SnavioError):
            raise ran.exception
        assert ran.exit_code == 0, ran.output
        return ran.stdout

    async def told(self, *words: str) -> Any:
        return orjson.loads(await self.run(*words, "--json"))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cli(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[CommandLine]:
    folder = tmp_path_factory.mktemp("caps")
    # Signer runs in this process too, and its log would stand among what the commands print.
    quiet_logs()
    async with control_plane(folder / "state") as control:
        await control.certify("tenant/acme/service/bot", "acme-bot")
        yield CommandLine(control, folder)
    structlog.reset_defaults()


async def test_a_capability_from_its_making_to_its_end(cli: CommandLine) -> None:
    made = await cli.run("issue", TOPIC, "--as", "acme/bot")
    held = read_text(made.strip())
    assert made == held.text() + "\n"
    file = cli.folder / "bot.cap"
    file.write_text(made)

    words = ("--op", "recv,ack", "--ttl", "10m", "--quota", "1000/60s", "--topic", "acme/*")
    narrow = await cli.run("attenuate", f"@{file}", *words)
    small = read_text(narrow.strip())
    assert small.caveats[: len(held.caveats)] == held.caveats
    assert small.bounds().operations == {Operation.RECV, Operation.ACK}

    shown = await cli.run("show", "-", given=narrow)
    assert "1000 messages in 60 s" in shown and "acme/discord-bot and acme/*" in shown
    assert small.signature.hex() not in shown and narrow.strip() not in shown
    told = await cli.told("show", f"@{file}")
    assert told["id"] == held.identifier.cap_id
    assert told["holders"] == ["spiffe://snavio.local/tenant/acme/service/bot"]

    listed = await cli.run("ls", "acme/")
    assert held.identifier.cap_id in listed and "good" in listed
    await cli.run("revoke", held.identifier.cap_id, "--reason", "drill")
    known = {one["id"]: one["revoked"] for one in (await cli.told("ls"))["capabilities"]}
    assert known[held.identifier.cap_id] is True


async def test_operators_rotate_and_bar(cli: CommandLine) -> None:
    assert (await cli.told("rotate", "acme/other"))["version"] == 2
    assert (await cli.told("rotate"))["version"] is None
    await cli.run("revoke", "acme/other", "--root", "1")
    await cli.run("revoke", "tenant:acme", "--bar")
    with pytest.raises(NotAllowed) as refused:
        await cli.run("issue", TOPIC, "--as", "acme-bot")
    assert refused.value.reason == "holder-barred"
    await cli.run("revoke", "tenant:acme", "--restore")
    await cli.run("issue", TOPIC, "--as", "acme-bot")


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("issue", TOPIC, "--op", "recieve"), "Did you mean recv?"),
        (("issue", TOPIC, "--op", "fly"), "There are send, recv"),
        (("issue", "acme", "--op", "peek"), "<tenant>/<target>"),
        (("issue", TOPIC, "--ttl", "soon"), "90s, 15m, 2h or 7d"),
        (("issue", TOPIC, "--quota", "many"), "1000/60s"),
        (("attenuate", "@nowhere.cap", "--ttl", "1m"), "nowhere.cap cannot be read"),
        (("attenuate", "hello", "--ttl", "1m"), "begins with snvcap1."),
        (("show", "snvcap1.AAAA"), "cannot be read"),
        (("revoke", "ab" * 16, "--bar"), "go with a holder"),
        (("revoke", "tenant:acme", "--bar", "--restore"), "contradict"),
    ],
)
async def test_mistakes_are_answered_with_what_was_meant(
    cli: CommandLine, words: tuple[str, ...], hint: str
) -> None:
    with pytest.raises(BadRequest, match=re.escape(hint)):
        await cli.run(*words)


async def test_refusals_say_what_to_do(cli: CommandLine) -> None:
    made = (await cli.run("issue", TOPIC, "--as", "acme-bot")).strip()
    with pytest.raises(BadRequest, match="Say what to narrow"):
        await cli.run("attenuate", made)
    with pytest.raises(NotFound, match="snavio caps ls"):
        await cli.run("revoke", "ab" * 16)
    with pytest.raises(NotAllowed, match="another tenant"):
        await cli.run("issue", "evil/x", "--as", "acme-bot")


async def test_as_a_process_it_ends_with_one_sentence_and_a_code(cli: CommandLine) -> None:
    ran = await asyncio.to_thread(
        snavio, "caps", "issue", TOPIC, "--op", "recieve", "--json", folder=cli.folder
    )
    assert ran.returncode == 2 and "Traceback" not in ran.stderr
    assert orjson.loads(ran.stdout)["error"]["reason"] == "bad-operation"


@pytest.mark.parametrize("command", ["issue", "attenuate", "show", "revoke", "rotate", "ls"])
async def test_every_command_teaches_with_examples(command: str) -> None:
    shown = CliRunner().invoke(caps, [command, "--help"])
    assert (shown.exit_code, f"snavio caps {command}" in shown.stdout) == (0, True)
