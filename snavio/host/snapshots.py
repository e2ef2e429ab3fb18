"""Snapshot readers of a service, each with its own watermark on disk.

Never shares a watermark between two kinds of snapshot: their versions have nothing to do with each other.
"""

from __future__ import annotations

from snavio.host.service import ServiceHost
from snavio.ports.archive import Archive
from snavio.signed.snapshot_reader import Keys, SnapshotReader
from snavio.wiring import open_watermark


def snapshot_reader(
    host: ServiceHost, archive: Archive, *, keys: Keys, name: str = "snapshot"
) -> SnapshotReader:
    """Reads snapshots from `archive` that verify by `keys`; refused ones are recorded as events."""
    return SnapshotReader(
        archive=archive,
        keys=keys,
        watermark=open_watermark(host.mesh.state_dir / host.service / f"{host.instance}.{name}"),
        clock=host.clock,
        refused=host.reporting.snapshot_refused,
    )
