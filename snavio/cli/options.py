"""Options that several commands share, so that they are spelled and explained once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

StateDir = Annotated[
    Path | None,
    typer.Option(
        "--state-dir",
        # Checked where it is opened: a folder that cannot be used is no mistake in the command.
        readable=False,
        # The variable is read where the folder is looked for: it comes after --context, and this option before.
        help="Folder of the installation: certificates, stores, logs. Default: SNAVIO_STATE_DIR, or .snavio",
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
Context = Annotated[
    str | None,
    typer.Option(
        "--context",
        help="The mesh and the identity that `snavio join` or `snavio context` keeps under this name. Default: "
        "SNAVIO_CONTEXT, or the one in use.",
        show_default=False,
    ),
]
Json = Annotated[
    bool, typer.Option("--json", help="Machine-readable output on stdout, and nothing else there.")
]
As = Annotated[
    str | None,
    typer.Option(
        "--as",
        help="Act as this service: a name, tenant/service, or a certificate folder. In a context, one that its "
        "principal may act as; its certificate is had and renewed in passing.",
        show_default=False,
    ),
]
