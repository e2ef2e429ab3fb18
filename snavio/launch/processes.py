"""Starts the services of one installation as processes on this machine, and ends them in order.

Never leaves an orphan: every process follows this one, and ends when it dies, however it dies.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Self

import orjson

from snavio.config import MeshSettings
from snavio.errors import StateError, Unavailable
from snavio.launch.free_ports import free_ports

# In the order in which they need each other.
SERVICES: Final = ("signer", "relay", "registry", "mailbox", "slow", "fast", "shield", "gateway")
READY_SECONDS: Final = 60.0
STOP_SECONDS: Final = 15.0
MAX_LOG_BYTES: Final = 16 << 20
# A terminal's Ctrl-C goes to its whole foreground group; ours must hear of it from us, in order.
_OWN_GROUP: Final = 0


class MeshProcesses:
    """The processes of one state folder."""

    def __init__(
        self,
        mesh: MeshSettings,
        *,
        config: Path | None,
        environment: Mapping[str, str] | None = None,
        services: Sequence[str] = SERVICES,
    ) -> None:
        self.mesh = mesh
        self.services = tuple(name for name in SERVICES if name in services)
        """Those of the mesh that run here, in the order in which they need each other."""
        self._given = dict(environment or {})
        """Settings of this run that stand in no file, such as its ports."""
        self.state_dir = mesh.state_dir.absolute()
        self.addresses = {name: str(getattr(mesh, name)) for name in SERVICES}
        self.config = config
        self.enrolment = ""
        """Where newcomers enrol, if we chose the address."""
        self._running: dict[str, subprocess.Popen[str]] = {}
        self._more: dict[str, tuple[str, dict[str, str]]] = {}
        """Further instances: their service and what is different for them."""

    @classmethod
    def temporary(
        cls, state_dir: Path, *, settings: Mapping[str, Mapping[str, object]] | None = None
    ) -> Self:
        """An installation on free ports whose configuration lies in its own state folder."""
        state_dir.mkdir(parents=True, exist_ok=True)
        given = settings or {}
        free = free_addresses("enrolment")
        enrolment = free.pop("enrolment")
        mesh = MeshSettings.model_validate(
            {"state_dir": state_dir.absolute(), **free, **given.get("mesh", {})}
        )
        config = state_dir / "snavio.toml"
        signer = {"enrol_listen": enrolment, **given.get("signer", {})}
        # As given, not as told: a secret tells itself as a row of asterisks.
        shared = {**mesh.model_dump(exclude_none=True), **given.get("mesh", {})}
        config.touch(mode=0o600)
        config.write_text(_toml({**given, "signer": signer, "mesh": shared}), "utf-8")
        processes = cls(mesh, config=config)
        processes.enrolment = str(signer["enrol_listen"])
        return processes

    def prepare(self, *, restored: bool = False) -> None:
        """Make the CA and the certificates that are missing or end soon; StateError when that fails.

        `restored` for a state folder from a backup: readers of the key store start again.
        """
        self.logs.mkdir(parents=True, exist_ok=True)
        made = subprocess.run(
            [
                *self._python("services.signer"),
                "init",
                *self._arguments(),
                *(["--restored"] if restored else []),
            ],
            env=self._environment(),
            capture_output=True,
            text=True,
            timeout=READY_SECONDS,
            check=False,
        )
        if made.returncode != 0:
            raise StateError(f"The state folder could not be prepared: {_last_line(made.stderr)}")

    def start(self) -> None:
        """Prepare, start every service, and wait until each is ready."""
        self.prepare()
        self.begin()

    def begin(self) -> None:
        """The same for a state folder that is prepared."""
        self.logs.mkdir(parents=True, exist_ok=True)
        try:
            for name in self.services:
                self.spawn(name)
            for name in self.services:
                self.wait_ready(name)
        except BaseException:
            self.stop()
            raise

    def spawn_another(self, service: str, instance: str, **settings: str) -> str:
        """Start one more instance of a service under its own name and on a free port, without waiting for it; returns
        its address. `settings` are of `[mesh]`: whom it calls instead of those of the configuration.

        It is addressed by its instance name from then on, and ended before those of the configuration.
        """
        free = free_addresses("another_health")
        address = free[service]
        listening = {service: address, **({"https": free["https"]} if service == "gateway" else {})}
        given = {
            f"SNAVIO_MESH__{name.upper()}": value
            # Not where the first instance listens.
            for name, value in {
                **listening,
                **settings,
                service: address,
                f"{service}_listen": "",
                f"{service}_health": free["another_health"],
            }.items()
        }
        self._more[instance] = (service, {**given, f"SNAVIO_{service.upper()}__INSTANCE": instance})
        self.spawn(instance)
        return address

    def spawn(self, name: str) -> None:
        """Start one service without waiting for it.

        Call it on a thread that lives as long as the mesh: the kernel tells a child that its parent died
        when the thread that started it ends.
        """
        self.forget(name)
        service, environment = self._more.get(name, (name, {}))
        path = self.log(name)
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_size > MAX_LOG_BYTES:
                path.replace(path.with_suffix(".log.1"))
        with path.open("a", encoding="utf-8") as log:
            self._running[name] = subprocess.Popen(
                [*self._python(f"services.{service}"), *self._arguments()],
                env={**self._environment(), **environment},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                process_group=_OWN_GROUP,
            )

    def wait_ready(self, name: str) -> None:
        """Wait for the service's ready line; Unavailable tells its last words when it does not come."""
        process = self._running[name]
        line: list[str] = []
        assert process.stdout is not None
        reader = threading.Thread(
            target=lambda out: line.append(out.readline()), args=(process.stdout,), daemon=True
        )
        reader.start()
        reader.join(READY_SECONDS)
        if not line or not line[0].startswith("ready "):
            raise Unavailable(f"{name} did not start: {self.last_words(name)}")

    @property
    def logs(self) -> Path:
        """Folder of what the services write to stderr."""
        return self.state_dir / "logs"

    def log(self, name: str) -> Path:
        """One service's log."""
        return self.logs / f"{name}.log"

    def last_words(self, name: str) -> str:
        """The end of a service's log, in one line, with the place of the rest."""
        try:
            with self.log(name).open("rb") as log:
                log.seek(max(0, self.log(name).stat().st_size - 4096))
                text = log.read().decode("utf-8", "replace")
        except OSError:
            text = ""
        return f"{_last_line(text)} (log: {self.log(name)})"

    def pid(self, name: str) -> int:
        """Process id of a running service."""
        return self._running[name].pid

    def ended(self, name: str) -> int | None:
        """Exit code of a service that has ended by itself, negative for a signal; None while it runs."""
        return self._running[name].poll()

    def crash(self, name: str) -> None:
        """SIGKILL, for a supervisor to notice."""
        self._running[name].kill()

    def kill(self, name: str) -> None:
        """The same, for callers that supervise themselves: returns when the process has ended."""
        self.crash(name)
        self._running[name].wait(STOP_SECONDS)
        self.forget(name)

    def restart(self, name: str) -> None:
        """Start a service that was killed, and wait until it is ready."""
        self.spawn(name)
        self.wait_ready(name)

    def terminate(self, name: str) -> None:
        """Ask one service to drain and end; returns at once."""
        process = self._running.get(name)
        if process is not None and process.poll() is None:
            process.send_signal(signal.SIGTERM)

    def stop(self) -> None:
        """Drain and end every service, the ingress first, each before those that it needs."""
        limit = time.monotonic() + STOP_SECONDS
        for name in (*self._more, *reversed(SERVICES)):
            process = self._running.get(name)
            if process is None:
                continue
            self.terminate(name)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.1, limit - time.monotonic()))
        self.kill_all()

    def kill_all(self) -> None:
        """End what still runs, at once."""
        for process in self._running.values():
            if process.poll() is None:
                process.kill()
                process.wait(STOP_SECONDS)
        for name in list(self._running):
            self.forget(name)

    def forget(self, name: str) -> None:
        """Let go of a process that has ended."""
        process = self._running.pop(name, None)
        if process is not None and process.stdout is not None:
            process.stdout.close()

    def _python(self, module: str) -> list[str]:
        # -P: a folder called `services` where the user happens to stand must not be taken for ours.
        return [sys.executable, "-P", "-m", module]

    def _arguments(self) -> list[str]:
        return [] if self.config is None else ["--config", str(self.config)]

    def _environment(self) -> dict[str, str]:
        home = str(Path(__file__).resolve().parents[2])
        path = os.pathsep.join(filter(None, (home, os.environ.get("PYTHONPATH"))))
        return {
            **os.environ,
            "PYTHONPATH": path,
            "SNAVIO_FOLLOW_PARENT": str(os.getpid()),
            "SNAVIO_MESH__STATE_DIR": str(self.state_dir),
            **self._given,
        }


def free_addresses(*more: str) -> dict[str, str]:
    """A free loopback address for every service, its health port, the gateway's HTTPS, and whatever else is named; all
    different.
    """
    names = (*SERVICES, *(f"{name}_health" for name in SERVICES), "https", *more)
    return {name: f"127.0.0.1:{port}" for name, port in zip(names, free_ports(len(names)), strict=True)}


def _toml(sections: Mapping[str, Mapping[str, object]]) -> str:
    lines: list[str] = []
    for name, settings in sections.items():
        lines += ["", f"[{name}]"] if settings else []
        # JSON's scalars are TOML's.
        lines += [f"{key} = {orjson.dumps(value, default=str).decode()}" for key, value in settings.items()]
    return "\n".join(lines).lstrip() + "\n"


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "it said nothing"
