"""The index: which files of the archive Spark may read, and which of their events; JSON lines.

Never names a file that was not verified, and never the same event twice within one index of a running job.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, Self

import orjson

from snavio.durable_files import fsync_folder
from snavio.signed.archive_manifest import EventRange, FileEntry

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """Events of one verified file: `stretch` of them, which is all of it unless `part`."""

    path: Path
    stretch: EventRange
    min_at_unix_ns: int
    max_at_unix_ns: int
    part: bool = False

    @classmethod
    def of(cls, path: Path, file: FileEntry) -> Self:
        """The whole of a file."""
        return cls(path, file.stretch, file.min_at_unix_ns, file.max_at_unix_ns)

    def line(self) -> bytes:
        """As `spark/read.py` reads it."""
        first, last = self.stretch.first_seq, self.stretch.last_seq
        document: dict[str, Any] = {
            "path": str(self.path),
            "instance": self.stretch.instance,
            "epoch": self.stretch.epoch,
            "first_seq": first,
            "last_seq": last,
            "min_at": moment(self.min_at_unix_ns),
            "max_at": moment(self.max_at_unix_ns),
        }
        if self.part:
            document |= {"after_seq": first - 1, "through_seq": last}
        return orjson.dumps(document, option=orjson.OPT_APPEND_NEWLINE)


@dataclass(slots=True)
class Coverage:
    """Which events of which lives are in the index already, as ranges that neither touch nor overlap."""

    lives: dict[tuple[str, int], list[tuple[int, int]]] = field(default_factory=dict)

    def missing(self, stretch: EventRange) -> list[tuple[int, int]]:
        """The ranges of `stretch` that are not covered yet."""
        found, at = [], stretch.first_seq
        for first, last in self.lives.get((stretch.instance, stretch.epoch), ()):
            if last < at:
                continue
            if first > stretch.last_seq:
                break
            if first > at:
                found.append((at, first - 1))
            at = last + 1
        if at <= stretch.last_seq:
            found.append((at, stretch.last_seq))
        return found

    def add(self, stretch: EventRange) -> None:
        """These events are covered."""
        life = (stretch.instance, stretch.epoch)
        merged: list[tuple[int, int]] = []
        for first, last in sorted([*self.lives.get(life, ()), (stretch.first_seq, stretch.last_seq)]):
            if merged and first <= merged[-1][1] + 1:
                merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
            else:
                merged.append((first, last))
        self.lives[life] = merged


def write_index(entries: Iterable[IndexEntry], path: Path) -> int:
    """The index in one file, whole or not at all; how many entries."""
    lines = [entry.line() for entry in entries]
    write_whole(path, b"".join(lines))
    return len(lines)


def write_whole(path: Path, contents: bytes) -> None:
    """A file that is there with all of its contents, on disk, or not there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # Two writers of one name must not write into one another's file.
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with fresh.open("wb") as out:
            out.write(contents)
            out.flush()
            os.fsync(out.fileno())
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)
    fsync_folder(path.parent)


def moment(unix_ns: int) -> str:
    """A time as every reader of JSON understands it."""
    return (_EPOCH + timedelta(microseconds=unix_ns // 1000)).isoformat()
