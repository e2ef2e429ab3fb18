"""`snavio config`: what the settings are, where each came from, and everything that is wrong with them at once."""

from __future__ import annotations

import os
from pathlib import Path

import typer

from snavio.cli.exits import ExitCode
from snavio.cli.group import CommandGroup
from snavio.cli.options import Config, Json, StateDir
from snavio.cli.output import line
from snavio.cli.render import show

config_app = CommandGroup(
    "Show and check the configuration.",
    examples=(
        "snavio config default > snavio.toml",
        "snavio config validate",
        "snavio config show",
    ),
)


@config_app.command("show")
def show_settings(state_dir: StateDir = None, config: Config = None, json: Json = False) -> None:
    """Show every setting as it holds, and where it came from: a default, a line of the file, or the environment.

    \b
    Examples:
      snavio config show
      SNAVIO_SHIELD__WINDOW_MS=30000 snavio config show --json | jq .shield
    """
    from snavio.config import effective, installed
    from snavio.config.describe import toml_value
    from snavio.launch.installation import STATE_VARIABLE

    found = effective(_file(config), installed())
    named = os.environ.get(STATE_VARIABLE)
    if state_dir is not None or named:
        # As every command takes it: before what the file says.
        origin = "--state-dir" if state_dir is not None else f"environment variable {STATE_VARIABLE}"
        given = found["mesh"]["state_dir"]._replace(value=str(state_dir or named), origin=origin)
        found = {**found, "mesh": {**found["mesh"], "state_dir": given}}
    sections = (
        "\n".join(
            [
                f"[{name}]",
                *(f"{key} = {toml_value(one.value)}  # {one.origin}" for key, one in keys.items()),
                "",
            ]
        )
        for name, keys in found.items()
    )
    show(
        {name: {key: setting._asdict() for key, setting in keys.items()} for name, keys in found.items()},
        *sections,
        json=json,
    )


@config_app.command()
def validate(config: Config = None, json: Json = False) -> None:
    """Check the configuration without starting anything; every mistake is told, with its line and a suggestion.

    \b
    Examples:
      snavio config validate
      snavio config validate --config /etc/snavio/snavio.toml
    """
    from snavio.config import BadConfiguration, installed, validate_all

    path = _file(config)
    try:
        validate_all(path, installed())
    except BadConfiguration as bad:
        if not json:
            raise
        mistakes = [
            {"place": str(one.place), "section": one.section, "key": one.key, "message": one.sentence}
            for one in bad.mistakes
        ]
        show({"valid": False, "mistakes": mistakes}, json=True)
        raise typer.Exit(ExitCode.USAGE) from None
    said = f"{path or 'The defaults, with the environment,'} can be used."
    show({"valid": True, "mistakes": []}, said, json=json)


@config_app.command()
def default() -> None:
    """Print the default file, which is also the manual: every setting with its meaning and bounds.

    \b
    Examples:
      snavio config default > snavio.toml
    """
    from snavio.config import default_file, installed

    line(default_file(installed()).rstrip("\n"))


def _file(config: Path | None) -> Path | None:
    from snavio.launch.installation import CONFIG_FILE

    return CONFIG_FILE if config is None and CONFIG_FILE.is_file() else config
