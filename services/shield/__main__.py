"""Runs Shield as a process."""

import sys

from services.shield.app import build
from services.shield.settings import ShieldSettings
from snavio.service import run

if __name__ == "__main__":
    sys.exit(run("shield", ShieldSettings, build))
