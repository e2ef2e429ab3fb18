"""Follows an archive as it grows: every new verified event comes into the index once, in numbered files.

The index itself is the memory: killed anywhere, the next start reads what is there and goes on. Never writes an event
twice, also not when compaction, a repeated export or a second archive of the same hour brings it again. What cannot be
believed is told once, and looked at again when it has changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson

from snavio.audit.index_file import Coverage, IndexEntry, write_index, write_whole
from snavio.audit.known_manifests import KnownManifests
from snavio.audit.pinning import Pins
from snavio.audit.quarantine import write_report
from snavio.audit.verify_archive import HOUR_NS, VerifiedArchive, believe_hour
from snavio.clock import Clock
from snavio.signed.archive_manifest import EventRange, FileEntry, folder_of
from snavio.signed.verification import VerifyingKey
from snavio.telemetry.archive_inspection import ArchiveFinding

HORIZON_HOURS: Final = 3
"""Folders that are looked at: exports go to the present hour, and older ones change by compaction only."""
KEEP_NS: Final = 24 * HOUR_NS
"""Index files and pins live as long; a watcher that was away longer has nothing to propose on them."""
SUMMARY: Final = "covered.json"
TAKEN: Final = "taken.json"
"""Written by the streaming job: the index files that it needs no more."""
MOST_AT_ONCE: Final = 2000
"""Files that one look verifies."""
ENTRIES_AT_ONCE: Final = 250
"""Files that one index file names, so that a batch of the job stays small."""

Mark = tuple[int, int, int]
"""Modified when, size and inode; differs when a file was written again or replaced."""
MISSING: Final[Mark] = (0, 0, 0)


@dataclass(frozen=True, slots=True)
class IndexStep:
    """The result of one look at the archive."""

    files: int
    events: int
    quarantined: Sequence[ArchiveFinding]
    """Those that the look before did not bring."""
    number: int
    """Of the index file; 0 when there was nothing new."""


class ArchiveFollower:
    """See the module. `folder` has `index/`, `files/` and the report; one follower at a time."""

    def __init__(self, archive: Path, folder: Path, *, clock: Clock) -> None:
        self._archive = archive
        self._index = folder / "index"
        self._folder = folder
        self._report = folder / "quarantine.json"
        self._pins = Pins(folder / "files")
        self._clock = clock
        self._coverage = Coverage()
        self._number = 0
        self._seen: set[str] = set()
        self._bad: dict[str, tuple[Mark, ArchiveFinding]] = {}
        self._told: set[ArchiveFinding] | None = None
        self._known = KnownManifests(archive)
        self._load()

    @property
    def index(self) -> Path:
        """The folder that the streaming job reads."""
        return self._index

    def step(self, keys: Sequence[VerifyingKey]) -> IndexStep:
        """Look once."""
        now = self._clock.unix_ns()
        verified_archive = VerifiedArchive()
        looked: dict[str, Mark] = {}
        room = MOST_AT_ONCE
        asleep: set[str] = set()
        for folder in self._known.folders(since=folder_of(now - HORIZON_HOURS * HOUR_NS)):
            if self._known.unchanged(folder, keys):
                asleep.add(folder)
                continue
            mark = self._known.mark(folder, keys)
            hour = self._known.hour(folder)
            before, left = len(verified_archive.quarantined), room

            def wanted(file: FileEntry, folder: str = folder) -> bool:
                nonlocal room
                name = f"{folder}/{file.name}"
                if name in self._seen:
                    looked[name] = MISSING
                    return False
                # Before the file is read: a change meanwhile is read again the next time.
                found = _mark(self._archive / name)
                if self._still_bad(name, found):
                    looked[name] = found
                    return False
                # The rest at the next look: a first look at a large archive must not take an hour.
                room -= 1
                if room >= 0:
                    looked[name] = found
                return room >= 0

            on_their_way = verified_archive.on_their_way
            believe_hour(
                self._archive,
                hour,
                keys,
                verified_archive,
                now_unix_ns=now,
                pin=self._pins.pin,
                wanted=wanted,
                good_of=self._known.good_of,
            )
            calm = (
                len(verified_archive.quarantined) == before and verified_archive.on_their_way == on_their_way
            )
            if calm and room == left and not any(name.startswith(folder) for name in self._bad):
                self._known.sleep(folder, mark)
        self._seen = {name for name in self._seen if name in looked or name.rpartition("/")[0] in asleep}
        self._known.keep(asleep | {name.rpartition("/")[0] for name in looked})
        verified_archive.quarantined += [
            finding for name, (mark, finding) in self._bad.items() if name in looked and looked[name] == mark
        ]
        # In order of time, whoever counted them: the job takes them in this order, and must not let go of a window of
        # which another process's events still come.
        entries = sorted(verified_archive.entries, key=lambda entry: entry.max_at_unix_ns)
        parts = self._parts(entries)
        for at in range(0, len(parts), ENTRIES_AT_ONCE):
            some = parts[at : at + ENTRIES_AT_ONCE]
            write_index(some, self._index / f"{self._number + 1:08d}.jsonl")
            self._number += 1
            for part in some:
                self._coverage.add(part.stretch)
        found = set(verified_archive.quarantined)
        self._bad = {
            finding.path: (looked[finding.path], finding) for finding in found if finding.path in looked
        }
        self._seen |= looked.keys() - self._bad.keys()
        new = [finding for finding in verified_archive.quarantined if finding not in (self._told or ())]
        if found != self._told:
            # Not at every look: each report is a write to the disk that waits for it.
            write_report(verified_archive, self._report, now_unix_ns=now)
            self._told = found
        self._forget(now)
        return IndexStep(
            len({part.path for part in parts}),
            sum(part.stretch.rows for part in parts),
            tuple(new),
            self._number if parts else 0,
        )

    def _still_bad(self, name: str, mark: Mark) -> bool:
        """True for a quarantined file that did not change: another hash of it would say nothing new."""
        known = self._bad.get(name)
        return known is not None and known[0] == mark

    def _parts(self, entries: Sequence[IndexEntry]) -> list[IndexEntry]:
        """Events of these files that the index lacks; files of one look may overlap, too."""
        parts = []
        coming = Coverage({life: list(ranges) for life, ranges in self._coverage.lives.items()})
        for entry in entries:
            whole = entry.stretch
            for first, last in coming.missing(whole):
                stretch = EventRange(whole.instance, whole.epoch, first, last)
                parts.append(
                    IndexEntry(
                        entry.path,
                        stretch,
                        entry.min_at_unix_ns,
                        entry.max_at_unix_ns,
                        part=stretch != whole,
                    )
                )
            coming.add(whole)
        return parts

    # -- memory ------------------------------------------------------------------------------------------

    def _load(self) -> None:
        self._index.mkdir(parents=True, exist_ok=True)
        summary = self._folder / SUMMARY
        if summary.is_file():
            found: dict[str, Any] = orjson.loads(summary.read_bytes())
            self._number = int(found["through"])
            for instance, epoch, first, last in found["covered"]:
                self._coverage.add(EventRange(instance, epoch, first, last))
        for path in sorted(self._index.glob("*.jsonl")):
            for line in path.read_bytes().splitlines():
                entry = orjson.loads(line)
                self._coverage.add(
                    EventRange(entry["instance"], entry["epoch"], entry["first_seq"], entry["last_seq"])
                )
            self._number = max(self._number, int(path.stem))

    def _forget(self, now: int) -> None:
        """Fold index files that are a day old into a summary, and let go of the files that they named."""
        taken = self._taken()
        old = [
            path
            for path in sorted(self._index.glob("*.jsonl"))
            # What the job has not counted stays, however old: its next batch names it.
            if int(path.stem) <= taken and now - path.stat().st_mtime_ns > KEEP_NS
        ]
        if not old:
            return
        covered = [
            (instance, epoch, first, last)
            for (instance, epoch), ranges in self._coverage.lives.items()
            for first, last in ranges
        ]
        # The summary first: a kill in between leaves both, and covering twice is covering once.
        write_whole(self._folder / SUMMARY, orjson.dumps({"through": self._number, "covered": covered}))
        for path in old:
            path.unlink(missing_ok=True)
        kept = {
            Path(orjson.loads(line)["path"]).name
            for path in self._index.glob("*.jsonl")
            for line in path.read_bytes().splitlines()
        }
        self._pins.release(keep=kept)

    def _taken(self) -> int:
        """The last index file that the streaming job has counted for good."""
        try:
            return int(orjson.loads((self._folder / TAKEN).read_bytes())["through"])
        except (OSError, ValueError, KeyError, TypeError):
            return 0


def _mark(path: Path) -> Mark:
    try:
        found = path.stat()
    except OSError:
        return MISSING
    return found.st_mtime_ns, found.st_size, found.st_ino
