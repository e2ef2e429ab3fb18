"""`snavio status`: what the running mesh does, once or again and again."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Annotated, Any

import typer

from snavio.cli.exits import ExitCode
from snavio.cli.options import Config, Context, Json, StateDir
from snavio.cli.output import console, fancy, line, print_json
from snavio.cli.render import show
from snavio.cli.times import read_span

if TYPE_CHECKING:
    from snavio.launch.installation import Installation


def status(
    *,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Again and again, until Ctrl-C.")] = False,
    tenants: Annotated[
        bool, typer.Option("--tenants", help="Show which tenant uses how much of each bound that they share.")
    ] = False,
    tenant: Annotated[str, typer.Option(metavar="NAME", help="The same for one tenant.")] = "",
    interval: Annotated[str, typer.Option(metavar="<duration>", help="Measure rates over this time.")] = "1s",
    state_dir: StateDir = None,
    config: Config = None,
    context: Context = None,
    json: Json = False,
) -> None:
    """Show every service of a running mesh: state, memory, CPU, rates, latencies and backlog.

    Exit code 0 when all of them serve, 3 when one does not.

    \b
    Examples:
      snavio status
      snavio status --watch
      snavio status --tenants
      snavio status --tenant acme --json
      snavio status --json | jq .delivered_per_s
    """
    from snavio.launch.installation import attach

    every_s = read_span(interval, option="--interval", least_s=0.2)
    installation = attach(state_dir=state_dir, config=config, context=context)
    if tenants or tenant:
        if watch:
            raise typer.BadParameter("shares are read once; leave --watch out.", param_hint="--tenants")
        _shares(installation, tenant, json=json)
        return

    if not asyncio.run(_show(installation, watch=watch, interval=every_s, json=json)):
        from snavio.errors import Unavailable

        if json:
            raise typer.Exit(ExitCode.UNREACHABLE)
        raise Unavailable("Not every service answers.")


async def _show(installation: Installation, *, watch: bool, interval: float, json: bool) -> bool:
    """Print a reading, or one after the other; whether every service answered."""
    from rich.live import Live

    from snavio.cli.mesh_views import mesh_lines, mesh_view
    from snavio.clock import SystemClock
    from snavio.launch.probes import Probes
    from snavio.launch.readings import Readings
    from snavio.launch.revocation_meter import last

    out = console()
    async with Probes(installation.mesh, certificates=installation.identity) as probes:
        readings = Readings(probes, clock=SystemClock())
        reading = await readings.take()
        live = Live(console=out, auto_refresh=False) if watch and fancy(out) and not json else None
        with live or contextlib.nullcontext():
            while True:
                if reading.healthy or watch:
                    await asyncio.sleep(interval)
                    reading = await readings.take()
                if json:
                    print_json({**reading.document(), "revocation": last(installation.mesh.state_dir)})
                elif live is not None:
                    live.update(mesh_view(reading), refresh=True)
                elif fancy(out):
                    out.print(mesh_view(reading))
                else:
                    line("\n".join([*mesh_lines(reading), *([""] if watch else [])]))
                if not json and not watch:
                    _revocation(last(installation.mesh.state_dir))
                if not watch:
                    return reading.healthy


def _shares(installation: Installation, tenant: str, *, json: bool) -> None:
    """The bounds that tenants share; Unavailable, after what was read, when a service is silent."""
    from snavio.cli.share_views import share_blocks
    from snavio.errors import Unavailable
    from snavio.launch.probes import Probes
    from snavio.launch.share_readings import ShareReading, read_shares

    async def read() -> ShareReading:
        async with Probes(installation.mesh, certificates=installation.identity) as probes:
            return await read_shares(probes, tenant=tenant)

    reading = asyncio.run(read())
    # Without an answer, that a tenant holds nothing would be a guess.
    show(reading.document(), *(share_blocks(reading) if reading.bounds else ()), json=json)
    if reading.silent:
        if json:
            raise typer.Exit(ExitCode.UNREACHABLE)
        raise Unavailable(f"No answer from {', '.join(reading.silent)}.")


def _revocation(measured: dict[str, Any] | None) -> None:
    """Print the last result of `snavio meter revocation`."""
    for profile, times in (measured or {}).get("profiles", {}).items():
        line(
            f"revocation {profile}: p50 {times['p50_s']:g} s, p99 {times['p99_s']:g} s, "
            f"max {times['max_s']:g} s, bound {times['bound_s']:g} s"
        )
