"""Ends of a command: a closed pipe is no failure, and errors of the system are reported in its words."""

from __future__ import annotations

import errno
import os
import subprocess
from pathlib import Path

import orjson
import pytest

from snavio.cli.exits import ExitCode, report
from snavio.errors import NotAllowed
from tests.support.terminal import SNAVIO, environment, snavio


@pytest.mark.parametrize(
    "words", [["config", "default"], ["--help"], ["queue", "find", "--help"]], ids=" ".join
)
def test_a_reader_that_has_seen_enough_is_no_failure(words: list[str]) -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb") as closed:
        ran = subprocess.run(
            [*SNAVIO, *words],
            stdout=closed,
            stderr=subprocess.PIPE,
            env=environment(),
            timeout=60,
            check=False,
        )
    assert (ran.returncode, ran.stderr) == (0, b"")


def test_a_full_disk_is_a_sentence_also_under_json() -> None:
    with Path("/dev/full").open("wb") as full:
        ran = subprocess.run(
            [*SNAVIO, "version", "--json"],
            stdout=full,
            stderr=subprocess.PIPE,
            env=environment(),
            timeout=60,
            check=False,
        )
    assert ran.returncode == ExitCode.REFUSED
    assert ran.stderr.decode() == "snavio: The output cannot be used: No space left on device.\n"


def test_a_file_that_the_system_forbids_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    code = report(PermissionError(errno.EACCES, "Permission denied", "certs/key.pem"), as_json=False)
    assert code is ExitCode.REFUSED
    assert capsys.readouterr().err == "snavio: certs/key.pem cannot be used: Permission denied.\n"


def test_who_may_not_is_told_how_to_act_as_another(capsys: pytest.CaptureFixture[str]) -> None:
    report(NotAllowed("You may not freeze."), as_json=True)
    said = capsys.readouterr()
    assert "--as" in said.err
    assert "--as" in orjson.loads(said.out)["error"]["message"]


def test_version_is_told_as_an_option_too(tmp_path: Path) -> None:
    ran = snavio("--version", folder=tmp_path)
    assert (ran.returncode, ran.stdout.startswith("snavio ")) == (0, True)


def test_an_empty_command_does_not_freeze_a_whole_target(tmp_path: Path) -> None:
    ran = snavio("freeze", "discord-bot", "", folder=tmp_path)
    assert (ran.returncode, ran.stderr) == (
        ExitCode.USAGE,
        "snavio: COMMAND is empty: leave it out to mean the whole target.\n",
    )


def test_a_service_without_a_prepared_folder_says_so_at_once(tmp_path: Path) -> None:
    ran = snavio("serve", "shield", "--state-dir", "none", folder=tmp_path)
    assert ran.returncode == ExitCode.STATE
    assert "has no certificate for shield: `snavio up` prepares" in ran.stderr
