"""Options that several commands share, so that they are spelled and explained once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

StateDir = Annotated[
    Path | None,
    typer.Option(
        "--state-dir",
        envvar="SNAVIO_STATE_DIR",
        # Checked where it is opened: a folder that cannot be used is no mistake in the command.
        readable=False,
        help="Folder of the installation: certificates, stores, logs. Default: .snavio",
        show_default=False,
    ),
]
Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        help="Configuration file. Default: snavio.toml here, if there is one.",
        show_default=False,
    ),
]
Json = Annotated[
    bool, typer.Option("--json", help="Machine-readable output on stdout, and nothing else there.")
]
As = Annotated[
    str,
    typer.Option(
        "--as",
        help="Act as this service: a name of the demo tenant, tenant/service, or a certificate folder.",
    ),
]
