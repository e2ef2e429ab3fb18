"""Which files of an archive can be believed; everything else is quarantined with a reason.

No source is banned on the word of a file that Relay has not signed. Never fails because of what it finds, never leaves
out a file without saying so, and never changes the archive.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from snavio.audit.index_file import IndexEntry
from snavio.native import format_timestamp, parse_timestamp
from snavio.signed.archive_manifest import ArchiveManifest, FileEntry, folder_of, present
from snavio.signed.verification import VerifyingKey
from snavio.telemetry.archive_inspection import (
    SETTLING_NS,
    ArchiveFinding,
    Hour,
    believed,
    check_file,
    hours,
    retired,
)
from snavio.telemetry.missing_events import Listed, MissingEvents, gaps_told_in, holes
from snavio.telemetry.schema import COLUMNS

HOUR_NS: Final = 3_600_000_000_000
_FOLDER: Final = re.compile(r"date=(\d{4}-\d{2}-\d{2})/hour=(\d{2})", re.ASCII)
NO_ROOM: Final = {errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE}
"""Faults of this machine, not of a file: who meets one looks again later."""
HALF_WRITTEN: Final = "half-written"
RETIRED: Final = "retired"
LOOKS: Final = 3
"""Compaction takes files away after its manifest is there, so a file that is missing is looked for again."""

Judged = tuple[list[ArchiveManifest], list[ArchiveFinding]]
"""Manifests that are believed, and the defects of the others."""
Pin = Callable[[str, Path], Path]
"""Keeps a file from going away while it is read: (folder, path) to the path to read; OSError when it is gone."""


@dataclass(slots=True)
class VerifiedArchive:
    """The files that count, and those that do not, with reasons."""

    entries: list[IndexEntry] = field(default_factory=list)
    quarantined: list[ArchiveFinding] = field(default_factory=list)
    holes: list[ArchiveFinding] = field(default_factory=list)
    """Events of the range that are in no file, without a recorded reason."""
    hole_spans: list[tuple[int, int]] = field(default_factory=list)
    """Of each hole, the times between which its events were."""
    on_their_way: int = 0
    """Files that no manifest lists yet, and that are too young to be called forgotten."""

    begins_unix_ns: int | None = None
    """The time from which on an audit has its evidence whole, if the range had no begin and old hours went."""

    @property
    def events(self) -> int:
        """Events that can be read, before files that overlap are told apart."""
        return sum(entry.stretch.rows for entry in self.entries)

    def doubtful_hours(self) -> set[str]:
        """Hours of event time that may lack events, such as `2026-11-16T10`."""
        doubtful: set[str] = set()
        for finding in self.quarantined:
            if finding.problem == HALF_WRITTEN or _FOLDER.search(finding.path) is None:
                continue
            start = _begin(finding.path)
            # An export has events of the hour before, too.
            doubtful |= {_hour(start), _hour(start - HOUR_NS)}
        for first, last in self.hole_spans:
            for hour in range(first // HOUR_NS, last // HOUR_NS + 1):
                doubtful.add(_hour(hour * HOUR_NS))
        return doubtful

    @property
    def left_out(self) -> int:
        """Files that may have held evidence. One that was not finished is none: its events are in another."""
        return sum(finding.problem != HALF_WRITTEN for finding in self.quarantined)


@dataclass(frozen=True, slots=True)
class TimeRange:
    """Event times of interest, nanoseconds since the epoch; None is open."""

    since_unix_ns: int | None = None
    until_unix_ns: int | None = None

    def touches(self, file: FileEntry) -> bool:
        """True when the file may hold events of it."""
        early = self.until_unix_ns is None or file.min_at_unix_ns < self.until_unix_ns
        return early and (self.since_unix_ns is None or file.max_at_unix_ns >= self.since_unix_ns)

    def reaches(self, folder: str) -> bool:
        """True when an hour of exports may hold events of it."""
        return self.until_unix_ns is None or folder <= folder_of(self.until_unix_ns + HOUR_NS)

    def meets(self, hole: MissingEvents) -> bool:
        """True when events of it may be missing."""
        early = self.until_unix_ns is None or hole.after_unix_ns < self.until_unix_ns
        return early and (self.since_unix_ns is None or hole.before_unix_ns >= self.since_unix_ns)

    @property
    def folder(self) -> str:
        """The first folder that may hold them: an hour before, for a Relay whose clock is behind."""
        return "" if self.since_unix_ns is None else folder_of(max(self.since_unix_ns - HOUR_NS, 0))


def believe(
    archive: Path,
    keys: Sequence[VerifyingKey],
    *,
    now_unix_ns: int,
    pin: Pin,
    wanted: TimeRange = TimeRange(),  # noqa: B008
) -> VerifiedArchive:
    """Everything in the archive that touches the range."""
    verified_archive = VerifiedArchive()
    listed: dict[Path, Listed] = {}
    for hour in hours(archive, since=wanted.folder):
        good = believe_hour(
            archive, hour, keys, verified_archive, now_unix_ns=now_unix_ns, pin=pin, wanted=wanted.touches
        )
        listed.update((archive / hour.folder / file.name, (hour.folder, file)) for file in good)

    # What went took evidence with it: nobody is set free because the archive is old.
    for note in retired(archive, keys)[0]:
        if wanted.since_unix_ns is None:
            gone = _begin(note.folder) + HOUR_NS
            begins = max(verified_archive.begins_unix_ns or 0, gone + 2 * HOUR_NS)
            verified_archive.begins_unix_ns = begins
        elif note.folder >= wanted.folder and wanted.reaches(note.folder):
            verified_archive.quarantined.append(
                ArchiveFinding(
                    note.folder, RETIRED, "It was deleted because of its age, as a signed note tells."
                )
            )

    def sound(path: Path) -> bool:
        return check_file(path, listed[path][1]) is None

    # Also files outside the range: Relay tells of a gap a little after the events that it is about.
    found = holes(listed.values(), lambda: gaps_told_in(listed, believed=sound))
    met = [hole for hole in found if wanted.meets(hole)]
    verified_archive.holes = [hole.finding() for hole in met]
    verified_archive.hole_spans = [(hole.after_unix_ns, hole.before_unix_ns) for hole in met]
    return verified_archive


def believe_hour(
    archive: Path,
    hour: Hour,
    keys: Sequence[VerifyingKey],
    verified_archive: VerifiedArchive,
    *,
    now_unix_ns: int,
    pin: Pin,
    wanted: Callable[[FileEntry], bool],
    good_of: Callable[[Hour, Sequence[VerifyingKey]], Judged] = believed,
) -> list[FileEntry]:
    """Add what one hour holds to `belief`; every file that its good manifests list, whether it is wanted or not."""
    for look in range(LOOKS):
        good, findings = good_of(hour, keys)
        entries: list[IndexEntry] = []
        gone = False
        for file in filter(wanted, present(good)):
            judged = _judge(archive, hour.folder, file, pin)
            if isinstance(judged, IndexEntry):
                entries.append(judged)
            else:
                gone = gone or judged.problem == "missing"
                findings.append(judged)
        again = next(hours_of(archive, hour.folder), None) if gone else None
        if again is None or look == LOOKS - 1:
            break
        hour = again
    verified_archive.entries += entries
    verified_archive.quarantined += findings
    _strays(archive, hour.folder, good, verified_archive, now_unix_ns)
    return present(good)


def hours_of(archive: Path, folder: str) -> Iterator[Hour]:
    """One hour, read again."""
    return (hour for hour in hours(archive, since=folder) if hour.folder == folder)


def _judge(archive: Path, folder: str, file: FileEntry, pin: Pin) -> IndexEntry | ArchiveFinding:
    name = f"{folder}/{file.name}"
    try:
        # First pinned, then checked: the bytes that are read later are those that were checked.
        path = pin(folder, archive / folder / file.name)
    except FileNotFoundError:
        return ArchiveFinding(name, "missing", "A manifest lists it and it is not there.")
    except OSError as error:
        if error.errno in NO_ROOM:
            raise
        return ArchiveFinding(name, "unreadable", f"{type(error).__name__}: it cannot be read.")
    problem = check_file(path, file) or check_columns(path)
    return IndexEntry.of(path, file) if problem is None else ArchiveFinding(name, *problem)


def _begin(path: str) -> int:
    folder = _FOLDER.search(path)
    assert folder is not None
    return parse_timestamp(f"{folder[1]}T{folder[2]}:00:00Z")


def _hour(unix_ns: int) -> str:
    return format_timestamp(unix_ns)[:13]


def check_columns(path: Path) -> tuple[str, str] | None:
    """(problem, sentence) of a file whose columns Spark could not read, or would read as something else.

    A column that is not required may be missing, and one that we do not know may be there: archives outlive programs.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        schema = pq.read_schema(path)
    except (OSError, pa.ArrowException) as error:
        return "unreadable", f"{type(error).__name__}: its columns cannot be read."
    # An integer of another width, or a time without a zone, would read as another value or fail in mid-job.
    kinds = {
        "text": (pa.string(),),
        "int32": (pa.int32(),),
        "int64": (pa.int64(),),
        "float64": (pa.float64(),),
        "bool": (pa.bool_(),),
        "time": (pa.timestamp("us", tz="UTC"),),
        "id": (pa.binary(16), pa.binary()),
    }
    for column in COLUMNS:
        at = schema.get_field_index(column.name)
        if at < 0:
            if column.required:
                return "missing-column", f"It has no column {column.name}."
            continue
        kind = schema.field(at).type
        if pa.types.is_dictionary(kind):
            kind = kind.value_type
        if column.kind == "texts":
            fits = pa.types.is_list(kind) and kind.value_type == pa.string()
        else:
            fits = kind in kinds[column.kind]
        if not fits:
            return "wrong-type", f"Its column {column.name} is {kind} instead of {column.kind}."
    return None


def _strays(
    archive: Path,
    folder: str,
    good: Sequence[ArchiveManifest],
    verified_archive: VerifiedArchive,
    now_unix_ns: int,
) -> None:
    """Files of the hour that no good manifest speaks of."""
    listed = {file.name for manifest in good for file in manifest.files}
    listed |= {name for manifest in good for name in manifest.replaces}
    for path in sorted((archive / folder).iterdir()):
        unfinished = path.name.startswith(".")
        if not unfinished and (path.suffix != ".parquet" or path.name in listed):
            continue
        try:
            age_ns = now_unix_ns - path.stat().st_mtime_ns
        except OSError:
            continue  # It was on its way, and has arrived.
        if age_ns < SETTLING_NS:
            verified_archive.on_their_way += 1
        elif unfinished:
            verified_archive.quarantined.append(
                ArchiveFinding(f"{folder}/{path.name}", HALF_WRITTEN, "A file that was not finished.")
            )
        else:
            verified_archive.quarantined.append(
                ArchiveFinding(
                    f"{folder}/{path.name}", "unsigned", "No manifest with a good signature lists it."
                )
            )
