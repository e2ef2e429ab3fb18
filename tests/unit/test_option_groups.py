from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from snavio.cli.option_groups import grouped


@dataclass(frozen=True, slots=True)
class Whom:
    """Two options and an inherited third make one value."""

    source: Annotated[str, typer.Option("--source", "-s", help="Who sends.")] = ""
    tries: Annotated[int, typer.Option(min=0, help="How often.")] = 0


@dataclass(frozen=True, slots=True)
class WhomAndWhy(Whom):
    reason: Annotated[str | None, typer.Option(help="Why.")] = None


@pytest.fixture
def app() -> typer.Typer:
    made = typer.Typer()

    @made.command()
    @grouped
    def tell(
        topic: Annotated[str, typer.Argument()],
        ids: Annotated[list[int] | None, typer.Argument()] = None,
        *,
        who: WhomAndWhy,
        json: Annotated[bool, typer.Option("--json")] = False,
    ) -> None:
        """The parsed values."""
        typer.echo(f"{topic} {ids} {who.source!r} {who.tries} {who.reason} {json}")

    return made


def test_fields_of_a_group_are_options_of_the_command(app: typer.Typer) -> None:
    said = CliRunner().invoke(
        app, ["bot", "7", "8", "-s", "acme/shop", "--tries", "3", "--reason", "x", "--json"]
    )
    assert said.stdout == "bot [7, 8] 'acme/shop' 3 x True\n"


def test_what_is_not_said_has_the_default_of_its_field(app: typer.Typer) -> None:
    assert CliRunner().invoke(app, ["bot"]).stdout == "bot None '' 0 None False\n"


def test_each_option_is_judged_and_explained_as_if_it_stood_alone(app: typer.Typer) -> None:
    assert CliRunner().invoke(app, ["bot", "--tries", "-1"]).exit_code == 2
    shown = CliRunner().invoke(app, ["--help"]).stdout
    assert all(
        words in shown for words in ("The parsed values.", "--source", "Who sends.", "How often.", "Why.")
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """A group that contains a group, and a required option."""

    to: Annotated[str, typer.Argument()]
    who: Whom
    loud: Annotated[bool, typer.Option("--loud")] = False


@pytest.fixture
def post() -> typer.Typer:
    made = typer.Typer()

    @made.command()
    @grouped
    def send(letter: Letter) -> None:
        typer.echo(f"{letter.to} {letter.who.source!r} {letter.who.tries} {letter.loud}")

    return made


def test_a_group_in_a_group_is_filled_from_the_same_options(post: typer.Typer) -> None:
    said = CliRunner().invoke(post, ["ada", "-s", "acme/shop", "--tries", "2", "--loud"])
    assert said.stdout == "ada 'acme/shop' 2 True\n"


def test_a_field_without_default_has_to_be_said(post: typer.Typer) -> None:
    assert CliRunner().invoke(post, []).exit_code == 2


def test_an_option_that_a_command_and_its_group_take_is_one_option() -> None:
    app = typer.Typer()

    @app.command()
    @grouped
    def tell(who: Whom, tries: Annotated[int, typer.Option(max=3, help="Of the command.")] = 1) -> None:
        typer.echo(f"{who.source!r} {who.tries} {tries}")

    assert CliRunner().invoke(app, ["--source", "x", "--tries", "2"]).stdout == "'x' 2 2\n"
    assert CliRunner().invoke(app, ["--help"]).stdout.count("--tries") == 1
