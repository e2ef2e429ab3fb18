"""The mailbox's SQLite file: one connection commits, some read, one does housekeeping beside them.

Never checkpoints on the committing connection: that would put SQLite's whole log into one sender's latency.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw

from snavio.adapters.embedded.commit_mark import MarkWriter
from snavio.adapters.embedded.mailbox_rows import APPLICATION_ID, CREATE, MIGRATIONS, SCHEMA_VERSION
from snavio.adapters.embedded.reader_pool import ReaderPool
from snavio.adapters.embedded.sqlite import open_store, store_errors
from snavio.adapters.embedded.write_ahead_log import FRAME_HEADER_BYTES, HEADER_BYTES, wal_path
from snavio.errors import Saturated

PAGE_SIZE = 4096
FRAME_BYTES = FRAME_HEADER_BYTES + PAGE_SIZE
# Small, so that the log is soon written over instead of growing: that makes its sync cheaper.
CHECKPOINT_BYTES = 4 << 20
COMPLAINT_BYTES = 256 << 20
HOUSEKEEPING_WAIT_MS = 50
CLOSE_WAIT_S = 2.0
FULL_RETRY_MS = 1000


class MailboxDatabase:
    """The caller holds the StoreLock. `survey` and `copy_log` are the housekeeping thread's, the rest anybody's."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._writing = threading.Lock()
        self._log_pages = 0
        self._connections: list[Any] = []
        self._log_path = wal_path(path)
        try:
            self._writer = self._owned()
            with store_errors(path):
                ((self._commits,),) = self._writer.execute("SELECT commits FROM counters").fetchall()
            # Before anything is written, and without moving what is left of the log: a store that has lost commits
            # stays as it is.
            self._writer.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            self._mark = MarkWriter(path, commits=self._commits)
            self._writer.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)
            self._housekeeper = self._owned()
            self._readers = ReaderPool(self._connect)
            with store_errors(path):
                self._writer.set_wal_hook(self._committed)
                # It waits while it keeps the commits out.
                self._housekeeper.set_busy_timeout(HOUSEKEEPING_WAIT_MS)
        except BaseException:
            self.close()
            raise

    def _connect(self) -> Any:
        connection = open_store(
            self._path,
            application_id=APPLICATION_ID,
            schema_version=SCHEMA_VERSION,
            create=CREATE,
            migrations=MIGRATIONS,
            page_size=PAGE_SIZE,
            in_use=bool(self._connections),
        )
        connection.wal_autocheckpoint(0)
        return connection

    def _owned(self) -> Any:
        connection = self._connect()
        self._connections.append(connection)
        return connection

    def _committed(self, _connection: object, _name: str, log_pages: int) -> int:
        self._log_pages = log_pages
        return 0

    @property
    def log_bytes(self) -> int:
        """Of SQLite's log, after the last commit."""
        return self._log_pages * PAGE_SIZE

    @contextmanager
    def transaction(self, *, undone: Callable[[], None]) -> Iterator[Any]:
        """All or nothing, durable at its end; `undone` is called when it failed and cannot come to light.

        After a failed sync it can: the next start may find it whole in the log. Saturated when there is no
        space, Unavailable when the disk failed.
        """
        committing = False
        with self._writing, store_errors(self._path):
            try:
                self._writer.execute("BEGIN IMMEDIATE")
                yield self._writer
                self._writer.execute("UPDATE counters SET commits = ?", (self._commits + 1,))
                committing = True
                self._writer.execute("COMMIT")
                self._note_commit()
            except BaseException as error:
                if self._writer.in_transaction:
                    self._writer.execute("ROLLBACK")
                full = isinstance(error, apsw.FullError)
                if full or not committing:
                    undone()
                if full:
                    raise Saturated(f"{self._path} is full.", retry_after_ms=FULL_RETRY_MS) from error
                raise

    def _note_commit(self) -> None:
        self._commits += 1
        # Before the sender has its answer: from here on, the transaction must be there at the next start.
        log_end = HEADER_BYTES + self._log_pages * FRAME_BYTES
        self._mark.committed(self._commits, log=self._log_path, log_end=log_end)

    def rows(self, statement: str, values: tuple[object, ...] = ()) -> list[Any]:
        """Everything that a SELECT finds in what is committed."""
        with store_errors(self._path), self._readers.reader() as reader:
            found: list[Any] = reader.execute(statement, values).fetchall()
        return found

    def survey(self, statement: str, values: tuple[object, ...] = ()) -> list[Any]:
        """As `rows`, without keeping readers waiting."""
        with store_errors(self._path):
            found: list[Any] = self._housekeeper.execute(statement, values).fetchall()
        return found

    def used_bytes(self) -> int:
        """Of the database; free pages do not count, they are there for rows to come."""
        ((pages,),), ((free,),) = self.survey("PRAGMA page_count"), self.survey("PRAGMA freelist_count")
        return int(pages - free) * PAGE_SIZE

    def copy_log(self, *, at_once: bool) -> None:
        """Once SQLite's log is large, or `at_once`, copy it into the database and start it anew."""
        if self.log_bytes < CHECKPOINT_BYTES and not at_once:
            return
        with store_errors(self._path):
            try:
                self._housekeeper.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
                # Under steady load that never catches up with the commits: they wait for the little that is
                # left, or the log would grow until the disk is full.
                with self._readers.shut_out(HOUSEKEEPING_WAIT_MS / 1000) as empty:
                    if not empty:
                        # Commits must not wait for a read that hangs.
                        raise apsw.BusyError("a reader is in the way")
                    with self._writing:
                        self._housekeeper.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_RESTART)
            except apsw.BusyError:
                # A reader is in the way: next time. But a log that only grows must not do so in silence.
                if self.log_bytes > COMPLAINT_BYTES:
                    raise

    def close(self) -> None:
        """Nothing is called after this."""
        with self._writing:
            if hasattr(self, "_readers"):
                with self._readers.shut_out(CLOSE_WAIT_S):
                    self._readers.close()
            for connection in reversed(self._connections):
                connection.close()
            if hasattr(self, "_mark"):
                self._mark.close()
