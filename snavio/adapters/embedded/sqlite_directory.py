"""The directory in one SQLite file: present state and changelog, moved by the same transaction.

Never edits or deletes a line of the log, and never answers from a record whose checksum does not fit.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from snavio.adapters.embedded import directory_queries as queries
from snavio.adapters.embedded.directory_migration import MIGRATIONS
from snavio.adapters.embedded.directory_rows import SCHEMA, SCHEMA_VERSION, append
from snavio.adapters.embedded.sqlite_survey import SURVEY_SECONDS, survey
from snavio.adapters.embedded.store_file import StoreFile
from snavio.clock import Clock
from snavio.domain.directory import Change, DirectoryView, Draft, Value
from snavio.host.store_worker import StoreWorker
from snavio.ports.changelog import Dump
from snavio.ports.directory import ChangePage, Decision, Written
from snavio.ports.survey import Survey

APPLICATION_ID = 0x534E4456  # "SNDV"

T = TypeVar("T")


class SqliteDirectory:
    """A `Directory`; all SQLite calls run on one thread."""

    def __init__(self, file: StoreFile, *, clock: Clock) -> None:
        self._file = file
        self._connection = file.connection
        self._surveyor = StoreWorker("survey", max_waiting=1, timeout_s=SURVEY_SECONDS)
        self._clock = clock
        self._view = queries.SqliteView(self._connection)
        self._connection.execute("INSERT OR IGNORE INTO meta VALUES ('epoch', ?)", (_new_epoch(),))
        # Kept for readers that have everything: no other process writes the file while the lock is held.
        self._standing = (self._own_epoch(), queries.newest_version(self._connection))

    @staticmethod
    async def open(path: Path, *, clock: Clock) -> SqliteDirectory:
        """Open the directory at `path`; creates an empty one with its own epoch if there is none."""
        return await StoreFile.open(
            path,
            name="directory",
            application_id=APPLICATION_ID,
            schema_version=SCHEMA_VERSION,
            schema=SCHEMA,
            migrations=MIGRATIONS,
            begin=lambda file: SqliteDirectory(file, clock=clock),
        )

    async def close(self) -> None:
        await self._surveyor.close(lambda: None)
        await self._file.close()

    async def write(self, decide: Decision, *, actor: str, reason: str = "") -> Written:
        return await self._transaction("IMMEDIATE", lambda: self._write(decide(self._view), actor, reason))

    async def read(self, question: Callable[[DirectoryView], T]) -> tuple[int, T]:
        return await self._reading(lambda at: (queries.newest_version(at), question(self._view)))

    async def changes(self, *, since: int, epoch: int, limit: int) -> ChangePage:
        # Most pulls find nothing new; they need neither the thread nor the file.
        if (epoch, since) == self._standing:
            return ChangePage(epoch, since, (), more=False)
        return await self._transaction("DEFERRED", lambda: self._changes(since, epoch=epoch, limit=limit))

    @property
    def standing(self) -> tuple[int, int]:
        return self._standing

    async def survey(self, take: Callable[[Survey], T]) -> T:
        return await self._surveyor.run(lambda: survey(self._file.path, take))

    async def renew_epoch(self) -> int:
        return await self._transaction("IMMEDIATE", self._renew_epoch)

    async def version_at(self, at_ns: int) -> int:
        return await self._reading(lambda at: queries.version_at(at, at_ns))

    async def history(self, kind: type[Value], key: Sequence[str], *, limit: int) -> tuple[Change, ...]:
        return await self._reading(lambda at: queries.history(at, kind, key, limit))

    async def standing_at(
        self, kind: type[Value], *, version: int, parent: str, ending: str = "", limit: int
    ) -> tuple[Change, ...]:
        return await self._reading(
            lambda at: queries.standing_at(
                at, kind, version=version, parent=parent, ending=ending, limit=limit
            )
        )

    async def between(self, kind: type[Value], *, after: int, upto: int, limit: int) -> tuple[Change, ...]:
        return await self._reading(lambda at: queries.between(at, kind, after=after, upto=upto, limit=limit))

    async def dump(self, *, version: int, after: str, limit: int, kind: type[Value] | None = None) -> Dump:
        def page(at: Any) -> Dump:
            newest = queries.newest_version(at)
            asked = version or newest
            entries, end = queries.dump(at, version=asked, newest=newest, after=after, limit=limit, kind=kind)
            return Dump(self._own_epoch(), asked, entries, end)

        return await self._reading(page)

    # -- on the worker's thread ------------------------------------------------------------------------

    async def _reading(self, question: Callable[[Any], T]) -> T:
        return await self._transaction("DEFERRED", lambda: question(self._connection))

    async def _transaction(self, mode: str, work: Callable[[], T]) -> T:
        def transact() -> T:
            self._connection.execute(f"BEGIN {mode}")
            try:
                answer = work()
                standing = (self._own_epoch(), queries.newest_version(self._connection))
                self._connection.execute("COMMIT")
            finally:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
            # Only durable versions: a reader must not get a version that a full disk then rolls back.
            self._standing = standing
            return answer

        return await self._file.run(transact)

    def _write(self, decided: Draft | Sequence[Draft], actor: str, reason: str) -> Written:
        # A clock that was set back while we were down must not make "at that time" ambiguous.
        at_ns = max(self._clock.unix_ns(), queries.newest_time(self._connection))
        changed = False
        for draft in (decided,) if isinstance(decided, Draft) else decided:
            before = self._view.find(type(draft.value), *draft.value.key)
            version = append(self._connection, draft, before=before, at_ns=at_ns, actor=actor, reason=reason)
            changed = changed or version is not None
        return Written(queries.newest_version(self._connection), changed)

    def _own_epoch(self) -> int:
        (epoch,) = self._connection.execute("SELECT value FROM meta WHERE name = 'epoch'").fetchone()
        number: int = epoch
        return number

    def _renew_epoch(self) -> int:
        epoch = _new_epoch()
        self._connection.execute("UPDATE meta SET value = ? WHERE name = 'epoch'", (epoch,))
        return epoch

    def _changes(self, since: int, *, epoch: int, limit: int) -> ChangePage:
        own, newest = self._own_epoch(), queries.newest_version(self._connection)
        if epoch == own and since > newest:
            own = self._renew_epoch()
        changes = queries.lines_after(self._connection, since if epoch == own else 0, limit)
        more = bool(changes) and changes[-1].version < newest
        return ChangePage(own, changes[-1].version if more else newest, changes, more)


def _new_epoch() -> int:
    return secrets.randbits(63) | 1
