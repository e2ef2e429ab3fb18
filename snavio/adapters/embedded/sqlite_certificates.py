"""The certificate ledger in one SQLite file.

Never answers from a record whose checksum does not fit, and never forgets a certificate that has not expired.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any, TypeVar

from snavio.adapters.embedded.sqlite import StoreLock, open_store, store_errors
from snavio.errors import IntegrityError, Saturated
from snavio.ports.certificates import IssuedCertificate
from snavio.worker import Worker

APPLICATION_ID = 0x534E4345  # "SNCE"
SCHEMA_VERSION = 1
SCHEMA = (
    """CREATE TABLE issued (
        place INTEGER PRIMARY KEY AUTOINCREMENT, serial TEXT NOT NULL UNIQUE, spiffe_id TEXT NOT NULL,
        issued_to TEXT NOT NULL, parent TEXT NOT NULL, delegate TEXT NOT NULL, issued_ns INTEGER NOT NULL,
        not_after_ns INTEGER NOT NULL, checksum BLOB NOT NULL) STRICT""",
    "CREATE INDEX issued_by_identity ON issued (spiffe_id)",
    "CREATE INDEX issued_by_parent ON issued (parent) WHERE parent <> ''",
    "CREATE INDEX issued_by_delegate ON issued (delegate) WHERE delegate <> ''",
    "CREATE INDEX issued_by_end ON issued (not_after_ns)",
    """CREATE TABLE barred (
        spiffe_id TEXT PRIMARY KEY, at_ns INTEGER NOT NULL, actor TEXT NOT NULL, reason TEXT NOT NULL
        ) STRICT, WITHOUT ROWID""",
)
COLUMNS = "serial, spiffe_id, issued_to, parent, delegate, issued_ns, not_after_ns, checksum"
MAX_CERTIFICATES = 1_000_000
MAX_BARRED = 100_000
# An expired one is kept a day: "yesterday's certificate was stolen" still finds what was renewed from it.
KEPT_AFTER_EXPIRY_NS = 86_400 * 1_000_000_000
# Each record forgets a few, so that none ever waits for thousands.
FORGOTTEN_AT_ONCE = 16

T = TypeVar("T")


class SqliteCertificateLedger:
    """A `CertificateLedger`; all of SQLite happens on one thread."""

    def __init__(self, connection: Any, *, path: Path, lock: StoreLock, worker: Worker) -> None:
        self._connection = connection
        self._path = path
        self._lock = lock
        self._worker = worker

    @staticmethod
    async def open(path: Path) -> SqliteCertificateLedger:
        """Open the ledger at `path`, an empty one if there is none."""
        worker = Worker("certificate ledger")

        def begin() -> SqliteCertificateLedger:
            lock = StoreLock(path)
            try:
                connection = open_store(
                    path, application_id=APPLICATION_ID, schema_version=SCHEMA_VERSION, create=SCHEMA
                )
            except BaseException:
                lock.release()
                raise
            return SqliteCertificateLedger(connection, path=path, lock=lock, worker=worker)

        try:
            return await worker.run(begin)
        except BaseException:
            await worker.close(lambda: None)
            raise

    async def close(self) -> None:
        def end() -> None:
            self._connection.close()
            self._lock.release()

        await self._worker.close(end)

    async def record(self, issued: IssuedCertificate) -> None:
        def write() -> None:
            self._forget(issued.issued_ns - KEPT_AFTER_EXPIRY_NS)
            (count,) = self._connection.execute("SELECT count(*) FROM issued").fetchone()
            if count >= MAX_CERTIFICATES:
                raise Saturated("Too many certificates are alive.", retry_after_ms=60_000)
            self._connection.execute(
                f"INSERT INTO issued ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608 our own words
                (*astuple(issued), _checksum(issued)),
            )

        await self._transaction(write)

    async def find(self, serial: str) -> IssuedCertificate | None:
        found = await self._select("serial = ?", (serial,))
        return found[0] if found else None

    async def descendants(self, serials: Collection[str], *, now_ns: int) -> tuple[str, ...]:
        def walk() -> tuple[str, ...]:
            seen = set(serials)
            alive: list[str] = []
            waiting = list(serials)
            while waiting:
                rows = self._connection.execute(
                    "SELECT serial, not_after_ns FROM issued WHERE parent = ?", (waiting.pop(),)
                ).fetchall()
                for serial, not_after_ns in rows:
                    if serial not in seen:
                        seen.add(serial)
                        # Through the expired too: they have children that are alive.
                        waiting.append(serial)
                        if not_after_ns > now_ns:
                            alive.append(serial)
            return tuple(alive)

        return await self._transaction(walk)

    async def living(
        self, *, now_ns: int, spiffe_id: str = "", delegate: str = "", after: str = "", limit: int
    ) -> tuple[IssuedCertificate, ...]:
        where = "not_after_ns > ?"
        bound: list[Any] = [now_ns]
        for column, value in (("spiffe_id", spiffe_id), ("delegate", delegate)):
            if value:
                where += f" AND {column} = ?"
                bound.append(value)
        if after:
            where += " AND place > coalesce((SELECT place FROM issued WHERE serial = ?), 0)"
            bound.append(after)
        return await self._select(f"{where} ORDER BY place LIMIT ?", (*bound, limit))

    async def bar(self, spiffe_id: str, *, at_ns: int, actor: str, reason: str) -> None:
        def write() -> None:
            (count,) = self._connection.execute(
                "SELECT count(*) FROM barred WHERE spiffe_id <> ?", (spiffe_id,)
            ).fetchone()
            if count >= MAX_BARRED:
                raise Saturated("Too many identities are barred.", retry_after_ms=60_000)
            self._connection.execute(
                "INSERT OR IGNORE INTO barred VALUES (?, ?, ?, ?)", (spiffe_id, at_ns, actor, reason)
            )

        await self._transaction(write)

    async def unbar(self, spiffe_id: str) -> bool:
        def write() -> bool:
            self._connection.execute("DELETE FROM barred WHERE spiffe_id = ?", (spiffe_id,))
            return bool(self._connection.changes())

        return await self._transaction(write)

    async def barred(self, spiffe_ids: Collection[str]) -> frozenset[str]:
        def read() -> frozenset[str]:
            found = (
                self._connection.execute("SELECT 1 FROM barred WHERE spiffe_id = ?", (name,)).fetchone()
                and name
                for name in spiffe_ids
            )
            return frozenset(name for name in found if name)

        return await self._transaction(read)

    # -- on the worker's thread ------------------------------------------------------------------------

    async def _transaction(self, work: Callable[[], T]) -> T:
        def transact() -> T:
            with store_errors(self._path), self._connection:
                return work()

        return await self._worker.run(transact)

    async def _select(self, where: str, values: tuple[Any, ...]) -> tuple[IssuedCertificate, ...]:
        def read() -> tuple[IssuedCertificate, ...]:
            query = f"SELECT {COLUMNS} FROM issued WHERE {where}"  # noqa: S608 our own words
            return tuple(_read(row) for row in self._connection.execute(query, values))

        return await self._transaction(read)

    def _forget(self, before_ns: int) -> None:
        expired = self._connection.execute(
            "SELECT serial, parent FROM issued WHERE not_after_ns < ? ORDER BY not_after_ns LIMIT ?",
            (before_ns, FORGOTTEN_AT_ONCE),
        ).fetchall()
        for serial, parent in expired:
            children = self._connection.execute(
                f"SELECT {COLUMNS} FROM issued WHERE parent = ?",  # noqa: S608 our own words
                (serial,),
            ).fetchall()
            for row in children:
                kept = _read(row)
                # The parent of the forgotten one, which may live for weeks, must still reach this child.
                adopted = replace(kept, parent=parent)
                self._connection.execute(
                    "UPDATE issued SET parent = ?, checksum = ? WHERE serial = ?",
                    (parent, _checksum(adopted), kept.serial),
                )
            self._connection.execute("DELETE FROM issued WHERE serial = ?", (serial,))


def _read(row: tuple[Any, ...]) -> IssuedCertificate:
    issued = IssuedCertificate(*row[:-1])
    if row[-1] != _checksum(issued):
        raise IntegrityError(f"The record of certificate {issued.serial} is damaged.")
    return issued


def _checksum(issued: IssuedCertificate) -> bytes:
    """Finds rot and slips of the hand; whoever can write the file can write the checksum too."""
    digest = hashlib.blake2b(digest_size=8)
    for part in astuple(issued):
        piece = str(part).encode()
        digest.update(len(piece).to_bytes(4, "big") + piece)
    return digest.digest()
