"""Runs Relay as a process."""

import sys

from services.relay.app import build
from services.relay.settings import RelaySettings
from snavio.service import run

if __name__ == "__main__":
    sys.exit(run("relay", RelaySettings, build))
