"""`snavio bench`: a quick figure of one's own machine; `make bench` is the careful one."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import asdict
from typing import TYPE_CHECKING

from snavio.cli.installation import InstallationOptions
from snavio.cli.output import console, count, fancy, micros
from snavio.cli.render import Record

if TYPE_CHECKING:
    from snavio.cli.bench_phases import Figures, Progress


def bench(here: InstallationOptions) -> None:
    """Measure this machine for about ten seconds: sends, batches, latency, receiving.

    Uses the mesh that runs on the state folder, under a target of its own, or starts a temporary one. The load and the
    mesh share the machine, so this is a lower bound; every delivery is on disk before it counts.

    \b
    Examples:
      snavio bench
      snavio bench --json | jq .batch_commands_per_s
    """
    import snavio.native  # noqa: F401

    out = console()
    if here.json or not fancy(out):
        figures, where = asyncio.run(_bench(here, lambda _phase, _share: None))
    else:
        figures, where = _with_bar(here)
    measured = [
        ("one send at a time", f"p50 {micros(figures.alone_p50_us)}, p99 {micros(figures.alone_p99_us)}"),
        ("single sends", f"{count(figures.single_sends_per_s)} commands/s"),
        ("batches of 1,000", f"{count(figures.batch_commands_per_s)} commands/s"),
        ("receive and ack", f"{count(figures.received_per_s)} commands/s"),
        *([("refused", count(figures.refused))] if figures.refused else []),
    ]
    against = f"measured against {where}, payloads of 200 bytes"
    here.show({**asdict(figures), "mesh": where}, Record(measured), against)


def _with_bar(here: InstallationOptions) -> tuple[Figures, str]:
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Bar

    with Bar(TextColumn("{task.description:<28}"), BarColumn(), transient=True) as bar:
        task = bar.add_task("getting ready", total=1.0)

        def progress(phase: str, share: float) -> None:
            bar.update(task, description=phase, completed=share)

        return asyncio.run(_bench(here, progress))


async def _bench(here: InstallationOptions, progress: Progress) -> tuple[Figures, str]:
    from snavio.cli.bench_phases import NAME, TARGET, measure
    from snavio.clock import SystemClock
    from snavio.launch.demo_tenant import DemoTenant
    from snavio.launch.temporary import temporary_mesh

    clock = SystemClock()
    found = here.find()
    run = found.state.running()
    async with AsyncExitStack() as stack:
        if run is not None:
            mesh, where = run.reaches(found.mesh), f"the mesh on {found.mesh.state_dir}"
            tenant = DemoTenant(mesh, operator_certificates=found.operator_certificates, clock=clock)
        else:
            progress("starting a temporary mesh", 0.0)
            temporary = await stack.enter_async_context(
                temporary_mesh(clock=clock, healthy=lambda _: None, say=lambda _: None)
            )
            mesh, tenant, where = temporary.mesh, temporary.tenant, "a temporary mesh"
        await tenant.register_target(TARGET, NAME)
        return await measure(mesh, progress=progress), where
