"""Runs the gateway as a process."""

import sys

from snavio.imports import lean_imports

with lean_imports():
    from services.gateway.app import GatewayApp
    from services.gateway.settings import GatewaySettings
    from snavio.host.process import run


if __name__ == "__main__":
    sys.exit(run("gateway", GatewaySettings, GatewayApp))
