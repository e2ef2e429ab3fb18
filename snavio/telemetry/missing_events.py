"""Events missing from the archive: gaps in the numbers between two files of one life.

Never reports numbers that a `journal_gap` of Relay names: those were lost before the archive. Missing events before the
first file of a life, or after its last, cannot be seen.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from snavio.signed.archive_manifest import EventRange, FileEntry
from snavio.telemetry.archive_inspection import ArchiveFinding, Hour, check_file
from snavio.telemetry.schema import JOURNAL_GAP

PROBLEM: Final = "hole"
_TOLD: Final = re.compile(
    r"(?P<instance>[a-z0-9][a-z0-9-]{0,62}) epoch (?P<epoch>[0-9]{1,19}): "
    r"(?P<first>[0-9]{1,19}) to (?P<last>[0-9]{1,19})",
    re.ASCII,
)

Listed = tuple[str, FileEntry]
"""(folder, file) of a verified manifest."""


@dataclass(frozen=True, slots=True)
class MissingEvents:
    """Events that no file contains, and the file after them."""

    stretch: EventRange
    after_unix_ns: int
    """Time of the last event before them."""
    before_unix_ns: int
    """Time of the first one after them."""
    next_path: str

    def finding(self) -> ArchiveFinding:
        """The gap as a finding of a report."""
        numbers = f"{self.stretch.first_seq} to {self.stretch.last_seq}"
        return ArchiveFinding(
            self.next_path,
            PROBLEM,
            f"Events {numbers} before it are in no file, and no journal_gap says why.",
        )


def holes(listed: Iterable[Listed], gaps: Callable[[], Iterable[EventRange]]) -> list[MissingEvents]:
    """The gaps between these files. `gaps` is called only when there is something to explain."""
    found: list[MissingEvents] = []
    before: FileEntry | None = None
    for folder, file in sorted(listed, key=lambda one: one[1].stretch):
        life = (file.stretch.instance, file.stretch.epoch)
        if before is None or life != (before.stretch.instance, before.stretch.epoch):
            before = file
            continue
        first, last = before.stretch.last_seq + 1, file.stretch.first_seq - 1
        if first <= last:
            stretch = EventRange(*life, first, last)
            found.append(
                MissingEvents(stretch, before.max_at_unix_ns, file.min_at_unix_ns, f"{folder}/{file.name}")
            )
        if file.stretch.last_seq > before.stretch.last_seq:
            before = file
    if not found:
        return []
    told = sorted(gaps())
    return [left for hole in found if (left := _unexplained(hole, told)) is not None]


def missing(archive: Path, found: Iterable[Hour]) -> list[ArchiveFinding]:
    """The gaps of a whole archive, according to its manifests."""
    listed = {archive / hour.folder / file.name: (hour.folder, file) for hour in found for file in hour.files}

    def believed(path: Path) -> bool:
        return check_file(path, listed[path][1]) is None

    return [
        hole.finding() for hole in holes(listed.values(), lambda: gaps_told_in(listed, believed=believed))
    ]


def _unexplained(hole: MissingEvents, told: Iterable[EventRange]) -> MissingEvents | None:
    """The rest of a gap, from the first number that no `journal_gap` names."""
    at = hole.stretch.first_seq
    for gap in told:
        same = (gap.instance, gap.epoch) == (hole.stretch.instance, hole.stretch.epoch)
        if same and gap.first_seq <= at <= gap.last_seq:
            at = gap.last_seq + 1
    return replace(hole, stretch=replace(hole.stretch, first_seq=at)) if at <= hole.stretch.last_seq else None


def gaps_told_in(paths: Iterable[Path], *, believed: Callable[[Path], bool]) -> list[EventRange]:
    """The `journal_gap` events in these files. `believed` is called only for files that may contain one."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    found: list[EventRange] = []
    for path in paths:
        try:
            # Columns without a value are left out of files: most have no `detail`.
            if "detail" not in pq.read_schema(path).names or not believed(path):
                continue
            rows = pq.read_table(path, columns=["event", "detail"])
            told = rows.filter(pc.equal(rows["event"].cast(pa.string()), JOURNAL_GAP))["detail"].to_pylist()
        except (OSError, pa.ArrowException):
            continue
        for detail in told:
            one = _TOLD.fullmatch(detail or "")
            if one is not None:
                found.append(
                    EventRange(one["instance"], int(one["epoch"]), int(one["first"]), int(one["last"]))
                )
    return found
