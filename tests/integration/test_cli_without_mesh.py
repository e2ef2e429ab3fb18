"""Every command of `snavio` that needs a running mesh, where none runs: one plain sentence, with the next step.

Never a library's own text.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from snavio.cli import main
from snavio.cli.app import app
from snavio.launch.processes import MeshProcesses

ID = "0190b5c2-8f6e-7cc1-9d3e-2b8c1e5a7f10"
RIGHT = "acme/billing discord-bot notify-user"
ASKING = (
    f"register -f registration.toml|try {RIGHT}|enroll --new-token --tenant acme|freeze acme/billing|"
    f"unfreeze discord-bot|explain {ID}|acl ls --target discord-bot|acl grant {RIGHT}|acl revoke {RIGHT}|"
    f"acl diff --since 2026-01-01|acl at discord-bot notify-user|access request {RIGHT} --reason x|"
    f"access ls acme|access grant {RIGHT}|access decline {RIGHT}|keys ls|keys status acme/billing|"
    "keys rotate acme/billing|keys revoke acme/billing hmac-v1|keys minimum acme/billing hmac-v1|certs ls|"
    "certs revoke 01ab|certs restore spiffe://snavio.local/operator/admin|certs scraper|caps issue acme/bot|"
    "caps revoke 01ab|caps rotate acme/bot|caps ls acme/bot|bans ls|bans explain acme/billing|bans lift acme/billing|"
    "queue ls|queue stats acme/bot|queue peek acme/bot|queue find acme/bot|queue top|queue cancel acme/bot 1|"
    "queue resume acme/bot 1|queue requeue acme/bot 1|queue purge acme/bot 1|queue dlq ls acme/bot|"
    "queue dlq reprocess acme/bot 1|queue dlq delete acme/bot 1|snapshot verify|meter revocation|status|"
    "tenant invite acme --contact ops@acme.example|tenant ls|tenant show acme|service ls|service show acme/billing|"
    "service delete acme/billing|principal ls|principal show acme/ci|principal delete acme/ci|target ls|"
    "target show discord-bot|target delete discord-bot|route ls|route show discord-bot notify-user|"
    "route delete discord-bot notify-user|quota ls|quota show acme/billing discord-bot notify-user|"
    "bans cold-only acme/billing|suspend acme|resume acme|log|relay status|relay re-emit acme|tail|"
    "acl after-revocation discord-bot|alerts ls|alerts ack 01a1f1e5-6673-72d9-928b-a26fcf206be3|"
    "alerts mute snavio.route.health --until 2h|alerts test oncall|alerts secret oncall|"
    "keys rehearse acme/billing hmac-v2|routes ls|routes show discord-bot|routes dead discord-bot|"
    "routes redrive discord-bot 1763500000000-0"
).split("|")
# Commands that call no running mesh: files, own processes, or commands with their own test.
LOCAL = {
    *("up", "down", "demo", "serve", "bench", "doctor", "version", "config show", "config validate"),
    *("config default", "caps attenuate", "caps show", "certs renew", "archive ls", "archive verify"),
    *("archive query", "snapshot show", "spark demo", "spark audit", "send", "recv", "backup", "restore"),
    *("context ls", "context show", "context use", "context add", "context rm", "join", "init", "whoami"),
    *(
        "logs",
        "edge config diff",
        "edge config fmt",
        "edge config validate",
        "edge init",
        # They ask the edge that runs, or are it.
        *("edge adopt", "edge explain", "edge ls", "edge orphans", "edge recent", "edge run", "edge try"),
        "certs assume",
        "store check",
        "store rescue",
        "spark watch",
        "spark ledger",
        "spark report",
        "spark shadow",
        "spark backfill",
    ),
}
FOREIGN = ("grpc", "UNKNOWN", "ipv4:", "failed to connect", "Traceback", "Something unexpected")


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stopped")
    MeshProcesses.temporary(folder).prepare()
    (folder / "registration.toml").write_text('tenant = "acme"\n')
    return folder


def leaves(command: object, path: tuple[str, ...] = ()) -> Iterator[str]:
    below = getattr(command, "commands", None)
    if below is None:
        yield " ".join(path)
        return
    for name, each in below.items():
        yield from leaves(each, (*path, name))


def test_this_test_knows_every_command() -> None:
    every = set(leaves(typer.main.get_command(app)))
    told = {
        next(leaf for leaf in sorted(every, key=len, reverse=True) if asked.startswith(leaf))
        for asked in ASKING
    }
    assert told | LOCAL == every


def said(
    asked: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[int, str]:
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", ["snavio", *asked.split(), "--config", str(folder / "snavio.toml")])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0), capsys.readouterr().err


@pytest.mark.parametrize("asked", ASKING)
def test_a_command_without_a_mesh_says_one_sentence_of_ours_and_what_to_do(
    asked: str,
    installation: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, told = said(asked, installation, monkeypatch, capsys)
    assert code == 3, told
    assert told.count("\n") == 1
    assert told.startswith("snavio: ")
    assert "Is the mesh up? `snavio up` starts one" in told
    assert not [word for word in FOREIGN if word in told]


def test_what_cannot_be_an_id_is_refused_before_any_mesh_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "snavio.toml").write_text("")
    code, told = said("explain notauuid", tmp_path, monkeypatch, capsys)
    assert (code, told) == (2, "snavio: 'notauuid' is not the id of a command, which is a UUID.\n")


@pytest.mark.parametrize(
    "asked",
    [
        "queue cancel acme/bot 0",
        f"queue requeue acme/bot {2**64}",
        f"queue dlq delete acme/bot {2**64}",
        f"queue find acme/bot --min-attempts {2**32}",
    ],
)
def test_what_no_mesh_could_make_sense_of_is_refused_with_what_would_be_right(
    asked: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "snavio.toml").write_text("")
    code, told = said(asked, tmp_path, monkeypatch, capsys)
    assert code == 2, told
    assert not [word for word in (*FOREIGN, "ValueError", "dictionary", "Error:") if word in told]
