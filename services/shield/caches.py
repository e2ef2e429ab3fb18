"""Composes what Shield must know before it admits anything: key sets, suspensions, and how fresh both are.

Never shows a key: meters and counters have ages and numbers only.
"""

from __future__ import annotations

from collections import Counter

from services.shield.cache_freshness import CacheFreshness
from services.shield.key_cache import KeyCache
from services.shield.settings import ShieldSettings
from services.shield.snapshot_key_cache import SnapshotKeyCache
from services.shield.suspension_cache import SuspensionCache
from snavio.host.service import ServiceHost
from snavio.host.snapshots import snapshot_reader
from snavio.native import Admission
from snavio.signed.platform_keys import PlatformKeys
from snavio.telemetry.cache_meter import HMAC, CacheMeter
from snavio.telemetry.events import EventJournal
from snavio.wiring import open_archive, open_watermark


def make_caches(
    host: ServiceHost, settings: ShieldSettings, admission: Admission, refreshes: EventJournal, *, holder: str
) -> CacheFreshness:
    """Both caches; every refresh of the keys is recorded in `refreshes`. Signer knows this Shield as `holder`."""
    clock, signer = host.clock, host.channel("signer")
    archive = host.hold(open_archive(host.mesh.snapshots()))
    file = open_watermark(host.mesh.state_dir / "shield" / f"{host.instance}.opening")
    opening = SnapshotKeyCache(signer=signer, file=file, clock=clock)
    key_snapshots = snapshot_reader(host, archive, keys=opening.verifying, name="keys-snapshot")
    snapshots = snapshot_reader(host, archive, keys=PlatformKeys(signer).verifying)
    keys = KeyCache(
        admission=admission,
        signer=signer,
        clock=clock,
        interval_s=host.pull_interval_s,
        stale_ms=settings.keys_stale_ms,
        holder=holder,
        denylist=host.denylist,
        snapshots=key_snapshots if settings.use_snapshots else None,
        opening=opening,
    )
    fresh_ms = min(settings.keys_fresh_ms, settings.keys_stale_ms)
    meter = CacheMeter(
        HMAC,
        fresh_s=fresh_ms / 1000,
        stale_s=settings.keys_stale_ms / 1000,
        age_ns=keys.age_ns,
        clock=clock,
        record=lambda event: refreshes.record(event, at_unix_ns=clock.unix_ns()),
        onward=host.reporting.record,
    )
    keys.refreshed = meter.refreshed
    freshness = CacheFreshness(
        keys=keys,
        fresh_ms=fresh_ms,
        meter=meter,
        clock=clock,
        record=host.reporting.record,
        suspensions=SuspensionCache(
            admission=admission,
            registry=host.channel("registry"),
            clock=clock,
            interval_s=host.pull_interval_s,
            instance=host.instance,
            bound_ms=settings.keys_stale_ms,
            snapshots=snapshots if settings.use_snapshots else None,
        ),
        stale_ms=settings.keys_stale_ms,
    )
    host.introspection.counts(freshness.counters, prefix="freshness.")
    freshness.register(host.introspection)
    # One name for both: which of them it was stands in the log.
    host.introspection.counts(lambda: dict(Counter(snapshots.counters()) + Counter(key_snapshots.counters())))
    return freshness
