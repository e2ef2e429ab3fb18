"""One state folder: which format it has, who runs a mesh on it, and where that mesh listens.

Never opens a folder of a newer format, and never lets two meshes share one.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson

from snavio.config import MeshSettings
from snavio.errors import StateError
from snavio.launch.processes import SERVICES

FORMAT: Final = 1
"""Grows when an older program could not use the folder any more."""
STATE_FILE: Final = "state.json"
RUN_FILE: Final = "run.json"
LOCK_FILE: Final = "up.lock"
RESTORING_FILE: Final = "restoring.json"
"""Stands in the folder while a backup is being brought back into it."""


@dataclass(frozen=True, slots=True)
class RunningMesh:
    """A mesh that runs on this folder, as its `snavio up` wrote it down."""

    pid: int
    addresses: dict[str, str]
    trust_domain: str

    def reaches(self, mesh: MeshSettings) -> MeshSettings:
        """`mesh` with the addresses of the mesh that runs."""
        told = {name: address or None for name, address in self.addresses.items()}
        return mesh.model_copy(update={**told, "trust_domain": self.trust_domain})


class StateFolder:
    """The folder of one installation."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()

    @staticmethod
    def default() -> Path:
        """The default folder."""
        return Path.cwd() / str(MeshSettings.model_fields["state_dir"].default)

    def check_format(self) -> None:
        """StateError when this program cannot use the folder; a folder that is not there is fine."""
        if (self.path / RESTORING_FILE).exists():
            raise StateError(
                f"A restore into {self.path} has not ended: run `snavio restore` again.",
                reason="half-restored",
            )
        try:
            found = orjson.loads((self.path / STATE_FILE).read_bytes())
            number = int(found["format"])
        except (FileNotFoundError, NotADirectoryError):
            return
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise StateError(
                f"{self.path / STATE_FILE} cannot be read ({_why(error)}): restore it from a backup, or choose "
                "another folder with --state-dir."
            ) from None
        if number > FORMAT:
            raise StateError(
                f"The state folder {self.path} was made by a newer Snavio (format {number}, this one knows "
                f"{FORMAT}): upgrade Snavio, or choose another folder with --state-dir.",
                reason="newer-state",
            )

    def check_writable(self) -> None:
        """Make the folder if need be; StateError when nothing can be written there."""
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            trial = self.path / f".trial-{os.getpid()}"
            trial.write_bytes(b"")
            trial.unlink()
        except OSError as error:
            raise StateError(
                f"The state folder {self.path} cannot be written ({_why(error)}): fix its permissions, or "
                "choose another folder with --state-dir.",
                reason="unwritable-state",
            ) from None

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """Hold the folder for one mesh; StateError when another one runs on it.

        The system lets go of the claim when the process ends, however it ends.
        """
        with (self.path / LOCK_FILE).open("wb") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                run = self._read_run()
                process = f" (process {run.pid})" if run is not None else ""
                raise StateError(
                    f"A mesh runs on {self.path} already{process}: look at it with `snavio status`, stop it "
                    "with `snavio down`, or give this one another --state-dir.",
                    reason="already-running",
                ) from None
            try:
                self._write(STATE_FILE, {"format": FORMAT})
                yield
            finally:
                (self.path / RUN_FILE).unlink(missing_ok=True)

    def note_run(self, mesh: MeshSettings) -> None:
        """Write down, for the other commands, that and where this process runs a mesh."""
        addresses = {name: str(getattr(mesh, name)) for name in (*SERVICES, "https")}
        addresses |= {f"{name}_health": mesh.health_address(name) or "" for name in SERVICES}
        self._write(RUN_FILE, {"pid": os.getpid(), "addresses": addresses, "trust_domain": mesh.trust_domain})

    def running(self) -> RunningMesh | None:
        """The mesh that runs on this folder now, if any."""
        try:
            with (self.path / LOCK_FILE).open("rb") as lock:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
                return None
        except BlockingIOError:
            return self._read_run()
        except OSError:
            return None

    def left_behind(self) -> bool:
        """True when the last mesh here did not end in order; its services may still be ending."""
        return (self.path / RUN_FILE).exists()

    def _read_run(self) -> RunningMesh | None:
        try:
            found = orjson.loads((self.path / RUN_FILE).read_bytes())
            addresses = {str(name): str(address) for name, address in found["addresses"].items()}
            return RunningMesh(int(found["pid"]), addresses, str(found["trust_domain"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _write(self, name: str, document: dict[str, Any]) -> None:
        fresh = self.path / f".{name}.{os.getpid()}"
        fresh.write_bytes(orjson.dumps(document, option=orjson.OPT_INDENT_2) + b"\n")
        fresh.replace(self.path / name)


def _why(error: Exception) -> str:
    return (error.strerror or type(error).__name__) if isinstance(error, OSError) else "it is damaged"
