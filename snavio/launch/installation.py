"""Which installation a command means: its configuration, its state folder, and the mesh that runs on it.

Never guesses an address: a running mesh has written down where it listens.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from snavio.config import MeshSettings, installed, load, validate_all
from snavio.errors import StateError, Unavailable
from snavio.launch.state import RunningMesh, StateFolder

CONFIG_FILE: Final = Path("snavio.toml")
OPERATOR_FOLDER: Final = "operator-admin"


@dataclass(frozen=True, slots=True)
class Installation:
    """Settings of one installation, with the file that they came from."""

    mesh: MeshSettings
    config: Path | None

    @property
    def state(self) -> StateFolder:
        """Its folder."""
        return StateFolder(self.mesh.state_dir)

    @property
    def operator_certificates(self) -> Path:
        """Certificate folder of the operator that `snavio up` makes."""
        return self.mesh.certificates(OPERATOR_FOLDER)


def find(*, state_dir: Path | None, config: Path | None, whole: bool = False) -> Installation:
    """The installation that these options mean: `snavio.toml` here unless another is named, or none.

    With `whole` every section of the configuration is validated, and all mistakes are told together.
    """
    if config is None and CONFIG_FILE.is_file():
        config = CONFIG_FILE
    if whole:
        validate_all(config, installed())
    mesh, _ = load(MeshSettings, "mesh", config=config)
    if state_dir is not None:
        mesh = mesh.model_copy(update={"state_dir": state_dir})
    mesh = mesh.model_copy(update={"state_dir": mesh.state_dir.expanduser().absolute()})
    _check_readable(mesh.state_dir)
    return Installation(mesh, config.absolute() if config is not None else None)


def attach(*, state_dir: Path | None, config: Path | None) -> Installation:
    """The same, reaching the mesh that runs on its state folder; Unavailable when there are no certificates."""
    found = find(state_dir=state_dir, config=config)
    run: RunningMesh | None = found.state.running()
    if run is not None:
        return Installation(run.reaches(found.mesh), found.config)
    if not found.operator_certificates.is_dir():
        raise Unavailable(
            f"No mesh has run on {found.mesh.state_dir} yet: start one with `snavio up`, or name another "
            "folder with --state-dir.",
            reason="no-mesh",
        )
    return found


def _check_readable(folder: Path) -> None:
    """StateError when the folder is there and cannot be used; one that is not there can be made."""
    try:
        usable = folder.is_dir() and os.access(folder, os.R_OK | os.X_OK) if folder.exists() else True
    except PermissionError:
        usable = False
    if not usable:
        raise StateError(
            f"The state folder {folder} cannot be read: it has to be a folder of the user that runs this command."
        )
