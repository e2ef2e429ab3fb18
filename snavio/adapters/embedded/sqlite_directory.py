"""The directory in one SQLite file: present state and changelog, moved by the same transaction.

Never edits or deletes a line of the log, and never answers from a record whose checksum does not fit.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

import orjson

from snavio.adapters.embedded.sqlite import StoreLock, open_store, store_errors
from snavio.clock import Clock
from snavio.domain.directory import (
    KINDS,
    Change,
    DedupeMode,
    Draft,
    Profile,
    QueueKind,
    Route,
    V,
    Value,
    View,
)
from snavio.errors import IntegrityError
from snavio.ports.directory import ChangePage, Written
from snavio.worker import Worker

APPLICATION_ID = 0x534E4456  # "SNDV"
SCHEMA_VERSION = 1
SCHEMA = (
    "CREATE TABLE meta (name TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT, WITHOUT ROWID",
    # AUTOINCREMENT: a version is never given twice, not even after the newest line was lost.
    """CREATE TABLE changelog (
        version INTEGER PRIMARY KEY AUTOINCREMENT, at_ns INTEGER NOT NULL, actor TEXT NOT NULL,
        kind TEXT NOT NULL, value BLOB NOT NULL, deleted INTEGER NOT NULL, checksum BLOB NOT NULL) STRICT""",
    """CREATE TABLE record (
        kind TEXT NOT NULL, key TEXT NOT NULL, parent TEXT NOT NULL,
        value BLOB NOT NULL, checksum BLOB NOT NULL, PRIMARY KEY (kind, key)) STRICT, WITHOUT ROWID""",
    "CREATE INDEX record_by_parent ON record (kind, parent)",
    "CREATE TRIGGER changelog_keeps BEFORE DELETE ON changelog BEGIN SELECT raise(ABORT, 'append-only'); END",
    "CREATE TRIGGER changelog_stays BEFORE UPDATE ON changelog BEGIN SELECT raise(ABORT, 'append-only'); END",
)

T = TypeVar("T")


class SqliteDirectory:
    """A `Directory`; all of SQLite happens on one thread."""

    def __init__(self, connection: Any, *, path: Path, lock: StoreLock, worker: Worker, clock: Clock) -> None:
        self._connection = connection
        self._path = path
        self._lock = lock
        self._worker = worker
        self._clock = clock
        self._view = _SqliteView(connection)

    @staticmethod
    async def open(path: Path, *, clock: Clock) -> SqliteDirectory:
        """Open the directory at `path`; makes an empty one with an epoch of its own if there is none."""
        worker = Worker("directory")

        def begin() -> SqliteDirectory:
            lock = StoreLock(path)
            try:
                connection = open_store(
                    path, application_id=APPLICATION_ID, schema_version=SCHEMA_VERSION, create=SCHEMA
                )
                with store_errors(path):
                    connection.execute("INSERT OR IGNORE INTO meta VALUES ('epoch', ?)", (_new_epoch(),))
            except BaseException:
                lock.release()
                raise
            return SqliteDirectory(connection, path=path, lock=lock, worker=worker, clock=clock)

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

    async def write(self, decide: Callable[[View], Draft], *, actor: str) -> Written:
        return await self._transaction("IMMEDIATE", lambda: self._write(decide(self._view), actor=actor))

    async def read(self, question: Callable[[View], T]) -> tuple[int, T]:
        return await self._transaction("DEFERRED", lambda: (self._version(), question(self._view)))

    async def changes(self, *, since: int, epoch: int, limit: int) -> ChangePage:
        return await self._transaction("DEFERRED", lambda: self._changes(since, epoch=epoch, limit=limit))

    async def renew_epoch(self) -> int:
        return await self._transaction("IMMEDIATE", self._renew_epoch)

    # -- on the worker's thread ------------------------------------------------------------------------

    async def _transaction(self, mode: str, work: Callable[[], T]) -> T:
        def transact() -> T:
            with store_errors(self._path):
                self._connection.execute(f"BEGIN {mode}")
                try:
                    answer = work()
                    self._connection.execute("COMMIT")
                finally:
                    if self._connection.in_transaction:
                        self._connection.execute("ROLLBACK")
                return answer

        return await self._worker.run(transact)

    def _write(self, draft: Draft, *, actor: str) -> Written:
        value = draft.value
        before = self._view.find(type(value), *value.key)
        if before is None if draft.deleted else before == value:
            return Written(self._version(), changed=False)
        if draft.deleted and before is not None:
            # The tombstone says what is gone, not what the request happened to call it.
            value = before
        blob, key = _encode(value), "\n".join(value.key)
        if draft.deleted:
            self._connection.execute("DELETE FROM record WHERE kind = ? AND key = ?", (value.kind, key))
        else:
            self._connection.execute(
                "INSERT OR REPLACE INTO record VALUES (?, ?, ?, ?, ?)",
                (value.kind, key, value.parent, blob, _checksum(value.kind, key, blob)),
            )
        at_ns = self._clock.unix_ns()
        (version,) = self._connection.execute(
            "INSERT INTO changelog (at_ns, actor, kind, value, deleted, checksum) VALUES (?, ?, ?, ?, ?, ?)"
            " RETURNING version",
            (
                at_ns,
                actor,
                value.kind,
                blob,
                draft.deleted,
                _checksum(at_ns, actor, value.kind, blob, draft.deleted),
            ),
        ).fetchone()
        return Written(version, changed=True)

    def _version(self) -> int:
        (version,) = self._connection.execute("SELECT coalesce(max(version), 0) FROM changelog").fetchone()
        return cast("int", version)

    def _renew_epoch(self) -> int:
        epoch = _new_epoch()
        self._connection.execute("UPDATE meta SET value = ? WHERE name = 'epoch'", (epoch,))
        return epoch

    def _changes(self, since: int, *, epoch: int, limit: int) -> ChangePage:
        (own,) = self._connection.execute("SELECT value FROM meta WHERE name = 'epoch'").fetchone()
        newest = self._version()
        if epoch == own and since > newest:
            own = self._renew_epoch()
        start = since if epoch == own else 0
        rows = self._connection.execute(
            "SELECT version, at_ns, actor, kind, value, deleted, checksum FROM changelog"
            " WHERE version > ? ORDER BY version LIMIT ?",
            (start, limit),
        ).fetchall()
        changes = tuple(_change(row) for row in rows)
        more = bool(changes) and changes[-1].version < newest
        return ChangePage(own, changes[-1].version if more else newest, changes, more)


@dataclass(frozen=True, slots=True)
class _SqliteView:
    """The directory as the current transaction sees it."""

    connection: Any

    def find(self, kind: type[V], *key: str) -> V | None:
        # No stored name has a line break, so a key with one has too many lines to be found.
        place = "\n".join(key)
        row = self.connection.execute(
            "SELECT value, checksum FROM record WHERE kind = ? AND key = ?", (kind.kind, place)
        ).fetchone()
        if row is None:
            return None
        if row[1] != _checksum(kind.kind, place, row[0]):
            raise IntegrityError(f"The directory's {kind.kind} record {key!r} is damaged.")
        return cast("V", _decode(kind.kind, row[0]))

    def count(self, kind: type[Value], parent: str) -> int:
        (number,) = self.connection.execute(
            "SELECT count(*) FROM record WHERE kind = ? AND parent = ?", (kind.kind, parent)
        ).fetchone()
        return cast("int", number)


def _change(row: tuple[int, int, str, str, bytes, int, bytes]) -> Change:
    version, at_ns, actor, kind, value, deleted, checksum = row
    if checksum != _checksum(at_ns, actor, kind, value, bool(deleted)):
        raise IntegrityError(f"The directory's change {version} is damaged.")
    return Change(version, at_ns, actor, _decode(kind, value), bool(deleted))


def _new_epoch() -> int:
    return secrets.randbits(63) | 1


def _encode(value: Value) -> bytes:
    return orjson.dumps(asdict(value), option=orjson.OPT_SORT_KEYS)


def _decode(kind: str, blob: bytes) -> Value:
    fields = orjson.loads(blob)
    if KINDS[kind] is Route:
        fields["queue_kind"] = QueueKind(fields["queue_kind"])
        fields["profile"] = Profile(fields["profile"])
        fields["dedupe_mode"] = DedupeMode(fields["dedupe_mode"])
    return KINDS[kind](**fields)


def _checksum(*parts: str | bytes | int) -> bytes:
    """Finds rot and slips of the hand; whoever can write the file can write the checksum too."""
    digest = hashlib.blake2b(digest_size=8)
    for part in parts:
        piece = part if isinstance(part, bytes) else str(part).encode()
        digest.update(len(piece).to_bytes(4, "big") + piece)
    return digest.digest()
