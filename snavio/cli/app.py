"""`snavio` itself: its options, its help, and the table of its commands."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from snavio.cli.commands import COMMANDS
from snavio.cli.exits import MEANINGS
from snavio.cli.group import CommandGroup, HelpfulGroup

EPILOG: Final = (
    "Exit codes: "
    + "; ".join(f"{code.value} {meaning}" for code, meaning in MEANINGS.items())
    + ". SNAVIO_DEBUG=1 shows tracebacks."
)


class Root(HelpfulGroup):
    """The group of all commands."""

    entries = COMMANDS


app: Final = CommandGroup(
    "Run a command-delivery mesh, send commands through it, and see what becomes of them.",
    examples=(
        "snavio up                                              in one terminal",
        "snavio send discord-bot notify-user --payload hello    in another",
        "snavio recv discord-bot",
    ),
    name="snavio",
    cls=Root,
    add_completion=True,
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from snavio.cli.serve import version

        version()
        raise typer.Exit


@app.callback()
def _about(
    _version: Annotated[
        bool,
        typer.Option(
            "--version",
            "-V",
            help="Show what is installed, and exit.",
            callback=_print_version,
            is_eager=True,
        ),
    ] = False,
) -> None:
    pass
