"""Coordination in one SQLite file, for one Slow. The store's clock is that of the process.

Never counts in memory only: every answer is on disk first, so a Slow that is killed and restarted continues with the
same intervals and claims.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import orjson

from snavio.adapters.coordination_records import (
    Step,
    counted,
    granting,
    key_text,
    over_ms,
    read_usage,
    returning,
    taking,
    usage_text,
)
from snavio.adapters.embedded.store_file import StoreFile
from snavio.clock import Clock
from snavio.domain import claim as claims
from snavio.domain.claim import Claim, Terms
from snavio.domain.quota import LimitUsage, Permits
from snavio.domain.store_epoch import StoreEpoch, met
from snavio.errors import IntegrityError, Saturated
from snavio.ports.coordination import BanSeen, ClaimAnswer, ClaimAsk, PermitAsk, PermitReturn

APPLICATION_ID: Final = 0x534E434F  # "SNCO"
SCHEMA_VERSION: Final = 1
SCHEMA: Final = (
    "CREATE TABLE epoch (one INTEGER PRIMARY KEY CHECK (one = 1), name TEXT NOT NULL, born_ms INTEGER NOT NULL, "
    "boot TEXT NOT NULL, offset_ms INTEGER NOT NULL) STRICT",
    """CREATE TABLE usage (key TEXT PRIMARY KEY, record TEXT NOT NULL, over_ms INTEGER NOT NULL,
        checksum BLOB NOT NULL) STRICT, WITHOUT ROWID""",
    "CREATE INDEX usage_by_end ON usage (over_ms)",
    """CREATE TABLE claim (source TEXT NOT NULL, command_id BLOB NOT NULL, payload BLOB NOT NULL,
        owner TEXT NOT NULL, committed INTEGER NOT NULL, lease_until_ms INTEGER NOT NULL,
        expires_ms INTEGER NOT NULL, PRIMARY KEY (source, command_id)) STRICT, WITHOUT ROWID""",
    "CREATE INDEX claim_by_end ON claim (expires_ms)",
    """CREATE TABLE ban (key TEXT PRIMARY KEY, times TEXT NOT NULL, over_ms INTEGER NOT NULL)
        STRICT, WITHOUT ROWID""",
    "CREATE INDEX ban_by_end ON ban (over_ms)",
)
# Each write deletes a few expired rows, so that none has to delete thousands; and more than it adds, or expired rows
# would accumulate until the table is full.
FORGOTTEN_AT_ONCE: Final = 64
# Without room, a write may delete thousands at once.
FORGOTTEN_AT_MOST: Final = 20_000
MAX_BANNED: Final = 100_000
# A larger difference means that the clock was set while Slow was down; a smaller one is drift.
STEP_MS: Final = 2000

T = TypeVar("T")


class SqliteCoordination:
    """A `Coordination`; all SQLite calls run on one thread."""

    def __init__(
        self,
        file: StoreFile,
        *,
        clock: Clock,
        epoch: StoreEpoch,
        terms: Terms,
        max_claims: int,
        max_claims_per_source: int,
        max_banned: int = MAX_BANNED,
    ) -> None:
        self._file = file
        self._connection = file.connection
        self._clock = clock
        self.epoch = epoch
        self._terms = terms
        self._max_claims = max_claims
        self._max_claims_per_source = max_claims_per_source
        self._max_banned = max_banned
        self._claims = dict(
            self._connection.execute("SELECT source, count(*) FROM claim GROUP BY source").fetchall()
        )
        self._claimed = sum(self._claims.values())
        self._counted: list[tuple[str, int]] = []
        """Changes of these counts by the running transaction."""

    @staticmethod
    async def open(
        path: Path,
        *,
        clock: Clock,
        known_epoch: str | None,
        fresh_epoch: str,
        boot: str,
        terms: Terms,
        max_claims: int,
        max_claims_per_source: int,
        max_banned: int = MAX_BANNED,
        timeout_s: float = 10.0,
    ) -> SqliteCoordination:
        """Open the store at `path`, an empty one if there is none.

        `boot` identifies the boot of the machine: within one boot the monotonic clock shows by how much the wall clock
        was set.
        """

        def begin(file: StoreFile) -> SqliteCoordination:
            with file.connection as connection:
                epoch = _begin(
                    connection,
                    clock=clock,
                    known=known_epoch,
                    fresh_name=fresh_epoch,
                    boot=boot,
                    keep_ms=terms.keep_ms,
                )
            return SqliteCoordination(
                file,
                clock=clock,
                epoch=epoch,
                terms=terms,
                max_claims=max_claims,
                max_claims_per_source=max_claims_per_source,
                max_banned=max_banned,
            )

        return await StoreFile.open(
            path,
            name="coordination",
            application_id=APPLICATION_ID,
            schema_version=SCHEMA_VERSION,
            schema=SCHEMA,
            begin=begin,
            timeout_s=timeout_s,
        )

    async def close(self) -> None:
        await self._file.close()

    # -- limits ----------------------------------------------------------------------------------------

    async def take(self, asks: Sequence[PermitAsk]) -> list[Permits]:
        return await self._debit([(ask.key, taking(ask)) for ask in asks])

    async def grant(self, wishes: Sequence[PermitAsk], *, instance: str, leases: int) -> list[Permits]:
        return await self._debit(
            [(wish.key, granting(wish, instance=instance, leases=leases)) for wish in wishes]
        )

    async def give_back(self, returns: Sequence[PermitReturn]) -> None:
        await self._debit([(back.key, returning(back)) for back in returns])

    async def _debit(self, steps: Sequence[tuple[tuple[str, ...], Step]]) -> list[Permits]:
        def work(now_ms: int) -> list[Permits]:
            before: dict[str, LimitUsage] = {}
            after: dict[str, LimitUsage] = {}
            answers = []
            for key, step in steps:
                name = key_text(key)
                if name not in after:
                    before[name] = after[name] = self._usage(name)
                after[name], answer = step(after[name], now_ms, self.epoch.born_ms)
                if answer is not None:
                    answers.append(answer)
            for name, usage in after.items():
                if usage != before[name]:
                    record = usage_text(usage)
                    self._connection.execute(
                        "INSERT OR REPLACE INTO usage VALUES (?, ?, ?, ?)",
                        (name, record, over_ms(usage), _checksum(name, record)),
                    )
            self._forget("usage", now_ms, _tidied(len(steps)))
            return answers

        return await self._transaction(work)

    def _usage(self, name: str) -> LimitUsage:
        row = self._connection.execute("SELECT record, checksum FROM usage WHERE key = ?", (name,)).fetchone()
        if row is None:
            return LimitUsage()
        if row[1] != _checksum(name, row[0]):
            raise IntegrityError(f"{self._file.path}: the record of a limit is damaged.")
        return read_usage(row[0])

    # -- strict ids ------------------------------------------------------------------------------------

    async def claim(self, asks: Sequence[ClaimAsk], *, owner: str) -> list[ClaimAnswer]:
        def work(now_ms: int) -> list[ClaimAnswer]:
            self._forget_claims(now_ms, _tidied(len(asks)))
            answers = []
            for ask in asks:
                found = self._find(ask)
                kept, claimed, retry_after_ms = claims.claim(
                    found,
                    payload=ask.contents,
                    owner=owner,
                    now_ms=now_ms,
                    terms=self._terms,
                    born_ms=self.epoch.born_ms,
                )
                if found is None and kept is not None:
                    self._require_room(ask.source)
                self._keep(ask, found, kept)
                delivered_ms = claims.delivered_ms(found, claimed, self._terms)
                answers.append(ClaimAnswer(claimed, retry_after_ms, delivered_ms))
            return answers

        return await self._transaction(work, make_room=self._forget_claims)

    async def look_up(self, source: str, command_id: bytes) -> ClaimAnswer:
        def work(now_ms: int) -> ClaimAnswer:
            found = self._find(ClaimAsk(source, command_id, b""))
            return ClaimAnswer(
                *claims.look_up(found, now_ms=now_ms, terms=self._terms, born_ms=self.epoch.born_ms)
            )

        return await self._transaction(work)

    async def commit(self, asks: Sequence[ClaimAsk], *, owner: str) -> None:
        def work(now_ms: int) -> None:
            for ask in asks:
                found = self._find(ask)
                self._keep(ask, found, claims.commit(found, owner=owner, now_ms=now_ms, terms=self._terms))

        await self._transaction(work)

    async def release(self, asks: Sequence[ClaimAsk], *, owner: str) -> None:
        def work(_now_ms: int) -> None:
            for ask in asks:
                found = self._find(ask)
                self._keep(ask, found, claims.release(found, owner=owner))

        await self._transaction(work)

    def _find(self, ask: ClaimAsk) -> Claim | None:
        row = self._connection.execute(
            "SELECT payload, owner, committed, lease_until_ms, expires_ms FROM claim "
            "WHERE source = ? AND command_id = ?",
            (ask.source, ask.command_id),
        ).fetchone()
        return None if row is None else Claim(row[0], row[1], bool(row[2]), row[3], row[4])

    def _keep(self, ask: ClaimAsk, found: Claim | None, kept: Claim | None) -> None:
        if kept == found:
            return
        if kept is None:
            self._connection.execute(
                "DELETE FROM claim WHERE source = ? AND command_id = ?", (ask.source, ask.command_id)
            )
            self._count_claim(ask.source, -1)
            return
        self._connection.execute(
            "INSERT OR REPLACE INTO claim VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                ask.source,
                ask.command_id,
                kept.payload,
                kept.owner,
                int(kept.committed),
                kept.lease_until_ms,
                kept.expires_ms,
            ),
        )
        if found is None:
            self._count_claim(ask.source, 1)

    def _require_room(self, source: str) -> None:
        # Refused, never evicted: a claim that is forgotten early is a command that is delivered twice.
        if self._claimed >= self._max_claims or self._claims.get(source, 0) >= self._max_claims_per_source:
            raise Saturated("Too many strict commands are remembered.", retry_after_ms=self._terms.lease_ms)

    def _count_claim(self, source: str, change: int) -> None:
        self._counted.append((source, change))
        self._claimed += change
        left = self._claims.get(source, 0) + change
        if left > 0:
            self._claims[source] = left
        else:
            self._claims.pop(source, None)

    def _forget_claims(self, now_ms: int, most: int) -> int:
        over = self._connection.execute(
            "SELECT source, command_id FROM claim WHERE expires_ms <= ? ORDER BY expires_ms LIMIT ?",
            (now_ms, most),
        ).fetchall()
        for source, command_id in over:
            self._connection.execute(
                "DELETE FROM claim WHERE source = ? AND command_id = ?", (source, command_id)
            )
            self._count_claim(source, -1)
        return len(over)

    # -- bans ------------------------------------------------------------------------------------------

    async def count_bans(self, bans: Sequence[BanSeen], *, within_ms: int) -> list[int]:
        def work(now_ms: int) -> list[int]:
            self._forget("ban", now_ms, _tidied(len(bans)))
            (count,) = self._connection.execute("SELECT count(*) FROM ban").fetchone()
            answers = []
            for ban in bans:
                name = key_text(ban.key)
                row = self._connection.execute("SELECT times FROM ban WHERE key = ?", (name,)).fetchone()
                if row is None:
                    count += 1
                    if count > self._max_banned:
                        raise Saturated("Too many banned sources are counted.", retry_after_ms=60_000)
                times = counted(orjson.loads(row[0]) if row else [], now_ms, within_ms, ban.window_ms)
                self._connection.execute(
                    "INSERT OR REPLACE INTO ban VALUES (?, ?, ?)",
                    (name, orjson.dumps(times).decode(), now_ms + within_ms),
                )
                answers.append(len(times))
            return answers

        return await self._transaction(work, make_room=partial(self._forget, "ban"))

    async def forget_bans(self, keys: Sequence[tuple[str, str, str]]) -> None:
        def work(_now_ms: int) -> None:
            for key in keys:
                self._connection.execute("DELETE FROM ban WHERE key = ?", (key_text(key),))

        await self._transaction(work)

    # -- on the worker's thread ------------------------------------------------------------------------

    async def _transaction(
        self, work: Callable[[int], T], *, make_room: Callable[[int, int], int] | None = None
    ) -> T:
        def transact() -> T:
            now_ms = self._clock.unix_ns() // 1_000_000
            try:
                return self._transact(lambda: work(now_ms))
            except Saturated:
                # The refusal rolled back its deletions as well. Deleted in a transaction of their own they stay
                # deleted, or a table full of expired rows would refuse for ever.
                if make_room is None or not self._transact(lambda: make_room(now_ms, FORGOTTEN_AT_MOST)):
                    raise
                return self._transact(lambda: work(now_ms))

        return await self._file.run(transact)

    def _transact(self, work: Callable[[], T]) -> T:
        self._counted = []
        try:
            with self._connection:
                return work()
        except BaseException:
            # Rows that were rolled back were neither claimed nor deleted. Counting the whole table instead would let
            # refused callers make every other call wait.
            for source, change in list(self._counted):
                self._count_claim(source, -change)
            raise

    def _forget(self, table: str, now_ms: int, most: int) -> int:
        self._connection.execute(
            f"DELETE FROM {table} WHERE key IN "  # noqa: S608 our own words
            f"(SELECT key FROM {table} WHERE over_ms <= ? ORDER BY over_ms LIMIT ?)",
            (now_ms, most),
        )
        forgotten: int = self._connection.changes()
        return forgotten


def _tidied(brought: int) -> int:
    """The number of expired rows that a write of `brought` new rows deletes."""
    return FORGOTTEN_AT_ONCE + 2 * brought


def _begin(
    connection: Any, *, clock: Clock, known: str | None, fresh_name: str, boot: str, keep_ms: int
) -> StoreEpoch:
    now_ms = clock.unix_ns() // 1_000_000
    offset_ms = (clock.unix_ns() - clock.mono_ns()) // 1_000_000
    row = connection.execute("SELECT name, born_ms, boot, offset_ms FROM epoch").fetchone()
    epoch = met(
        StoreEpoch(row[0], row[1]) if row else None, known=known, fresh_name=fresh_name, now_ms=now_ms
    )
    if row is not None and row[2] == boot and abs(offset_ms - row[3]) > STEP_MS:
        # The wall clock was set while no Slow ran: shift the claims, so that each keeps its remaining time.
        step_ms = offset_ms - row[3]
        connection.execute(
            "UPDATE claim SET lease_until_ms = lease_until_ms + ?, expires_ms = expires_ms + ?",
            (step_ms, step_ms),
        )
    # Another boot: the clocks cannot be compared. No claim may last longer than a new one would.
    connection.execute("UPDATE claim SET expires_ms = ? WHERE expires_ms > ?", (now_ms + keep_ms,) * 2)
    connection.execute(
        "INSERT OR REPLACE INTO epoch VALUES (1, ?, ?, ?, ?)", (epoch.name, epoch.born_ms, boot, offset_ms)
    )
    return epoch


def _checksum(key: str, record: str) -> bytes:
    """Detects damage and manual edits, not an attacker: write access to the file is enough to write a checksum too."""
    return hashlib.blake2b(f"{key}\0{record}".encode(), digest_size=8).digest()
