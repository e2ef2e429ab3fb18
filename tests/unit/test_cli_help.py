"""The output of `--help` of every command: an example that fits a terminal, and true descriptions of options."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from snavio.cli.app import app
from snavio.cli.commands import COMMANDS, EDGE_COMMANDS
from snavio.cli.group import CommandEntry
from snavio.cli.help import flowing, summary


def every_command(command: Any = None, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    command = command or typer.main.get_command(app)
    yield path
    for name, below in getattr(command, "commands", {}).items():
        yield from every_command(below, (*path, name))


def help_of(*path: str, columns: int = 80) -> str:
    ran = CliRunner().invoke(app, [*path, "--help"], env={"COLUMNS": str(columns), "TERM": "dumb"})
    assert ran.exit_code == 0
    return ran.output


@pytest.mark.parametrize("path", tuple(every_command()), ids=" ".join)
def test_every_command_shows_an_example_on_lines_that_fit_80_columns(path: tuple[str, ...]) -> None:
    lines = [line.rstrip() for line in help_of(*path).splitlines()]
    examples = lines[lines.index(" Examples:") + 1 :]
    examples = examples[: examples.index("")]
    assert examples
    # What is wrapped would begin at the edge.
    assert all(line.startswith("   ") for line in examples), examples


@pytest.mark.parametrize("path", tuple(every_command()), ids=" ".join)
def test_a_flag_does_not_look_as_if_it_took_a_value(path: tuple[str, ...]) -> None:
    assert "<bool>" not in help_of(*path)


def test_a_file_in_an_example_can_be_copied_with_its_brackets() -> None:
    shown = help_of("register")
    assert "   [[route]]" in shown
    assert "   [[acl]]" in shown


def test_paragraphs_are_wrapped_by_the_terminal_and_examples_by_nobody() -> None:
    assert flowing("One\ntwo.\n\nThree\nfour.\n\n\b\nExamples:\n  a\n  b") == [
        "One two.",
        "Three four.",
        "Examples:\n  a\n  b",
    ]


@pytest.mark.parametrize("path", tuple(every_command()), ids=" ".join)
def test_help_fits_80_columns(path: tuple[str, ...]) -> None:
    assert max(map(len, help_of(*path).splitlines())) <= 80


def test_a_long_option_stands_on_a_line_of_its_own() -> None:
    lines = [line for line in help_of("queue", "find", columns=40).splitlines() if line.startswith("│")]
    assert {len(line) for line in lines} == {40}
    assert any(line.startswith("│ -c, --config <path>  ") for line in lines)


@pytest.mark.parametrize("entry", COMMANDS, ids=lambda entry: entry.name)
def test_the_table_says_what_the_command_says_of_itself(entry: CommandEntry) -> None:
    command = typer.main.get_command(app).commands[entry.name].load()  # type: ignore[attr-defined]
    assert entry.summary == summary(command.help)


@pytest.mark.parametrize("entry", EDGE_COMMANDS, ids=lambda entry: entry.name)
def test_the_table_of_the_edge_says_what_its_commands_say(entry: CommandEntry) -> None:
    edge: Any = typer.main.get_command(app).commands["edge"]  # type: ignore[attr-defined]
    assert entry.summary == summary(edge.commands[entry.name].load().help)


def test_a_command_that_is_mistyped_is_suggested() -> None:
    ran = CliRunner().invoke(app, ["statu"])
    assert (ran.exit_code, "Did you mean 'status'?" in ran.output) == (2, True)


def test_serve_names_every_service_that_it_can_run() -> None:
    from snavio.launch.processes import SERVICES

    told = help_of("serve", columns=200)
    assert all(service in told for service in SERVICES)
