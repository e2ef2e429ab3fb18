"""The edge as a process: its arguments, its tenant's entries in the directory, and its life under a launcher.

Never a principal or a service that the tenant did not have and its owner did not ask for: what is registered here is
the edge's own.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from snavio.admin.directory import DirectoryClient
from snavio.admin.entries import EntryClient
from snavio.admin.operator import Operator
from snavio.clock import Clock
from snavio.config import MeshSettings
from snavio.domain.directory import Principal, Service, Tenant
from snavio.domain.identity import Identity, IdentityKind
from snavio.errors import BadRequest, NotFound, StateError, Unavailable
from snavio.launch.processes import STOP_SECONDS
from snavio.rpc.renewal import Leaf

PRINCIPAL: Final = "edge"
EDGE_SERVICE: Final = "edge"
READY_SECONDS: Final = 60.0
FIRST_PAUSE_S: Final = 0.1
LONGEST_PAUSE_S: Final = 15.0
STEADY_S: Final = 30.0
NEEDED: Final = ("signer", "relay", "registry", "mailbox")
NEEDED_FOR_COMMANDS: Final = ("slow", "fast", "shield")
_BAD_STARTS: Final = (1, 2)


@dataclass(frozen=True, slots=True)
class EdgeLaunch:
    """The arguments of one edge process."""

    config: Path
    tenant: str
    state: Path
    certificates: Path
    principal: Path
    mesh: MeshSettings
    watch: bool = False
    log_level: str = "info"

    def command(self) -> list[str]:
        """The words that start it."""
        # -P: a folder called `services` where the user happens to stand must not be taken for ours.
        words = [sys.executable, "-P", "-m", "services.gateway.edge"]
        given = {
            "config": self.config,
            "tenant": self.tenant,
            "state": self.state,
            "certificates": self.certificates,
            "principal": self.principal,
            "mailbox": self.mesh.mailbox,
            "signer": self.mesh.signer,
            "shield": self.mesh.shield,
            "registry": self.mesh.registry,
            "trust-domain": self.mesh.trust_domain,
            "log-level": self.log_level,
        }
        words += [f"--{name}={value}" for name, value in given.items()]
        return [*words, "--watch"] if self.watch else words

    @staticmethod
    def environment(*, follow: bool) -> dict[str, str]:
        """Its variables; with `follow` it ends when this process does."""
        home = str(Path(__file__).resolve().parents[2])
        path = os.pathsep.join(filter(None, (home, os.environ.get("PYTHONPATH"))))
        more = {"SNAVIO_FOLLOW_PARENT": str(os.getpid())} if follow else {}
        return {**os.environ, "PYTHONPATH": path, **more}


async def register_edge(
    mesh: MeshSettings, *, operator_certificates: Path, tenant: str, services: Sequence[str], clock: Clock
) -> Path:
    """The tenant, its principal `edge`, and the services that the file sends as; returns the principal's folder.

    For the mesh of this machine, whose operator starts it. Principals that a service names already stay.
    """
    folder = mesh.certificates(f"{tenant}-principal-{PRINCIPAL}")
    access = {"certificates": operator_certificates, "trust_domain": mesh.trust_domain}
    values: list[object] = [Tenant(tenant), Principal(tenant, PRINCIPAL)]
    async with EntryClient(mesh.registry, **access) as entries:  # type: ignore[arg-type]
        for service in services:
            try:
                named = tuple((await entries.show("service", tenant, service)).value.principal)
            except NotFound:
                named = ()
            values.append(Service(tenant, service, named if PRINCIPAL in named else (*named, PRINCIPAL)))
    async with DirectoryClient(mesh.registry, **access) as directory:  # type: ignore[arg-type]
        await directory.apply(values, reason="snavio edge run")  # type: ignore[arg-type]
    if _left_s(folder, clock) < 3600:
        identity = Identity(mesh.trust_domain, IdentityKind.PRINCIPAL, PRINCIPAL, tenant)
        async with Operator(
            signer_address=mesh.signer,
            registry_address=mesh.registry,
            certificates=operator_certificates,
            trust_domain=mesh.trust_domain,
        ) as operator:
            await operator.certify(identity, folder)
    return folder


def _left_s(folder: Path, clock: Clock) -> float:
    try:
        return (Leaf.in_folder(folder).not_after_ns - clock.unix_ns()) / 1e9
    except StateError:
        return 0.0


class EdgeProcess:
    """One edge process under this one: started, started again when it crashes, told to reload, ended."""

    def __init__(self, launch: EdgeLaunch, *, say: Callable[[str], None], log: Path | None = None) -> None:
        self._launch = launch
        self._say = say
        self._log = log
        self._process: asyncio.subprocess.Process | None = None
        self.port = 0
        self.exit_code: int | None = None
        """Of a start that was refused for what the file or the machine is."""

    @property
    def pid(self) -> int:
        """Its process id."""
        assert self._process is not None
        return self._process.pid

    async def start(self) -> None:
        """Start it and wait until it is ready; BadRequest where only a change helps, otherwise Unavailable."""
        process = self._process = await asyncio.create_subprocess_exec(
            *self._launch.command(),
            env=self._launch.environment(follow=True),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            process_group=0,
        )
        assert process.stdout is not None
        try:
            async with asyncio.timeout(READY_SECONDS):
                line = (await process.stdout.readline()).decode("ascii", "replace")
        except TimeoutError:
            process.kill()
            raise Unavailable(
                f"The edge was not ready after {READY_SECONDS:.0f} s.", reason="slow-start"
            ) from None
        if not line.startswith("ready "):
            self.exit_code = await process.wait()
            said = "The edge did not start; what it said stands above."
            if self.exit_code in _BAD_STARTS:
                # Not for trying again: the file, a secret or the machine has to change first.
                raise BadRequest(said, reason="did-not-start")
            raise Unavailable(said, reason="did-not-start")
        self.port = int(line.split()[2])

    async def watch(self) -> None:
        """Start it again whenever it ends by itself, for ever."""
        loop, pause_s = asyncio.get_running_loop(), FIRST_PAUSE_S
        while True:
            assert self._process is not None
            began = loop.time()
            code = await self._process.wait()
            pause_s = FIRST_PAUSE_S if loop.time() - began > STEADY_S else min(LONGEST_PAUSE_S, pause_s * 2)
            self._say(f"the edge ended unexpectedly (code {code}); starting it again in {pause_s:g} s.")
            await asyncio.sleep(pause_s)
            try:
                await self.start()
                self._say(f"the edge serves again (process {self.pid}).")
            except (BadRequest, Unavailable) as error:
                self._say(str(error))

    def hang_up(self) -> None:
        """Have it read its file again."""
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(signal.SIGHUP)

    async def stop(self) -> None:
        """Drain and end it."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        process.terminate()
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
