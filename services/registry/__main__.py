"""The Registry process."""

from __future__ import annotations

import sys

from snavio.imports import lean_imports

with lean_imports():
    from services.registry.app import RegistryApp
    from services.registry.settings import RegistrySettings
    from snavio.host.process import run


if __name__ == "__main__":
    sys.exit(run("registry", RegistrySettings, RegistryApp))
