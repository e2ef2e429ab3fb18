"""The certificate ledger in one SQLite file.

Never answers from a record whose checksum does not fit, and never forgets a certificate that has not expired.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any

from snavio.adapters.embedded.sqlite_ledger import LedgerFile, checksum, count
from snavio.errors import IntegrityError, Saturated
from snavio.ports.certificates import IssuedCertificate

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


class SqliteCertificateLedger:
    """A `CertificateLedger`."""

    def __init__(self, file: LedgerFile) -> None:
        self._file = file

    @staticmethod
    async def open(path: Path) -> SqliteCertificateLedger:
        """Open the ledger at `path`, an empty one if there is none."""
        return SqliteCertificateLedger(
            await LedgerFile.open(
                path,
                name="certificate ledger",
                application_id=APPLICATION_ID,
                schema_version=SCHEMA_VERSION,
                schema=SCHEMA,
            )
        )

    async def close(self) -> None:
        await self._file.close()

    async def record(self, issued: IssuedCertificate) -> None:
        def write(connection: Any) -> None:
            _forget(connection, issued.issued_ns - KEPT_AFTER_EXPIRY_NS)
            if count(connection, "issued") >= MAX_CERTIFICATES:
                raise Saturated("Too many certificates are alive.", retry_after_ms=60_000)
            connection.execute(
                f"INSERT INTO issued ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608 our own words
                (*astuple(issued), checksum(astuple(issued))),
            )

        await self._file.transaction(write)

    async def find(self, serial: str) -> IssuedCertificate | None:
        found = await self._select("serial = ?", (serial,))
        return found[0] if found else None

    async def descendants(self, serials: Collection[str], *, now_ns: int) -> tuple[str, ...]:
        def walk(connection: Any) -> tuple[str, ...]:
            seen = set(serials)
            alive: list[str] = []
            waiting = list(serials)
            while waiting:
                rows = connection.execute(
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

        return await self._file.transaction(walk)

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
        def write(connection: Any) -> None:
            if count(connection, "barred WHERE spiffe_id <> ?", (spiffe_id,)) >= MAX_BARRED:
                raise Saturated("Too many identities are barred.", retry_after_ms=60_000)
            connection.execute(
                "INSERT OR IGNORE INTO barred VALUES (?, ?, ?, ?)", (spiffe_id, at_ns, actor, reason)
            )

        await self._file.transaction(write)

    async def unbar(self, spiffe_id: str) -> bool:
        def write(connection: Any) -> bool:
            connection.execute("DELETE FROM barred WHERE spiffe_id = ?", (spiffe_id,))
            return bool(connection.changes())

        return await self._file.transaction(write)

    async def barred(self, spiffe_ids: Collection[str]) -> frozenset[str]:
        def read(connection: Any) -> frozenset[str]:
            return frozenset(
                name for name in spiffe_ids if count(connection, "barred WHERE spiffe_id = ?", (name,))
            )

        return await self._file.transaction(read)

    async def _select(self, where: str, values: tuple[Any, ...]) -> tuple[IssuedCertificate, ...]:
        def read(connection: Any) -> tuple[IssuedCertificate, ...]:
            query = f"SELECT {COLUMNS} FROM issued WHERE {where}"  # noqa: S608 our own words
            return tuple(_read(row) for row in connection.execute(query, values))

        return await self._file.transaction(read)


def _forget(connection: Any, before_ns: int) -> None:
    expired = connection.execute(
        "SELECT serial, parent FROM issued WHERE not_after_ns < ? ORDER BY not_after_ns LIMIT ?",
        (before_ns, FORGOTTEN_AT_ONCE),
    ).fetchall()
    for serial, parent in expired:
        children = connection.execute(
            f"SELECT {COLUMNS} FROM issued WHERE parent = ?",  # noqa: S608 our own words
            (serial,),
        ).fetchall()
        for row in children:
            kept = _read(row)
            # The parent of the forgotten one, which may live for weeks, must still reach this child.
            adopted = replace(kept, parent=parent)
            connection.execute(
                "UPDATE issued SET parent = ?, checksum = ? WHERE serial = ?",
                (parent, checksum(astuple(adopted)), kept.serial),
            )
        connection.execute("DELETE FROM issued WHERE serial = ?", (serial,))


def _read(row: tuple[Any, ...]) -> IssuedCertificate:
    issued = IssuedCertificate(*row[:-1])
    if row[-1] != checksum(astuple(issued)):
        raise IntegrityError(f"The record of certificate {issued.serial} is damaged.")
    return issued
