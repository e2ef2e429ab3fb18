"""Runs Shield as a process."""

import sys

from snavio.starting import lean_imports

with lean_imports():
    from services.shield.app import build
    from services.shield.settings import ShieldSettings
    from snavio.service import run


if __name__ == "__main__":
    sys.exit(run("shield", ShieldSettings, build))
