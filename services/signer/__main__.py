"""The Signer process; `init` prepares a state folder and ends."""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path

from snavio.imports import lean_imports

with lean_imports():
    from services.signer.app import SignerApp
    from services.signer.bootstrap import prepare
    from services.signer.settings import SignerSettings
    from snavio.clock import SystemClock
    from snavio.config import load
    from snavio.host.process import USAGE_ERROR, run, start_failure
    from snavio.telemetry.logs import configure


def init(arguments: list[str]) -> int:
    """Prepare the state folder; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m services.signer init", description="Makes the CA and certificates that are missing."
    )
    parser.add_argument("--config", type=Path, default=None, help="path of snavio.toml")
    parser.add_argument(
        "--restored", action="store_true", help="the state folder came from a backup: readers start again"
    )
    parsed = parser.parse_args(arguments)
    configure(service="signer")
    try:
        mesh, settings = load(SignerSettings, "signer", config=parsed.config)
        made = asyncio.run(prepare(mesh, settings, clock=SystemClock(), restored=parsed.restored))
    except Exception as error:
        if (said := start_failure(error)) is None:
            raise
        sys.stderr.write(f"signer init: {said}\n")
        return USAGE_ERROR
    sys.stdout.write(f"prepared {mesh.state_dir}: {len(made)} certificates made\n")
    return 0


if __name__ == "__main__":
    words = sys.argv[1:]
    sys.exit(init(words[1:]) if words[:1] == ["init"] else run("signer", SignerSettings, SignerApp, words))
