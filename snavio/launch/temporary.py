"""A mesh of its own for a demonstration or a measurement: free ports, a folder that goes away, the demo tenant.

Never touches an installation: what it needs it makes, and what it made it removes.
"""

from __future__ import annotations

import asyncio
import re
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from snavio.clock import Clock
from snavio.config import MeshSettings
from snavio.errors import Unavailable
from snavio.launch.demo_tenant import DemoTenant
from snavio.launch.installation import OPERATOR_FOLDER
from snavio.launch.probes import Probes
from snavio.launch.processes import MeshProcesses
from snavio.launch.supervisor import Supervisor

_LOG: Final = re.compile(r" \(log: [^)]*\)")


@dataclass(frozen=True, slots=True)
class TemporaryMesh:
    """A mesh that runs, supervised."""

    mesh: MeshSettings
    processes: MeshProcesses
    probes: Probes
    tenant: DemoTenant


@asynccontextmanager
async def temporary_mesh(
    *,
    clock: Clock,
    healthy: Callable[[str], None],
    say: Callable[[str], None],
    settings: Mapping[str, Mapping[str, object]] | None = None,
) -> AsyncIterator[TemporaryMesh]:
    """Start one and register the demo tenant; everything ends with the context. Main thread only."""
    with tempfile.TemporaryDirectory(prefix="snavio-", ignore_cleanup_errors=True) as folder:
        processes = MeshProcesses.temporary(Path(folder), settings=settings)
        mesh = processes.mesh
        operator = mesh.certificates(OPERATOR_FOLDER)
        await asyncio.to_thread(processes.prepare)
        async with Probes(mesh, certificates=operator) as probes:
            supervisor = Supervisor(processes, probes=probes, clock=clock, say=say)
            tenant = DemoTenant(mesh, operator_certificates=operator, clock=clock)
            watching: asyncio.Task[None] | None = None
            try:
                try:
                    await supervisor.start(healthy=healthy)
                except Unavailable as error:
                    # Its logs go with the folder: their place would send a reader where nothing is.
                    raise Unavailable(_LOG.sub("", str(error)), reason=error.reason) from None
                await tenant.register()
                watching = asyncio.create_task(supervisor.watch(), name="watch")
                yield TemporaryMesh(mesh, processes, probes, tenant)
            finally:
                if watching is not None:
                    watching.cancel()
                    await asyncio.gather(watching, return_exceptions=True)
                await supervisor.stop(hurry=asyncio.Event())
