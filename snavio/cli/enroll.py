"""`snavio enroll`: a newcomer's first certificate, for a one-time token; and such tokens, for operators."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Annotated

import typer

from snavio.cli.caller import OperatorCaller, directory_client
from snavio.cli.options import Json
from snavio.cli.output import ago, aside, program
from snavio.cli.render import Record, show
from snavio.cli.times import read_span

LONGEST_S = 7 * 86_400


def enroll(
    token: Annotated[
        str | None,
        typer.Argument(
            help="The one-time token; `-` reads it from standard input, so that it stays out of the shell's history.",
            envvar="SNAVIO_ENROLMENT_TOKEN",
            show_envvar=True,
            show_default=False,
        ),
    ] = None,
    *,
    signer: Annotated[
        str,
        typer.Option(
            help="Where Signer enrols newcomers, host:port. Default: that of the configuration or the context.",
            show_default=False,
        ),
    ] = "",
    name: Annotated[str, typer.Option(help="Name of the principal, if the token leaves it open.")] = "",
    out: Annotated[
        Path | None,
        typer.Option(help="Folder to write to. Default: ./certs/<tenant>-<name>", show_default=False),
    ] = None,
    new_token: Annotated[
        bool, typer.Option("--new-token", help="For operators: make a token instead of using one.")
    ] = False,
    tenant: Annotated[str, typer.Option(help="With --new-token: the tenant that it is for.")] = "",
    good_for: Annotated[
        str,
        typer.Option("--for", metavar="<duration>", help="With --new-token: the token's life, at most 7d."),
    ] = "24h",
    hours: Annotated[float | None, typer.Option(min=0.02, max=168, hidden=True)] = None,
    caller: OperatorCaller,
    json: Json = False,
) -> None:
    """Get a principal's certificate for a one-time token.

    The private key is made here and stays here. Nothing is sent to a Signer that is not the one that made the token.

    \b
    Examples:
      snavio enroll snv1.5f1c….abcd… --signer mesh.example:7414 --name ci
      pass show snavio | snavio enroll - --name ci --out ~/.snavio/ci
      snavio enroll --new-token --tenant acme --name ci
    """
    from snavio.errors import BadRequest

    if new_token:
        if token is not None or not tenant:
            raise BadRequest("--new-token makes a token: give --tenant, and no token.")
        life_s = hours * 3600 if hours else read_span(good_for, option="--for", least_s=60)
        if life_s > LONGEST_S:
            raise BadRequest("--for: a token lives for at most 7d.", reason="bad-time")
        _make(tenant, name, round(life_s), caller=caller, json=json)
        return
    if token is None:
        raise BadRequest("Give the token, or `-` to read it from standard input.")
    given = sys.stdin.readline(1024) if token in ("-",) else token
    _use(given, signer or _door(caller), name, out, json=json)


def _door(caller: OperatorCaller) -> str:
    """Where newcomers enrol, by the configuration or the context; no mesh has to run here for that."""
    from snavio.errors import BadRequest

    if not (found := caller.attach().enrolment):
        raise BadRequest(
            "Say with --signer where newcomers enrol; the context does not.", reason="no-enrolment"
        )
    return found


def _use(token: str, signer: str, name: str, out: Path | None, *, json: bool) -> None:
    from snavio.errors import BadRequest
    from snavio.sdk.enrolment import enroll as trade

    try:
        enrolled = asyncio.run(
            trade(token, address=signer, folder=out or Path("certs"), name=name, nested=out is None)
        )
    except BadRequest as error:
        if name or not str(error).startswith("name:"):
            raise
        raise BadRequest("This token leaves the principal's name open: give one with --name.") from None
    show(
        {
            "identity": enrolled.identity.spiffe_id,
            "folder": enrolled.folder,
            "serial": enrolled.serial,
            "not_after_unix_ns": enrolled.not_after_unix_ns,
        },
        Record((("enrolled", enrolled.identity), ("folder", enrolled.folder))),
        f"It acts with `--as {enrolled.folder}`.",
        json=json,
    )


def _make(tenant: str, name: str, life_s: int, *, caller: OperatorCaller, json: bool) -> None:
    made = caller.ask_client(
        directory_client,
        lambda client: client.new_token(tenant, principal=name, ttl_s=life_s),
    )
    show({"token": made.token, "expires_unix_ns": made.expires_unix_ns}, made.token, json=json)
    if not json:
        aside(
            f"Good once, for {ago(life_s)}, and not shown again. To use it: {program()} enroll - --signer <host:port>"
        )
