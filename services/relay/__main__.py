"""Runs Relay as a process."""

import sys

from snavio.imports import lean_imports

with lean_imports():
    from services.relay.app import RelayApp
    from services.relay.settings import RelaySettings
    from snavio.host.process import run


if __name__ == "__main__":
    sys.exit(run("relay", RelaySettings, RelayApp))
