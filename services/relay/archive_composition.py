"""Composes the archive's side of Relay: pages become signed files, finished hours become few large ones, old ones go.

Never lets two of them write at once: one `turn` is handed round.
"""

from __future__ import annotations

import asyncio

from services.relay.compaction import LONGEST_PAUSE_S, LOOK_SECONDS, ArchiveCompaction
from services.relay.exporter import Exporter
from services.relay.pending_pages import PendingPages
from services.relay.relay_events import RelayEvents
from services.relay.retention import LOOK_SECONDS as RETENTION_LOOK_SECONDS
from services.relay.retention import ArchiveRetention
from services.relay.revocations import Revocations
from services.relay.settings import RelaySettings
from snavio.host.service import ServiceHost
from snavio.native import Tombstones
from snavio.ports.archive import Archive
from snavio.ports.outbox import Outbox
from snavio.signed.manifest_signer import ManifestSigner
from snavio.signed.platform_keys import PlatformKeys


async def compose_archive(
    host: ServiceHost,
    settings: RelaySettings,
    *,
    outbox: Outbox,
    archive: Archive,
    waiting: PendingPages,
    own: RelayEvents,
    platform: PlatformKeys,
    tombstones: Tombstones,
    turn: asyncio.Lock,
    revocations: Revocations,
) -> None:
    """Start the export, and what the settings want of compaction and retention."""
    clock, introspection = host.clock, host.introspection
    signer = ManifestSigner(sign=platform.sign, keys=platform.verifying)
    exporter = Exporter(
        outbox=outbox,
        archive=archive,
        waiting=waiting,
        own=own,
        signer=signer,
        tombstones=tombstones,
        turn=turn,
        clock=clock,
        rhythm=settings.rhythm(),
        revocations_known_unix_ns=revocations.known_unix_ns,
    )
    await host.run(exporter)
    introspection.counts(exporter.counters, prefix="export.")
    compaction = ArchiveCompaction(
        outbox=outbox,
        archive=archive,
        signer=signer,
        keys=platform.ever,
        turn=turn,
        clock=clock,
        after_s=settings.compact_after_s,
    )
    introspection.counts(compaction.counters, prefix="compaction.")
    if settings.compact:
        host.every(LOOK_SECONDS, "compaction", compaction.look, longest_s=LONGEST_PAUSE_S)
    if settings.archive_keep_days:
        retention = ArchiveRetention(
            outbox=outbox,
            archive=archive,
            sign=platform.sign,
            keys=platform.ever,
            turn=turn,
            clock=clock,
            keep_days=settings.archive_keep_days,
        )
        introspection.counts(retention.counters, prefix="retention.")
        host.every(RETENTION_LOOK_SECONDS, "retention", retention.look)
