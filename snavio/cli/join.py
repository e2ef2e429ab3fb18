"""`snavio join`: from an invitation to an identity and a context, on a machine that knew nothing of the mesh."""

from __future__ import annotations

import asyncio
import sys
from typing import Annotated

import typer

from snavio.cli.options import Json
from snavio.cli.output import ago, aside, program
from snavio.cli.render import Record, show, time_text

MOST_READ = 8192


def join(
    invitation: Annotated[
        str,
        typer.Argument(
            help="The line that `snavio tenant invite` printed; `-` reads it from standard input, so that it "
            "stays out of the shell's history.",
            show_default=False,
        ),
    ],
    *,
    name: Annotated[
        str, typer.Option(help="Name of the principal, if the invitation leaves it open.", show_default=False)
    ] = "",
    context: Annotated[
        str,
        typer.Option(
            "--context", help="Name of the context. Default: <tenant>-<principal>", show_default=False
        ),
    ] = "",
    json: Json = False,
) -> None:
    """Join a mesh with an invitation, and make it the one that commands talk to.

    The private key is made here and stays here. The mesh has to show the CA that the invitation names before the token
    is sent.

    \b
    Examples:
      snavio join snvi1.AAAAAGk…
      pass show snavio | snavio join - --name ci
    """
    from snavio.clock import SystemClock
    from snavio.domain.invitation import parse_invitation
    from snavio.sdk.context import ContextFile, config_folder
    from snavio.sdk.join import join as accept

    text = sys.stdin.read(MOST_READ) if invitation in ("-",) else invitation
    joined = asyncio.run(
        accept(
            parse_invitation(text),
            file=ContextFile(config_folder()),
            clock=SystemClock(),
            principal=name,
            name=context,
        )
    )
    kept, enrolled = joined.context, joined.enrolled
    until = time_text(enrolled.not_after_unix_ns)
    show(
        {
            "context": kept.name,
            "tenant": kept.tenant,
            "identity": enrolled.identity.spiffe_id,
            "folder": enrolled.folder,
            "not_after": until,
            "addresses": dict(kept.addresses),
            "clock_off_s": round(joined.clock_off_s, 1),
        },
        Record(
            (
                ("joined", f"{enrolled.identity}, until {until}"),
                ("context", f"{kept.name}, now in use"),
                ("folder", enrolled.folder),
            )
        ),
        f"Next: `{program()} init` writes a registration, `{program()} register -f FILE` registers it; "
        f"`{program()} whoami` tells what you may do.",
        json=json,
    )
    if off := joined.clock_off_s:
        way = "ahead of" if off > 0 else "behind"
        aside(
            f"This machine's clock is {ago(abs(off))} {way} the mesh's: commands from here are refused "
            "(timestamp-outside-window) until it is set right."
        )
