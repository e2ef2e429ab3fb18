"""The services in containers of a real engine: podman with runc where no Docker engine runs.

Every container is as `deploy/` has it: an unprivileged user, a read-only root, no capability, its own state folder.
Never leaves a container behind.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final

from snavio.launch.processes import SERVICES, free_addresses

ROOT: Final = Path(__file__).resolve().parents[2]
USER: Final = 10001
OWN_BASE: Final = "localhost/snavio-base"
READY_S: Final = 120.0
HARDENED: Final = (
    f"--user={USER}:{USER}",
    "--read-only",
    "--tmpfs=/tmp",
    "--cap-drop=ALL",
    "--security-opt=no-new-privileges",
    # The address is the host's: what is proved here is the image and the joining, not a bridge.
    "--network=host",
    # Explicit, since an engine in a sandbox may not raise its own.
    "--ulimit=nofile=4096:4096",
    "--ulimit=nproc=4096:4096",
)


@cache
def engine() -> tuple[str, ...]:
    """The words that call the engine."""
    docker = shutil.which("docker")
    if docker and subprocess.run([docker, "info"], capture_output=True, check=False).returncode == 0:
        return (docker,)
    podman = shutil.which("podman")
    assert podman is not None, "tools/container_engine.sh installs one"
    return (podman, "--runtime=runc", "--cgroup-manager=cgroupfs", "--log-level=error")


def run(*words: str, check: bool = True, within_s: float = 300.0) -> subprocess.CompletedProcess[str]:
    """One command of the engine, to its end."""
    done = subprocess.run(
        [*engine(), *words], cwd=ROOT, capture_output=True, text=True, timeout=within_s, check=False
    )
    assert not check or done.returncode == 0, f"{' '.join(words)}: {done.stderr}"
    return done


def build(extras: str) -> str:
    """The image with these extras; its name."""
    name = f"snavio-test:{extras.replace(',', '-')}"
    own = [f"--build-arg=BASE={OWN_BASE}"] if "podman" in engine()[0] else []
    run(
        "build",
        "--network=host",
        *own,
        f"--build-arg=EXTRAS={extras}",
        "-t",
        name,
        "-f",
        "deploy/Containerfile",
        ".",
    )
    return name


def inspect(image: str) -> dict[str, Any]:
    """The engine's word on an image."""
    (told,) = json.loads(run("image", "inspect", image).stdout)
    return dict(told)


@dataclass
class ContainerMesh:
    """A mesh of containers on this machine's addresses, each service with a folder that no other can see."""

    folder: Path
    images: Mapping[str, str]
    """Image of each service."""
    addresses: dict[str, str] = field(default_factory=lambda: free_addresses("enrolment"))

    def name(self, service: str) -> str:
        return f"snavio-{os.getpid()}-{service}"

    def state(self, service: str) -> Path:
        return self.folder / service

    @property
    def operator(self) -> Path:
        """Certificates of the operator that `init` makes, in Signer's folder."""
        return self.state("signer") / "certs" / "operator-admin"

    def start(self) -> None:
        """Signer first, then tokens from its container, then everybody else at once."""
        for service in (*SERVICES, "tokens", "snapshots"):
            self.state(service).mkdir(parents=True)
            os.chown(self.state(service), USER, USER)
        run("run", "--rm", *self._options("signer"), self.images["signer"], "services.signer", "init")
        self.launch("signer")
        self.wait_ready("signer")
        joining = [service for service in SERVICES if service != "signer"]
        self.inside("signer", "services.signer", "join-token", "--out", "/var/lib/snavio-join", *joining)
        for service in joining:
            self.launch(service)
        for service in joining:
            self.wait_ready(service)

    def launch(self, service: str) -> None:
        run(
            "run", "--detach", "--name", self.name(service), *self._options(service), self.images[service],
            f"services.{service}",
        )  # fmt: skip

    def inside(self, service: str, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """A module of the image in a running container."""
        return run("exec", self.name(service), "python3", "-P", "-m", *words, check=check)

    def wait_ready(self, service: str) -> None:
        ends = time.monotonic() + READY_S
        while self.inside(service, "snavio.launch.ready", service, check=False).returncode != 0:
            assert time.monotonic() < ends, self.log(service)
            time.sleep(0.2)

    def kill(self, service: str) -> None:
        """kill -9, and start again."""
        run("kill", "--signal", "KILL", self.name(service))
        run("wait", self.name(service))
        run("start", self.name(service))
        self.wait_ready(service)

    def restart(self, service: str) -> None:
        """As a rolling update does: SIGTERM, the time to drain, and start."""
        run("stop", "--time", "30", self.name(service))
        run("start", self.name(service))
        self.wait_ready(service)

    def log(self, service: str) -> str:
        said = run("logs", "--tail", "20", self.name(service), check=False)
        return said.stdout + said.stderr

    def stop(self) -> None:
        for service in reversed(SERVICES):
            run("rm", "--force", "--time", "5", self.name(service), check=False)

    def _options(self, service: str) -> list[str]:
        given = {f"SNAVIO_MESH__{name.upper()}": value for name, value in self.addresses.items()}
        given["SNAVIO_SIGNER__ENROL_LISTEN"] = self.addresses["enrolment"]
        given["SNAVIO_MESH__SNAPSHOT_DIR"] = "/var/lib/snavio-snapshots"
        volumes = [
            f"{self.state(service)}:/var/lib/snavio",
            f"{self.state('snapshots')}:/var/lib/snavio-snapshots",
        ]
        if service == "signer":
            volumes.append(f"{self.state('tokens')}:/var/lib/snavio-join")
        else:
            given["SNAVIO_MESH__JOIN_TOKEN"] = "/run/join.token"
            volumes.append(f"{self.state('tokens') / service}.token:/run/join.token:ro")
        return [
            *HARDENED,
            *(f"--env={name}={value}" for name, value in given.items()),
            *(f"--volume={volume}" for volume in volumes),
        ]


@contextmanager
def container_mesh(folder: Path, images: Mapping[str, str]) -> Iterator[ContainerMesh]:
    """A running mesh, removed at the end however it ends."""
    mesh = ContainerMesh(folder, images)
    try:
        mesh.start()
        yield mesh
    finally:
        mesh.stop()
