"""The capability ledger in one SQLite file.

Never answers from a record whose checksum does not fit, never forgets an ending while what it ended could be alive,
and never lets one tenant use up the room of the others.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection
from dataclasses import astuple
from pathlib import Path
from typing import Any

import orjson

from snavio.adapters.embedded.sqlite_ledger import LedgerFile, checksum, count
from snavio.domain.capability_root import RootLine
from snavio.errors import IntegrityError, Saturated
from snavio.ports.capabilities import Audit, Ending, EndingsPage, IssuedCapability

APPLICATION_ID = 0x534E4341  # "SNCA"
SCHEMA_VERSION = 1
SCHEMA = (
    """CREATE TABLE issued (
        place INTEGER PRIMARY KEY AUTOINCREMENT, cap_id TEXT NOT NULL UNIQUE, realm TEXT NOT NULL,
        operations TEXT NOT NULL, holder TEXT NOT NULL, tenant TEXT NOT NULL, issued_to TEXT NOT NULL,
        root TEXT NOT NULL, root_version INTEGER NOT NULL, issued_ns INTEGER NOT NULL, expires_ns INTEGER NOT NULL,
        checksum BLOB NOT NULL) STRICT""",
    "CREATE INDEX issued_by_tenant ON issued (tenant)",
    "CREATE INDEX issued_by_holder ON issued (holder)",
    "CREATE INDEX issued_by_end ON issued (expires_ns)",
    # One row per subject: a later change of the same takes the place of the earlier, with a version of its own.
    """CREATE TABLE endings (
        version INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL, subject TEXT NOT NULL, value TEXT NOT NULL,
        forget_ns INTEGER NOT NULL, at_ns INTEGER NOT NULL, actor TEXT NOT NULL, reason TEXT NOT NULL,
        checksum BLOB NOT NULL, UNIQUE (kind, subject)) STRICT""",
    "CREATE INDEX endings_by_end ON endings (forget_ns) WHERE forget_ns > 0",
    "CREATE TABLE barred (holder TEXT PRIMARY KEY) STRICT, WITHOUT ROWID",
    "CREATE TABLE epoch (epoch INTEGER NOT NULL) STRICT",
)
COLUMNS = "cap_id, realm, operations, holder, tenant, issued_to, root, root_version, issued_ns, expires_ns, checksum"
MAX_CAPABILITIES = 1_000_000
MAX_PER_TENANT = 10_000
MAX_ENDINGS = 200_000
MAX_LINES = 100_000
MAX_BARRED = 100_000
# Each write forgets a few, so that none ever waits for thousands.
FORGOTTEN_AT_ONCE = 16
_ID, _HOLDER, _LINE = "id", "holder", "line"
# A mailbox whose clock is behind may still take for alive what has ended here.
SKEW_NS = 600 * 1_000_000_000


class SqliteCapabilityLedger:
    """A `CapabilityLedger`."""

    def __init__(self, file: LedgerFile, *, epoch: int) -> None:
        self._file = file
        self._epoch = epoch

    @staticmethod
    async def open(path: Path) -> SqliteCapabilityLedger:
        """Open the ledger at `path`, an empty one if there is none."""
        file = await LedgerFile.open(
            path,
            name="capability ledger",
            application_id=APPLICATION_ID,
            schema_version=SCHEMA_VERSION,
            schema=SCHEMA,
        )
        try:
            return SqliteCapabilityLedger(file, epoch=await file.transaction(_epoch))
        except BaseException:
            await file.close()
            raise

    async def close(self) -> None:
        await self._file.close()

    async def record(self, issued: IssuedCapability) -> None:
        def write(connection: Any) -> None:
            _forget(connection, issued.issued_ns - SKEW_NS, issued.tenant)
            for where, values, most in (
                ("tenant = ?", (issued.tenant,), MAX_PER_TENANT),
                ("1", (), MAX_CAPABILITIES),
            ):
                if count(connection, f"issued WHERE {where}", values) >= most:
                    raise Saturated("Too many capabilities are alive.", retry_after_ms=60_000)
            connection.execute(
                f"INSERT INTO issued ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608 our own words
                (*astuple(issued), checksum(astuple(issued))),
            )

        await self._file.transaction(write)

    async def find(self, cap_id: str) -> IssuedCapability | None:
        def read(connection: Any) -> IssuedCapability | None:
            row = connection.execute(
                f"SELECT {COLUMNS} FROM issued WHERE cap_id = ?",  # noqa: S608 our own words
                (cap_id,),
            ).fetchone()
            return _issued(row) if row else None

        return await self._file.transaction(read)

    async def living(
        self, *, now_ns: int, realm: str = "", holder: str = "", tenant: str = "", after: str = "", limit: int
    ) -> tuple[tuple[IssuedCapability, bool], ...]:
        where, bound = "expires_ns > ?", [now_ns]
        for clause, value in (
            ("substr(realm, 1, length(?1)) = ?1", realm),
            ("holder = ?", holder),
            ("tenant = ?", tenant),
            ("place > coalesce((SELECT place FROM issued WHERE cap_id = ?), 0)", after),
        ):
            if value:
                where += f" AND {clause.replace('?1', f'?{len(bound) + 1}')}"
                bound.append(value)  # type: ignore[arg-type]

        def read(connection: Any) -> tuple[tuple[IssuedCapability, bool], ...]:
            query = f"SELECT {COLUMNS} FROM issued WHERE {where} ORDER BY place LIMIT ?"  # noqa: S608 our own words
            found = [_issued(row) for row in connection.execute(query, (*bound, limit)).fetchall()]
            return tuple((each, _ended(connection, each, now_ns)) for each in found)

        return await self._file.transaction(read)

    async def end_capability(self, cap_id: str, *, forget_ns: int, audit: Audit) -> int:
        return await self._file.transaction(
            lambda connection: _put(connection, _ID, cap_id, 0, forget_ns=forget_ns, audit=audit)
        )

    async def end_holder(self, holder: str, *, until_ms: int, forget_ns: int, bar: bool, audit: Audit) -> int:
        def write(connection: Any) -> int:
            if bar:
                if count(connection, "barred WHERE holder <> ?", (holder,)) >= MAX_BARRED:
                    raise Saturated("Too many holders are barred.", retry_after_ms=60_000)
                connection.execute("INSERT OR IGNORE INTO barred VALUES (?)", (holder,))
            return _put(connection, _HOLDER, holder, until_ms, forget_ns=forget_ns, audit=audit)

        return await self._file.transaction(write)

    async def restore_holder(self, holder: str) -> bool:
        def write(connection: Any) -> bool:
            connection.execute("DELETE FROM barred WHERE holder = ?", (holder,))
            return bool(connection.changes())

        return await self._file.transaction(write)

    async def barred(self, holders: Collection[str]) -> frozenset[str]:
        def read(connection: Any) -> frozenset[str]:
            return frozenset(
                name for name in holders if count(connection, "barred WHERE holder = ?", (name,))
            )

        return await self._file.transaction(read)

    async def line(self, realm: str) -> RootLine:
        return await self._file.transaction(lambda connection: _line(connection, realm))

    async def update_line(
        self, realm: str, decide: Callable[[RootLine], RootLine], *, audit: Audit
    ) -> tuple[RootLine, int]:
        def write(connection: Any) -> tuple[RootLine, int]:
            line = decide(_line(connection, realm))
            value = [line.version, line.minimum, [list(each) for each in line.ends]]
            return line, _put(connection, _LINE, realm, value, forget_ns=0, audit=audit)

        return await self._file.transaction(write)

    async def endings_since(self, version: int, *, epoch: int, now_ns: int, limit: int) -> EndingsPage:
        def read(connection: Any) -> EndingsPage:
            # The highest ever given, also when its row is gone: a reader must not fall back behind it.
            row = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'endings'").fetchone()
            newest = row[0] if row else 0
            since = version if epoch == self._epoch and version <= newest else 0
            rows = connection.execute(
                "SELECT version, kind, subject, value, forget_ns, checksum FROM endings"
                " WHERE version > ? AND (forget_ns = 0 OR forget_ns > ?) ORDER BY version LIMIT ?",
                (since, now_ns - SKEW_NS, limit + 1),
            ).fetchall()
            more, rows = len(rows) > limit, rows[:limit]
            found: dict[str, list[Any]] = {_ID: [], _HOLDER: [], _LINE: []}
            for _, kind, subject, value, forget_ns, kept in rows:
                found[kind].append(_ending(kind, subject, value, forget_ns, kept))
            return EndingsPage(
                epoch=self._epoch,
                version=rows[-1][0] if more else newest,
                capabilities=tuple(found[_ID]),
                holders=tuple(found[_HOLDER]),
                lines=tuple(found[_LINE]),
                more=more,
            )

        return await self._file.transaction(read)


def _put(connection: Any, kind: str, subject: str, value: Any, *, forget_ns: int, audit: Audit) -> int:
    connection.execute(
        "DELETE FROM endings WHERE version IN"
        " (SELECT version FROM endings WHERE forget_ns > 0 AND forget_ns < ? LIMIT ?)",
        (audit.at_ns - SKEW_NS, FORGOTTEN_AT_ONCE),
    )
    most = MAX_LINES if kind == _LINE else MAX_ENDINGS
    if count(connection, "endings WHERE kind = ? AND subject <> ?", (kind, subject)) >= most:
        raise Saturated("Too many revocations are remembered.", retry_after_ms=60_000)
    text = orjson.dumps(value).decode()
    connection.execute("DELETE FROM endings WHERE kind = ? AND subject = ?", (kind, subject))
    connection.execute(
        "INSERT INTO endings (kind, subject, value, forget_ns, at_ns, actor, reason, checksum)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (kind, subject, text, forget_ns, *astuple(audit), checksum((kind, subject, text, forget_ns))),
    )
    return int(connection.last_insert_rowid())


def _get(connection: Any, kind: str, subject: str) -> Any:
    row = connection.execute(
        "SELECT value, forget_ns, checksum FROM endings WHERE kind = ? AND subject = ?", (kind, subject)
    ).fetchone()
    return _ending(kind, subject, *row) if row else None


def _line(connection: Any, realm: str) -> RootLine:
    return _get(connection, _LINE, realm) or RootLine(realm)


def _ended(connection: Any, issued: IssuedCapability, now_ns: int) -> bool:
    if _get(connection, _ID, issued.cap_id) is not None:
        return True
    for holder in {issued.holder, f"tenant:{issued.tenant}"}:
        ending = _get(connection, _HOLDER, holder)
        if ending is not None and issued.issued_ns // 1_000_000 <= ending.issued_until_ms:
            return True
    return not _line(connection, issued.realm).accepts(issued.root_version, now_ns)


def _forget(connection: Any, before_ns: int, tenant: str) -> None:
    # Also the caller's own, so that a tenant at its bound gets room as soon as one of them has expired.
    for clause, values in (("1", ()), ("tenant = ?", (tenant,))):
        connection.execute(
            "DELETE FROM issued WHERE place IN (SELECT place FROM issued WHERE expires_ns < ?"  # noqa: S608
            f" AND {clause} ORDER BY expires_ns LIMIT ?)",
            (before_ns, *values, FORGOTTEN_AT_ONCE),
        )


def _epoch(connection: Any) -> int:
    row = connection.execute("SELECT epoch FROM epoch").fetchone()
    if row:
        return int(row[0])
    epoch = secrets.randbits(62) | 1
    connection.execute("INSERT INTO epoch VALUES (?)", (epoch,))
    return epoch


def _issued(row: tuple[Any, ...]) -> IssuedCapability:
    issued = IssuedCapability(*row[:-1])
    if row[-1] != checksum(astuple(issued)):
        raise IntegrityError(f"The record of capability {issued.cap_id} is damaged.")
    return issued


def _ending(kind: str, subject: str, value: str, forget_ns: int, kept: bytes) -> Ending | RootLine:
    if kept != checksum((kind, subject, value, forget_ns)):
        raise IntegrityError("The record of a revoked capability is damaged.")
    parsed = orjson.loads(value)
    if kind != _LINE:
        return Ending(subject, forget_ns, parsed)
    version, minimum, ends = parsed
    return RootLine(subject, version, minimum, tuple((old, end) for old, end in ends))
