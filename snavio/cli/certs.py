"""`snavio certs`: which certificates are alive, an end to those that should not be, and more life to a principal's."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from snavio.cli.assume import assume
from snavio.cli.caller import OperatorCaller
from snavio.cli.group import CommandGroup
from snavio.cli.options import Json
from snavio.cli.render import Table, TableColumn, show, time_text

if TYPE_CHECKING:
    from snavio.admin.certificates import CertificateClient
    from snavio.config import MeshSettings
    from snavio.v1.signer_pb2 import CertificateRecord, RevokeCertificateResponse, RevokeIdentityResponse

certs = CommandGroup(
    "See which certificates are alive, renew and revoke them.",
    examples=(
        "snavio certs ls",
        "snavio certs assume billing",
        "snavio certs revoke SERIAL --reason 'stolen laptop'",
    ),
)
Reason = Annotated[str, typer.Option("--reason", "-r", help="Why, for the record.")]


@certs.command("ls")
def list_certificates(
    identity: Annotated[
        str, typer.Argument(help="Those of one identity, spiffe://….", show_default=False)
    ] = "",
    *,
    caller: OperatorCaller,
    json: Json = False,
) -> None:
    """Certificates that have not expired, oldest first, with the one that each was renewed or assumed from.

    \b
    Examples:
      snavio certs ls
      snavio certs ls spiffe://snavio.local/tenant/acme/service/billing
      snavio certs ls --json | jq '.certificates[] | {identity, revoked}'
    """

    async def ask(client: CertificateClient) -> list[CertificateRecord]:
        return [record async for record in client.living(identity)]

    found = caller.ask_client(certificate_client, ask)
    rows = [_document(record) for record in found]
    columns = (
        "serial",
        TableColumn(
            "state", lambda row: "revoked" if row["revoked"] else "barred" if row["barred"] else "good"
        ),
        TableColumn("until", "not_after"),
        "identity",
        TableColumn("from", "parent_serial"),
    )
    show({"certificates": rows}, Table(columns, rows, none="No certificate is alive."), json=json)


@certs.command()
def revoke(
    which: Annotated[str, typer.Argument(help="A serial, or an identity, spiffe://….", show_default=False)],
    reason: Reason = "",
    *,
    unlisted: Annotated[
        bool,
        typer.Option(
            "--unlisted", help="Also a serial that Signer does not list, as after a backup was restored."
        ),
    ] = False,
    caller: OperatorCaller,
    json: Json = False,
) -> None:
    """End a certificate with its whole chain; or all that an identity has, and bar it.

    The chain of a certificate is all that was renewed from the same first one, and what was assumed with any of it.

    Every service refuses them within seconds, on open streams too. A barred identity gets no certificate until
    `snavio certs restore`.

    \b
    Examples:
      snavio certs revoke 7785661406427dae4cc4e93cd31fa5ca399d0332 -r 'lost'
      snavio certs revoke spiffe://snavio.local/tenant/acme/principal/ci
    """

    async def ask(client: CertificateClient) -> RevokeCertificateResponse | RevokeIdentityResponse:
        if which.startswith("spiffe:"):
            return await client.revoke_identity(which, reason=reason)
        return await client.revoke(which if unlisted else await _serial(which, client), reason=reason)

    ended = caller.ask_client(certificate_client, ask)
    denylist = [
        {"subject": entry.subject, "issued_before_unix_ns": entry.issued_before_unix_ns}
        for entry in ended.revoked
    ]
    said = [f"revoked  {serial}" for serial in ended.serial]
    if not said:
        barred = which.startswith("spiffe:")
        said = ["It had no living certificate; it gets none from now on." if barred else f"revoked  {which}"]
    show(
        {"revoked": list(ended.serial), "more": ended.more, "denylist": denylist},
        *said,
        "and more; all that was issued until now is covered." if ended.more else None,
        json=json,
    )


async def _serial(which: str, client: CertificateClient) -> str:
    """The serial of a living certificate: a part of one would end nothing, and sound as if it had."""
    from snavio.errors import BadRequest, NotFound

    if re.fullmatch(r"[0-9a-f]+", which) is None:
        raise BadRequest(
            f"{which!r} is neither a serial nor an identity, spiffe://…: `snavio certs ls` shows both.",
            reason="bad-serial",
        )
    begun = [record.serial async for record in client.living(prefix=which)]
    if which not in begun:
        hint = (
            f"Did you mean {begun[0]}?"
            if len(begun) == 1
            else "`snavio certs ls` shows those that are alive."
        )
        raise NotFound(f"No certificate that is alive has the serial {which}, so nothing was revoked. {hint}")
    return which


@certs.command()
def restore(
    identity: Annotated[str, typer.Argument(help="The identity, spiffe://….", show_default=False)],
    *,
    caller: OperatorCaller,
    json: Json = False,
) -> None:
    """Let a barred identity have certificates again; those that were revoked stay so.

    \b
    Examples:
      snavio certs restore spiffe://snavio.local/tenant/acme/principal/ci
    """
    changed = caller.ask_client(certificate_client, lambda client: client.restore_identity(identity))
    said = "It may have certificates again." if changed else "It was not barred."
    show({"changed": changed}, said, json=json)


@certs.command()
def renew(
    folder: Annotated[Path, typer.Argument(help="Folder of a principal's certificate.", show_default=False)],
    signer: Annotated[
        str, typer.Option(help="Signer, host:port, if not this installation's.", show_default=False)
    ] = "",
    *,
    caller: OperatorCaller,
    json: Json = False,
) -> None:
    """Renew a principal's certificate with itself, before it ends; afterwards it takes a token.

    The SDK and `--as` do this by themselves when two thirds of its life are over.

    \b
    Examples:
      snavio certs renew certs/acme-ci
      snavio certs renew ~/.snavio/ci --signer mesh.example:7404
    """
    from snavio.clock import SystemClock
    from snavio.sdk.principal import renew_now

    # With the address of a Signer no mesh has to run here.
    here = caller.find() if signer else caller.attach()
    leaf = asyncio.run(
        renew_now(
            folder,
            signer=signer or here.mesh.signer,
            clock=SystemClock(),
            trust_domain=here.mesh.trust_domain,
        )
    )
    until = time_text(leaf.not_after_ns)
    show(
        {"identity": leaf.spiffe_id, "serial": leaf.serial, "not_after": until},
        f"renewed  {leaf.spiffe_id}  until {until}  {leaf.serial}",
        json=json,
    )


certs.command("assume")(assume)


@certs.command()
def scraper(
    folder: Annotated[
        Path | None, typer.Argument(help="Folder to write it to; certs/job-scraper of the state folder.")
    ] = None,
    *,
    days: Annotated[int, typer.Option(min=1, max=365, help="Life of the certificate.")] = 30,
    caller: OperatorCaller,
    json: Json = False,
) -> None:
    """Make a certificate that may read metrics, for Prometheus, where health ports are not on loopback.

    It has no other right, and does not renew itself: run this again before it ends.

    \b
    Examples:
      snavio certs scraper
      snavio certs scraper /etc/prometheus/snavio --days 90
    """
    from snavio.admin.operator import Operator
    from snavio.domain.identity import Identity, IdentityKind

    def operator(mesh: MeshSettings, certificates: Path) -> Operator:
        return Operator(
            signer_address=mesh.signer,
            registry_address=mesh.registry,
            certificates=certificates,
            trust_domain=mesh.trust_domain,
        )

    mesh, _ = caller.attached()
    place = folder or mesh.certificates("job-scraper")
    identity = Identity(mesh.trust_domain, IdentityKind.JOB, "scraper")
    serial = caller.ask_client(
        operator, lambda client: client.certify(identity, place, ttl_seconds=days * 86_400)
    )
    show(
        {"identity": identity.spiffe_id, "serial": serial, "folder": str(place)},
        f"made  {identity.spiffe_id}  in {place}  {serial}",
        json=json,
    )


def certificate_client(mesh: MeshSettings, certificates: Path) -> CertificateClient:
    """Where an operator asks about certificates."""
    from snavio.admin.certificates import CertificateClient

    return CertificateClient(
        signer_address=mesh.signer, certificates=certificates, trust_domain=mesh.trust_domain
    )


def _document(record: CertificateRecord) -> dict[str, Any]:
    return {
        "serial": record.serial,
        "identity": record.spiffe_id,
        "issued_to": record.issued_to,
        "parent_serial": record.parent_serial or None,
        "root_serial": record.root_serial,
        "issued": time_text(record.issued_unix_ns),
        "not_after": time_text(record.not_after_unix_ns),
        "revoked": record.revoked,
        "barred": record.barred,
    }
