"""Plans which files of an hour become one, and which manifests list them.

Never plans what readers refuse: a file, or a manifest with its names, beyond the bounds that they read within.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from snavio.signed import archive_manifest as bounds
from snavio.signed.archive_manifest import ArchiveManifest, EventRange, FileEntry

# Between half a million and a million rows a file; from so many on, a file is left alone.
MAX_ROWS: Final = 1_000_000
LARGE_ROWS: Final = 500_000
MAX_FILE_BYTES: Final = 512 << 20
# The longest that one entry, one name and all the rest of a manifest can be as JSON.
ENTRY_BYTES: Final = 768
NAME_BYTES: Final = 144
FRAME_BYTES: Final = 1024


@dataclass(frozen=True, slots=True)
class Merged:
    """Files that are valid from now on, and the names of those that they replace."""

    files: tuple[FileEntry, ...]
    replaces: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """Upper bound of the bytes that this takes in a manifest."""
        return len(self.files) * ENTRY_BYTES + len(self.replaces) * NAME_BYTES


def groups(files: Sequence[FileEntry]) -> Iterator[list[FileEntry]]:
    """Files that become one: consecutive, of one life, up to the size of a file and of its manifest."""
    most_names = max(1, (_most_bytes() - FRAME_BYTES - ENTRY_BYTES) // NAME_BYTES)
    group: list[FileEntry] = []
    for file in sorted(files, key=lambda file: file.stretch):
        if group:
            last, rows = group[-1].stretch, sum(member.stretch.rows for member in group)
            follows = (last.instance, last.epoch, last.last_seq + 1) == (
                file.stretch.instance,
                file.stretch.epoch,
                file.stretch.first_seq,
            )
            # Joined, dictionaries may grow; half of the bound leaves room for that.
            large = sum(member.size for member in group) + file.size > MAX_FILE_BYTES // 2
            full = rows + file.stretch.rows > MAX_ROWS or rows >= LARGE_ROWS or len(group) >= most_names
            if not follows or large or full:
                yield group
                group = []
        group.append(file)
    if group:
        yield group


def portioned(merged: Iterable[Merged]) -> Iterator[list[Merged]]:
    """Cut into parts of which each fits into one manifest."""
    part: list[Merged] = []
    files, size = 0, FRAME_BYTES
    for each in merged:
        files, size = files + len(each.files), size + each.size
        if part and (files > bounds.MAX_FILES or size > _most_bytes()):
            yield part
            part, files, size = [], len(each.files), FRAME_BYTES + each.size
        part.append(each)
    if part:
        yield part


def carried_over(heir: ArchiveManifest) -> bool:
    """True if every event of the replaced files lies within a file of the same manifest, by number."""
    stretches = [file.stretch for file in heir.files]
    replaced = [EventRange.of_file(name) for name in heir.replaces]
    return all(one is not None and any(_within(one, each) for each in stretches) for one in replaced)


def _within(one: EventRange, other: EventRange) -> bool:
    same = (one.instance, one.epoch) == (other.instance, other.epoch)
    return same and other.first_seq <= one.first_seq and one.last_seq <= other.last_seq


def _most_bytes() -> int:
    return min(bounds.MAX_MANIFEST_BYTES, bounds.MAX_SIGNED_BYTES)
