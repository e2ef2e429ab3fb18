"""`snavio edge adopt`: an installation of the edge joins a mesh as a principal of its tenant.

Never registers more than the services that the file sends as, and never takes a right: what is missing is said.
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from snavio.cli.edge_config import HERE, Hookaidofile
from snavio.cli.options import Json
from snavio.cli.output import program
from snavio.cli.render import Record, Table, TableColumn, show

if TYPE_CHECKING:
    from snavio.edge.plan import EdgePlan
    from snavio.sdk.context import Context

MOST_READ = 8192
EDGE_SERVICE = "edge"


def adopt(
    invitation: Annotated[
        str,
        typer.Argument(
            help="The line that `snavio tenant invite` printed; `-` reads it from standard input, so that it stays "
            "out of the shell's history.",
            show_default=False,
        ),
    ],
    *,
    config: Hookaidofile = HERE,
    name: Annotated[str, typer.Option(help="Name of the principal, if the invitation leaves it open.")] = "",
    json: Json = False,
) -> None:
    """Join a mesh with an invitation, as an edge of its tenant.

    Registers the services that the file sends as, and shows which of their commands would be refused. Afterwards
    `snavio edge run` on this machine joins that mesh. The private key is made here and stays here.

    \b
    Examples:
      snavio edge adopt snvi1.AAAAAGk… --config /etc/edge/Hookaidofile
      pass show edge | snavio edge adopt - --name edge
    """
    from snavio.cli.edge_run import compiled_plan
    from snavio.clock import SystemClock
    from snavio.domain.invitation import parse_invitation
    from snavio.errors import BadRequest
    from snavio.sdk.context import ContextFile, config_folder
    from snavio.sdk.join import join

    # Before the token is spent: a file with mistakes would leave half of an installation.
    plan = compiled_plan(config)
    given = parse_invitation(sys.stdin.read(MOST_READ) if invitation in ("-",) else invitation)
    if plan.tenant not in (given.tenant, "edge"):
        raise BadRequest(
            f"{config} is of the tenant {plan.tenant}, and the invitation of {given.tenant}.",
            reason="wrong-tenant",
        )
    joined = asyncio.run(join(given, file=ContextFile(config_folder()), clock=SystemClock(), principal=name))
    context = joined.context
    registered, forecast = asyncio.run(_register(context, joined.enrolled.identity.name, plan))
    rows = [
        {"command": f"{t} {c}", "source": s, "answer": said, "next": step} for s, t, c, said, step in forecast
    ]
    show(
        {"context": context.name, "tenant": context.tenant, "services": registered, "commands": rows},
        Record(
            (
                ("joined", str(joined.enrolled.identity)),
                ("context", f"{context.name}, now in use"),
                ("services", ", ".join(registered)),
            )
        ),
        *(
            [Table([TableColumn(each) for each in ("command", "source", "answer", "next")], rows)]
            if rows
            else []
        ),
        f"Next: `{program()} edge run --config {config}`.",
        json=json,
    )


async def _register(
    context: Context, principal: str, plan: EdgePlan
) -> tuple[list[str], list[tuple[str, str, str, str, str]]]:
    from snavio.admin.directory import DirectoryClient
    from snavio.admin.entries import EntryClient
    from snavio.config import MeshSettings
    from snavio.domain.directory import Service
    from snavio.errors import NotFound

    tenant = context.tenant
    wanted = sorted({each.command.source for each in plan.routes if each.command} | {EDGE_SERVICE})
    mesh = MeshSettings.model_validate({**context.addresses, "trust_domain": context.trust_domain})
    values = []
    async with EntryClient(
        mesh.registry, certificates=context.identity, trust_domain=context.trust_domain
    ) as entries:
        for service in wanted:
            try:
                named = tuple((await entries.show("service", tenant, service)).value.principal)
            except NotFound:
                named = ()
            values.append(Service(tenant, service, named if principal in named else (*named, principal)))
    commands = sorted(
        {
            (f"{tenant}/{each.command.source}", each.command.target, each.command.name)
            for each in plan.routes
            if each.command
        }
    )
    async with DirectoryClient(
        mesh.registry, certificates=context.identity, trust_domain=context.trust_domain
    ) as directory:
        await directory.apply(values, reason="snavio edge adopt")
        found = []
        for source, target, command in commands:
            answer = await directory.check(source, target, command)
            verdict = str(answer.verdict)
            ask = (
                f"{program()} access request {source} {target} {command} -r edge"
                if verdict == "acl-deny"
                else ""
            )
            found.append((source, target, command, verdict, ask))
    return [f"{tenant}/{service}" for service in wanted], found
