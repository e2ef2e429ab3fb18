"""Opens a SQLite store durably, of a known schema, and for one process.

Never opens a store of another program or of a newer Snavio, and never weakens `synchronous`: an acknowledged commit
survives a power cut. Never lets SQLite read a damaged log, of which it would take the sound part for the whole.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import apsw

from snavio.adapters.embedded.checksums import connect
from snavio.adapters.embedded.commit_mark import require_not_emptied
from snavio.adapters.embedded.files import fsync_folder
from snavio.adapters.embedded.write_ahead_log import wal_path, walk
from snavio.errors import IntegrityError, SnavioError, StateError, Unavailable, Unreadable

BUSY_TIMEOUT_MS = 5_000

Migrations = Mapping[int, Callable[[Any], None]]
"""By the schema version of a store: the step that migrates it to the next version, inside a transaction."""


class StoreLock:
    """The right to open `path`, held until `release` or the end of the process.

    Two owners would each keep caches and sequences that the other does not see. The lock is the kernel's, on
    `<path>.lock`, so a killed owner leaves none behind; the file itself stays, because deleting a lock file
    lets two processes lock two different files of the same name.
    """

    def __init__(self, path: Path) -> None:
        self._lock_path = path.with_name(path.name + ".lock")
        self._lock_path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._descriptor: int | None = os.open(self._lock_path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._descriptor)
            self._descriptor = None
            raise StateError(f"{path} is in use by another process.", reason="store-locked") from error

    def release(self) -> None:
        """Release the lock. Idempotent."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def open_store(
    path: Path,
    *,
    application_id: int,
    schema_version: int,
    create: Sequence[str],
    migrations: Migrations | None = None,
    page_size: int = 4096,
    in_use: bool = False,
) -> apsw.Connection:
    """A connection to the store at `path`, which is created with `create` in one transaction if absent.

    WAL, `synchronous=FULL`, checksums where the store was made with them, a busy timeout, foreign keys on. The
    caller holds the `StoreLock` and may open several connections under it, `in_use` from the second on. An older
    store is brought forward by `migrations`, in one transaction, or refused where there is no way. StateError for
    a store that is not ours or newer; IntegrityError for a damaged one, and for one whose log is damaged.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not in_use:
        require_not_emptied(path)
    if not path.exists():
        # SQLite would create it with the umask's mode; the write-ahead log inherits this one.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        fsync_folder(path.parent)
    if not in_use:
        # Beside a writing connection, the log can restart during the walk, and a whole log would look damaged.
        walk(path).require_whole()
        if not path.stat().st_size and (log := wal_path(path)).exists() and log.stat().st_size:
            # The first page is synced before there is a log. SQLite would delete the log and begin anew.
            raise IntegrityError(f"{path} is damaged: it is empty, and its log is not.")
    with store_errors(path):
        connection: apsw.Connection = connect(path)
        try:
            connection.set_busy_timeout(BUSY_TIMEOUT_MS)
            _check_or_create(
                connection,
                path=path,
                application_id=application_id,
                schema_version=schema_version,
                create=create,
                migrations=migrations or {},
                page_size=page_size,
            )
        except BaseException:
            connection.close()
            raise
    return connection


def _check_or_create(
    connection: Any,
    *,
    path: Path,
    application_id: int,
    schema_version: int,
    create: Sequence[str],
    migrations: Migrations,
    page_size: int,
) -> None:
    found_id, found_version = connection.pragma("application_id"), connection.pragma("user_version")
    empty = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone() == (0,)
    # Checked before anything is written: another program's database must stay exactly as it was.
    if not empty and found_id != application_id:
        raise StateError(f"{path} is a database of another program.", reason="foreign-store")
    if not empty and found_version > schema_version:
        raise StateError(
            f"{path} was written by a newer Snavio: schema {found_version}, we know {schema_version}.",
            reason="newer-store",
        )
    steps = [migrations.get(step) for step in range(found_version, schema_version)]
    if not empty and None in steps:
        raise StateError(
            f"{path} has schema {found_version} and this program has no way from it to {schema_version}.",
            reason="older-store",
        )
    if empty:
        connection.pragma("page_size", page_size)
    if connection.pragma("journal_mode", "wal") != "wal":
        raise StateError(f"{path} is on a file system that cannot hold a write-ahead log.", reason="no-wal")
    connection.pragma("synchronous", "FULL")
    # Pages that spill into the log before their commit are overwritten there, checksums last: a kill in between leaves
    # frames that look like flipped bits, and the store would be refused.
    connection.pragma("cache_spill", False)
    connection.pragma("foreign_keys", True)
    if empty:
        with connection:
            for statement in create:
                connection.execute(statement)
            connection.pragma("application_id", application_id)
            connection.pragma("user_version", schema_version)
    elif steps:
        with connection:
            for step in steps:
                assert step is not None
                step(connection)
            connection.pragma("user_version", schema_version)


@contextmanager
def store_errors(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into typed ones, in one sentence and without the statement's values."""
    try:
        yield
    except SnavioError:
        raise
    except (apsw.NotADBError, apsw.CorruptError) as error:
        raise IntegrityError(f"{path} is damaged: {type(error).__name__}.") from error
    except apsw.IOError as error:
        if getattr(error, "extendedresult", 0) == apsw.SQLITE_IOERR_DATA:
            raise IntegrityError(f"{path} is damaged: a page does not match its checksum.") from error
        if getattr(error, "extendedresult", 0) == apsw.SQLITE_IOERR_READ:
            raise Unreadable(f"{path} cannot be read now: {type(error).__name__}.") from error
        raise Unavailable(f"{path} cannot be written now: {type(error).__name__}.") from error
    except (apsw.BusyError, apsw.FullError, apsw.LockedError) as error:
        raise Unavailable(f"{path} cannot be written now: {type(error).__name__}.") from error
    except (apsw.CantOpenError, apsw.ReadOnlyError, apsw.PermissionsError) as error:
        raise StateError(f"{path} cannot be opened for writing: {type(error).__name__}.") from error
