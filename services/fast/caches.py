"""Composes Fast's cache of the directory with its meters and its snapshots.

Never uses a right beyond the longest time that a profile allows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from services.fast.directory import CachedDirectory
from services.fast.settings import FastSettings
from snavio.domain.revocation import CEILING_S
from snavio.host.service import ServiceHost
from snavio.host.snapshots import snapshot_reader
from snavio.native import Dispatch
from snavio.signed.platform_keys import PlatformKeys
from snavio.telemetry.cache_meter import ACL, ROUTING, CacheMeter
from snavio.telemetry.events import EventJournal
from snavio.wiring import open_archive

# Older than this, no right of any profile is used, unless the installation says otherwise.
LONGEST_BOUND_MS: Final = round(max(CEILING_S.values()) * 1000)


def make_directory(
    host: ServiceHost, settings: FastSettings, tables: Dispatch, refreshes: EventJournal
) -> CachedDirectory:
    """The cache in front of Registry; every refresh is recorded in `refreshes`."""
    clock, ages_ms = host.clock, host.mesh.acl_ages_ms()
    # Shown for an ACL cache whose entries have a profile each: those of the default profile. The most sensitive of
    # them are stale long before.
    acl_fresh_s, acl_stale_s = (age_ms / 1000 for age_ms in ages_ms["low"])
    first_stale_s = min(fresh_ms for fresh_ms, _ in ages_ms.values()) / 1000
    meters = []
    for name, fresh_s, stale_s, first_s, counter in (
        (ACL, acl_fresh_s, acl_stale_s, first_stale_s, "usage.acl.stale"),
        (
            ROUTING,
            settings.route_fresh_ms / 1000,
            settings.route_stale_ms / 1000,
            None,
            "usage.routing.stale",
        ),
    ):
        meter = CacheMeter(
            name,
            fresh_s=fresh_s,
            stale_s=stale_s,
            age_ns=lambda: tables.age_ns(clock.mono_ns()),
            clock=clock,
            record=lambda event: refreshes.record(event, at_unix_ns=clock.unix_ns()),
            onward=host.reporting.record,
            first_stale_s=first_s,
        )
        meter.register(host.introspection, _reading(tables, counter))
        meters.append(meter)
    archive = host.hold(open_archive(host.mesh.snapshots()))
    snapshots = snapshot_reader(host, archive, keys=PlatformKeys(host.channel("signer")).verifying)
    directory = CachedDirectory(
        dispatch=tables,
        registry=host.channel("registry"),
        clock=clock,
        interval_s=host.pull_interval_s,
        instance=host.instance,
        bound_ms=max(LONGEST_BOUND_MS, *(stale_ms for _, stale_ms in ages_ms.values())),
        snapshots=snapshots if settings.use_snapshots else None,
        meters=meters,
    )
    host.introspection.counts(snapshots.counters)
    host.introspection.gauges(directory.feed.gauges, prefix="directory.")
    return directory


def _reading(tables: Dispatch, counter: str) -> Callable[[], int]:
    return lambda: tables.counters()[counter]
