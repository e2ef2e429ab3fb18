"""The native tables by which Fast decides: made from the settings, swept, and shown to operators.

Never decides anything itself.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Final

from services.fast.settings import FastSettings
from snavio.clock import Clock
from snavio.config import MeshSettings
from snavio.host.introspection import Introspection
from snavio.native import MESH_BATCH_BYTES, MESH_BATCH_COMMANDS, Dispatch
from snavio.telemetry.cache_meter import USAGE

# Taken off every fresh time, by chance, so that instances do not ask again in step. It only shortens.
MOST_SHORTENED_PERMILLE: Final = 100
GAUGES: Final = frozenset(
    {"routes", "acls", "bans", "unknown_routes", "remembered_deliveries", "counted_sources"}
)
NAMED: Final = {
    f"{USAGE}.Fresh": "usage.fresh",
    f"{USAGE}.Stale": "usage.stale",
    f"{USAGE}.Expired": "usage.expired",
    # Where it is decided, and so once in the fleet: here what is answered from memory; Slow counts all the others,
    # among them those of routes that Fast does not know.
    "Snavio.Dedup.StrictModeUsage": "duplicates",
    "Snavio.Dedup.DuplicatesPrevented": "duplicates",
    "Snavio.Dedup.Escalations": "escalated.dedupe_required",
}
"""Public names of metrics, and the native counter behind each."""


def make_tables(mesh: MeshSettings, settings: FastSettings) -> Dispatch:
    """Empty tables, within the bounds of the settings."""
    return Dispatch(
        max_batch_bytes=MESH_BATCH_BYTES,
        max_batch_commands=MESH_BATCH_COMMANDS,
        route_fresh_ms=settings.route_fresh_ms,
        route_stale_ms=settings.route_stale_ms,
        acl_ms=[mesh.acl_ages_ms()[profile] for profile in ("critical", "moderate", "low")],
        shorten_permille=random.randint(0, MOST_SHORTENED_PERMILLE),  # noqa: S311 spreads load
        cold_only=settings.dispatch_mode == "cold-only",
        duplicates=settings.remembered_deliveries,
        unknown_routes=settings.unknown_routes,
        unknown_routes_per_source=settings.unknown_routes_per_source,
        unknown_ms=settings.unknown_route_ms,
        counted_sources=settings.counted_sources,
    )


def sweep(tables: Dispatch, clock: Clock) -> Callable[[], Awaitable[object]]:
    """Repeated work that frees what has expired; it walks all routes, so on another thread."""
    return lambda: asyncio.to_thread(tables.sweep, now_mono_ns=clock.mono_ns())


def show_tables(introspection: Introspection, tables: Dispatch) -> None:
    """Show the native counters to operators."""
    introspection.native(tables.counters, gauges=GAUGES, prefix="dispatch.")

    def named() -> dict[str, int]:
        counters = tables.counters()
        return {name: counters[counter] for name, counter in NAMED.items()}

    introspection.counts(named)
