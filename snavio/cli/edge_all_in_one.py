"""An edge with all that it needs on this machine: the services that store messages, and the process that lets them in.

Never starts a second mesh on a folder: where one runs, it is used.
"""

from __future__ import annotations

import asyncio
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

from snavio.cli.output import aside, line
from snavio.errors import BadRequest

if TYPE_CHECKING:
    from snavio.config import MeshSettings
    from snavio.edge.plan import EdgePlan
    from snavio.launch.edge_process import EdgeProcess
    from snavio.launch.installation import Installation
    from snavio.launch.supervisor import Supervisor


class AllInOne:
    """Lives on one event loop, in the main thread."""

    def __init__(
        self,
        installation: Installation,
        plan: EdgePlan,
        config: Path,
        *,
        pid_file: Path | None,
        watch: bool,
        log_level: str,
    ) -> None:
        self._installation = installation
        self._plan = plan
        self._config = config
        self._pid_file = pid_file
        self._watch = watch
        self._log_level = log_level
        self._began = time.monotonic()
        self._stop, self._hurry, self._reload = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._sources = {each.command.source for each in plan.routes if each.command}

    async def run(self) -> None:
        """Run until SIGINT or SIGTERM; SIGHUP is passed on."""
        from snavio.cli.up import _until

        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._ended)
        loop.add_signal_handler(signal.SIGHUP, self._reload.set)
        running = self._installation.state.running()
        try:
            if running is not None:
                await _until(self._stop, self._live(running.reaches(self._installation.mesh), None))
            else:
                await self._with_mesh()
        finally:
            if self._pid_file is not None:
                await asyncio.to_thread(self._pid_file.unlink, missing_ok=True)

    def _ended(self) -> None:
        (self._hurry if self._stop.is_set() else self._stop).set()

    async def _with_mesh(self) -> None:
        from snavio.cli.up import _until, spared
        from snavio.clock import SystemClock
        from snavio.launch.edge_process import NEEDED, NEEDED_FOR_COMMANDS
        from snavio.launch.probes import Probes
        from snavio.launch.processes import MeshProcesses
        from snavio.launch.supervisor import Supervisor

        state, operator = self._installation.state, self._installation.operator_certificates
        state.check_format()
        state.check_writable()
        with state.claimed():
            mesh, environment = self._addresses()
            if self._plan.waiting.in_memory:
                environment |= {
                    "SNAVIO_MAILBOX__AMNESIA": "true",
                    "SNAVIO_MAILBOX__I_ACCEPT_LOSING_MESSAGES": "true",
                }
            state.note_run(mesh)
            processes = MeshProcesses(
                mesh,
                config=self._installation.config,
                environment=environment,
                services=(*NEEDED, *(NEEDED_FOR_COMMANDS if self._sources else ())),
            )
            await asyncio.to_thread(processes.prepare)
            async with Probes(mesh, certificates=operator) as probes:
                supervisor = Supervisor(processes, probes=probes, clock=SystemClock(), say=spared(aside))

                async def whole() -> None:
                    await supervisor.start(healthy=lambda _: None)
                    await self._live(mesh, supervisor)

                try:
                    await _until(self._stop, whole())
                finally:
                    await supervisor.stop(hurry=self._hurry)

    def _addresses(self) -> tuple[MeshSettings, dict[str, str]]:
        """Where the services listen: as configured, or on free ports where those are taken. Nobody but the edge and
        the commands that read where it runs calls them."""
        from snavio.launch.checks import check_ports
        from snavio.launch.processes import free_addresses

        mesh = self._installation.mesh
        try:
            check_ports(mesh)
        except BadRequest:
            free = free_addresses("enrolment")
            enrolment = free.pop("enrolment")
            environment = {f"SNAVIO_MESH__{name.upper()}": address for name, address in free.items()}
            environment["SNAVIO_SIGNER__ENROL_LISTEN"] = enrolment
            return mesh.model_copy(update=free), environment
        return mesh, {}

    async def _live(self, mesh: MeshSettings, supervisor: Supervisor | None) -> None:
        edge = await self._edge(mesh)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(edge.watch())
                if supervisor is not None:
                    group.create_task(supervisor.watch())
                while True:
                    await self._reload.wait()
                    self._reload.clear()
                    edge.hang_up()
        finally:
            await edge.stop()

    async def _edge(self, mesh: MeshSettings) -> EdgeProcess:
        from snavio.cli.edge_run import write_pid
        from snavio.cli.up import spared
        from snavio.clock import SystemClock
        from snavio.edge.overview import overview
        from snavio.launch.edge_process import EDGE_SERVICE, EdgeLaunch, EdgeProcess, register_edge

        plan = self._plan
        principal = await register_edge(
            mesh,
            operator_certificates=self._installation.operator_certificates,
            tenant=plan.tenant,
            services=sorted(self._sources | {EDGE_SERVICE}),
            clock=SystemClock(),
        )
        launch = EdgeLaunch(
            config=self._config.absolute(),
            tenant=plan.tenant,
            state=mesh.state_dir / "edge",
            certificates=principal.parent,
            principal=principal,
            mesh=mesh,
            watch=self._watch,
            log_level=self._log_level,
        )
        edge = EdgeProcess(launch, say=spared(aside))
        await edge.start()
        write_pid(self._pid_file)
        seconds = time.monotonic() - self._began
        line(f"edge ready in {seconds:.1f} s on port {edge.port} (tenant {plan.tenant}, {mesh.state_dir})")
        for each in overview(plan):
            line(each)
        return edge
