"""Notes beside a store how many transactions were acknowledged, and how far its log reached then.

Without the note, damage to the very last transaction looks like the torn end of a crash, and a log or database that was
deleted or emptied like a new one. Never runs ahead of a synced commit, and never synced with each: after a power cut it
may be behind, and then finds less.
"""

from __future__ import annotations

import contextlib
import os
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from snavio.errors import IntegrityError

_FORM: Final = struct.Struct(">4s8sQQ")
_CHECK: Final = struct.Struct(">I")
_MAGIC: Final = b"snv1"
_SALTS_AT: Final = 16
_SALTS_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class CommitMark:
    """The content of a mark."""

    commits: int = 0
    """Transactions of the store that were acknowledged."""
    salts: bytes = b""
    """Of the log that the last of them is in."""
    log_end: int = 0
    """Where the last of them ends in that log, in bytes."""


def mark_path(store: Path) -> Path:
    """The path of the mark of the store at `store`."""
    return store.with_name(store.name + "-mark")


def read_mark(store: Path) -> CommitMark:
    """The mark of the store at `store`; without one, or with a damaged one, that of an empty store."""
    try:
        contents = mark_path(store).read_bytes()
    except FileNotFoundError:
        return CommitMark()
    # Damage here costs no message, and so keeps no mailbox from starting: the next commit writes it anew.
    if (
        len(contents) != _FORM.size + _CHECK.size
        or _CHECK.pack(zlib.crc32(contents[: _FORM.size])) != (contents[_FORM.size :])
    ):
        return CommitMark()
    magic, salts, log_end, commits = _FORM.unpack_from(contents)
    return CommitMark(commits, salts, log_end) if magic == _MAGIC else CommitMark()


def require_not_emptied(store: Path) -> None:
    """IntegrityError for a store without a byte that has a mark: SQLite would make it anew."""
    mark = mark_path(store)
    if _size(mark) and not _size(store):
        found = "empty" if store.exists() else "missing"
        raise IntegrityError(
            f"{store} is damaged: it is {found}, and {mark.name} says that it was not. Stop the mesh; then "
            f"`snavio restore` brings a backup back. To begin with an empty store, remove {mark} too."
        )


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


class MarkWriter:
    """Writes the mark of one store; one thread at a time. Its owner holds the store's lock."""

    def __init__(self, store: Path, *, commits: int) -> None:
        """IntegrityError when the store has fewer than the transactions that its mark tells."""
        marked = read_mark(store).commits
        if commits < marked:
            raise IntegrityError(
                f"{store} is damaged: its last {marked - commits} acknowledged transactions are gone, with its log "
                "or with part of it. Stop the mesh; then `snavio restore` brings a backup back, or "
                "`snavio store rescue` keeps what is there."
            )
        self._store = store
        self._mark = os.open(mark_path(store), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._log: int | None = None

    def committed(self, commits: int, *, log: Path, log_end: int) -> None:
        """Note a transaction that is durable. Its failure is passed over: the mark before it is true as well."""
        with contextlib.suppress(OSError):
            if self._log is None:
                # One file for as long as the store is open: SQLite writes a log over and never replaces it.
                self._log = os.open(log, os.O_RDONLY | os.O_CLOEXEC)
            salts = os.pread(self._log, _SALTS_BYTES, _SALTS_AT)
            contents = _FORM.pack(_MAGIC, salts, log_end, commits)
            os.pwrite(self._mark, contents + _CHECK.pack(zlib.crc32(contents)), 0)

    def close(self) -> None:
        """Make the mark durable and close it."""
        with contextlib.suppress(OSError):
            os.fdatasync(self._mark)
        for descriptor in (self._mark, self._log):
            if descriptor is not None:
                with contextlib.suppress(OSError):
                    os.close(descriptor)
