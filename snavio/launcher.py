"""Starts the services of one installation as processes on this machine, and ends them.

Never leaves an orphan: every process follows this one, and ends when it dies, however it dies.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from snavio.errors import StateError, Unavailable

# In the order in which they need each other.
SERVICES = ("signer", "registry", "mailbox", "slow", "fast", "shield")
READY_SECONDS = 30.0
STOP_SECONDS = 15.0


class MeshProcesses:
    """The processes of one state folder."""

    def __init__(
        self,
        state_dir: Path,
        *,
        addresses: Mapping[str, str] | None = None,
        settings: Mapping[str, Mapping[str, object]] | None = None,
        python: Sequence[str] = (sys.executable,),
    ) -> None:
        self.state_dir = state_dir
        self.addresses = dict(addresses) if addresses else free_addresses()
        self.config = state_dir / "snavio.toml"
        self._settings = settings or {}
        self._python = list(python)
        self._running: dict[str, subprocess.Popen[str]] = {}

    def start(self) -> None:
        """Make certificates where there are none, start every service, and wait until each is ready."""
        self.state_dir.mkdir(parents=True, exist_ok=True)
        self.config.write_text(self._toml(), "utf-8")
        made = subprocess.run(
            [*self._python, "-m", "services.signer", "init", "--config", str(self.config)],
            env=self._environment(),
            capture_output=True,
            text=True,
            timeout=READY_SECONDS,
            check=False,
        )
        if made.returncode != 0:
            raise StateError(f"The state folder could not be prepared: {made.stderr.strip()}")
        try:
            for name in SERVICES:
                self.spawn(name)
            for name in SERVICES:
                self.wait_ready(name)
        except BaseException:
            self.stop()
            raise

    def spawn(self, name: str) -> None:
        """Start one service without waiting for it."""
        log = (self.state_dir / f"{name}.log").open("a", encoding="utf-8")
        with log:
            self._running[name] = subprocess.Popen(
                [*self._python, "-m", f"services.{name}", "--config", str(self.config)],
                env=self._environment(),
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def wait_ready(self, name: str) -> None:
        """Wait for the service's ready line; Unavailable says where its log is when it does not come."""
        process = self._running[name]
        line: list[str] = []
        assert process.stdout is not None
        reader = threading.Thread(
            target=lambda out: line.append(out.readline()), args=(process.stdout,), daemon=True
        )
        reader.start()
        reader.join(READY_SECONDS)
        if not line or not line[0].startswith("ready "):
            raise Unavailable(f"{name} did not start; see {self.state_dir / f'{name}.log'}.")

    def pid(self, name: str) -> int:
        """Process id of a running service."""
        return self._running[name].pid

    def kill(self, name: str) -> None:
        """End a service as a crash would: SIGKILL."""
        process = self._running.pop(name)
        process.kill()
        process.wait(STOP_SECONDS)
        _close(process)

    def restart(self, name: str) -> None:
        """Start a service that was killed, and wait until it is ready."""
        self.spawn(name)
        self.wait_ready(name)

    def stop(self) -> None:
        """Drain and end every service, the ingress first."""
        for name in reversed(SERVICES):
            process = self._running.get(name)
            if process is not None and process.poll() is None:
                process.send_signal(signal.SIGTERM)
        limit = time.monotonic() + STOP_SECONDS
        for process in self._running.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.1, limit - time.monotonic()))
            if process.poll() is None:
                process.kill()
                process.wait(STOP_SECONDS)
            _close(process)
        self._running.clear()

    def _environment(self) -> dict[str, str]:
        return {**os.environ, "SNAVIO_FOLLOW_PARENT": "1"}

    def _toml(self) -> str:
        lines = ["[mesh]", f'state_dir = "{self.state_dir}"']
        lines += [f'{name} = "{address}"' for name, address in self.addresses.items()]
        lines += _pairs(self._settings.get("mesh", {}))
        for name in SERVICES:
            if self._settings.get(name):
                lines += ["", f"[{name}]", *_pairs(self._settings[name])]
        return "\n".join(lines) + "\n"


def free_addresses() -> dict[str, str]:
    """A free loopback address for every service."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in SERVICES]
    try:
        return {
            name: f"127.0.0.1:{listener.getsockname()[1]}"
            for name, listener in zip(SERVICES, sockets, strict=True)
        }
    finally:
        for listener in sockets:
            listener.close()


def _pairs(settings: Mapping[str, object]) -> list[str]:
    return [
        f'{key} = "{value}"' if isinstance(value, str | Path) else f"{key} = {str(value).lower()}"
        for key, value in settings.items()
    ]


def _close(process: subprocess.Popen[str]) -> None:
    if process.stdout is not None:
        process.stdout.close()
