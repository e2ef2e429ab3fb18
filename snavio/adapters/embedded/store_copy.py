"""Copies a SQLite store while its owner may be writing, and verifies the copy by reading it.

The reader is one more connection in another process: SQLite's snapshot for it is one moment of the store. Never writes
to the source, never checkpoints or removes its log, and never reports a copy as good that was not read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import apsw

from snavio.adapters.embedded.checksums import RESERVED_BYTES, connect, reserved_bytes
from snavio.adapters.embedded.commit_mark import read_mark
from snavio.adapters.embedded.files import fsync_folder
from snavio.adapters.embedded.sqlite import BUSY_TIMEOUT_MS, StoreLock, store_errors
from snavio.adapters.embedded.write_ahead_log import walk
from snavio.errors import IntegrityError, StateError

STEP_PAGES: Final = 4096
MAX_FAULTS: Final = 20


@contextmanager
def reading(path: Path) -> Iterator[Any]:
    """A read-only connection to the store at `path`, also while its owner runs."""
    with store_errors(path):
        connection: Any = connect(path, flags=apsw.SQLITE_OPEN_READONLY)
        try:
            # As the last to close, SQLite would copy the log into the file and delete it, under its owner's feet.
            connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            connection.set_busy_timeout(BUSY_TIMEOUT_MS)
            yield connection
        finally:
            connection.close()


@contextmanager
def unowned(path: Path) -> Iterator[bool]:
    """Hold the store's lock if it is free; False while its owner runs."""
    try:
        lock = StoreLock(path)
    except StateError:
        yield False
        return
    with lock:
        yield True


def copy_database(source: Path, target: Path) -> None:
    """Copy the store at `source` to the new file `target`, durably, as it is at one moment. Raises IntegrityError."""
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    os.close(os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    with ExitStack() as opened:
        with unowned(source) as stopped:
            if stopped:
                # A running owner has looked before it opened it, and its log changes while one walks over it.
                walk(source).require_whole()
            connection = opened.enter_context(reading(source))
            # One transaction around all steps: another process's commit would start the copy anew, for ever.
            connection.execute("BEGIN")
            connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        # From here on it is a reader like any other, and keeps no owner from starting, however long it copies.
        opened.enter_context(store_errors(target))
        checked = reserved_bytes(source) == RESERVED_BYTES
        copy: Any = connect(target) if checked else apsw.Connection(str(target))
        try:
            # The checksum VFS learns from the first page that there are checksums, and the backup writes that one last.
            # Of a store beyond SQLite's cache, pages from the source's log would be written before, and look damaged.
            size = connection.execute("PRAGMA page_size").fetchone()[0]
            copy.execute(f"PRAGMA page_size = {size:d}; PRAGMA user_version = 0")
            with copy.backup("main", connection, "main") as backup:
                while not backup.done:
                    backup.step(STEP_PAGES)
            connection.execute("ROLLBACK")
        finally:
            copy.close()
    descriptor = os.open(target, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    fsync_folder(target.parent)
    if faults := faults_of(target):
        raise IntegrityError(f"The copy of {source} is not whole: {faults[0]}.")


def settle(path: Path) -> None:
    """Have SQLite move the copy's log into its one file at `path`, so that no log is left beside it."""
    with store_errors(path):
        connection: Any = connect(path)
        try:
            connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        finally:
            connection.close()


def faults_of(path: Path) -> list[str]:
    """Read every page of the store at `path`: the first faults that SQLite and the page checksums report."""
    if not path.stat().st_size:
        # SQLite takes it for a new one, in which nothing is wrong.
        return [f"{path} is empty"]
    try:
        with reading(path) as connection:
            found = connection.execute(f"PRAGMA integrity_check({MAX_FAULTS})").fetchall()
    except IntegrityError as error:
        return [str(error).rstrip(".")]
    return [str(row[0]) for row in found if row[0] != "ok"]


def lost_commits(path: Path) -> int:
    """Acknowledged transactions that the mark of the store at `path` tells and the store does not have."""
    # First: a running owner goes on meanwhile, and never notes what is not there.
    marked = read_mark(path).commits
    if not marked or not path.stat().st_size:
        return 0
    with reading(path) as connection:
        ((commits,),) = connection.execute("SELECT commits FROM counters").fetchall()
    return max(0, marked - int(commits))
