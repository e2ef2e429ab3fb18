"""Signed streams of tenants and their drafts in one SQLite file.

Never acknowledges before the commit is on disk, and never lets the numbers of a store that was lost or restored come
again: an epoch begins above every number of those before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import structlog

from snavio.adapters.embedded.appends_mark import AppendsMark
from snavio.adapters.embedded.store_file import StoreFile
from snavio.clock import Clock
from snavio.domain.stream import MAX_EPOCH, OutsideReplayWindow, Position, begin_epoch
from snavio.errors import Conflict, IntegrityError
from snavio.native import blake3_digest
from snavio.ports.tenant_streams import (
    DroppedDrafts,
    NewDraft,
    Pruned,
    SpokenOf,
    StoredDraft,
    StreamEntry,
    StreamPart,
)

APPLICATION_ID: Final = 0x534E5453
SCHEMA_VERSION: Final = 1
MINUTE_NS: Final = 60 * 1_000_000_000
COUNTED_FROM_MINUTE: Final = 29_347_200
"""2025-10-19, in minutes since 1970: an epoch is the minute in which it began, and 24 bits of them are 31 years."""
# Lives of processes of which it is remembered whom they spoke of.
KEPT_LIVES: Final = 4096
_PRUNED_AT_ONCE: Final = 1000

_CREATE: Final = (
    "CREATE TABLE state (key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE TABLE draft (id INTEGER PRIMARY KEY AUTOINCREMENT, envelope_id TEXT NOT NULL UNIQUE, tenant TEXT NOT NULL,"
    " source TEXT NOT NULL, family TEXT NOT NULL, cut_unix_ns INTEGER NOT NULL, events INTEGER NOT NULL,"
    " size INTEGER NOT NULL, digest BLOB NOT NULL, body BLOB NOT NULL)",
    "CREATE INDEX draft_tenant ON draft (tenant, id)",
    "CREATE TABLE stream (tenant TEXT PRIMARY KEY, epoch INTEGER NOT NULL, low INTEGER NOT NULL, high INTEGER NOT NULL,"
    " head TEXT NOT NULL, fence INTEGER NOT NULL, bytes INTEGER NOT NULL, queued INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE TABLE entry (id INTEGER PRIMARY KEY, tenant TEXT NOT NULL, seq INTEGER NOT NULL,"
    " envelope_id TEXT NOT NULL UNIQUE, source TEXT NOT NULL, family TEXT NOT NULL, events INTEGER NOT NULL,"
    " issued_unix_ns INTEGER NOT NULL, digest TEXT NOT NULL, size INTEGER NOT NULL, sum BLOB NOT NULL,"
    " body BLOB NOT NULL, UNIQUE (tenant, seq))",
    "CREATE TABLE spoken (instance TEXT NOT NULL, epoch INTEGER NOT NULL, tenant TEXT NOT NULL,"
    " PRIMARY KEY (instance, epoch, tenant)) WITHOUT ROWID",
)


def epoch_at(unix_ns: int) -> int:
    """The number of an epoch that begins at this time."""
    return min(max(unix_ns // MINUTE_NS - COUNTED_FROM_MINUTE, 1), MAX_EPOCH)


def renew_epochs(store: Any, now_ns: int) -> None:
    """Begin all streams anew, in the epoch after all that this store may have given out since it was copied."""
    row = store.execute("SELECT max(epoch) FROM stream").fetchone()
    known = store.execute("SELECT value FROM state WHERE key = 'epoch'").fetchone()
    newest = max(row[0] or 0, known[0] if known else 0)
    epoch = max(newest + 1, epoch_at(now_ns))
    start = begin_epoch(epoch).high - (1 << 63)
    store.execute("DELETE FROM entry")
    store.execute(
        "UPDATE stream SET epoch = ?, low = ?, high = ?, head = '', bytes = 0, queued = ?",
        (epoch, start, start, start),
    )
    store.execute("INSERT OR REPLACE INTO state VALUES ('epoch', ?)", (epoch,))


class SqliteTenantStreams:
    """A `TenantStreams`. Numbers of 64 bits are stored less 2^63, because SQLite's have a sign."""

    def __init__(self, file: StoreFile, *, clock: Clock) -> None:
        self._file = file
        self._path = file.path
        self._connection = file.connection
        self._clock = clock
        self._mark = AppendsMark(self._path)
        try:
            self._appends = self._state("appends")
            with self._connection:
                if self._appends < (marked := self._mark.read()):
                    # A copy of an earlier time was put in its place: what was appended since is in readers' hands.
                    structlog.get_logger().warning(
                        "the store of streams is an older copy of itself; all streams begin anew",
                        lost=marked - self._appends,
                    )
                    renew_epochs(self._connection, clock.unix_ns())
                    self._appends = marked
                    self._set_state("appends", marked)
                if self._state("epoch") == 0:
                    self._set_state("epoch", epoch_at(clock.unix_ns()))
        except BaseException:
            self._mark.close()
            raise

    @staticmethod
    async def open(path: Path, *, clock: Clock) -> SqliteTenantStreams:
        """Open or create; StateError when another process has it."""
        return await StoreFile.open(
            path,
            name="streams",
            application_id=APPLICATION_ID,
            schema_version=SCHEMA_VERSION,
            schema=_CREATE,
            begin=lambda file: SqliteTenantStreams(file, clock=clock),
            timeout_s=30.0,
        )

    # -- drafts ----------------------------------------------------------------------------------------

    async def cut_through(self) -> int:
        return await self._file.run(lambda: self._state("cut"))

    async def cut(self, page_id: int, drafts: Sequence[NewDraft], *, spoken: Sequence[SpokenOf] = ()) -> None:
        def write() -> None:
            with self._connection:
                if page_id <= self._state("cut"):
                    raise Conflict("These pages were cut already.", reason="cut-already")
                self._set_state("cut", page_id)
                self._connection.executemany(
                    "INSERT INTO draft (envelope_id, tenant, source, family, cut_unix_ns, events, size, digest, body)"
                    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    [
                        (
                            draft.envelope_id,
                            draft.tenant,
                            draft.source,
                            draft.family,
                            draft.cut_unix_ns,
                            draft.events,
                            len(draft.body),
                            blake3_digest(draft.body),
                            draft.body,
                        )
                        for draft in drafts
                    ],
                )
                self._connection.executemany(
                    "INSERT OR IGNORE INTO spoken VALUES (?, ?, ?)",
                    [(life.instance, life.epoch, life.tenant) for life in spoken],
                )
                if spoken:
                    self._execute(
                        "DELETE FROM spoken WHERE (instance, epoch) NOT IN"
                        " (SELECT DISTINCT instance, epoch FROM spoken ORDER BY epoch DESC LIMIT ?)",
                        (KEPT_LIVES,),
                    )

        await self._file.run(write)

    async def rewind(self) -> None:
        def write() -> None:
            with self._connection:
                self._set_state("cut", 0)

        await self._file.run(write)

    async def spoken_of(self, instance: str, epoch: int) -> list[str]:
        return await self._file.run(
            lambda: [
                row[0]
                for row in self._all(
                    "SELECT tenant FROM spoken WHERE instance = ? AND epoch = ? ORDER BY tenant",
                    (instance, epoch),
                )
            ]
        )

    async def waiting(self) -> Mapping[str, int]:
        return await self._file.run(
            lambda: dict(self._all("SELECT tenant, count(*) FROM draft GROUP BY tenant ORDER BY min(id)"))
        )

    async def drafts(self, tenant: str, *, limit: int, max_bytes: int) -> list[StoredDraft]:
        def read() -> list[StoredDraft]:
            found: list[StoredDraft] = []
            size = 0
            rows = self._connection.execute(
                "SELECT id, envelope_id, tenant, source, family, cut_unix_ns, events, body, digest FROM draft"
                " WHERE tenant = ? ORDER BY id LIMIT ?",
                (tenant, limit),
            )
            for row in rows:
                size += len(row[7])
                if found and size > max_bytes:
                    break
                if blake3_digest(row[7]) != row[8]:
                    raise IntegrityError(f"Draft {row[0]} of {self._path} is damaged.")
                found.append(StoredDraft(row[0], NewDraft(*row[1:8])))
            return found

        return await self._file.run(read)

    async def drop_drafts(
        self, *, cut_before_unix_ns: int, max_bytes_per_tenant: int
    ) -> Mapping[str, DroppedDrafts]:
        def write() -> dict[str, DroppedDrafts]:
            dropped: dict[str, DroppedDrafts] = {}
            with self._connection:
                sizes = self._execute("SELECT tenant, sum(size), min(cut_unix_ns) FROM draft GROUP BY tenant")
                for tenant, size, oldest in sizes.fetchall():
                    if oldest >= cut_before_unix_ns and size <= max_bytes_per_tenant:
                        continue
                    gone, events = [], 0
                    rows = self._execute(
                        "SELECT id, size, events, cut_unix_ns FROM draft WHERE tenant = ? ORDER BY id",
                        (tenant,),
                    )
                    left = size
                    for draft_id, draft_size, draft_events, cut_unix_ns in rows.fetchall():
                        if cut_unix_ns >= cut_before_unix_ns and left <= max_bytes_per_tenant:
                            break
                        left -= draft_size
                        events += draft_events
                        gone.append((draft_id,))
                    self._connection.executemany("DELETE FROM draft WHERE id = ?", gone)
                    if gone:
                        dropped[tenant] = DroppedDrafts(events, oldest)
            return dropped

        return await self._file.run(write)

    # -- streams ---------------------------------------------------------------------------------------

    async def tenants(self) -> list[str]:
        return await self._file.run(
            lambda: [row[0] for row in self._all("SELECT tenant FROM stream ORDER BY tenant")]
        )

    async def window(self, tenant: str) -> Position:
        return await self._file.run(lambda: self._window(tenant))

    async def append(
        self,
        tenant: str,
        *,
        expected: Position,
        fence: int,
        drafts: Sequence[int],
        entries: Sequence[StreamEntry],
    ) -> Position:
        def write() -> Position:
            with self._connection:
                now = self._window(tenant)
                row = self._execute("SELECT fence FROM stream WHERE tenant = ?", (tenant,)).fetchone()
                same = (now.epoch, now.high, now.head) == (expected.epoch, expected.high, expected.head)
                in_order = [entry.seq for entry in entries] == list(
                    range(now.next_seq, now.next_seq + len(entries))
                )
                if not same or not in_order or (row is not None and row[0] > fence):
                    raise Conflict(f"The stream of {tenant} has moved on.", reason="moved-on")
                size = sum(len(entry.body) for entry in entries)
                last = entries[-1] if entries else None
                moved = Position(
                    now.epoch, now.low, last.seq if last else now.high, last.digest if last else now.head
                )
                self._execute(
                    "INSERT INTO stream VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (tenant) DO UPDATE SET"
                    " epoch = excluded.epoch, high = excluded.high, head = excluded.head, fence = excluded.fence,"
                    " bytes = bytes + excluded.bytes",
                    (
                        tenant,
                        moved.epoch,
                        _stored(moved.low),
                        _stored(moved.high),
                        moved.head,
                        fence,
                        size,
                        _stored(moved.low),
                    ),
                )
                self._insert(tenant, entries)
                for draft in drafts:
                    self._execute("DELETE FROM draft WHERE id = ? AND tenant = ?", (draft, tenant))
                    if not self._connection.changes():
                        # It was sealed by another one, or dropped: this entry would tell its events twice.
                        raise Conflict(f"A draft of {tenant} is gone.", reason="moved-on")
                self._set_state("appends", self._appends + 1)
            self._appends += 1
            self._mark.write(self._appends)
            return moved

        return await self._file.run(write)

    async def read(
        self,
        tenant: str,
        *,
        after: int,
        sources: frozenset[str] = frozenset(),
        families: frozenset[str] = frozenset(),
        limit: int,
        max_bytes: int,
    ) -> StreamPart:
        def read() -> StreamPart:
            window = self._window(tenant)
            if after < window.low:
                raise OutsideReplayWindow(window.low)
            if after >= window.high:
                return StreamPart((), max(after, window.high))
            found: list[StreamEntry] = []
            size = 0
            through = window.high
            rows = self._connection.execute(
                "SELECT seq, envelope_id, source, family, events, issued_unix_ns, digest, size, sum, body"
                " FROM entry WHERE tenant = ? AND seq > ? ORDER BY seq",
                (tenant, _stored(after)),
            )
            for row in rows:
                if (sources and row[2] not in sources) or (families and row[3] not in families):
                    continue
                if found and (len(found) >= limit or size + row[7] > max_bytes):
                    through = found[-1].seq
                    break
                size += row[7]
                if blake3_digest(row[9]) != row[8]:
                    raise IntegrityError(f"An envelope of {tenant} in {self._path} is damaged.")
                found.append(_entry(row))
            return StreamPart(tuple(found), through)

        return await self._file.run(read)

    async def begin_epoch(self, tenant: str) -> Position:
        def write() -> Position:
            with self._connection:
                now = self._window(tenant)
                fresh = begin_epoch(max(now.epoch + 1, epoch_at(self._clock.unix_ns())))
                self._execute("DELETE FROM entry WHERE tenant = ?", (tenant,))
                at = _stored(fresh.high)
                self._execute(
                    "INSERT INTO stream VALUES (?, ?, ?, ?, '', 0, 0, ?) ON CONFLICT (tenant) DO UPDATE SET"
                    " epoch = excluded.epoch, low = excluded.low, high = excluded.high, head = '', bytes = 0,"
                    " queued = excluded.queued",
                    (tenant, fresh.epoch, at, at, at),
                )
            return fresh

        return await self._file.run(write)

    async def counts(self, tenant: str) -> Mapping[str, int]:
        return await self._file.run(
            lambda: dict(
                self._all(
                    "SELECT family, sum(events) FROM entry WHERE tenant = ? GROUP BY family ORDER BY family",
                    (tenant,),
                )
            )
        )

    async def queued_through(self) -> Mapping[str, int]:
        return await self._file.run(
            lambda: {row[0]: _read(row[1]) for row in self._all("SELECT tenant, queued FROM stream")}
        )

    async def queued(self, tenant: str, seq: int) -> None:
        def write() -> None:
            with self._connection:
                self._execute("UPDATE stream SET queued = ? WHERE tenant = ?", (_stored(seq), tenant))

        await self._file.run(write)

    async def prune(self, *, issued_before_unix_ns: int, max_bytes_per_tenant: int) -> Pruned:
        entries = early = 0
        bounds = (max_bytes_per_tenant, issued_before_unix_ns)
        due = await self._file.run(
            lambda: self._all(
                "SELECT tenant FROM stream WHERE bytes > ? OR EXISTS (SELECT 1 FROM entry"
                " WHERE entry.tenant = stream.tenant AND seq = low + 1 AND issued_unix_ns < ?)",
                bounds,
            )
        )
        for (tenant,) in due:
            # One tenant at a time, so that sealing never waits for all of them.
            pruned = await self._file.run(
                partial(self._prune, tenant, issued_before_unix_ns, max_bytes_per_tenant)
            )
            entries += pruned.entries
            early += pruned.early
        return Pruned(entries, early)

    async def close(self) -> None:
        await self._file.close()
        self._mark.close()

    # -- on the worker's thread ------------------------------------------------------------------------

    def _window(self, tenant: str) -> Position:
        row = self._execute(
            "SELECT epoch, low, high, head FROM stream WHERE tenant = ?", (tenant,)
        ).fetchone()
        if row is None:
            return begin_epoch(self._state("epoch"))
        return Position(row[0], _read(row[1]), _read(row[2]), row[3])

    def _insert(self, tenant: str, entries: Sequence[StreamEntry]) -> None:
        self._connection.executemany(
            "INSERT INTO entry (tenant, seq, envelope_id, source, family, events, issued_unix_ns, digest, size, sum,"
            " body) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [
                (
                    tenant,
                    _stored(entry.seq),
                    entry.envelope_id,
                    entry.source,
                    entry.family,
                    entry.events,
                    entry.issued_unix_ns,
                    entry.digest,
                    len(entry.body),
                    blake3_digest(entry.body),
                    entry.body,
                )
                for entry in entries
            ],
        )

    def _prune(self, tenant: str, issued_before_unix_ns: int, max_bytes: int) -> Pruned:
        entries = early = 0
        with self._connection:
            (size,) = self._execute("SELECT bytes FROM stream WHERE tenant = ?", (tenant,)).fetchone()
            low = None
            rows = self._execute(
                "SELECT seq, size, issued_unix_ns FROM entry WHERE tenant = ? ORDER BY seq LIMIT ?",
                (tenant, _PRUNED_AT_ONCE),
            )
            for seq, entry_size, issued_unix_ns in rows.fetchall():
                if issued_unix_ns >= issued_before_unix_ns and size <= max_bytes:
                    break
                low, size, entries = seq, size - entry_size, entries + 1
                early += issued_unix_ns >= issued_before_unix_ns
            if low is not None:
                self._execute("DELETE FROM entry WHERE tenant = ? AND seq <= ?", (tenant, low))
                self._execute("UPDATE stream SET low = ?, bytes = ? WHERE tenant = ?", (low, size, tenant))
        return Pruned(entries, early)

    def _state(self, key: str) -> int:
        row = self._execute("SELECT value FROM state WHERE key = ?", (key,)).fetchone()
        return 0 if row is None else row[0]

    def _set_state(self, key: str, value: int) -> None:
        self._execute("INSERT OR REPLACE INTO state VALUES (?, ?)", (key, value))

    def _all(self, statement: str, values: tuple[Any, ...] = ()) -> list[Any]:
        found: list[Any] = self._execute(statement, values).fetchall()
        return found

    def _execute(self, statement: str, values: tuple[Any, ...] = ()) -> Any:
        return self._connection.execute(statement, values)


def _entry(row: tuple[Any, ...]) -> StreamEntry:
    seq, envelope_id, source, family, events, issued_unix_ns, digest, _size, _sum, body = row
    return StreamEntry(_read(seq), envelope_id, source, family, events, issued_unix_ns, digest, body)


def _stored(seq: int) -> int:
    # A bookmark may be ahead of every number that there will ever be.
    return min(seq, (1 << 64) - 1) - (1 << 63)


def _read(stored: int) -> int:
    return stored + (1 << 63)
