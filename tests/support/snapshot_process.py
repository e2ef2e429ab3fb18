"""A process that does nothing but change a directory and publish snapshots of it, to be killed.

python -m tests.support.snapshot_process <folder>
"""

from __future__ import annotations

import asyncio
import itertools
import sys
from pathlib import Path

from services.registry.snapshots import SnapshotPlan, SnapshotWriter
from snavio.adapters.embedded.folder_archive import FolderArchive
from snavio.adapters.embedded.sqlite_directory import SqliteDirectory
from snavio.clock import SystemClock
from snavio.domain.directory import AclEntry, Draft, Route, Suspension
from snavio.telemetry.events import EventJournal
from tests.support.snapshots import Platform


async def publish(folder: Path) -> None:
    """Until killed; a line per snapshot."""
    clock, platform = SystemClock(), Platform()
    directory = await SqliteDirectory.open(folder / "directory.db", clock=clock)
    writer = SnapshotWriter(
        directory=directory,
        archive=FolderArchive(folder / "snapshots"),
        sign=platform.sign,
        keys=platform.verifying,
        clock=clock,
        plan=SnapshotPlan(interval_s=30, lifetime_s=3600, max_bytes=1 << 24),
        events=EventJournal(epoch=1),
    )
    first = [
        *(Draft(Route("bot", f"say{row}").addressed_to("acme")) for row in range(200)),
        *(Draft(AclEntry(f"acme/shop{row}", "bot", "say0")) for row in range(2000)),
    ]
    await directory.write(lambda _view: first, actor="test")
    for number in itertools.count():
        draft = Draft(Suspension("acme/evil", str(number)))
        await directory.write(lambda _view, draft=draft: draft, actor="test")  # type: ignore[misc]
        sys.stdout.write(f"{await writer.write_once()}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(publish(Path(sys.argv[1])))
