"""The extras of the package: one sentence for a module that the installed extras do not bring.

Never imports any of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Final

from snavio.errors import BadRequest

EXTRA_OF: Final[Mapping[str, str]] = {
    "typer": "cli",
    "rich": "cli",
    "orjson": "cli",
    "pydantic": "cli",
    "apsw": "mesh",
    "grpc_health": "mesh",
    "grpc_reflection": "mesh",
    "opentelemetry": "mesh",
    "pyarrow": "mesh",
    "uvloop": "mesh",
    "starlette": "mesh",
    "uvicorn": "mesh",
    "httptools": "mesh",
    "sse_starlette": "mesh",
    "standardwebhooks": "mesh",
    "aiohttp": "events",
    "duckdb": "archive",
    "redis": "redis",
    "aioboto3": "aws",
    "botocore": "aws",
    "pandas": "spark",
    "pyspark": "spark",
}
"""The smallest extra that brings a module, by the module's top-level name."""
MESH_MODULES: Final = tuple(module for module, extra in EXTRA_OF.items() if extra in ("cli", "mesh"))


def install_hint(error: ImportError, *, service: bool = False) -> str | None:
    """The sentence for a module that an extra brings, to a `service` or to a command; None for any other failure."""
    module = (error.name or "").partition(".")[0]
    if not isinstance(error, ModuleNotFoundError) or module not in EXTRA_OF:
        return None
    return _sentence(module, extra="mesh" if service and module in MESH_MODULES else None)


def require_mesh() -> None:
    """BadRequest unless everything that a service imports is installed."""
    # Asked before a process becomes a service: its own failed import would be a traceback in a log.
    for module in MESH_MODULES:
        if find_spec(module) is None:
            raise BadRequest(_sentence(module, extra="mesh"), reason="missing-library")


def _sentence(module: str, *, extra: str | None = None) -> str:
    extra = extra or EXTRA_OF[module]
    if extra == "cli":
        return (
            f'{module} is not installed here: pip install "snavio[mesh]" brings the command line and the services, '
            '"snavio[cli]" the command line alone.'
        )
    return f'{module} is not installed here: pip install "snavio[{extra}]" brings it.'
