"""`snavio serve` and `snavio version`: one service as this process, and what is installed."""

from __future__ import annotations

import difflib
import os
import platform
import sys
from pathlib import Path
from typing import Annotated

import typer

from snavio.cli.options import Config, Json, StateDir
from snavio.cli.render import Record, show


def serve(
    service: Annotated[
        str, typer.Argument(help="signer, relay, registry, mailbox, slow, fast, shield or gateway.")
    ],
    state_dir: StateDir = None,
    config: Config = None,
) -> None:
    """Run one service in this process, for a supervisor of your own.

    Logs go to stderr as JSON; one line on stdout says that it is ready. SIGTERM drains and ends it. The state folder
    must have been prepared, by `snavio up` or by `python -m services.signer init`.

    \b
    Examples:
      snavio serve mailbox --config /etc/snavio/snavio.toml
      SNAVIO_MESH__SHIELD=127.0.0.1:9401 snavio serve shield
    """
    from snavio.errors import BadRequest, StateError
    from snavio.extras import require_mesh
    from snavio.launch.installation import find
    from snavio.launch.processes import SERVICES

    if service not in SERVICES:
        close = difflib.get_close_matches(service, SERVICES, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(SERVICES)}."
        raise BadRequest(f"There is no service {service!r}: {hint}", reason="unknown-service")
    require_mesh()
    installation = find(state_dir=state_dir, config=config)
    installation.state.check_format()
    if service != "signer" and not (installation.mesh.certificates(service) / "cert.pem").is_file():
        # It would ask for its certificate, and log that, until its time to start is over.
        raise StateError(
            f"{installation.mesh.state_dir} has no certificate for {service}: `snavio up` prepares a state folder, or "
            "`python -m services.signer init` does."
        )
    os.environ["SNAVIO_MESH__STATE_DIR"] = str(installation.mesh.state_dir)
    home = str(Path(__file__).resolve().parents[2])
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (home, os.environ.get("PYTHONPATH"))))
    words = [sys.executable, "-P", "-m", f"services.{service}"]
    words += ["--config", str(installation.config)] if installation.config is not None else []
    os.execv(sys.executable, words)  # noqa: S606 becomes the service: same process, same signals


def version(json: Json = False) -> None:
    """Show what is installed.

    \b
    Examples:
      snavio version
      snavio version --json
    """
    try:
        from snavio.native import SOURCE_DIGEST

        native = SOURCE_DIGEST[:12]
    except ImportError as error:
        native = str(error)
    found = {
        "snavio": _installed("snavio"),
        "native": native,
        "python": platform.python_version(),
        "grpcio": _installed("grpcio"),
        "platform": platform.platform(terse=True),
    }
    show(found, Record(tuple(found.items())), json=json)


def _installed(package: str) -> str:
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as version_of

    try:
        return version_of(package)
    except PackageNotFoundError:
        return "unknown"
