"""Manifests that were read and verified before, so that a look at an archive without news costs a few stats.

Never believes a manifest by its name alone: one that was written again is another file, and read again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from snavio.signed.archive_manifest import ArchiveManifest
from snavio.signed.verification import VerifyingKey
from snavio.telemetry.archive_inspection import ArchiveFinding, Hour, believed, hour_folders, read_one

TICK_NS: Final = 1_000_000_000
"""A folder that was changed as lately as this may change again without a new time of change."""

FolderMark = tuple[int, int, tuple[str, ...]]
"""A folder's time of change and inode, and the keys that were known."""


class KnownManifests:
    """One reader's memory of an archive."""

    def __init__(self, archive: Path) -> None:
        self._archive = archive
        self._asleep: dict[str, FolderMark] = {}
        self._read: dict[str, dict[tuple[str, int], tuple[ArchiveManifest, bytes]]] = {}
        self._good: dict[tuple[str, str, str], ArchiveManifest] = {}

    def folders(self, *, since: str) -> Iterator[str]:
        """The hours of the archive from this one on, oldest first."""
        return hour_folders(self._archive, since=since)

    def mark(self, folder: str, keys: Sequence[VerifyingKey]) -> FolderMark | None:
        """The folder as it is now; None if that does not last, because it was just changed."""
        try:
            found = (self._archive / folder).stat()
        except OSError:
            return None
        if time.time_ns() - found.st_mtime_ns < TICK_NS:
            return None
        return found.st_mtime_ns, found.st_ino, tuple(sorted(key.key_id for key in keys))

    def unchanged(self, folder: str, keys: Sequence[VerifyingKey]) -> bool:
        """True if nothing was added, taken away or renamed since it was put to sleep."""
        known = self._asleep.get(folder)
        return known is not None and self.mark(folder, keys) == known

    def sleep(self, folder: str, mark: FolderMark | None) -> None:
        """All of it was seen as it was at `mark`, and nothing in it waits for anything."""
        if mark is None:
            self._asleep.pop(folder, None)
        else:
            self._asleep[folder] = mark

    def hour(self, folder: str) -> Hour:
        """As `archive_inspection.hours` reads it, but each manifest once."""
        hour, before = Hour(folder), self._read.get(folder, {})
        kept: dict[tuple[str, int], tuple[ArchiveManifest, bytes]] = {}
        with os.scandir(self._archive / folder) as found:
            names = sorted(
                (entry.name, entry.inode()) for entry in found if entry.name.startswith("_manifest-")
            )
        for key in names:
            if not key[0].endswith(".json"):
                continue
            known = before.get(key) or read_one(self._archive / folder / key[0], folder)
            if isinstance(known, ArchiveFinding):
                hour.findings.append(known)
            else:
                kept[key] = known
                hour.manifests.append(known)
        self._read[folder] = kept
        return hour

    def good_of(
        self, hour: Hour, keys: Sequence[VerifyingKey]
    ) -> tuple[list[ArchiveManifest], list[ArchiveFinding]]:
        """As `archive_inspection.believed`, but each signature once for as long as its key is known."""
        ids = {key.key_id for key in keys}
        good: list[ArchiveManifest] = []
        rest = Hour(hour.folder, findings=hour.findings)
        for manifest, signed in hour.manifests:
            known = self._good.get((hour.folder, manifest.file_name, manifest.signature.hex()))
            if known is not None and known == manifest and manifest.key_id in ids:
                good.append(manifest)
            else:
                rest.manifests.append((manifest, signed))
        more, findings = believed(rest, keys)
        for manifest in more:
            self._good[hour.folder, manifest.file_name, manifest.signature.hex()] = manifest
        return [*good, *more], findings

    def keep(self, folders: set[str]) -> None:
        """Forget all others."""
        self._asleep = {folder: mark for folder, mark in self._asleep.items() if folder in folders}
        self._read = {folder: read for folder, read in self._read.items() if folder in folders}
        self._good = {key: manifest for key, manifest in self._good.items() if key[0] in folders}
