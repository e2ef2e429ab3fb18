"""Which mesh a command means: addresses, identity and CA, from its options, a context, or a state folder.

Never guesses an address: a running mesh has written down where it listens, and a context where it is called. Never
takes another mesh than the one that was named.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from snavio.config import MeshSettings, installed, load, validate_all
from snavio.errors import BadRequest, StateError, Unavailable
from snavio.launch.state import RunningMesh, StateFolder
from snavio.sdk.context import NAME_VARIABLE, Context, chosen

CONFIG_FILE: Final = Path("snavio.toml")
OPERATOR_FOLDER: Final = "operator-admin"
STATE_VARIABLE: Final = "SNAVIO_STATE_DIR"


@dataclass(frozen=True, slots=True)
class Installation:
    """One mesh as a command reaches it, with the file or the context that its settings came from."""

    mesh: MeshSettings
    config: Path | None
    context: Context | None = None
    """None where a state folder on this machine was meant."""

    @property
    def state(self) -> StateFolder:
        """Its folder."""
        return StateFolder(self.mesh.state_dir)

    @property
    def operator_certificates(self) -> Path:
        """Certificate folder of the operator that `snavio up` makes."""
        return self.mesh.certificates(OPERATOR_FOLDER)

    @property
    def has_run(self) -> bool:
        """True if a mesh has run on the state folder."""
        return self.operator_certificates.is_dir()

    @property
    def identity(self) -> Path:
        """Folder of the certificate that a command acts under unless `--as` names another; Unavailable without one."""
        if self.context is not None:
            return self.context.identity
        if not self.has_run:
            raise self.no_mesh()
        return self.operator_certificates

    @property
    def enrolment(self) -> str:
        """Where newcomers enrol, as they call it."""
        if self.context is not None:
            return self.context.addresses.get("enrolment", "")
        if self.mesh.enrolment is not None:
            return self.mesh.enrolment
        kind = installed()["signer"]
        _, signer = load(kind, "signer", config=self.config)
        listens: str = signer.enrol_address(self.mesh)  # type: ignore[attr-defined]  # services are not imported
        host, _, port = listens.rpartition(":")
        # Every address of that machine, so none that could be called: Signer's, which can.
        return f"{self.mesh.signer.rpartition(':')[0]}:{port}" if host in ("0.0.0.0", "[::]") else listens  # noqa: S104

    def no_mesh(self) -> Unavailable:
        """The error for a command that needs a certificate of this machine's own mesh."""
        return Unavailable(
            f"No mesh has run on {self.mesh.state_dir} yet: start one with `snavio up`, name another folder with "
            "--state-dir, or join a mesh that runs elsewhere with `snavio join`.",
            reason="no-mesh",
        )


def find(*, state_dir: Path | None, config: Path | None, whole: bool = False) -> Installation:
    """The installation on this machine that these options mean: `snavio.toml` here unless another is named, or none.

    With `whole` every section of the configuration is validated, and all mistakes are told together.
    """
    if config is None and CONFIG_FILE.is_file():
        config = CONFIG_FILE
    if whole:
        validate_all(config, installed())
    mesh, _ = load(MeshSettings, "mesh", config=config)
    if state_dir is None and (named := os.environ.get(STATE_VARIABLE)):
        state_dir = Path(named)
    if state_dir is not None:
        mesh = mesh.model_copy(update={"state_dir": state_dir})
    mesh = mesh.model_copy(update={"state_dir": mesh.state_dir.expanduser().absolute()})
    _check_readable(mesh.state_dir)
    return Installation(mesh, config.absolute() if config is not None else None)


def attach(*, state_dir: Path | None, config: Path | None, context: str | None = None) -> Installation:
    """The mesh that a command talks to. The first of these that holds decides:

    `--state-dir` or `--config`; `--context`; SNAVIO_CONTEXT; SNAVIO_STATE_DIR; the state folder in force, if a mesh
    has run on it; the context in use; the state folder in force.
    """
    local = state_dir is not None or config is not None
    if local and context is not None:
        raise BadRequest(
            "--context names a mesh, and --state-dir or --config another: give one of them.",
            reason="two-meshes",
        )
    if not local and (context is not None or os.environ.get(NAME_VARIABLE)):
        named = chosen(context)
        assert named is not None
        return of_context(named)
    found = find(state_dir=state_dir, config=config)
    run: RunningMesh | None = found.state.running()
    if run is not None:
        return Installation(run.reaches(found.mesh), found.config)
    if local or os.environ.get(STATE_VARIABLE) or found.has_run:
        return found
    in_use = chosen()
    return found if in_use is None else of_context(in_use)


def of_context(context: Context) -> Installation:
    """The mesh of a context; certificates that commands get for it lie beside its identity."""
    context.require_ca()
    given = {**context.addresses, "trust_domain": context.trust_domain, "state_dir": context.home}
    try:
        return Installation(MeshSettings.model_validate(given), None, context)
    except ValidationError as error:
        place = error.errors()[0]["loc"][0]
        raise BadRequest(
            f"The context {context.name} cannot be used: its {place} is {str(given[str(place)])[:80]!r}, which "
            "is none. `snavio context add` replaces it.",
            reason="bad-context",
        ) from None


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
