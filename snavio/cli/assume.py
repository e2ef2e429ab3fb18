"""`snavio certs assume`: the certificate of a service, had through a principal, and kept from ending if wanted."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from snavio.cli.caller import Caller
from snavio.cli.output import program
from snavio.cli.render import Record, time_text

if TYPE_CHECKING:
    from snavio.cli.actor import Actor
    from snavio.config import MeshSettings
    from snavio.launch.installation import Installation


def assume(
    service: Annotated[
        str,
        typer.Argument(help="The service, such as billing; <tenant>/<service> does too.", show_default=False),
    ],
    *,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder to write to. Default: beside the identity of the context, or ./certs/<tenant>-<service>",
            show_default=False,
        ),
    ] = None,
    keep: Annotated[
        bool,
        typer.Option("--keep", help="Go on renewing it until Ctrl-C, for a program that only reads files."),
    ] = False,
    caller: Caller,
) -> None:
    """Get the certificate of a service through a principal that its registration names, or another before it ends.

    It lives for an hour at most. `snavio send --as`, `snavio recv --as` and the SDK do this by themselves.

    \b
    Examples:
      snavio certs assume billing
      snavio certs assume acme/billing --out /run/billing --keep
    """
    from snavio.cli.actor import read_actor
    from snavio.cli.caller import certificates_of
    from snavio.clock import SystemClock

    installation = caller.attach()
    principal = read_actor(
        certificates_of(caller.by, installation), trust_domain=installation.mesh.trust_domain
    )
    principal.require_living(SystemClock().unix_ns())
    who = _service(service, principal, out, installation)
    asyncio.run(_have(who, principal, installation.mesh, caller, keep=keep))


def _service(service: str, principal: Actor, out: Path | None, installation: Installation) -> Actor:
    from snavio.cli.actor import Actor
    from snavio.domain.identity import Identity, IdentityKind, valid_name
    from snavio.errors import BadRequest

    own = principal.identity
    if own.kind is not IdentityKind.PRINCIPAL:
        raise BadRequest(
            f"Services are acted for by principals, and this is {principal.label}: `--as` names a principal, "
            "`snavio join` makes one.",
            reason="not-a-principal",
        )
    tenant, _, name = service.rpartition("/")
    if tenant not in ("", own.tenant) or not valid_name(name):
        raise BadRequest(f"{service[:80]!r} is no service of {own.tenant}.", reason="bad-source")
    beside = installation.context.service_folder(name) if installation.context is not None else None
    folder = out or beside or Path("certs") / f"{own.tenant}-{name}"
    identity = Identity(own.trust_domain, IdentityKind.SERVICE, name, own.tenant)
    return Actor(identity, folder.absolute(), 0, principal=principal.certificates)


async def _have(who: Actor, principal: Actor, mesh: MeshSettings, caller: Caller, *, keep: bool) -> None:
    from snavio.cli.actor import have_certificate, read_actor
    from snavio.clock import SystemClock
    from snavio.sdk.certificate import ServiceCertificate

    await have_certificate(who, mesh)
    had = read_actor(who.certificates, trust_domain=mesh.trust_domain)
    until = time_text(had.not_after_unix_ns)
    caller.show(
        {"identity": had.identity.spiffe_id, "folder": str(who.certificates), "not_after": until},
        Record(
            (
                ("service", f"{who.label}, until {until}"),
                ("through", principal.label),
                ("folder", who.certificates),
            )
        ),
        f"It acts with `{program()} send … --as {who.label}`."
        if not keep
        else "Renewing it before it ends, until Ctrl-C.",
    )
    if not keep:
        return
    certificate = ServiceCertificate(
        who.certificates,
        signer=mesh.signer,
        clock=SystemClock(),
        trust_domain=mesh.trust_domain,
        source=who.identity.source,
        principal=principal.certificates,
    )
    await certificate.start(within_s=10.0)
    try:
        await asyncio.Event().wait()
    finally:
        await certificate.stop()
