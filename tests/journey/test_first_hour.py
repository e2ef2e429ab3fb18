"""docs/first-hour.md, played word by word: each machine is a folder with its own home, and knows only the network."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from snavio.launch.processes import SERVICES
from tests.support.terminal import ROOT, SNAVIO, configured, environment, running

PAGE = ROOT / "docs" / "first-hour.md"
WITHIN_S = 60.0
MOST_COMMANDS = 4
_FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_PROMPT = re.compile(r"^(\w+)\$ (.+)$")
_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")


@dataclass(frozen=True, slots=True)
class Step:
    """A file to write, or a command with the lines that it prints."""

    machine: str
    words: str
    expected: tuple[str, ...] = ()
    text: str = ""
    """Contents of the file called `words`."""


@dataclass
class Player:
    """The machines of the page, and what a reader would copy from one line to the next."""

    folder: Path
    invitation: str = ""
    command_id: str = ""
    played: list[Step] = field(default_factory=list)

    def play(self, step: Step) -> None:
        """One step; AssertionError with what was said instead."""
        place = self.folder / step.machine
        place.mkdir(exist_ok=True)
        self.played.append(step)
        if step.text:
            (place / step.words).write_text(step.text)
            return
        # What the page says happens once the change before has reached every service, within seconds.
        end = time.monotonic() + WITHIN_S
        while True:
            said = self.run(step.machine, step.words)
            if shown(step.expected, said):
                break
            sends = step.words.startswith(("snavio send", "python"))
            assert sends and time.monotonic() < end, f"{step.machine}$ {step.words}\n{said}"
        self.invitation = next((word for word in said.split() if word.startswith("snvi1.")), self.invitation)
        if step.words.startswith("snavio send") and (found := _ID.search(said)):
            self.command_id = found[0]

    def run(self, machine: str, words: str) -> str:
        """The output of a command, its errors last."""
        place = self.folder / machine
        typed = words.replace("snvi1.…", self.invitation).replace(" ID", f" {self.command_id}")
        program, *arguments = shlex.split(typed)
        known = {"snavio": SNAVIO, "python": [sys.executable]}
        ran = subprocess.run(
            [*known[program], *arguments],
            cwd=place,
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
            env=environment(HOME=str(place), SNAVIO_CONFIG_DIR=str(place / ".config" / "snavio")),
            check=False,
        )
        return ran.stdout + ran.stderr


def shown(expected: tuple[str, ...], said: str) -> bool:
    """True if every expected line was printed, in this order."""
    lines = iter(said.splitlines())
    return all(any(fits(line, each) for each in lines) for line in expected)


def fits(line: str, said: str) -> bool:
    """True if `…` stands for something, or nothing, wherever it stands."""
    form = ".*".join(re.escape(part) for part in " ".join(line.split()).split("…"))
    return re.fullmatch(form, " ".join(said.split())) is not None


def steps() -> Iterator[Step]:
    """The steps of the page, in its order."""
    for kind, body in _FENCE.findall(PAGE.read_text("utf-8")):
        if kind == "console":
            yield from _commands(body)
        elif body.startswith("# file: "):
            place, _, text = body.removeprefix("# file: ").partition("\n")
            machine, _, name = place.partition("/")
            yield Step(machine, name, text=text)


def _commands(body: str) -> Iterator[Step]:
    machine, words = "", ""
    expected: list[str] = []
    for line in body.splitlines():
        if (prompt := _PROMPT.match(line)) is not None:
            if words:
                yield Step(machine, words, tuple(expected))
            machine, words, expected = prompt[1], prompt[2], []
        else:
            assert words, f"a line of output before any command: {line}"
            expected.append(line)
    yield Step(machine, words, tuple(expected))


def _elsewhere(line: re.Match[str]) -> str:
    if line[1] not in SERVICES:
        return line[0]
    return f'{line[1]} = "localhost:{line[2]}"\n{line[1]}_listen = "127.0.0.1:{line[2]}"'


@pytest.fixture(scope="module")
def player(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Player]:
    folder = tmp_path_factory.mktemp("machines")
    (folder / "operator").mkdir()
    config = configured(folder / "operator")
    # Called by a name, listening on an address: as behind a balancer.
    text = re.sub(r'^(\w+) = "127.0.0.1:(\d+)"$', _elsewhere, config.read_text(), flags=re.MULTILINE)
    config.write_text(text)
    assert text.count("_listen = ") == len(SERVICES) + 1
    with running(folder / "operator") as up:
        up.drain()
        yield Player(folder)


def test_the_first_hour_happens_as_the_page_tells(player: Player) -> None:
    told = list(steps())
    assert {step.machine for step in told} == {"operator", "acme", "shop"}
    for step in told:
        player.play(step)
    for machine in ("acme", "shop"):
        own = {path.name for path in (player.folder / machine).iterdir()}
        assert not own & {".snavio", "snavio.toml", "certs"}, own


def test_from_an_invitation_to_a_delivered_command_is_at_most_four_commands() -> None:
    """The second machine's own, on the page, from its join on."""
    words = [step.words for step in steps() if step.machine == "shop" and not step.text]
    needed = {"join", "init", "register", "send"}
    first = words[: next(place for place, said in enumerate(words) if said.startswith("snavio send")) + 1]
    assert len(first) <= MOST_COMMANDS, first
    assert {said.split()[1] for said in first} == needed


def test_a_line_that_is_not_printed_fails_the_page() -> None:
    assert shown(("a …", "c"), "a b\nx\nc\n")
    assert not shown(("c", "a …"), "a b\nx\nc\n")
    assert not shown(("delivered",), "refused  acl-deny\n")
    assert os.environ["SNAVIO_CONFIG_DIR"].startswith("/nonexistent")
