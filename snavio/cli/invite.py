"""`snavio tenant invite`: one line of text with which somebody of a tenant joins from any machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from snavio.cli.caller import OperatorCaller, directory_client
from snavio.cli.output import ago, aside, program
from snavio.cli.render import time_text
from snavio.cli.times import read_span

if TYPE_CHECKING:
    from snavio.config import MeshSettings
    from snavio.domain.directory import Value
    from snavio.domain.invitation import Invitation
    from snavio.launch.installation import Installation
    from snavio.v1.registry_pb2 import EnrolmentToken

LONGEST_S = 7 * 86_400
SHORTEST_S = 60
CHANNEL = "contact"
"""Name of the alert channel that `--contact` becomes."""


def invite(
    tenant: Annotated[str, typer.Argument(help="The tenant, such as acme.", show_default=False)],
    *,
    principal: Annotated[
        str,
        typer.Option(
            help="The principal that it is for, which is registered if it is not; without, the newcomer "
            "chooses a name.",
            show_default=False,
        ),
    ] = "",
    contact: Annotated[
        str,
        typer.Option(
            help="Mail address for alerts; with it a tenant that does not exist is created.",
            show_default=False,
        ),
    ] = "",
    good_for: Annotated[
        str, typer.Option("--for", metavar="<duration>", help="Life of the invitation, at most 7d.")
    ] = "24h",
    caller: OperatorCaller,
) -> None:
    """Print an invitation: one line that lets one principal of a tenant in, once, from any machine.

    It holds the addresses of the mesh, the fingerprint of its CA and a one-time token; whoever has it can use it, so
    hand it over as you would a password.

    \b
    Examples:
      snavio tenant invite acme --contact ops@acme.example
      snavio tenant invite acme --principal ci --for 1h
      snavio tenant invite acme --json | jq -r .invitation
    """
    from snavio.domain.directory.rules import require_name
    from snavio.errors import BadRequest

    require_name(tenant, "TENANT")
    life_s = round(read_span(good_for, option="--for", least_s=SHORTEST_S))
    if life_s > LONGEST_S:
        raise BadRequest("--for: an invitation lives for at most 7d.", reason="bad-time")
    values = _entries(tenant, principal, contact)
    installation = caller.attach()
    addresses = reachable(installation)

    async def ask(mesh: MeshSettings, certificates: Path) -> tuple[EnrolmentToken, bool]:
        async with directory_client(mesh, certificates) as client:
            changed = bool(values) and (await client.apply(values, reason="snavio tenant invite")).changed
            return await client.new_token(tenant, principal=principal, ttl_s=life_s), changed

    made, changed = caller.answer(ask)
    invitation = _invitation(made, tenant, principal, installation.mesh.trust_domain, addresses)
    end = time_text(made.expires_unix_ns)
    caller.show(
        {
            "invitation": invitation.text,
            "tenant": tenant,
            "principal": principal or None,
            "expires": end,
            "addresses": dict(addresses),
            "changed": changed,
        },
        invitation.text,
    )
    if caller.json:
        return
    aside(
        f"Good once, for {ago(life_s)}, until {end}; not shown again. On the other machine: {program()} join -"
    )
    if local := sorted({address for address in addresses.values() if _is_loopback(address)}):
        aside(
            f"{local[0]} and the like are addresses of this machine only. For others, give the services names in "
            'snavio.toml under [mesh], such as shield = "mesh.example:7401", and shield_listen to listen elsewhere.'
        )


def reachable(installation: Installation) -> dict[str, str]:
    """Every address of a mesh that an invitation or a context holds."""
    from snavio.domain.invitation import SERVICES
    from snavio.errors import BadRequest

    enrolment = installation.enrolment
    if not enrolment:
        raise BadRequest(
            "This context does not say where newcomers enrol: `snavio context add` with --address "
            "enrolment=HOST:PORT does.",
            reason="no-enrolment",
        )
    mesh = installation.mesh
    return {
        "enrolment": enrolment,
        **{name: str(getattr(mesh, name)) for name in SERVICES if name != "enrolment"},
    }


def _entries(tenant: str, principal: str, contact: str) -> list[Value]:
    from snavio.domain.directory import AlertChannel, ChannelKind, Principal, Tenant

    found: list[Value] = []
    if contact:
        # Only who says whom to tell about it makes a tenant: a misspelled name must not become one.
        found += [Tenant(tenant), AlertChannel(tenant, CHANNEL, ChannelKind.EMAIL, contact)]
    if principal:
        found.append(Principal(tenant, principal))
    return found


def _invitation(
    made: EnrolmentToken, tenant: str, principal: str, trust_domain: str, addresses: dict[str, str]
) -> Invitation:
    from snavio.domain.enrolment import parse_token
    from snavio.domain.invitation import Invitation

    expires = made.expires_unix_ns // 1_000_000_000
    return Invitation(parse_token(made.token), expires, tenant, principal, trust_domain, addresses)


def _is_loopback(address: str) -> bool:
    from snavio.config.safety import is_loopback

    return is_loopback(address)
