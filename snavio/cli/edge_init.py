"""`snavio edge init`: a commented Hookaidofile to begin with.

Never writes over a file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from snavio.cli.edge_files import create_file
from snavio.cli.output import program
from snavio.cli.render import show
from snavio.errors import BadRequest, Conflict


def init(
    provider: Annotated[str, typer.Argument(help="The sender: github, stripe, gitlab or generic.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The file to write; `-` prints it.")] = Path(
        "Hookaidofile"
    ),
) -> None:
    """Write a commented Hookaidofile for webhooks of github, stripe, gitlab or your own sender.

    The file says what to enter at the sender and which secrets it needs. Nothing is written over a file that is
    there.

    \b
    Examples:
      snavio edge init github
      snavio edge init generic --output -
    """
    from snavio.edge.findings import closest_word
    from snavio.edge.starters import STARTERS

    text = STARTERS.get(provider)
    if text is None:
        meant = closest_word(provider, STARTERS)
        hint = f" Did you mean `{meant}`?" if meant else ""
        raise BadRequest(f"PROVIDER: must be one of {', '.join(STARTERS)}.{hint}", reason="unknown-provider")
    if str(output) == "-":
        typer.echo(text, nl=False)
        return
    try:
        create_file(output, text)
    except FileExistsError:
        raise Conflict(
            f"{output} is there already; `--output` writes to another file.", reason="file-exists"
        ) from None
    show(
        None,
        f"{output} is written. Next: read its comments, set its secrets, then "
        f"`{program()} edge config validate --config {output}`.",
        json=False,
    )
