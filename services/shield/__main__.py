"""Runs Shield as a process."""

import sys

from snavio.imports import lean_imports

with lean_imports():
    from services.shield.app import ShieldApp
    from services.shield.settings import ShieldSettings
    from snavio.host.process import run


if __name__ == "__main__":
    sys.exit(run("shield", ShieldSettings, ShieldApp))
