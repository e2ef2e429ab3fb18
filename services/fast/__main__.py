"""Runs Fast as a process."""

import sys

from snavio.imports import lean_imports

with lean_imports():
    from services.fast.app import FastApp
    from services.fast.settings import FastSettings
    from snavio.host.process import run


if __name__ == "__main__":
    sys.exit(run("fast", FastSettings, FastApp))
