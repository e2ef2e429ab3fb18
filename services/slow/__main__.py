"""Runs Slow as a process."""

import sys

from snavio.imports import lean_imports

with lean_imports():
    from services.slow.app import SlowApp
    from services.slow.settings import SlowSettings
    from snavio.host.process import run


if __name__ == "__main__":
    sys.exit(run("slow", SlowSettings, SlowApp))
