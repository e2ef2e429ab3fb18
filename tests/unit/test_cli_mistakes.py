"""Mistakes and interruptions at the command line: one sentence, the right exit code, and nothing kept back."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import orjson
import pytest

from snavio.cli import main
from snavio.cli.actor import Actor
from snavio.domain.identity import Identity, IdentityKind
from snavio.domain.verdict import Verdict
from snavio.errors import NotAllowed
from snavio.sdk.outcome import Outcome


def ended(monkeypatch: pytest.MonkeyPatch, *words: str) -> object:
    """The exit code of `snavio words`."""
    monkeypatch.setattr("sys.argv", ["snavio", *words])
    with pytest.raises(SystemExit) as end:
        main()
    return end.value.code


@pytest.mark.parametrize("json", [False, True], ids=["lines", "json"])
def test_ctrl_c_in_a_long_send_says_what_was_delivered(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], json: bool
) -> None:
    async def interrupted(*given: object) -> float:
        outcomes = given[-1]
        assert isinstance(outcomes, list)
        outcomes += [Outcome(Verdict.DELIVERED, str(number)) for number in range(2)]
        raise KeyboardInterrupt

    who = SimpleNamespace(identity=SimpleNamespace(source="demo/billing"))
    monkeypatch.setattr("snavio.launch.installation.attach", lambda **_: SimpleNamespace(mesh=None))
    monkeypatch.setattr("snavio.cli.actor.act_as", lambda *_, **__: who)
    monkeypatch.setattr("snavio.cli.send._send", interrupted)
    words = ["send", "discord-bot", "notify-user", "--count", "5000", *(["--json"] if json else [])]
    assert ended(monkeypatch, *words) == 130
    said = capsys.readouterr().out
    if json:
        document = orjson.loads(said)
        assert (document["sent"], document["outcomes"]) == (2, {"delivered": 2})
    else:
        assert said.startswith("delivered  2\n2 of 5,000 commands in ")


@pytest.mark.parametrize("words", [["status"], ["up", "--no-screen"], ["send", "bot", "ping"]], ids=" ".join)
def test_state_folder_that_cannot_be_read_exits_4(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, words: list[str]
) -> None:
    folder = tmp_path / "state"
    folder.touch()
    monkeypatch.chdir(tmp_path)
    assert ended(monkeypatch, *words, "--state-dir", str(folder)) == 4
    said = capsys.readouterr().err
    assert said.startswith(f"snavio: The state folder {folder} cannot be read")
    assert said.count("\n") == 1


def test_config_show_names_the_folder_in_force(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert not ended(monkeypatch, "config", "show", "--state-dir", str(tmp_path), "--json")
    found = orjson.loads(capsys.readouterr().out)["mesh"]["state_dir"]
    assert found == {"value": str(tmp_path), "origin": "--state-dir"}


def test_status_of_a_tenant_says_whom_it_is_for_and_calls_no_service_dead() -> None:
    certificate = Actor(Identity("snavio.local", IdentityKind.PRINCIPAL, "ci", "acme"), Path(), 1 << 62)
    with pytest.raises(NotAllowed) as refused:
        certificate.require_right("/snavio.v1.Introspection/Status")
    assert str(refused.value).startswith(
        "Principal ci of acme may not see what the services do: that is for operators and services of the mesh. "
    )
    Actor(Identity("snavio.local", IdentityKind.OPERATOR, "admin"), Path(), 1 << 62).require_right(
        "/snavio.v1.Introspection/Status"
    )
