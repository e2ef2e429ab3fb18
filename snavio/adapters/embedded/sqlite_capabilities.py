"""The capability ledger in one SQLite file.

Never answers from a record whose checksum does not fit, never forgets an ending while what it ended could be alive,
and never lets one tenant use up the room of the others.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import astuple
from pathlib import Path
from typing import Any, Final, TypeVar

import orjson

from snavio.adapters.embedded.store_file import StoreFile, checksum, count
from snavio.domain.capability_root import RootLine
from snavio.domain.lineage import tenant_of_spiffe
from snavio.errors import IntegrityError, NotAllowed, Saturated
from snavio.host.shares import MESH, ShareLimit, Shares
from snavio.ports.capabilities import CapabilityAuditEntry, CapabilityEnding, EndingsPage, IssuedCapability

APPLICATION_ID = 0x534E4341  # "SNCA"
SCHEMA_VERSION = 2
SCHEMA = (
    """CREATE TABLE issued (
        place INTEGER PRIMARY KEY AUTOINCREMENT, cap_id TEXT NOT NULL UNIQUE, realm TEXT NOT NULL,
        operations TEXT NOT NULL, holder TEXT NOT NULL, tenant TEXT NOT NULL, issued_to TEXT NOT NULL,
        root TEXT NOT NULL, root_version INTEGER NOT NULL, issued_ns INTEGER NOT NULL, expires_ns INTEGER NOT NULL,
        checksum BLOB NOT NULL) STRICT""",
    "CREATE INDEX issued_by_tenant ON issued (tenant)",
    "CREATE INDEX issued_by_holder ON issued (holder)",
    "CREATE INDEX issued_by_realm ON issued (realm)",
    "CREATE INDEX issued_by_end ON issued (expires_ns)",
    # One row per subject: a later change replaces the earlier one, under a new version.
    """CREATE TABLE endings (
        version INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL, subject TEXT NOT NULL, value TEXT NOT NULL,
        forget_ns INTEGER NOT NULL, at_ns INTEGER NOT NULL, actor TEXT NOT NULL, reason TEXT NOT NULL,
        checksum BLOB NOT NULL, tenant TEXT NOT NULL DEFAULT '', UNIQUE (kind, subject)) STRICT""",
    "CREATE INDEX endings_by_end ON endings (forget_ns) WHERE forget_ns > 0",
    """CREATE TABLE barred (
        holder TEXT PRIMARY KEY, tenant TEXT NOT NULL DEFAULT '', operator INTEGER NOT NULL DEFAULT 1
        ) STRICT, WITHOUT ROWID""",
    "CREATE TABLE epoch (epoch INTEGER NOT NULL) STRICT",
)
COLUMNS = "cap_id, realm, operations, holder, tenant, issued_to, root, root_version, issued_ns, expires_ns, checksum"
MAX_CAPABILITIES = 1_000_000
MAX_PER_TENANT = 10_000
MAX_REVOCATIONS: Final = 200_000
# Each write deletes a few, so that no write has to delete thousands.
FORGOTTEN_AT_ONCE = 16
_ID, _HOLDER, _LINE = "id", "holder", "line"
# A mailbox whose clock is behind may still accept a capability that has expired here.
SKEW_NS = 600 * 1_000_000_000

T = TypeVar("T")


_OPEN: Final = ShareLimit(MAX_REVOCATIONS, MAX_REVOCATIONS)


def _shares(connection: Any) -> None:
    """Add tenants to schema 1, which had none: an ending's comes from its actor, a bar is taken for an operator's."""
    connection.execute("ALTER TABLE endings ADD COLUMN tenant TEXT NOT NULL DEFAULT ''")
    connection.execute("ALTER TABLE barred ADD COLUMN tenant TEXT NOT NULL DEFAULT ''")
    connection.execute("ALTER TABLE barred ADD COLUMN operator INTEGER NOT NULL DEFAULT 1")
    connection.execute("CREATE INDEX issued_by_realm ON issued (realm)")
    for version, actor in connection.execute("SELECT version, actor FROM endings").fetchall():
        connection.execute(
            "UPDATE endings SET tenant = ? WHERE version = ?", (tenant_of_spiffe(actor), version)
        )


class SqliteCapabilityLedger:
    """A `CapabilityLedger`."""

    def __init__(self, file: StoreFile, limit: ShareLimit) -> None:
        self._file = file
        with file.connection as connection:
            self._epoch = _epoch(connection)
        self.shares = Shares("capability_revocations", limit, retry_after_ms=60_000)
        # Counted once, at start; afterwards the counts are maintained.
        alive = connection.execute("SELECT tenant, count(*) FROM issued GROUP BY tenant")
        self._alive: Counter[str] = Counter(dict(alive))
        held = connection.execute(
            "SELECT tenant, count(*) FROM"
            " (SELECT tenant FROM endings UNION ALL SELECT tenant FROM barred) GROUP BY tenant"
        )
        for tenant, found in held:
            self.shares.found(tenant, found)

    @staticmethod
    async def open(path: Path, *, limit: ShareLimit = _OPEN) -> SqliteCapabilityLedger:
        """Open the ledger at `path`, an empty one if there is none."""
        return await StoreFile.open(
            path,
            name="capability ledger",
            application_id=APPLICATION_ID,
            schema_version=SCHEMA_VERSION,
            schema=SCHEMA,
            migrations={1: _shares},
            begin=lambda file: SqliteCapabilityLedger(file, limit),
        )

    async def close(self) -> None:
        await self._file.close()

    async def record(self, issued: IssuedCapability) -> None:
        def write(connection: Any) -> Counter[str]:
            gone = _forget(connection, issued.issued_ns - SKEW_NS, issued.tenant)
            alive = self._alive
            if (
                alive[issued.tenant] - gone[issued.tenant] >= MAX_PER_TENANT
                or alive.total() - gone.total() >= MAX_CAPABILITIES
            ):
                raise Saturated("Too many capabilities are alive.", retry_after_ms=60_000)
            connection.execute(
                f"INSERT INTO issued ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608 our own words
                (*astuple(issued), checksum(astuple(issued))),
            )
            return gone

        gone = await self._file.transaction(write)
        self._alive[issued.tenant] += 1
        self._alive -= gone

    async def find(self, cap_id: str) -> IssuedCapability | None:
        def read(connection: Any) -> IssuedCapability | None:
            row = connection.execute(
                f"SELECT {COLUMNS} FROM issued WHERE cap_id = ?",  # noqa: S608 our own words
                (cap_id,),
            ).fetchone()
            return _issued(row) if row else None

        return await self._file.transaction(read)

    async def living(
        self,
        *,
        now_ns: int,
        realm: str = "",
        holder: str = "",
        tenant: str = "",
        cap_id: str = "",
        after: str = "",
        limit: int,
    ) -> tuple[tuple[IssuedCapability, bool], ...]:
        where, bound = "expires_ns > ?", [now_ns]
        for clause, value in (
            ("substr(realm, 1, length(?1)) = ?1", realm),
            ("holder = ?", holder),
            ("tenant = ?", tenant),
            ("cap_id = ?", cap_id),
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

    async def knows(self, *, realm: str = "", holder: str = "", now_ns: int) -> bool:
        column, value = ("realm", realm) if realm else ("holder", holder)
        return await self._file.transaction(
            lambda connection: bool(
                count(connection, f"issued WHERE {column} = ? AND expires_ns > ?", (value, now_ns))
            )
        )

    async def end_capability(self, cap_id: str, *, forget_ns: int, audit: CapabilityAuditEntry) -> int:
        return await self._end(
            lambda connection, held: self._put(
                connection, held, _ID, cap_id, 0, forget_ns=forget_ns, audit=audit
            ),
            audit,
        )

    async def end_holder(
        self, holder: str, *, until_ms: int, forget_ns: int, bar: bool, audit: CapabilityAuditEntry
    ) -> int:
        def write(connection: Any, held: Counter[str]) -> int:
            if bar:
                self._bar(connection, held, holder, audit)
            return self._put(connection, held, _HOLDER, holder, until_ms, forget_ns=forget_ns, audit=audit)

        return await self._end(write, audit)

    async def restore_holder(self, holder: str, *, operator: bool) -> bool:
        def write(connection: Any) -> str | None:
            row = connection.execute(
                "SELECT tenant, operator FROM barred WHERE holder = ?", (holder,)
            ).fetchone()
            if row is None:
                return None
            tenant, operators = row
            if operators and not operator:
                raise NotAllowed(
                    f"An operator has barred {holder}, and only an operator lifts that.",
                    reason="operators-bar",
                )
            connection.execute("DELETE FROM barred WHERE holder = ?", (holder,))
            return str(tenant)

        tenant = await self._file.transaction(write)
        if tenant is not None:
            self.shares.give_back(tenant)
        return tenant is not None

    async def barred(self, holders: Collection[str]) -> frozenset[str]:
        def read(connection: Any) -> frozenset[str]:
            return frozenset(
                name for name in holders if count(connection, "barred WHERE holder = ?", (name,))
            )

        return await self._file.transaction(read)

    async def line(self, realm: str) -> RootLine:
        return await self._file.transaction(lambda connection: _line(connection, realm))

    async def update_line(
        self, realm: str, decide: Callable[[RootLine], RootLine], *, audit: CapabilityAuditEntry
    ) -> tuple[RootLine, int]:
        def write(connection: Any, held: Counter[str]) -> tuple[RootLine, int]:
            line = decide(_line(connection, realm))
            value = [line.version, line.minimum, [list(each) for each in line.ends]]
            return line, self._put(connection, held, _LINE, realm, value, forget_ns=0, audit=audit)

        return await self._end(write, audit)

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

    async def _end(self, write: Callable[[Any, Counter[str]], T], audit: CapabilityAuditEntry) -> T:
        """One write that may use shares; `held` is its change to them, applied once the write is durable."""
        held: Counter[str] = Counter()

        def work(connection: Any) -> T:
            held.clear()
            for tenant in _forget_endings(connection, audit):
                held[tenant] -= 1
            return write(connection, held)

        answer = await self._file.transaction(work)
        for tenant, change in held.items():
            self.shares.found(tenant, max(0, self.shares.held(tenant) + change))
        return answer

    def _take(self, held: Counter[str], tenant: str) -> None:
        # Rows that this write has deleted count as room too.
        if not self.shares.room(tenant, 1 + held[tenant]):
            self.shares.refused += 1
            raise self.shares.saturated(tenant)
        held[tenant] += 1

    def _bar(self, connection: Any, held: Counter[str], holder: str, audit: CapabilityAuditEntry) -> None:
        if not count(connection, "barred WHERE holder = ?", (holder,)):
            self._take(held, audit.tenant)
            connection.execute("INSERT INTO barred VALUES (?, ?, 0)", (holder, audit.tenant))
        if audit.tenant == MESH:
            # From here on the bar is the operator's, even if a tenant set it first.
            connection.execute("UPDATE barred SET operator = 1 WHERE holder = ?", (holder,))

    def _put(
        self,
        connection: Any,
        held: Counter[str],
        kind: str,
        subject: str,
        value: Any,
        *,
        forget_ns: int,
        audit: CapabilityAuditEntry,
    ) -> int:
        where = "endings WHERE kind = ? AND subject = ?"
        row = connection.execute(f"SELECT tenant FROM {where}", (kind, subject)).fetchone()  # noqa: S608 our own words
        if row is None:
            self._take(held, audit.tenant)
        tenant = audit.tenant if row is None else row[0]
        text = orjson.dumps(value).decode()
        connection.execute(f"DELETE FROM {where}", (kind, subject))  # noqa: S608 our own words
        connection.execute(
            "INSERT INTO endings (kind, subject, value, forget_ns, at_ns, actor, reason, checksum, tenant)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                kind,
                subject,
                text,
                forget_ns,
                audit.at_ns,
                audit.actor,
                audit.reason,
                checksum((kind, subject, text, forget_ns)),
                tenant,
            ),
        )
        return int(connection.last_insert_rowid())


def _forget_endings(connection: Any, audit: CapabilityAuditEntry) -> list[str]:
    """Delete some endings that are over, also some of the caller's tenant; the tenants of those deleted."""
    gone: list[str] = []
    for clause, values in (("1", ()), ("tenant = ?", (audit.tenant,))):
        rows = connection.execute(
            "SELECT version, tenant FROM endings WHERE forget_ns > 0 AND forget_ns < ?"  # noqa: S608 our own words
            f" AND {clause} LIMIT ?",
            (audit.at_ns - SKEW_NS, *values, FORGOTTEN_AT_ONCE),
        ).fetchall()
        for version, tenant in rows:
            connection.execute("DELETE FROM endings WHERE version = ?", (version,))
            gone.append(tenant)
    return gone


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


def _forget(connection: Any, before_ns: int, tenant: str) -> Counter[str]:
    """Delete some expired capabilities, also some of `tenant`; the tenants of those deleted."""
    gone: Counter[str] = Counter()
    # Also the caller's own, so that a tenant at its bound gets room as soon as one of them has expired.
    for clause, values in (("1", ()), ("tenant = ?", (tenant,))):
        rows = connection.execute(
            f"SELECT place, tenant FROM issued WHERE expires_ns < ? AND {clause} ORDER BY expires_ns LIMIT ?",  # noqa: S608 our own words
            (before_ns, *values, FORGOTTEN_AT_ONCE),
        ).fetchall()
        for place, of in rows:
            connection.execute("DELETE FROM issued WHERE place = ?", (place,))
            gone[of] += 1
    return gone


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


def _ending(kind: str, subject: str, value: str, forget_ns: int, kept: bytes) -> CapabilityEnding | RootLine:
    if kept != checksum((kind, subject, value, forget_ns)):
        raise IntegrityError("The record of a revoked capability is damaged.")
    parsed = orjson.loads(value)
    if kind != _LINE:
        return CapabilityEnding(subject, forget_ns, parsed)
    version, minimum, ends = parsed
    return RootLine(subject, version, minimum, tuple((old, end) for old, end in ends))
