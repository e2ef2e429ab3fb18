"""A tenant joins from a machine that knows nothing of the mesh: own home, own folders, only the addresses shared."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.support.terminal import configured, running, snavio


@dataclass(frozen=True, slots=True)
class Machine:
    """A folder with a home of its own; commands that run there see no other."""

    folder: Path

    def run(self, *words: str, given: str = "", **more: str) -> subprocess.CompletedProcess[str]:
        home = {"HOME": str(self.folder), "SNAVIO_CONFIG_DIR": str(self.folder / "config"), **more}
        return snavio(*words, folder=self.folder, given=given.encode(), **home)

    def told(self, *words: str, code: int = 0, given: str = "", **more: str) -> Any:
        ran = self.run(*words, "--json", given=given, **more)
        assert ran.returncode == code, (ran.stdout, ran.stderr)
        return orjson.loads(ran.stdout.splitlines()[0])


@pytest.fixture(scope="module")
def operator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    folder = tmp_path_factory.mktemp("operator")
    configured(folder)
    with running(folder) as up:
        up.drain()
        yield Machine(folder)


@pytest.fixture
def newcomer(tmp_path: Path) -> Machine:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    return Machine(folder)


def invitation(operator: Machine, tenant: str, *words: str) -> str:
    text: str = operator.told("tenant", "invite", tenant, *words)["invitation"]
    return text


REGISTRATION = """
tenant = "{tenant}"
principals = ["ci"]
service = [{{ name = "billing", principals = ["ci"] }}, {{ name = "bot", principals = ["ci"] }}]
target = [{{ name = "{tenant}-bot" }}]
[[route]]
target = "{tenant}-bot"
command = "notify-user"
[[acl]]
source = "billing"
target = "{tenant}-bot"
command = "notify-user"
"""


def test_from_an_invitation_to_a_received_command_in_four_commands(
    operator: Machine, newcomer: Machine
) -> None:
    text = invitation(operator, "acme", "--contact", "ops@acme.example", "--principal", "ci")
    (newcomer.folder / "service.toml").write_text(REGISTRATION.format(tenant="acme"))
    joined = newcomer.told("join", "-", given=text)
    assert joined["identity"] == "spiffe://snavio.local/tenant/acme/principal/ci"
    newcomer.told("register", "-f", "service.toml")
    sent = newcomer.told("send", "acme-bot", "notify-user", "-p", "hello", "--as", "billing")
    assert sent["outcomes"] == {"delivered": 1}
    received = newcomer.told("recv", "acme-bot", "--max", "1", "--as", "bot")
    assert (received["source"], received["payload"]) == ("acme/billing", "hello")
    who = newcomer.told("whoami")
    assert (who["tenant"], who["accepted"], who["context"]) == ("acme", True, "acme-ci")
    assert "act as the services whose registration names you" in who["rights"]
    # Neither a name that nobody has nor a stranger's target looks like an empty queue.
    for target in ("acme-bott", "discord-bot"):
        refused = newcomer.told("recv", target, "--wait", "1s", "--as", "bot", code=1)
        assert refused["error"]["reason"] == "unknown-target"
    # Nothing of it lies outside of the configuration folder.
    assert sorted(path.name for path in newcomer.folder.iterdir()) == ["config", "service.toml"]


def test_a_used_invitation_is_refused_and_says_who_gives_another(
    operator: Machine, newcomer: Machine
) -> None:
    text = invitation(operator, "used", "--contact", "ops@used.example", "--principal", "ci")
    newcomer.told("join", text)
    again = Machine(newcomer.folder / "second")
    again.folder.mkdir()
    refused = again.run("join", text)
    assert refused.returncode == 1
    assert "it was used, it has ended, or it was withdrawn" in refused.stderr
    assert "snavio tenant invite used --principal ci" in refused.stderr
    assert again.told("context", "ls")["contexts"] == []


def test_a_tenant_is_made_only_for_whoever_names_a_contact(operator: Machine) -> None:
    missing = operator.run("tenant", "invite", "nosuch")
    assert missing.returncode == 1
    assert "There is no tenant nosuch" in missing.stderr
    assert "--contact" in missing.stderr


def test_whoever_is_revoked_is_told_so_by_every_command(operator: Machine, newcomer: Machine) -> None:
    text = invitation(operator, "gone", "--contact", "ops@gone.example", "--principal", "ci")
    (newcomer.folder / "service.toml").write_text(REGISTRATION.format(tenant="gone"))
    newcomer.told("join", text)
    newcomer.told("register", "-f", "service.toml")
    newcomer.told("send", "gone-bot", "notify-user", "--as", "billing")
    operator.told("certs", "revoke", "spiffe://snavio.local/tenant/gone/principal/ci")
    for words in (
        ("register", "-f", "service.toml"),
        ("whoami",),
        ("send", "gone-bot", "notify-user", "--as", "billing"),
        ("queue", "ls"),
    ):
        ran = until_refused(newcomer, *words)
        said = ran.stderr + ran.stdout
        assert ran.returncode == 1, (words, said)
        assert "was revoked" in said, (words, said)
        assert "Is the mesh up" not in said, (words, said)


def until_refused(machine: Machine, *words: str) -> subprocess.CompletedProcess[str]:
    """The first answer that is no success: services hear of a revocation within seconds."""
    for _ in range(100):
        ran = machine.run(*words)
        if ran.returncode:
            return ran
    raise AssertionError(f"{words} was never refused")
