"""`snavio status`: what the running mesh does, once or again and again."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from snavio.cli.exits import ExitCode
from snavio.cli.installation import MeshOptions
from snavio.cli.render import BLANK, Screen
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
    here: MeshOptions,
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
    every_s = read_span(interval, option="--interval", least_s=0.2)
    from snavio.cli.actor import read_actor
    from snavio.clock import SystemClock

    installation = here.attach()
    who = read_actor(installation.identity, trust_domain=installation.mesh.trust_domain)
    who.require_living(SystemClock().unix_ns())
    who.require_right("/snavio.v1.Introspection/Status")
    if tenants or tenant:
        if watch:
            raise typer.BadParameter("shares are read once; leave --watch out.", param_hint="--tenants")
        silent = _shares(installation, tenant, here)
        told = f"No answer from {', '.join(silent)}." if silent else ""
    else:
        healthy = asyncio.run(_readings(installation, watch=watch, interval=every_s, json=here.json))
        told = "" if healthy else "Not every service answers."
    if told:
        from snavio.errors import Unavailable

        if here.json:
            raise typer.Exit(ExitCode.UNREACHABLE)
        raise Unavailable(told)


async def _readings(installation: Installation, *, watch: bool, interval: float, json: bool) -> bool:
    """Show a reading, or one after the other; whether every service answered."""
    from snavio.cli.mesh_views import mesh_blocks
    from snavio.clock import SystemClock
    from snavio.launch.probes import Probes
    from snavio.launch.readings import Readings
    from snavio.launch.revocation_meter import last

    async with Probes(installation.mesh, certificates=installation.identity) as probes:
        readings = Readings(probes, clock=SystemClock())
        reading = await readings.take()
        with Screen(json=json, live=watch) as screen:
            while True:
                if reading.healthy or watch:
                    await asyncio.sleep(interval)
                    reading = await readings.take()
                measured = last(installation.mesh.state_dir)
                blocks = (*mesh_blocks(reading), *_revocation(measured), BLANK if watch else None)
                screen.show({**reading.document(), "revocation": measured}, *blocks)
                if not watch:
                    return reading.healthy


def _shares(installation: Installation, tenant: str, here: MeshOptions) -> Sequence[str]:
    """Show the bounds that tenants share; the services that did not answer."""
    from snavio.cli.share_views import share_blocks
    from snavio.launch.probes import Probes
    from snavio.launch.share_readings import ShareReading, read_shares

    async def read() -> ShareReading:
        async with Probes(installation.mesh, certificates=installation.identity) as probes:
            return await read_shares(probes, tenant=tenant)

    reading = asyncio.run(read())
    # Without an answer, that a tenant holds nothing would be a guess.
    here.show(reading.document(), *(share_blocks(reading) if reading.bounds else ()))
    return reading.silent


def _revocation(measured: dict[str, Any] | None) -> Iterator[str]:
    """The last result of `snavio meter revocation`."""
    for profile, times in (measured or {}).get("profiles", {}).items():
        yield (
            f"revocation {profile}: p50 {times['p50_s']:g} s, p99 {times['p99_s']:g} s, "
            f"max {times['max_s']:g} s, bound {times['bound_s']:g} s"
        )
