"""Relay's outbox in one SQLite file: pages as blobs, many to a transaction, each with its checksum.

Never acknowledges before the commit is on disk, and never grows past its bound: Saturated when it is full.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import astuple
from pathlib import Path
from typing import Any, Final

from snavio.adapters.embedded.sqlite import Migrations
from snavio.adapters.embedded.store_file import StoreFile
from snavio.errors import IntegrityError, Saturated
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
SCHEMA_VERSION: Final = 4
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
    "CREATE TABLE revoked (source TEXT NOT NULL, target TEXT NOT NULL, name TEXT NOT NULL, version INTEGER NOT NULL,"
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


def _name_revoked_rights(connection: Any) -> None:
    connection.execute("ALTER TABLE grave RENAME TO revoked")


_MIGRATIONS: Final[Migrations] = {
    1: _note_when_lives_were_heard_of,
    2: _note_what_is_archived,
    3: _name_revoked_rights,
}


class SqliteOutbox:
    """An `Outbox`."""

    def __init__(self, file: StoreFile, *, max_bytes: int) -> None:
        self._file = file
        self._connection = file.connection
        self._max_bytes = max_bytes
        found = self._execute("SELECT coalesce(sum(size), 0), coalesce(max(id), 0) FROM page").fetchone()
        self._bytes: int = found[0]
        # Ids never come again, not even those of pages that were archived: a plan names pages by them.
        self._last_id: int = max(found[1], self._state("last_page"))

    @staticmethod
    async def open(path: Path, *, max_bytes: int) -> SqliteOutbox:
        """Open or create; StateError when another process has it."""
        return await StoreFile.open(
            path,
            name="outbox",
            application_id=APPLICATION_ID,
            schema_version=SCHEMA_VERSION,
            schema=_CREATE,
            migrations=_MIGRATIONS,
            begin=lambda file: SqliteOutbox(file, max_bytes=max_bytes),
            timeout_s=30.0,
        )

    async def lives(self) -> list[JournalLife]:
        rows = await self._rows(
            "SELECT instance, epoch, service, durable_seq, closed, heard_unix_ns FROM life ORDER BY epoch"
        )
        return [JournalLife(row[0], row[1], row[2], row[3], bool(row[4]), row[5]) for row in rows]

    async def forget_lives(self, *, before_unix_ns: int) -> int:
        def write(connection: Any) -> int:
            self._execute(
                "DELETE FROM life WHERE heard_unix_ns < ? AND NOT EXISTS"
                " (SELECT 1 FROM page WHERE page.instance = life.instance AND page.epoch = life.epoch)",
                (before_unix_ns,),
            )
            return int(connection.changes())

        return await self._file.transaction(write)

    async def pages(self) -> list[PageInfo]:
        rows = await self._rows(
            "SELECT id, page.instance, page.epoch, coalesce(service, ''), first_seq, last_seq, stored_unix_ns,"
            " size FROM page LEFT JOIN life USING (instance, epoch)"
            " WHERE id NOT IN (SELECT page FROM archived) ORDER BY id"
        )
        return [PageInfo(*row) for row in rows]

    async def store(self, pages: Sequence[NewPage], lives: Sequence[JournalLife]) -> list[int]:
        if self._bytes + sum(len(page.body) for page in pages) > self._max_bytes:
            raise Saturated("The outbox is full.", retry_after_ms=500)
        return await self._write(pages, lives)

    async def bodies(self, page_ids: Sequence[int]) -> list[bytes]:
        def read() -> list[bytes]:
            found = []
            for page in page_ids:
                row = self._execute("SELECT body, digest FROM page WHERE id = ?", (page,)).fetchone()
                if row is None or blake3_digest(row[0]) != row[1]:
                    raise IntegrityError(f"Page {page} of {self._file.path} is damaged.")
                found.append(row[0])
            return found

        return await self._file.run(read)

    async def plan(self, exported_unix_ns: int, folder: str, pages: Sequence[int]) -> PlannedExport:
        def write(connection: Any) -> PlannedExport:
            number = self._next_number()
            self._execute("INSERT INTO export VALUES (?, ?, ?)", (number, exported_unix_ns, folder))
            connection.executemany(
                "INSERT INTO export_page VALUES (?, ?)", [(number, page) for page in pages]
            )
            return PlannedExport(number, exported_unix_ns, folder, tuple(pages))

        return await self._file.transaction(write)

    async def planned(self) -> list[PlannedExport]:
        def pages_of(number: int) -> tuple[int, ...]:
            of = "SELECT page FROM export_page WHERE number = ? ORDER BY page"
            return tuple(page for (page,) in self._execute(of, (number,)))

        def read() -> list[PlannedExport]:
            exports = self._execute("SELECT number, exported_unix_ns, folder FROM export ORDER BY number")
            return [PlannedExport(number, at, to, pages_of(number)) for number, at, to in exports.fetchall()]

        return await self._file.run(read)

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
            for page_id, instance, epoch, events, page_size, digest, body in self._execute(
                "SELECT id, instance, epoch, last_seq - first_seq + 1, size, digest, body FROM page"
                " WHERE id > ? ORDER BY id",
                (after,),
            ):
                size += page_size
                if found and size > max_bytes:
                    break
                sound = blake3_digest(body) == digest
                found.append(UncutPage(page_id, instance, epoch, events, body if sound else None))
            return found

        return await self._file.run(read)

    async def forget(self, cut_through: int) -> None:
        def write(_: Any) -> int:
            freed = self._delete("id IN (SELECT page FROM archived WHERE page <= ?)", (cut_through,))
            self._execute("DELETE FROM archived WHERE page <= ?", (cut_through,))
            self._set_state("cut", cut_through)
            return freed

        self._bytes -= await self._file.transaction(write)

    async def last_page(self) -> int:
        return await self._file.run(lambda: self._last_id)

    async def number(self) -> int:
        return await self._file.transaction(lambda _: self._next_number())

    async def hours(self) -> list[str]:
        return [folder for (folder,) in await self._rows("SELECT folder FROM hour ORDER BY folder")]

    async def compacted(self, folder: str) -> None:
        await self._file.transaction(lambda _: self._execute("DELETE FROM hour WHERE folder = ?", (folder,)))

    async def cursor(self) -> Cursor:
        return await self._file.run(
            lambda: Cursor(self._state("directory_epoch"), self._state("directory_version"))
        )

    async def revoked_rights(self) -> list[RevokedRight]:
        return [RevokedRight(*row) for row in await self._rows("SELECT * FROM revoked ORDER BY version")]

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
                "INSERT OR REPLACE INTO revoked VALUES (?, ?, ?, ?, ?)",
                [astuple(right) for right in rights],
            )
            self._execute("DELETE FROM revoked WHERE revoked_unix_ns < ?", (forget_before_unix_ns,))
            self._set_state("directory_epoch", cursor.epoch)
            self._set_state("directory_version", cursor.version)
            return 0

        return await self._write(pages, lives, also=remember)

    async def exported_until_unix_ns(self) -> int:
        return await self._file.run(lambda: self._state("exported_until"))

    async def close(self) -> None:
        await self._file.close()

    async def _rows(self, statement: str, values: tuple[Any, ...] = ()) -> list[Any]:
        return await self._file.run(lambda: self._execute(statement, values).fetchall())

    # -- on the worker's thread ------------------------------------------------------------------------

    async def _write(
        self, pages: Sequence[NewPage], lives: Sequence[JournalLife], *, also: Callable[[], int] | None = None
    ) -> list[int]:
        def write() -> list[int]:
            ids = list(range(self._last_id + 1, self._last_id + 1 + len(pages)))
            with self._connection:
                freed = also() if also is not None else 0
                self._insert(ids, pages)
                for life in lives:
                    self._put_life(life)
                if ids:
                    self._set_state("last_page", ids[-1])
            self._last_id += len(ids)
            self._bytes += sum(len(page.body) for page in pages) - freed
            return ids

        return await self._file.run(write)

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
            astuple(life),
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

    def _execute(self, statement: str, values: tuple[Any, ...] = ()) -> Any:
        return self._connection.execute(statement, values)
