"""`snavio up` and `snavio down`: a whole mesh on this machine, from the state folder to the last drained stream."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import os
import shlex
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ParamSpec

import typer

from snavio.cli.installation import InstallationOptions
from snavio.cli.output import program
from snavio.cli.render import Screen

if TYPE_CHECKING:
    from snavio.cli.registration import Registration
    from snavio.cli.up_views import UpView
    from snavio.launch.installation import Installation

DOWN_SECONDS = 30.0
P = ParamSpec("P")


def up(
    no_screen: Annotated[
        bool, typer.Option("--no-screen", help="Plain lines instead of a live screen.")
    ] = False,
    *,
    port_base: Annotated[
        int | None,
        typer.Option(
            "--port-base",
            min=1024,
            max=65_518,
            metavar="<port>",
            help="First of the ports, for a second mesh on this machine; 7401 as a rule.",
        ),
    ] = None,
    seed: Annotated[
        Path | None,
        typer.Option("--seed", help="Register this file, as `snavio register` does."),
    ] = None,
    here: InstallationOptions,
) -> None:
    """Start a mesh on this machine, and show what it does until Ctrl-C.

    Makes a state folder with its own CA, starts every service over mTLS on loopback, and registers the tenant
    `demo`: its service `billing` may send `notify-user` to the target `discord-bot`, which `bot` receives.
    What was stored stays: stop it, start it again, and go on.

    \b
    Examples:
      snavio up                            state in .snavio
      snavio up --state-dir /tmp/mesh      another installation
      snavio up --no-screen > up.log &     in the background until `snavio down`
      snavio up --seed service.toml        with a tenant of yours
      snavio up --state-dir .second --port-base 7501
    """
    import snavio.native  # noqa: F401  says what to do when it was not built, before anything is started
    from snavio.cli.registration import read_registration
    from snavio.cli.up_views import UpView
    from snavio.launch.checks import LEFT_BEHIND_SECONDS, check_ports
    from snavio.launch.installation import Installation
    from snavio.launch.port_base import on_ports

    # All sections, now: a service that stumbles over its own would only be restarted again and again.
    installation = here.find(whole=True)
    # Read before anything is started: a file with mistakes would leave a mesh without what it should have.
    registration = read_registration(seed) if seed is not None else None
    ports: dict[str, str] = {}
    if port_base is not None:
        mesh, ports = on_ports(installation.mesh, port_base)
        installation = Installation(mesh, installation.config)
    state = installation.state
    state.check_format()
    state.check_writable()
    left_behind = state.left_behind()
    with state.claimed():
        # After a kill -9 of the last launcher its services are on their way out, and so are their ports.
        check_ports(installation.mesh, patience_s=LEFT_BEHIND_SECONDS if left_behind else 0.0)
        state.note_run(installation.mesh)
        with Screen(json=here.json, live=not no_screen) as screen:
            asyncio.run(_run(installation, UpView(screen), ports, registration))


async def _run(
    installation: Installation, view: UpView, ports: Mapping[str, str], registration: Registration | None
) -> None:
    from snavio.clock import SystemClock
    from snavio.launch.demo_tenant import DemoTenant
    from snavio.launch.probes import Probes
    from snavio.launch.processes import MeshProcesses
    from snavio.launch.readings import Readings
    from snavio.launch.supervisor import Supervisor

    began = time.monotonic()
    clock, mesh = SystemClock(), installation.mesh
    stop, hurry = asyncio.Event(), asyncio.Event()
    _on_signals(stop, hurry)
    processes = MeshProcesses(mesh, config=installation.config, environment=ports)
    view.preparing("preparing certificates")
    await asyncio.to_thread(processes.prepare)
    async with Probes(mesh, certificates=installation.operator_certificates) as probes:
        supervisor = Supervisor(processes, probes=probes, clock=clock, say=spared(view.say))
        tenant = DemoTenant(mesh, operator_certificates=installation.operator_certificates, clock=clock)

        async def live() -> None:
            view.preparing("starting the services")
            await supervisor.start(healthy=view.healthy)
            await tenant.register()
            seeded = await _seed(installation, registration, say=spared(view.say))
            facts = {
                "seconds": round(time.monotonic() - began, 3),
                "state_dir": str(mesh.state_dir),
                "pid": os.getpid(),
                "addresses": processes.addresses,
            }
            view.ready(facts, [*seeded, *suggestions(installation)])
            readings = Readings(probes, clock=clock)
            show = spared(view.show)
            async with asyncio.TaskGroup() as group:
                group.create_task(supervisor.watch())
                group.create_task(tenant.renew())
                while True:
                    reading = await readings.take()
                    show(reading, {name: life.phase.value for name, life in supervisor.lives.items()})
                    await asyncio.sleep(view.reading_every_s)

        try:
            await _until(stop, live())
        finally:
            # A terminal that was closed cannot be told any more; the services must be stopped all the same.
            with contextlib.suppress(OSError):
                view.stopping()
            await supervisor.stop(hurry=hurry)
            with contextlib.suppress(OSError):
                view.stopped()


async def _seed(
    installation: Installation, registration: Registration | None, *, say: Callable[[str], None]
) -> list[str]:
    """Register the file of `--seed`; returns what is to be done next. An error ends the mesh that was to have it."""
    from snavio.cli.caller import directory_client
    from snavio.cli.registering import register

    if registration is None:
        return []
    async with directory_client(installation.mesh, installation.operator_certificates) as client:
        done = await register(client, registration, reason="snavio up --seed", say=say)
    # Its token was answered now and is shown nowhere: a screen of numbers is no place for one.
    return [f"{program()} enroll --new-token --tenant {born.tenant}" for born in done.enrolment] or [
        f"{program()} tenant show {registration.tenant}"
    ]


def spared(tell: Callable[P, None]) -> Callable[P, None]:
    """`tell`, without its failure on a full disk: a mesh does not end because its news cannot be written down."""

    @functools.wraps(tell)
    def told(*words: P.args, **named: P.kwargs) -> None:
        try:
            tell(*words, **named)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise

    return told


def suggestions(installation: Installation) -> list[str]:
    """The next three commands to try."""
    from snavio.launch.state import StateFolder

    default = StateFolder.default() == installation.mesh.state_dir
    where = "" if default else f" --state-dir {shlex.quote(str(installation.mesh.state_dir))}"
    return [
        f"{program()} send discord-bot notify-user --payload 'hello'{where}",
        f"{program()} recv discord-bot{where}",
        f"{program()} bench{where}",
    ]


def down(here: InstallationOptions) -> None:
    """Stop the mesh that runs on a state folder, wherever it was started.

    \b
    Examples:
      snavio down
      snavio down --state-dir /tmp/mesh
    """
    from snavio.errors import Unavailable

    installation = here.find()
    run = installation.state.running()
    if run is None:
        none = f"No mesh runs on {installation.mesh.state_dir}; nothing to stop."
        here.show({"stopped": False, "running": False}, none)
        return
    with contextlib.suppress(ProcessLookupError):
        os.kill(run.pid, signal.SIGTERM)
    end = time.monotonic() + DOWN_SECONDS
    while installation.state.running() is not None:
        if time.monotonic() > end:
            raise Unavailable(
                f"Process {run.pid} did not end within {DOWN_SECONDS:.0f} s; `kill -9 {run.pid}` ends it, and "
                "everything that it started.",
                reason="not-ending",
            )
        time.sleep(0.05)
    done = f"Stopped the mesh on {installation.mesh.state_dir} (process {run.pid})."
    here.show({"stopped": True, "running": False, "pid": run.pid}, done)


def _on_signals(stop: asyncio.Event, hurry: asyncio.Event) -> None:
    """The first signal drains, a second one hurries."""

    def heard() -> None:
        (hurry if stop.is_set() else stop).set()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, heard)


async def _until(stop: asyncio.Event, work: object) -> None:
    """Run `work` until it fails or `stop` is set."""
    assert asyncio.iscoroutine(work)
    working, stopping = asyncio.create_task(work), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            await working
    finally:
        for task in (working, stopping):
            task.cancel()
        await asyncio.gather(working, stopping, return_exceptions=True)
