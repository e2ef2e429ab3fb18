"""`snavio status`: what the running mesh does, once or again and again."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Annotated, Any

import typer

from snavio.cli.exits import ExitCode
from snavio.cli.options import Config, Json, StateDir
from snavio.cli.output import console, fancy, line, print_json


def status(
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Again and again, until Ctrl-C.")] = False,
    interval: Annotated[float, typer.Option(min=0.2, help="Seconds over which rates are measured.")] = 1.0,
    state_dir: StateDir = None,
    config: Config = None,
    json: Json = False,
) -> None:
    """Show every service of a running mesh: state, memory, CPU, rates, latencies and backlog.

    Exit code 0 when all of them serve, 3 when one does not.

    \b
    Examples:
      snavio status
      snavio status --watch
      snavio status --json | jq .delivered_per_s
    """
    from snavio.launch.installation import attach

    installation = attach(state_dir=state_dir, config=config)

    async def show() -> bool:
        from rich.live import Live

        from snavio.cli.views import mesh_lines, mesh_view
        from snavio.clock import SystemClock
        from snavio.launch.probes import Probes
        from snavio.launch.readings import Readings
        from snavio.launch.revocation_meter import last

        out = console()
        async with Probes(installation.mesh, certificates=installation.operator_certificates) as probes:
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

    if not asyncio.run(show()):
        from snavio.errors import Unavailable

        if json:
            raise typer.Exit(ExitCode.UNREACHABLE)
        raise Unavailable("Not every service answers.")


def _revocation(measured: dict[str, Any] | None) -> None:
    """What `snavio meter revocation` found last."""
    for profile, times in (measured or {}).get("profiles", {}).items():
        line(
            f"revocation {profile}: p50 {times['p50_s']:g} s, p99 {times['p99_s']:g} s, "
            f"max {times['max_s']:g} s, bound {times['bound_s']:g} s"
        )
