"""Finds an installed exporter of OpenTelemetry by the name that the configuration gives it.

Never loads OpenTelemetry in a process that exports nothing.
"""

from __future__ import annotations

import sys
from typing import Any, Final

from snavio.errors import StateError
from snavio.host.introspection import Introspection, program_version

CONSOLE: Final = "console"
OTLP: Final = "otlp"
_OTLP_NAMES: Final = ("otlp_proto_grpc", "otlp_proto_http")


def find_exporter(key: str, name: str, *, kind: str) -> Any:
    """A new exporter of `kind` (`metrics` or `traces`), configured by OpenTelemetry's own variables.

    StateError if none of that name is installed; `key` is the setting that named it.
    """
    from importlib.metadata import entry_points

    group = f"opentelemetry_{kind}_exporter"
    for candidate in (name, *(_OTLP_NAMES if name == OTLP else ())):
        found = entry_points(group=group, name=candidate)
        if found:
            exporter: Any = next(iter(found)).load()
            # Standard output is a launcher's, which reads one line of it and then no more: a pipe that fills up would
            # block.
            return exporter(out=sys.stderr) if name == CONSOLE else exporter()
    known = ", ".join(sorted({one.name for one in entry_points(group=group)}))
    raise StateError(
        f"[mesh] {key} is {name!r}, and no such exporter of OpenTelemetry is installed; there are: "
        f'{known}. For otlp: pip install "snavio[otlp]".',
        reason="exporter-missing",
    )


def resource_of(introspection: Introspection) -> Any:
    """This process as OpenTelemetry names it."""
    from opentelemetry.sdk.resources import Resource

    return Resource.create(
        {
            "service.namespace": "snavio",
            "service.name": introspection.service,
            "service.instance.id": introspection.instance,
            "service.version": program_version(),
        }
    )
