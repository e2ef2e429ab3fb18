"""`snavio meter`: measures promises of the running mesh on a canary of its own."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from snavio.cli.group import CommandGroup
from snavio.cli.installation import MeshOptions
from snavio.cli.output import line
from snavio.cli.render import Kind, Table, TableColumn
from snavio.cli.words import one_of_each

meter = CommandGroup(
    "Measure what the mesh promises, on a canary tenant of its own.",
    examples=(
        "snavio meter revocation",
        "snavio meter revocation --profile critical --rounds 20",
    ),
)


@meter.callback()
def _meter() -> None:
    """Keeps `revocation` a word of its own while it is the only one."""


@meter.command()
def revocation(
    *,
    profile: Annotated[
        list[str] | None,
        typer.Option(help="critical, moderate, low or sync; may be given again. Default: all."),
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, max=1000, help="Revocations of each profile.")] = 3,
    here: MeshOptions,
) -> None:
    """Measure the time from a revocation to the first refused command: p50, p99 and the longest, per profile.

    Exit code 1 when a profile's bound was not kept. `snavio status` shows the last measurement.

    \b
    Examples:
      snavio meter revocation
      snavio meter revocation --profile critical --rounds 20 --json
    """
    from snavio.cli.exits import ExitCode
    from snavio.clock import SystemClock
    from snavio.domain.directory import Profile
    from snavio.launch.revocation_meter import RevocationMeter, document, keep

    known = {each.name.lower(): each for each in Profile}
    wanted = one_of_each(profile or known, known, "--profile")
    installation = here.attach()
    clock = SystemClock()
    canary = RevocationMeter(installation.mesh, operator_certificates=installation.identity, clock=clock)
    if not here.json:
        line(f"Revoking a canary's rights, {rounds} times for each of {', '.join(wanted)} …")
    times = asyncio.run(canary.measure([known[name] for name in dict.fromkeys(wanted)], rounds=rounds))
    measured = document(times, at_unix_ns=clock.unix_ns())
    keep(installation.mesh.state_dir, measured)
    seconds = Kind("{:.3f} s".format, right=True)
    columns: tuple[TableColumn | str, ...] = (
        "profile",
        *(TableColumn(name, kind=seconds) for name in ("p50", "p99", "max", "bound")),
        TableColumn("state", lambda row: "kept" if row["kept"] else "NOT KEPT"),
    )
    rows = [
        {"profile": one.profile.name.lower(), "p50": one.p50, "p99": one.p99, "max": one.max}
        | {"bound": one.bound_s, "kept": one.kept}
        for one in times
    ]
    here.show(measured, Table(columns, rows, style=lambda row: "" if row["kept"] else "red"))
    if not all(each.kept for each in times):
        raise typer.Exit(int(ExitCode.REFUSED))
