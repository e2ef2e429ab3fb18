"""Relay's outbox in one SQLite file: pages as blobs, many to a transaction, each with its checksum.

Never acknowledges before the commit is on disk, and never grows past its bound: Saturated when it is full.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Self

from snavio.adapters.embedded.sqlite import Migrations, StoreLock, open_store, store_errors
from snavio.errors import IntegrityError, Saturated
from snavio.host.store_worker import StoreWorker
from snavio.native import blake3_digest
from snavio.ports.outbox import (
    Cursor,
    JournalLife,
    NewPage,
    PageInfo,
    PlannedExport,
    RevokedRight,
    UncutPage,
)

APPLICATION_ID: Final = 0x534E4F42
SCHEMA_VERSION: Final = 3
# Lives of one process name that are remembered after they have ended.
KEPT_LIVES: Final = 16

# Pages that are archived and not cut yet. Not a column of `page`: to change one, SQLite writes the whole blob again.
_ARCHIVED: Final = "CREATE TABLE archived (page INTEGER PRIMARY KEY)"
_CREATE: Final = (
    "CREATE TABLE life (instance TEXT NOT NULL, epoch INTEGER NOT NULL, service TEXT NOT NULL,"
    " durable_seq INTEGER NOT NULL, closed INTEGER NOT NULL, heard_unix_ns INTEGER NOT NULL DEFAULT 0,"
    " PRIMARY KEY (instance, epoch)) WITHOUT ROWID",
    "CREATE TABLE page (id INTEGER PRIMARY KEY, instance TEXT NOT NULL, epoch INTEGER NOT NULL,"
    " first_seq INTEGER NOT NULL, last_seq INTEGER NOT NULL, stored_unix_ns INTEGER NOT NULL,"
    " size INTEGER NOT NULL, digest BLOB NOT NULL, body BLOB NOT NULL)",
    "CREATE TABLE export (number INTEGER PRIMARY KEY, exported_unix_ns INTEGER NOT NULL, folder TEXT NOT NULL)",
    "CREATE TABLE export_page (number INTEGER NOT NULL, page INTEGER NOT NULL, PRIMARY KEY (number, page))"
    " WITHOUT ROWID",
    "CREATE TABLE hour (folder TEXT PRIMARY KEY) WITHOUT ROWID",
    "CREATE TABLE grave (source TEXT NOT NULL, target TEXT NOT NULL, name TEXT NOT NULL, version INTEGER NOT NULL,"
    " revoked_unix_ns INTEGER NOT NULL, PRIMARY KEY (source, target, name, version)) WITHOUT ROWID",
    "CREATE TABLE state (key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID",
    _ARCHIVED,
)


def _note_when_lives_were_heard_of(connection: Any) -> None:
    connection.execute("ALTER TABLE life ADD COLUMN heard_unix_ns INTEGER NOT NULL DEFAULT 0")
    # Counted from now: a writer of unknown age must not look long gone.
    connection.execute("UPDATE life SET heard_unix_ns = CAST(strftime('%s', 'now') AS INTEGER) * 1000000000")


def _note_what_is_archived(connection: Any) -> None:
    # Archived pages were deleted until now, so none of those here is.
    connection.execute(_ARCHIVED)


_MIGRATIONS: Final[Migrations] = {1: _note_when_lives_were_heard_of, 2: _note_what_is_archived}


class SqliteOutbox:
    """An `Outbox`."""

    def __init__(self, path: Path, lock: StoreLock, connection: Any, *, max_bytes: int) -> None:
        self._path = path
        self._lock = lock
        self._connection = connection
        self._max_bytes = max_bytes
        self._worker = StoreWorker("outbox", timeout_s=30.0)
        found = connection.execute("SELECT coalesce(sum(size), 0), coalesce(max(id), 0) FROM page").fetchone()
        self._bytes: int = found[0]
        # Ids never come again, not even those of pages that were archived: a plan names pages by them.
        self._last_id: int = max(found[1], self._state("last_page"))

    @classmethod
    async def open(cls, path: Path, *, max_bytes: int) -> Self:
        """Open or create; StateError when another process has it."""
        lock = StoreLock(path)
        try:
            connection = open_store(
                path,
                application_id=APPLICATION_ID,
                schema_version=SCHEMA_VERSION,
                create=_CREATE,
                migrations=_MIGRATIONS,
            )
        except BaseException:
            lock.release()
            raise
        return cls(path, lock, connection, max_bytes=max_bytes)

    async def lives(self) -> list[JournalLife]:
        def read() -> list[JournalLife]:
            rows = self._all(
                "SELECT instance, epoch, service, durable_seq, closed, heard_unix_ns FROM life ORDER BY epoch"
            )
            return [JournalLife(row[0], row[1], row[2], row[3], bool(row[4]), row[5]) for row in rows]

        return await self._worker.run(read)

    async def forget_lives(self, *, before_unix_ns: int) -> int:
        def write() -> int:
            with store_errors(self._path), self._connection:
                self._execute(
                    "DELETE FROM life WHERE heard_unix_ns < ? AND NOT EXISTS"
                    " (SELECT 1 FROM page WHERE page.instance = life.instance AND page.epoch = life.epoch)",
                    (before_unix_ns,),
                )
                return int(self._connection.changes())

        return await self._worker.run(write)

    async def pages(self) -> list[PageInfo]:
        def read() -> list[PageInfo]:
            rows = self._all(
                "SELECT id, page.instance, page.epoch, coalesce(service, ''), first_seq, last_seq, stored_unix_ns,"
                " size FROM page LEFT JOIN life USING (instance, epoch)"
                " WHERE id NOT IN (SELECT page FROM archived) ORDER BY id"
            )
            return [PageInfo(*row) for row in rows]

        return await self._worker.run(read)

    async def store(self, pages: Sequence[NewPage], lives: Sequence[JournalLife]) -> list[int]:
        if self._bytes + sum(len(page.body) for page in pages) > self._max_bytes:
            raise Saturated("The outbox is full.", retry_after_ms=500)
        return await self._write(pages, lives)

    async def bodies(self, page_ids: Sequence[int]) -> list[bytes]:
        def read() -> list[bytes]:
            found = []
            with store_errors(self._path):
                for page in page_ids:
                    row = self._connection.execute(
                        "SELECT body, digest FROM page WHERE id = ?", (page,)
                    ).fetchone()
                    if row is None or blake3_digest(row[0]) != row[1]:
                        raise IntegrityError(f"Page {page} of {self._path} is damaged.")
                    found.append(row[0])
            return found

        return await self._worker.run(read)

    async def plan(self, exported_unix_ns: int, folder: str, pages: Sequence[int]) -> PlannedExport:
        def write() -> PlannedExport:
            with store_errors(self._path), self._connection:
                number = self._next_number()
                self._execute("INSERT INTO export VALUES (?, ?, ?)", (number, exported_unix_ns, folder))
                self._connection.executemany(
                    "INSERT INTO export_page VALUES (?, ?)", [(number, page) for page in pages]
                )
            return PlannedExport(number, exported_unix_ns, folder, tuple(pages))

        return await self._worker.run(write)

    async def planned(self) -> list[PlannedExport]:
        def read() -> list[PlannedExport]:
            exports = self._all("SELECT number, exported_unix_ns, folder FROM export ORDER BY number")
            return [
                PlannedExport(
                    export[0],
                    export[1],
                    export[2],
                    tuple(
                        row[0]
                        for row in self._all(
                            "SELECT page FROM export_page WHERE number = ? ORDER BY page", (export[0],)
                        )
                    ),
                )
                for export in exports
            ]

        return await self._worker.run(read)

    async def finish(
        self, number: int, *, newest_unix_ns: int, pages: Sequence[NewPage], lives: Sequence[JournalLife]
    ) -> list[int]:
        def forget() -> int:
            cut = self._state("cut")
            freed = self._delete(
                "id IN (SELECT page FROM export_page WHERE number = ? AND page <= ?)", (number, cut)
            )
            self._execute(
                "INSERT OR IGNORE INTO archived SELECT page FROM export_page WHERE number = ? AND page > ?",
                (number, cut),
            )
            self._execute("INSERT OR IGNORE INTO hour SELECT folder FROM export WHERE number = ?", (number,))
            self._execute("DELETE FROM export_page WHERE number = ?", (number,))
            self._execute("DELETE FROM export WHERE number = ?", (number,))
            self._set_state("exported_until", max(newest_unix_ns, self._state("exported_until")))
            return freed

        return await self._write(pages, lives, also=forget)

    async def uncut(self, after: int, *, max_bytes: int) -> list[UncutPage]:
        def read() -> list[UncutPage]:
            found: list[UncutPage] = []
            size = 0
            with store_errors(self._path):
                rows = self._connection.execute(
                    "SELECT id, instance, epoch, last_seq - first_seq + 1, size, digest, body FROM page"
                    " WHERE id > ? ORDER BY id",
                    (after,),
                )
                for row in rows:
                    size += row[4]
                    if found and size > max_bytes:
                        break
                    body = row[6] if blake3_digest(row[6]) == row[5] else None
                    found.append(UncutPage(row[0], row[1], row[2], row[3], body))
            return found

        return await self._worker.run(read)

    async def forget(self, cut_through: int) -> None:
        def write() -> None:
            with store_errors(self._path), self._connection:
                freed = self._delete("id IN (SELECT page FROM archived WHERE page <= ?)", (cut_through,))
                self._execute("DELETE FROM archived WHERE page <= ?", (cut_through,))
                self._set_state("cut", cut_through)
            self._bytes -= freed

        await self._worker.run(write)

    async def last_page(self) -> int:
        return await self._worker.run(lambda: self._last_id)

    async def number(self) -> int:
        def write() -> int:
            with store_errors(self._path), self._connection:
                return self._next_number()

        return await self._worker.run(write)

    async def hours(self) -> list[str]:
        return await self._worker.run(
            lambda: [row[0] for row in self._all("SELECT folder FROM hour ORDER BY folder")]
        )

    async def compacted(self, folder: str) -> None:
        def write() -> None:
            with store_errors(self._path), self._connection:
                self._execute("DELETE FROM hour WHERE folder = ?", (folder,))

        await self._worker.run(write)

    async def cursor(self) -> Cursor:
        return await self._worker.run(
            lambda: Cursor(self._state("directory_epoch"), self._state("directory_version"))
        )

    async def revoked_rights(self) -> list[RevokedRight]:
        return await self._worker.run(
            lambda: [RevokedRight(*row) for row in self._all("SELECT * FROM grave ORDER BY version")]
        )

    async def remember_revoked(
        self,
        rights: Sequence[RevokedRight],
        cursor: Cursor,
        *,
        forget_before_unix_ns: int,
        pages: Sequence[NewPage] = (),
        lives: Sequence[JournalLife] = (),
    ) -> list[int]:
        def remember() -> int:
            self._connection.executemany(
                "INSERT OR REPLACE INTO grave VALUES (?, ?, ?, ?, ?)",
                [
                    (right.source, right.target, right.name, right.version, right.revoked_unix_ns)
                    for right in rights
                ],
            )
            self._execute("DELETE FROM grave WHERE revoked_unix_ns < ?", (forget_before_unix_ns,))
            self._set_state("directory_epoch", cursor.epoch)
            self._set_state("directory_version", cursor.version)
            return 0

        return await self._write(pages, lives, also=remember)

    async def exported_until_unix_ns(self) -> int:
        return await self._worker.run(lambda: self._state("exported_until"))

    async def close(self) -> None:
        def last() -> None:
            self._connection.close()
            self._lock.release()

        await self._worker.close(last)

    # -- on the worker's thread ------------------------------------------------------------------------

    async def _write(
        self, pages: Sequence[NewPage], lives: Sequence[JournalLife], *, also: Any = None
    ) -> list[int]:
        def write() -> list[int]:
            freed = 0
            ids = list(range(self._last_id + 1, self._last_id + 1 + len(pages)))
            with store_errors(self._path), self._connection:
                if also is not None:
                    freed = also()
                self._insert(ids, pages)
                for life in lives:
                    self._put_life(life)
                if ids:
                    self._set_state("last_page", ids[-1])
            self._last_id += len(ids)
            self._bytes += sum(len(page.body) for page in pages) - freed
            return ids

        return await self._worker.run(write)

    def _insert(self, ids: Sequence[int], pages: Sequence[NewPage]) -> None:
        self._connection.executemany(
            "INSERT INTO page VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [
                (
                    page_id,
                    page.instance,
                    page.epoch,
                    page.first_seq,
                    page.last_seq,
                    page.stored_unix_ns,
                    len(page.body),
                    blake3_digest(page.body),
                    page.body,
                )
                for page_id, page in zip(ids, pages, strict=True)
            ],
        )

    def _delete(self, which: str, values: tuple[Any, ...]) -> int:
        """The bytes of the pages that were deleted; `which` is the program's own SQL, never a caller's."""
        gone = self._execute(f"SELECT coalesce(sum(size), 0) FROM page WHERE {which}", values)  # noqa: S608
        freed: int = gone.fetchone()[0]
        self._execute(f"DELETE FROM page WHERE {which}", values)  # noqa: S608
        return freed

    def _put_life(self, life: JournalLife) -> None:
        self._execute(
            "INSERT OR REPLACE INTO life VALUES (?, ?, ?, ?, ?, ?)",
            (
                life.instance,
                life.epoch,
                life.service,
                life.durable_seq,
                int(life.closed),
                life.heard_unix_ns,
            ),
        )
        self._execute(
            "DELETE FROM life WHERE instance = ? AND closed AND epoch NOT IN"
            " (SELECT epoch FROM life WHERE instance = ? ORDER BY epoch DESC LIMIT ?)"
            " AND NOT EXISTS (SELECT 1 FROM page WHERE page.instance = life.instance AND page.epoch = life.epoch)",
            (life.instance, life.instance, KEPT_LIVES),
        )

    def _next_number(self) -> int:
        number = self._state("last_export") + 1
        self._set_state("last_export", number)
        return number

    def _state(self, key: str) -> int:
        row = self._execute("SELECT value FROM state WHERE key = ?", (key,)).fetchone()
        return 0 if row is None else row[0]

    def _set_state(self, key: str, value: int) -> None:
        self._execute("INSERT OR REPLACE INTO state VALUES (?, ?)", (key, value))

    def _all(self, statement: str, values: tuple[Any, ...] = ()) -> list[Any]:
        with store_errors(self._path):
            found: list[Any] = self._execute(statement, values).fetchall()
        return found

    def _execute(self, statement: str, values: tuple[Any, ...] = ()) -> Any:
        return self._connection.execute(statement, values)
