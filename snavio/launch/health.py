"""The checks of `snavio doctor`: one finding per possible obstacle, each with advice.

Never changes anything but a trial file, which it removes.
"""

from __future__ import annotations

import os
import platform
import shutil
import sys
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography import x509

from snavio.clock import Clock
from snavio.errors import SnavioError
from snavio.launch.checks import taken
from snavio.launch.demo_tenant import PRODUCER, folder_name
from snavio.launch.installation import Installation
from snavio.launch.processes import SERVICES

WANTED_BYTES: Final = 2 << 30
SLOW_FSYNC_MS: Final = 20.0
TRIALS: Final = 8
SKEW_MS: Final = 5_000


@dataclass(frozen=True, slots=True)
class HealthFinding:
    """One line: what was looked at, whether it is fine, what was found, what to do if it is not."""

    name: str
    good: bool
    found: str
    advice: str = ""


async def examine(installation: Installation, *, clock: Clock) -> AsyncIterator[HealthFinding]:
    """Everything, in the order in which a start would stumble over it."""
    yield _python()
    yield _toolchain()
    yield _native()
    yield _state(installation)
    for finding in _disk(installation.mesh.state_dir):
        yield finding
    for finding in _certificates(installation, clock=clock):
        yield finding
    run = installation.state.running()
    if run is None:
        yield _ports(installation)
        yield HealthFinding("mesh", good=True, found="none runs on this state folder; `snavio up` starts one")
        return
    reached = Installation(run.reaches(installation.mesh), installation.config)
    yield await _services(reached)
    yield await _skew(reached, clock=clock)


def _python() -> HealthFinding:
    good = sys.version_info >= (3, 11)
    return HealthFinding("python", good, platform.python_version(), "Snavio needs Python 3.11 or newer.")


def _toolchain() -> HealthFinding:
    cargo = shutil.which("cargo")
    if not (Path(__file__).resolve().parents[2] / "native").is_dir():
        return HealthFinding("rust", good=True, found="not needed: this is an installed package")
    return HealthFinding("rust", cargo is not None, cargo or "no cargo", "Install a toolchain with rustup.")


def _native() -> HealthFinding:
    try:
        from snavio.native import SOURCE_DIGEST
    except ImportError as error:
        return HealthFinding("native library", good=False, found=str(error), advice="Run `make build`.")
    return HealthFinding("native library", good=True, found=f"fresh, {SOURCE_DIGEST[:12]}")


def _state(installation: Installation) -> HealthFinding:
    folder = installation.mesh.state_dir
    try:
        installation.state.check_format()
        if folder.exists():
            installation.state.check_writable()
    except SnavioError as error:
        return HealthFinding(
            "state folder", good=False, found=str(error), advice="Choose another --state-dir."
        )
    return HealthFinding(
        "state folder", good=True, found=str(folder) + ("" if folder.exists() else ", not made yet")
    )


def _disk(folder: Path) -> Iterator[HealthFinding]:
    place = next(parent for parent in (folder, *folder.parents) if parent.is_dir())
    free = shutil.disk_usage(place).free
    yield HealthFinding(
        "disk space",
        free >= WANTED_BYTES,
        f"{free / 1e9:.1f} GB free",
        "Make room, or put the state folder on another disk with --state-dir.",
    )
    try:
        took = sorted(_fsync_ms(place) for _ in range(TRIALS))[TRIALS // 2]
    except OSError as error:
        yield HealthFinding(
            "fsync", good=False, found=str(error.strerror), advice="Fix the folder's permissions."
        )
        return
    yield HealthFinding(
        "fsync",
        took <= SLOW_FSYNC_MS,
        f"{took:.1f} ms",
        "Every delivery waits for this disk; a local SSD is faster.",
    )


def _fsync_ms(folder: Path) -> float:
    path = folder / f".snavio-fsync-{os.getpid()}"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        os.write(descriptor, bytes(4096))
        began = time.perf_counter()
        os.fsync(descriptor)
        return (time.perf_counter() - began) * 1000
    finally:
        os.close(descriptor)
        path.unlink()


def _certificates(installation: Installation, *, clock: Clock) -> Iterator[HealthFinding]:
    folder = installation.mesh.certificates("any").parent
    ends: dict[str, float] = {}
    for path in sorted(folder.glob("*/cert.pem")):
        try:
            leaf = x509.load_pem_x509_certificate(path.read_bytes())
        except (OSError, ValueError):
            yield HealthFinding(
                "certificates", good=False, found=f"{path} cannot be read", advice="Run `snavio up`."
            )
            return
        ends[path.parent.name] = leaf.not_valid_after_utc.timestamp() - clock.unix_ns() / 1e9
    # The demo tenant's live an hour and are renewed whenever a mesh runs.
    standing = {name: left for name, left in ends.items() if name in SERVICES or name.startswith("operator-")}
    if not standing:
        yield HealthFinding("certificates", good=True, found="none yet; `snavio up` makes them")
        return
    name, left = min(standing.items(), key=lambda item: item[1])
    yield HealthFinding(
        "certificates",
        left > 86_400,
        f"{len(ends)} found, the first of the mesh's to end is {name}'s, in {left / 86_400:.0f} days",
        "Stop the mesh and start it again: `snavio up` renews them.",
    )


def _ports(installation: Installation) -> HealthFinding:
    for name in SERVICES:
        if (cause := taken(installation.mesh.listens(name))) is not None:
            advice = f"End that program, or set [mesh] {name} in snavio.toml."
            return HealthFinding("ports", good=False, found=f"{name}: {cause}", advice=advice)
    return HealthFinding("ports", good=True, found=f"all {len(SERVICES)} are free")


async def _services(reached: Installation) -> HealthFinding:
    from snavio.launch.probes import Probes

    async with Probes(reached.mesh, certificates=reached.operator_certificates) as probes:
        away = [name for name in SERVICES if not await probes.serving(name)]
    found = f"all {len(SERVICES)} services serve" if not away else f"not serving: {', '.join(away)}"
    return HealthFinding("mesh", not away, found, f"Read {reached.mesh.state_dir / 'logs'}.")


async def _skew(reached: Installation, *, clock: Clock) -> HealthFinding:
    from snavio.rpc.channel import MeshChannel, call_once
    from snavio.rpc.credentials import CertificateFiles
    from snavio.v1.batch_pb2 import Hello
    from snavio.v1.shield_pb2 import GreetRequest

    mesh = reached.mesh
    files = CertificateFiles.in_folder(mesh.certificates(folder_name(PRODUCER)))
    channel = MeshChannel(mesh.shield, files=files, service="shield", trust_domain=mesh.trust_domain)
    request, asked = GreetRequest(wire_version=1), clock.unix_ns()
    try:
        hello = await call_once(channel, "/snavio.v1.Shield/Greet", request, Hello, timeout_s=3.0)
    except SnavioError as error:
        return HealthFinding("clock", good=False, found=str(error), advice="Run `snavio status`.")
    middle = (asked + clock.unix_ns()) // 2
    skew_ms = (middle - hello.server_unix_ns) / 1e6
    return HealthFinding(
        "clock",
        abs(skew_ms) < SKEW_MS,
        f"{skew_ms:+.1f} ms against Shield, which accepts ±{hello.limits.window_ms // 1000} s",
        "Set the clock by NTP: commands stamped outside the window are refused.",
    )
