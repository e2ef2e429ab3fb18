"""`snavio bench`: a quick figure of one's own machine; `make bench` is the careful one."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from snavio.cli.options import Config, Json, StateDir
from snavio.cli.output import console, count, fancy, micros
from snavio.cli.render import Record, show

if TYPE_CHECKING:
    from snavio.cli.bench_phases import Figures, Progress


def bench(state_dir: StateDir = None, config: Config = None, json: Json = False) -> None:
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
    if json or not fancy(out):
        figures, where = asyncio.run(_bench(state_dir, config, lambda _phase, _share: None))
    else:
        figures, where = _with_bar(state_dir, config)
    measured = [
        ("one send at a time", f"p50 {micros(figures.alone_p50_us)}, p99 {micros(figures.alone_p99_us)}"),
        ("single sends", f"{count(figures.single_sends_per_s)} commands/s"),
        ("batches of 1,000", f"{count(figures.batch_commands_per_s)} commands/s"),
        ("receive and ack", f"{count(figures.received_per_s)} commands/s"),
        *([("refused", count(figures.refused))] if figures.refused else []),
    ]
    against = f"measured against {where}, payloads of 200 bytes"
    show({**asdict(figures), "mesh": where}, Record(measured), against, json=json)


def _with_bar(state_dir: Any, config: Any) -> tuple[Figures, str]:
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Bar

    with Bar(TextColumn("{task.description:<28}"), BarColumn(), transient=True) as bar:
        task = bar.add_task("getting ready", total=1.0)

        def progress(phase: str, share: float) -> None:
            bar.update(task, description=phase, completed=share)

        return asyncio.run(_bench(state_dir, config, progress))


async def _bench(state_dir: Any, config: Any, progress: Progress) -> tuple[Figures, str]:
    from snavio.cli.bench_phases import NAME, TARGET, measure
    from snavio.clock import SystemClock
    from snavio.launch.demo_tenant import DemoTenant
    from snavio.launch.installation import find
    from snavio.launch.temporary import temporary_mesh

    clock = SystemClock()
    found = find(state_dir=state_dir, config=config)
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
