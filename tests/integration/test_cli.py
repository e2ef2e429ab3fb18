"""The command line without a mesh: help, suggestions, and never a traceback."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from snavio.cli.app import app
from snavio.cli.exits import ExitCode, code_of
from snavio.errors import BadRequest, NotAllowed, SnavioError, StateError, Unavailable
from tests.support.terminal import snavio, told

COMMANDS = ("up", "down", "demo", "serve", "send", "recv", "status", "version", "bench", "doctor")
DIRECTORY = ("register", "try", "acl diff", "access request")


def test_help_names_every_command_and_the_exit_codes(tmp_path: Path) -> None:
    ran = snavio("--help", folder=tmp_path)
    assert ran.returncode == 0
    assert all(f" {command} " in ran.stdout for command in COMMANDS)
    assert "Exit codes: 0 done" in ran.stdout


@pytest.mark.parametrize("command", [*COMMANDS, *DIRECTORY])
def test_every_command_teaches_with_examples(command: str) -> None:
    ran = CliRunner().invoke(app, [*command.split(), "--help"])
    assert ran.exit_code == 0
    assert "Examples:" in ran.stdout
    assert f"snavio {command}" in ran.stdout


def test_a_misspelled_command_gets_a_suggestion(tmp_path: Path) -> None:
    ran = snavio("stauts", folder=tmp_path)
    assert ran.returncode == 2
    assert "Did you mean 'status'?" in ran.stderr


def test_a_misspelled_service_gets_a_suggestion(tmp_path: Path) -> None:
    ran = snavio("serve", "mailbx", folder=tmp_path)
    assert (ran.returncode, ran.stderr) == (
        2,
        "snavio: There is no service 'mailbx': did you mean 'mailbox'?\n",
    )


@pytest.mark.parametrize("words", [("status",), ("send", "a", "b"), ("recv", "a")])
def test_without_a_mesh_one_sentence_says_what_to_do(tmp_path: Path, words: tuple[str, ...]) -> None:
    ran = snavio(*words, folder=tmp_path)
    assert (ran.returncode, ran.stdout) == (3, "")
    assert "start one with `snavio up`" in ran.stderr
    assert len(ran.stderr.splitlines()) == 1


def test_an_error_under_json_is_json_on_stdout(tmp_path: Path) -> None:
    error = told("status", folder=tmp_path, code=3)["error"]
    assert (error["reason"], error["exit_code"]) == ("no-mesh", 3)


def test_two_payloads_are_a_mistake(tmp_path: Path) -> None:
    ran = snavio("send", "a", "b", "--payload", "x", "--stdin", folder=tmp_path)
    assert (ran.returncode, "Give the payload once" in ran.stderr) == (2, True)


def test_a_traceback_is_shown_only_to_who_asks(tmp_path: Path) -> None:
    assert "Traceback" not in snavio("status", folder=tmp_path).stderr
    assert "Traceback" in snavio("status", folder=tmp_path, SNAVIO_DEBUG="1").stderr


def test_a_broken_configuration_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "snavio.toml").write_text("[mesh]\nsheild = 1\n")
    ran = snavio("up", folder=tmp_path)
    assert ran.returncode == 2
    assert "shield" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_version_tells_what_is_installed(tmp_path: Path) -> None:
    assert set(told("version", folder=tmp_path)) == {"snavio", "native", "python", "grpcio", "platform"}


def test_completion_knows_the_commands(tmp_path: Path) -> None:
    ran = snavio(folder=tmp_path, _SNAVIO_COMPLETE="complete_bash", COMP_WORDS="snavio st", COMP_CWORD="1")
    assert sorted(ran.stdout.split()) == ["status", "store"]


def test_configuration_is_shown_with_its_origin_and_checked(tmp_path: Path) -> None:
    (tmp_path / "snavio.toml").write_text("[shield]\nwindow_ms = 30000\n")
    shown = told("config", "show", folder=tmp_path)
    assert shown["shield"]["window_ms"] == {"value": 30_000, "origin": "snavio.toml:2"}
    assert told("config", "validate", folder=tmp_path) == {"valid": True, "mistakes": []}
    (tmp_path / "snavio.toml").write_text("[shield]\nwindow = 1\n[mesh]\nsheild = 2\n")
    wrong = told("config", "validate", folder=tmp_path, code=2)
    assert [mistake["section"] for mistake in wrong["mistakes"]] == ["shield", "mesh"]
    # And a start tells all of them too, not those of [mesh] first.
    started = snavio("up", folder=tmp_path)
    assert started.returncode == 2
    assert all(word in started.stderr for word in ("2 mistakes", "'window'", "'sheild'")), started.stderr


def test_the_default_file_is_valid(tmp_path: Path) -> None:
    printed = snavio("config", "default", folder=tmp_path).stdout
    (tmp_path / "snavio.toml").write_text(printed)
    assert snavio("config", "validate", folder=tmp_path).returncode == 0


def test_nothing_runs_so_nothing_is_stopped(tmp_path: Path) -> None:
    ran = snavio("down", folder=tmp_path)
    assert (ran.returncode, "nothing to stop" in ran.stdout) == (0, True)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (StateError("?"), ExitCode.STATE),
        (Unavailable("?"), ExitCode.UNREACHABLE),
        (BadRequest("?"), ExitCode.USAGE),
        (ImportError("?"), ExitCode.USAGE),
        (NotAllowed("?"), ExitCode.REFUSED),
        (SnavioError("?"), ExitCode.REFUSED),
        (RuntimeError("?"), ExitCode.REFUSED),
    ],
)
def test_every_kind_of_error_has_its_exit_code(error: Exception, code: ExitCode) -> None:
    assert code_of(error) is code


def test_the_demo_delivers_refuses_and_loses_nothing(tmp_path: Path) -> None:
    script = told("demo", folder=tmp_path)
    assert script["good"] is True
    assert (script["delivered"], script["acknowledged"], script["killed"]["lost"]) == (1000, 1000, 0)
    assert len({one["reason"] for one in script["refusals"]}) == 7
