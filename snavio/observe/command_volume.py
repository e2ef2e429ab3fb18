"""How many commands there were, by route, source and outcome: the native counters of the service that decided them.

Never touched by a command: the native code counts a block of telemetry at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from snavio.domain.verdict import Verdict
from snavio.host.background import background
from snavio.host.introspection import Introspection, Sample
from snavio.native import Volume
from snavio.observe.metric import OTHER

ROUTES: Final = 20_000
ROUTES_PER_TENANT: Final = 10_000
SOURCES: Final = 10_000
SOURCES_PER_TENANT: Final = 2_500


class CommandVolume:
    """The counters of one process."""

    def __init__(
        self,
        *,
        routes: int = ROUTES,
        routes_per_tenant: int = ROUTES_PER_TENANT,
        sources: int = SOURCES,
        sources_per_tenant: int = SOURCES_PER_TENANT,
    ) -> None:
        self._native = Volume(
            routes=routes,
            routes_per_tenant=routes_per_tenant,
            sources=sources,
            sources_per_tenant=sources_per_tenant,
        )

    def add(self, block: bytes) -> None:
        """Count the commands of a serialised TelemetryBlock."""
        try:
            self._native.add(block)
        except ValueError as error:
            # The block was made here: a fault of the program, and no reason to lose the block.
            background().failed("command volume", error)

    def register(self, introspection: Introspection) -> None:
        """Tell them under their names."""
        introspection.tables(self.read)

    def read(self) -> Mapping[str, Iterable[Sample]]:
        """By metric."""
        native = self._native
        routes, sources = native.folded()
        return {
            "snavio.route.commands_total": [
                ((target or OTHER, name or OTHER, _REASONS.get(code, OTHER)), count)
                for target, name, code, count in native.routes()
            ],
            "snavio.source.commands_total": [
                (
                    (source.partition("/")[0] or OTHER, source or OTHER, _REASONS.get(code, OTHER)),
                    count,
                )
                for source, code, count in native.sources()
            ],
            "snavio.commands_total": [
                ((_REASONS.get(code, OTHER),), count) for code, count in native.outcomes()
            ],
            "snavio.commands.folded_total": [(("routes",), routes), (("sources",), sources)],
        }


_REASONS: Final = {int(verdict): verdict.reason for verdict in Verdict}
