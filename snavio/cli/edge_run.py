"""`snavio edge run`: a Hookaidofile runs, in the mesh of a context or with all that it needs on this machine.

Never starts anything for a file with mistakes.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
import time
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from snavio.cli.edge_config import HERE, Hookaidofile
from snavio.cli.edge_files import read_file
from snavio.cli.exits import ExitCode
from snavio.cli.options import Context as ContextOption
from snavio.cli.output import aside, line
from snavio.cli.render import one_line
from snavio.errors import BadRequest, StateError

if TYPE_CHECKING:
    from snavio.edge.plan import EdgePlan
    from snavio.launch.edge_process import EdgeLaunch
    from snavio.launch.installation import Installation

MOST_DOTENV: Final = 1 << 20
_DOTENV_LINE: Final = re.compile(r"(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*)")


class LogLevel(StrEnum):
    """The least severity of the log."""

    DEBUG = "debug"
    INFO = "info"
    WARN = "warn"
    ERROR = "error"
    OFF = "off"


def run(
    config: Hookaidofile = HERE,
    db: Annotated[
        Path | None,
        typer.Option(
            "--db",
            metavar="<folder>",
            help="Folder of the messages and everything else that is kept, when no context is joined.",
            show_default=False,
        ),
    ] = None,
    pid_file: Annotated[
        Path | None, typer.Option("--pid-file", help="Write this process's id there.", show_default=False)
    ] = None,
    *,
    watch: Annotated[
        bool, typer.Option("--watch", help="Reload when the file changes, as on SIGHUP.")
    ] = False,
    log_level: Annotated[
        LogLevel | None,
        typer.Option("--log-level", help="In place of the file's `runtime_log`.", show_default=False),
    ] = None,
    dotenv: Annotated[
        Path | None,
        typer.Option(
            "--dotenv",
            help="Variables for `env:` and `{env.NAME}`; those that are set stay.",
            show_default=False,
        ),
    ] = None,
    context: ContextOption = None,
) -> None:
    """Run a Hookaidofile until Ctrl-C; SIGHUP reads it again, all or nothing.

    With `--context`, SNAVIO_CONTEXT or a context in use, the edge joins that mesh as a service of its tenant. Without
    one, or with `--db`, it starts what it needs on this machine: messages then lie in that folder, by default .snavio.

    Exit code 1 for a file with mistakes, 2 for anything else that keeps it from starting, 0 when it was ended.

    \b
    Examples:
      snavio edge run
      snavio edge run --config ./Hookaidofile --watch --dotenv ./.env
      snavio edge run --config /etc/edge/Hookaidofile --db /var/lib/edge --pid-file /run/edge.pid
    """
    if dotenv is not None:
        read_dotenv(dotenv)
    plan = _plan(config)
    level = (
        log_level
        or LogLevel(plan.observability.runtime_log.level if plan.observability.runtime_log else "info")
    ).value
    installation = installation_of(db, context)
    if installation.context is not None:
        _become(_joined(installation, plan, config, watch=watch, level=level), pid_file)
    asyncio.run(_all_in_one(installation, plan, config, pid_file, watch=watch, level=level))


def read_dotenv(path: Path) -> None:
    """Set the variables of a file, where they are not set; BadRequest names the line that cannot be read."""
    try:
        with path.open("rb") as file:
            text = file.read(MOST_DOTENV + 1).decode("utf-8")
    except OSError as error:
        raise BadRequest(f"{path} cannot be read: {error.strerror}.", reason="file-unreadable") from None
    except UnicodeDecodeError:
        raise BadRequest(f"{path} is no text.", reason="file-unreadable") from None
    for number, raw in enumerate(text.splitlines(), 1):
        stripped = raw.strip()
        if not stripped or stripped.startswith("#"):
            continue
        found = _DOTENV_LINE.fullmatch(stripped)
        if found is None:
            # The line may hold half of a secret: its number is enough.
            raise BadRequest(f"{path}:{number}: no `NAME=value`.", reason="bad-dotenv")
        name, value = found[1], found[2].strip()
        if len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'":
            value = value[1:-1]
        elif " #" in value:
            value = value.partition(" #")[0].rstrip()
        os.environ.setdefault(name, value)


def _plan(path: Path) -> EdgePlan:
    """The compiled file; ends with exit code 1 when it has mistakes."""
    from snavio.cli.edge_config import read_value
    from snavio.edge.compiling import compile_text
    from snavio.edge.placeholders import Surroundings

    try:
        data = read_file(path)
    except OSError as error:
        raise BadRequest(
            f"{path} cannot be read: {error.strerror}. `snavio edge init` writes one to begin with.",
            reason="file-unreadable",
        ) from None
    found = compile_text(data, surroundings=Surroundings(os.environ, read_value))
    for each in found.mistakes:
        aside(one_line(f"{path}:{each}", most=0))
    if found.left_out:
        aside(f"and {found.left_out} more.")
    for each in found.warnings:
        aside(one_line(f"{path}:{each.at}: warning: {str(each).partition(': ')[2]}", most=0))
    if found.plan is None:
        raise typer.Exit(ExitCode.REFUSED)
    return found.plan


def installation_of(db: Path | None, context: str | None) -> Installation:
    """The mesh to join, or the folder to start one on."""
    from snavio.launch.installation import find, of_context
    from snavio.sdk.context import chosen

    if db is not None:
        if context is not None:
            raise BadRequest(
                "--db starts a mesh here, and --context joins another: give one of them.", reason="two-meshes"
            )
        if db.is_file():
            raise StateError(
                f"{db} is a file; --db names the folder in which everything is kept.", reason="not-a-folder"
            )
        return find(state_dir=db, config=None)
    named = chosen(context)
    return find(state_dir=None, config=None) if named is None else of_context(named)


def _joined(
    installation: Installation, plan: EdgePlan, config: Path, *, watch: bool, level: str
) -> EdgeLaunch:
    from snavio.domain.identity import IdentityKind, parse_identity
    from snavio.launch.edge_process import EdgeLaunch
    from snavio.rpc.renewal import Leaf

    context = installation.context
    assert context is not None
    who = parse_identity(Leaf.in_folder(context.identity).spiffe_id, trust_domain=context.trust_domain)
    if who.kind is not IdentityKind.PRINCIPAL:
        raise BadRequest(
            f"The context {context.name} is that of {who}; an edge runs under a principal of its tenant.",
            reason="wrong-context",
        )
    if plan.tenant not in (context.tenant, "edge"):
        raise BadRequest(
            f"{config} is of the tenant {plan.tenant}, and the context {context.name} of {context.tenant}.",
            reason="wrong-tenant",
        )
    return EdgeLaunch(
        config=config.absolute(),
        tenant=context.tenant,
        state=context.home / "edge",
        certificates=context.home / "certs",
        principal=context.identity,
        mesh=installation.mesh,
        watch=watch,
        log_level=level,
    )


def _become(launch: EdgeLaunch, pid_file: Path | None) -> None:
    """Become the edge: same process, same signals."""
    from snavio.extras import require_mesh

    require_mesh()
    _write_pid(pid_file)
    # A hang-up between here and its handler must not end it; the file is read after that anyway.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    sys.stdout.flush()
    os.execve(sys.executable, launch.command(), launch.environment(follow=False))  # noqa: S606


async def _all_in_one(
    installation: Installation,
    plan: EdgePlan,
    config: Path,
    pid_file: Path | None,
    *,
    watch: bool,
    level: str,
) -> None:
    from snavio.cli.up import _until, spared
    from snavio.clock import SystemClock
    from snavio.config import MeshSettings
    from snavio.launch.checks import check_ports
    from snavio.launch.edge_process import (
        EDGE_SERVICE,
        NEEDED,
        NEEDED_FOR_COMMANDS,
        EdgeLaunch,
        EdgeProcess,
        register_edge,
    )
    from snavio.launch.probes import Probes
    from snavio.launch.processes import MeshProcesses, free_addresses
    from snavio.launch.supervisor import Supervisor

    began, clock = time.monotonic(), SystemClock()
    stop, hurry, reload = asyncio.Event(), asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, lambda: (hurry if stop.is_set() else stop).set())
    loop.add_signal_handler(signal.SIGHUP, reload.set)
    commands = {each.command.source for each in plan.routes if each.command}
    services = sorted(commands | {EDGE_SERVICE})
    say = spared(aside)

    async def edge_on(mesh: MeshSettings) -> EdgeProcess:
        principal = await register_edge(
            mesh,
            operator_certificates=installation.operator_certificates,
            tenant=plan.tenant,
            services=services,
            clock=clock,
        )
        launch = EdgeLaunch(
            config=config.absolute(),
            tenant=plan.tenant,
            state=mesh.state_dir / "edge",
            certificates=mesh.certificates("x").parent,
            principal=principal,
            mesh=mesh,
            watch=watch,
            log_level=level,
        )
        edge = EdgeProcess(launch, say=say)
        await edge.start()
        _write_pid(pid_file)
        line(
            f"edge ready in {time.monotonic() - began:.1f} s on port {edge.port} (tenant {plan.tenant}, {mesh.state_dir})"
        )
        return edge

    async def live(mesh: MeshSettings, supervisor: Supervisor | None) -> None:
        edge = await edge_on(mesh)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(edge.watch())
                if supervisor is not None:
                    group.create_task(supervisor.watch())
                while True:
                    await reload.wait()
                    reload.clear()
                    edge.hang_up()
        finally:
            await edge.stop()

    running = installation.state.running()
    try:
        if running is not None:
            # Somebody's `snavio up` runs on the folder already: what is there is used.
            await _until(stop, live(running.reaches(installation.mesh), None))
            return
        state = installation.state
        state.check_format()
        state.check_writable()
        with state.claimed():
            mesh, ports = installation.mesh, {}
            try:
                check_ports(mesh)
            except StateError:
                # The mesh of an edge is called by nobody but the edge and the commands that read where it runs.
                free = free_addresses("enrolment")
                ports = {
                    f"SNAVIO_MESH__{name.upper()}": address
                    for name, address in free.items()
                    if name != "enrolment"
                }
                ports["SNAVIO_SIGNER__ENROL_LISTEN"] = free.pop("enrolment")
                mesh = mesh.model_copy(update=free)
            if plan.waiting.in_memory:
                ports |= {
                    "SNAVIO_MAILBOX__AMNESIA": "true",
                    "SNAVIO_MAILBOX__I_ACCEPT_LOSING_MESSAGES": "true",
                }
            state.note_run(mesh)
            needed = (*NEEDED, *(NEEDED_FOR_COMMANDS if commands else ()))
            processes = MeshProcesses(mesh, config=installation.config, environment=ports, services=needed)
            await asyncio.to_thread(processes.prepare)
            async with Probes(mesh, certificates=installation.operator_certificates) as probes:
                supervisor = Supervisor(processes, probes=probes, clock=clock, say=say)

                async def all_of_it() -> None:
                    await supervisor.start(healthy=lambda _: None)
                    await live(mesh, supervisor)

                try:
                    await _until(stop, all_of_it())
                finally:
                    await supervisor.stop(hurry=hurry)
    finally:
        if pid_file is not None:
            pid_file.unlink(missing_ok=True)


def _write_pid(path: Path | None) -> None:
    if path is None:
        return
    try:
        fresh = path.with_name(f".{path.name}.{os.getpid()}")
        fresh.write_text(f"{os.getpid()}\n")
        fresh.replace(path)
    except OSError as error:
        raise StateError(
            f"--pid-file {path} cannot be written: {error.strerror}.", reason="pid-file"
        ) from None
