"""The certificate ledger in one SQLite file.

Never answers from a record whose checksum does not fit, and never forgets a certificate that has not expired, unless
the caller says that it was revoked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import astuple
from pathlib import Path
from typing import Any, Final

from snavio.adapters.embedded.certificate_migration import MIGRATIONS
from snavio.adapters.embedded.store_file import StoreFile, checksum, count, standing
from snavio.domain.lineage import tenant_of_spiffe
from snavio.errors import IntegrityError, Saturated
from snavio.host.shares import ShareLimit, Shares
from snavio.ports.certificates import IssuedCertificate

APPLICATION_ID = 0x534E4345  # "SNCE"
SCHEMA_VERSION = 2
SCHEMA = (
    """CREATE TABLE issued (
        place INTEGER PRIMARY KEY AUTOINCREMENT, serial TEXT NOT NULL UNIQUE, spiffe_id TEXT NOT NULL,
        issued_to TEXT NOT NULL, parent TEXT NOT NULL, delegate TEXT NOT NULL, issued_ns INTEGER NOT NULL,
        not_after_ns INTEGER NOT NULL, checksum BLOB NOT NULL, root TEXT NOT NULL DEFAULT '',
        via TEXT NOT NULL DEFAULT '', marked INTEGER NOT NULL DEFAULT 0, tenant TEXT NOT NULL DEFAULT ''
        ) STRICT""",
    "CREATE INDEX issued_by_identity ON issued (spiffe_id)",
    "CREATE INDEX issued_by_delegate ON issued (delegate)",
    "CREATE INDEX issued_by_end ON issued (not_after_ns)",
    "CREATE INDEX issued_by_root ON issued (root)",
    "CREATE INDEX issued_by_via ON issued (via)",
    "CREATE INDEX issued_by_tenant ON issued (tenant)",
    """CREATE TABLE barred (
        spiffe_id TEXT PRIMARY KEY, at_ns INTEGER NOT NULL, actor TEXT NOT NULL, reason TEXT NOT NULL
        ) STRICT, WITHOUT ROWID""",
    "CREATE TABLE principals (spiffe_id TEXT PRIMARY KEY) STRICT, WITHOUT ROWID",
)
COLUMNS = (
    "serial, spiffe_id, issued_to, parent, delegate, issued_ns, not_after_ns, root, via, marked, checksum"
)
MAX_CERTIFICATES: Final = 1_000_000
MAX_BARRED = 100_000
# An expired one is kept a day: "yesterday's certificate was stolen" still finds its chain.
KEPT_AFTER_EXPIRY_NS = 86_400 * 1_000_000_000
# Each record deletes a few, so that none has to delete thousands.
FORGOTTEN_AT_ONCE = 16
_RETRY_MS: Final = 60_000
_OPEN: Final = ShareLimit(MAX_CERTIFICATES, MAX_CERTIFICATES)


class SqliteCertificateLedger:
    """A `CertificateLedger`."""

    def __init__(self, file: StoreFile, limit: ShareLimit, per_identity: int) -> None:
        self._file = file
        self.shares = Shares("certificates", limit, retry_after_ms=_RETRY_MS)
        self._by_identity = Shares(
            "certificates",
            ShareLimit(limit.total, min(per_identity, limit.total)),
            retry_after_ms=_RETRY_MS,
        )
        # Counted once, at start; afterwards the counts are maintained.
        tenants: Counter[str] = Counter()
        rows = file.connection.execute("SELECT spiffe_id, count(*) FROM issued GROUP BY spiffe_id")
        for spiffe_id, found in rows:
            self._by_identity.found(spiffe_id, found)
            tenants[tenant_of_spiffe(spiffe_id)] += found
        for tenant, found in tenants.items():
            self.shares.found(tenant, found)

    @staticmethod
    async def open(
        path: Path, *, limit: ShareLimit = _OPEN, per_identity: int = MAX_CERTIFICATES
    ) -> SqliteCertificateLedger:
        """Open the ledger at `path`, an empty one if there is none."""
        return await StoreFile.open(
            path,
            name="certificate ledger",
            application_id=APPLICATION_ID,
            schema_version=SCHEMA_VERSION,
            schema=SCHEMA,
            migrations=MIGRATIONS,
            begin=lambda file: SqliteCertificateLedger(file, limit, per_identity),
        )

    async def close(self) -> None:
        await self._file.close()

    async def record(self, issued: IssuedCertificate, *, now_ns: int | None = None) -> None:
        tenant = tenant_of_spiffe(issued.spiffe_id)
        before_ns = (issued.issued_ns if now_ns is None else now_ns) - KEPT_AFTER_EXPIRY_NS

        def write(connection: Any) -> list[str]:
            row = (*astuple(issued), checksum(astuple(issued)), tenant)
            connection.execute(
                f"INSERT INTO issued ({COLUMNS}, tenant) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608 our own words
                row,
            )
            if "/principal/" in issued.spiffe_id:
                connection.execute("INSERT OR IGNORE INTO principals VALUES (?)", (issued.spiffe_id,))
            return _forgotten(
                connection,
                "not_after_ns < ? ORDER BY not_after_ns LIMIT ?",
                (before_ns, FORGOTTEN_AT_ONCE),
            )

        with self._by_identity.taking(issued.spiffe_id), self.shares.taking(tenant):
            gone = await self._file.transaction(write)
        self._give_back(gone)

    async def find(self, serial: str) -> IssuedCertificate | None:
        found = await self._select("serial = ?", (serial,))
        return found[0] if found else None

    async def latest_ns(self) -> int:
        def read(connection: Any) -> int:
            (found,) = connection.execute("SELECT coalesce(max(issued_ns), 0) FROM issued").fetchone()
            return int(found)

        return await self._file.transaction(read)

    async def oldest(
        self, *, spiffe_id: str = "", tenant: str = "", limit: int
    ) -> tuple[IssuedCertificate, ...]:
        wanted = [
            (column, value) for column, value in (("spiffe_id", spiffe_id), ("tenant", tenant)) if value
        ]
        where = " AND ".join(f"{column} = ?" for column, _ in wanted) or "1"
        return await self._select(f"{where} ORDER BY place LIMIT ?", (*(value for _, value in wanted), limit))

    async def forget(self, serials: Collection[str]) -> None:
        def write(connection: Any) -> list[str]:
            return [
                spiffe_id
                for serial in serials
                for spiffe_id in _forgotten(connection, "serial = ?", (serial,))
            ]

        self._give_back(await self._file.transaction(write))

    async def ever_known(self, spiffe_id: str) -> bool:
        return await self._file.transaction(
            lambda connection: bool(count(connection, "principals WHERE spiffe_id = ?", (spiffe_id,)))
        )

    async def living(
        self,
        *,
        now_ns: int,
        spiffe_id: str = "",
        delegate: str = "",
        chain: str = "",
        unmarked: bool = False,
        prefix: str = "",
        after: str = "",
        limit: int,
    ) -> tuple[IssuedCertificate, ...]:
        where = "not_after_ns > ?"
        bound: list[Any] = [now_ns]
        for column, value in (("spiffe_id", spiffe_id), ("delegate", delegate)):
            if value:
                where += f" AND {column} = ?"
                bound.append(value)
        if chain:
            where += " AND (serial = ? OR root = ? OR via = ?)"
            bound += [chain] * 3
        if unmarked:
            where += " AND marked = 0"
        if prefix:
            where += " AND serial >= ? AND serial < ?"
            # `g` sorts after every hexadecimal digit.
            bound += [prefix, f"{prefix}g"]
        if after:
            where += " AND place > coalesce((SELECT place FROM issued WHERE serial = ?), 0)"
            bound.append(after)
        return await self._select(f"{where} ORDER BY place LIMIT ?", (*bound, limit))

    async def bar(self, spiffe_id: str, *, at_ns: int, actor: str, reason: str, reserve: bool = True) -> None:
        most = MAX_BARRED if reserve else MAX_BARRED * 9 // 10

        def write(connection: Any) -> None:
            if count(connection, "barred WHERE spiffe_id <> ?", (spiffe_id,)) >= most:
                raise Saturated("Too many identities are barred.", retry_after_ms=_RETRY_MS)
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
        return await self._file.transaction(
            lambda connection: standing(connection, "barred WHERE spiffe_id = ?", spiffe_ids)
        )

    async def _select(self, where: str, values: tuple[Any, ...]) -> tuple[IssuedCertificate, ...]:
        def read(connection: Any) -> tuple[IssuedCertificate, ...]:
            query = f"SELECT {COLUMNS} FROM issued WHERE {where}"  # noqa: S608 our own words
            return tuple(_read(row) for row in connection.execute(query, values))

        return await self._file.transaction(read)

    def _give_back(self, identities: Collection[str]) -> None:
        for spiffe_id in identities:
            self._by_identity.give_back(spiffe_id)
            self.shares.give_back(tenant_of_spiffe(spiffe_id))


def _forgotten(connection: Any, where: str, values: tuple[Any, ...]) -> list[str]:
    """Delete those rows; the tenants of those deleted."""
    found = connection.execute(
        f"SELECT place, spiffe_id FROM issued WHERE {where}",  # noqa: S608 our own words
        values,
    ).fetchall()
    for place, _ in found:
        connection.execute("DELETE FROM issued WHERE place = ?", (place,))
    return [spiffe_id for _, spiffe_id in found]


def _read(row: tuple[Any, ...]) -> IssuedCertificate:
    *fields, marked, kept = row
    values: tuple[Any, ...] = (*fields, bool(marked))
    issued = IssuedCertificate(*values)
    if kept != checksum(astuple(issued)):
        raise IntegrityError(f"The record of certificate {issued.serial} is damaged.")
    return issued
