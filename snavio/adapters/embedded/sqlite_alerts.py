"""Alerts in one SQLite file: groups, messages, deliveries, mutes, and sealed secrets of webhooks.

Never tells a message without taking its count from its group in the same transaction, and never keeps a secret in the
clear.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import orjson

from snavio.adapters.embedded.sealing import SealingKey
from snavio.adapters.embedded.store_file import StoreFile, count
from snavio.domain.alerts import OPERATORS, OTHER, AlertGroup, Occurrence, due, merged, noted, told
from snavio.native import uuid7
from snavio.ports.alert_store import (
    AlertCounts,
    AlertDelivery,
    AlertMessage,
    AlertState,
    ChannelProgress,
    Mute,
    SigningSecret,
)

APPLICATION_ID: Final = 0x534E414C
SCHEMA_VERSION: Final = 1
MAX_ERROR: Final = 300
_MAGIC: Final = b"SNAVIOWH"
_LOOKED_AT_ONCE: Final = 1000

_CREATE: Final = (
    "CREATE TABLE state (key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE TABLE alert_group (tenant TEXT NOT NULL, event TEXT NOT NULL, reason TEXT NOT NULL,"
    " opened INTEGER NOT NULL, ends INTEGER NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL,"
    " pending INTEGER NOT NULL, told INTEGER NOT NULL, messages INTEGER NOT NULL, sample BLOB NOT NULL,"
    " PRIMARY KEY (tenant, event, reason)) WITHOUT ROWID",
    "CREATE INDEX group_ends ON alert_group (ends)",
    "CREATE TABLE message (id TEXT PRIMARY KEY, tenant TEXT NOT NULL, event TEXT NOT NULL, reason TEXT NOT NULL,"
    " count INTEGER NOT NULL, total INTEGER NOT NULL, number INTEGER NOT NULL, created INTEGER NOT NULL,"
    " first INTEGER NOT NULL, last INTEGER NOT NULL, sample BLOB NOT NULL, state TEXT NOT NULL, why TEXT NOT NULL,"
    " acked_by TEXT NOT NULL, acked INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE INDEX message_tenant ON message (tenant, id)",
    "CREATE INDEX message_state ON message (state, id)",
    "CREATE TABLE delivery (alert_id TEXT NOT NULL, channel TEXT NOT NULL, tenant TEXT NOT NULL,"
    " state TEXT NOT NULL, attempts INTEGER NOT NULL, next INTEGER NOT NULL, begun INTEGER NOT NULL,"
    " error TEXT NOT NULL, PRIMARY KEY (alert_id, channel)) WITHOUT ROWID",
    "CREATE INDEX delivery_due ON delivery (state, next)",
    "CREATE TABLE mute (tenant TEXT NOT NULL, event TEXT NOT NULL, until INTEGER NOT NULL, by TEXT NOT NULL,"
    " PRIMARY KEY (tenant, event)) WITHOUT ROWID",
    "CREATE TABLE secret (tenant TEXT NOT NULL, channel TEXT NOT NULL, sealed BLOB NOT NULL,"
    " PRIMARY KEY (tenant, channel)) WITHOUT ROWID",
)
_COLUMNS: Final = (
    *("id", "tenant", "event", "reason", "count", "total", "number", "created", "first", "last", "sample"),
    *("state", "why", "acked_by", "acked"),
)
_MESSAGE: Final = ", ".join(_COLUMNS)
# Of these nothing is left to do, so they make room for others.
_FINISHED: Final = "(state IN ('delivered', 'muted') OR state = 'unrouted' AND acked > 0)"


@dataclass(frozen=True, slots=True)
class AlertBounds:
    """Largest numbers of messages and of groups."""

    messages: int = 20_000
    messages_per_tenant: int = 1_000
    groups: int = 20_000
    groups_per_tenant: int = 200


class SqliteAlerts:
    """An `AlertStore`."""

    def __init__(self, file: StoreFile, *, key: SealingKey, bounds: AlertBounds) -> None:
        self._file = file
        self._path = file.path
        self._connection = file.connection
        self._key = key
        self._bounds = bounds
        self._full = False

    @staticmethod
    async def open(path: Path, *, key: SealingKey, bounds: AlertBounds) -> SqliteAlerts:
        """Open or create; StateError when another process has it."""
        return await StoreFile.open(
            path,
            name="alerts",
            application_id=APPLICATION_ID,
            schema_version=SCHEMA_VERSION,
            schema=_CREATE,
            begin=lambda file: SqliteAlerts(file, key=key, bounds=bounds),
            timeout_s=30.0,
        )

    # -- groups ----------------------------------------------------------------------------------------

    async def noted_through(self) -> int:
        return await self._file.run(lambda: self._state("noted"))

    async def note(self, occurrences: Sequence[Occurrence], *, now: int, page_id: int = 0) -> int:
        found = merged(occurrences)

        def write(_connection: Any) -> int:
            if page_id:
                if page_id <= self._state("noted"):
                    return 0
                self._execute("INSERT OR REPLACE INTO state VALUES ('noted', ?)", (page_id,))
            return sum(self._note(occurrence, now) for occurrence in found)

        return await self._file.transaction(write)

    async def rewind(self) -> None:
        await self._file.transaction(lambda _: self._execute("DELETE FROM state WHERE key = 'noted'"))

    async def look(self, now: int) -> int:
        def write(_connection: Any) -> int:
            self._full = False
            rows = self._execute(
                "SELECT * FROM alert_group WHERE ends <= ? ORDER BY ends LIMIT ?", (now, _LOOKED_AT_ONCE)
            ).fetchall()
            made = 0
            for group in map(_group, rows):
                if group.pending:
                    made += self._tell(group, now)
                else:
                    self._execute(
                        "DELETE FROM alert_group WHERE tenant = ? AND event = ? AND reason = ?", group.key
                    )
            return made

        return await self._file.transaction(write)

    def _note(self, occurrence: Occurrence, now: int) -> int:
        known = self._find(occurrence.key)
        if known is None and occurrence.reason != OTHER and not self._room_for_group(occurrence.tenant):
            # One group for all that come from here on: what is told gets coarser, and none is lost.
            occurrence = replace(occurrence, reason=OTHER)
            known = self._find(occurrence.key)
        group = noted(known, occurrence, now)
        if due(group, now):
            return self._tell(group, now)
        self._save(group)
        return 0

    def _tell(self, group: AlertGroup, now: int) -> int:
        tenant, event, reason = group.key
        if not self._room_for_message(tenant):
            self._full = True
            self._save(group)
            return 0
        after = told(group, now)
        self._execute(
            f"INSERT INTO message ({_MESSAGE}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, '', '', 0)",  # noqa: S608
            (
                uuid7(),
                tenant,
                event,
                reason,
                group.pending,
                after.told,
                group.messages,
                now,
                group.first_unix_ns,
                group.last_unix_ns,
                orjson.dumps(dict(group.sample)),
                AlertState.WAITING.value,
            ),
        )
        self._save(after)
        return 1

    def _room_for_group(self, tenant: str) -> bool:
        if (
            count(self._connection, "alert_group WHERE tenant = ?", (tenant,))
            >= self._bounds.groups_per_tenant
        ):
            return False
        return tenant == OPERATORS or count(self._connection, "alert_group") < self._bounds.groups

    def _room_for_message(self, tenant: str) -> bool:
        bounds = self._bounds
        own = count(self._connection, "message WHERE tenant = ?", (tenant,)) < bounds.messages_per_tenant
        if not own and not self._forget_one("tenant = ?", (tenant,)):
            return False
        # The operators' share is beyond what all tenants together may fill.
        if tenant == OPERATORS or count(self._connection, "message") < bounds.messages:
            return True
        return self._forget_one("tenant <> ''", ())

    def _forget_one(self, where: str, values: Sequence[Any]) -> bool:
        row = self._execute(
            f"SELECT id FROM message WHERE {where} AND {_FINISHED} ORDER BY id LIMIT 1",  # noqa: S608
            values,
        ).fetchone()
        if row is not None:
            self._forget([row[0]])
        return row is not None

    def _find(self, key: tuple[str, str, str]) -> AlertGroup | None:
        row = self._execute(
            "SELECT * FROM alert_group WHERE tenant = ? AND event = ? AND reason = ?", key
        ).fetchone()
        return _group(row) if row is not None else None

    def _save(self, group: AlertGroup) -> None:
        self._execute(
            "INSERT OR REPLACE INTO alert_group VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                *group.key,
                group.opened_unix_ns,
                group.window_ends_unix_ns,
                group.first_unix_ns,
                group.last_unix_ns,
                group.pending,
                group.told,
                group.messages,
                orjson.dumps(dict(group.sample)),
            ),
        )

    # -- deliveries ------------------------------------------------------------------------------------

    async def waiting(self, *, limit: int) -> list[AlertMessage]:
        return await self._file.run(
            lambda: [
                _message(row)
                for row in self._execute(
                    f"SELECT {_MESSAGE} FROM message WHERE state = 'waiting' ORDER BY id LIMIT ?",  # noqa: S608
                    (limit,),
                )
            ]
        )

    async def route(self, alert_id: str, channels: Sequence[str], *, now: int, why: str = "") -> None:
        def write(_connection: Any) -> None:
            row = self._execute("SELECT tenant FROM message WHERE id = ?", (alert_id,)).fetchone()
            if row is None:
                return
            for channel in channels:
                self._execute(
                    "INSERT OR IGNORE INTO delivery VALUES (?, ?, ?, 'pending', 0, ?, 0, '')",
                    (alert_id, channel, row[0], now),
                )
            muted = why == AlertState.MUTED.value
            state = AlertState.SENDING if channels else AlertState.MUTED if muted else AlertState.UNROUTED
            self._execute(
                "UPDATE message SET state = ?, why = ? WHERE id = ?", (state.value, why[:MAX_ERROR], alert_id)
            )

        await self._file.transaction(write)

    async def due(self, now: int, *, limit: int, per_channel: int) -> list[AlertDelivery]:
        def read() -> list[AlertDelivery]:
            rows = self._execute(
                f"SELECT {', '.join('m.' + name for name in _COLUMNS)},"  # noqa: S608
                " d.channel, d.attempts, d.begun FROM (SELECT *, row_number() OVER"
                " (PARTITION BY tenant, channel ORDER BY next) AS place FROM delivery"
                " WHERE state = 'pending' AND next <= ?) d JOIN message m ON m.id = d.alert_id"
                " WHERE d.place <= ? ORDER BY d.place, d.next LIMIT ?",
                (now, per_channel, limit),
            )
            return [AlertDelivery(_message(row[:-3]), *row[-3:]) for row in rows]

        return await self._file.run(read)

    async def delivered(self, alert_id: str, channel: str, *, now: int) -> None:
        def write(_connection: Any) -> None:
            self._execute(
                "UPDATE delivery SET state = 'delivered', attempts = attempts + 1, error = '' WHERE alert_id = ?"
                " AND channel = ?",
                (alert_id, channel),
            )
            self._conclude(alert_id)

        await self._file.transaction(write)

    async def failed(
        self, alert_id: str, channel: str, *, now: int, again_unix_ns: int | None, error: str
    ) -> bool:
        def write(_connection: Any) -> bool:
            self._execute(
                "UPDATE delivery SET state = ?, attempts = attempts + 1, next = ?, error = ?,"
                " begun = CASE WHEN begun = 0 THEN ? ELSE begun END WHERE alert_id = ? AND channel = ?",
                (
                    "given-up" if again_unix_ns is None else "pending",
                    again_unix_ns or now,
                    error[:MAX_ERROR],
                    now,
                    alert_id,
                    channel,
                ),
            )
            return self._conclude(alert_id, why=error)

        return await self._file.transaction(write)

    def _conclude(self, alert_id: str, *, why: str = "") -> bool:
        """Settle the message's state once nothing of it is being tried; True if nobody has it."""
        states = [
            row[0] for row in self._execute("SELECT state FROM delivery WHERE alert_id = ?", (alert_id,))
        ]
        if not states or "pending" in states:
            return False
        unrouted = "delivered" not in states
        state = AlertState.UNROUTED if unrouted else AlertState.DELIVERED
        self._execute(
            "UPDATE message SET state = ?, why = ? WHERE id = ?",
            (state.value, why[:MAX_ERROR] if unrouted else "", alert_id),
        )
        return unrouted

    # -- people ----------------------------------------------------------------------------------------

    async def listed(
        self,
        *,
        tenant: str | None,
        unrouted: bool = False,
        open_only: bool = False,
        limit: int,
        before: str = "",
    ) -> list[tuple[AlertMessage, tuple[ChannelProgress, ...]]]:
        def read() -> list[tuple[AlertMessage, tuple[ChannelProgress, ...]]]:
            rows = self._execute(
                f"SELECT {_MESSAGE} FROM message WHERE (? IS NULL OR tenant = ?) AND (? = '' OR id < ?)"  # noqa: S608
                " AND (NOT ? OR state = 'unrouted') AND (NOT ? OR acked = 0) ORDER BY id DESC LIMIT ?",
                (tenant, tenant, before, before, unrouted, open_only, limit),
            ).fetchall()
            return [(message, self._progress(message.alert_id)) for message in map(_message, rows)]

        return await self._file.run(read)

    def _progress(self, alert_id: str) -> tuple[ChannelProgress, ...]:
        return tuple(
            ChannelProgress(*row)
            for row in self._execute(
                "SELECT channel, state, attempts, error FROM delivery WHERE alert_id = ? ORDER BY channel",
                (alert_id,),
            )
        )

    async def ack(self, alert_ids: Sequence[str], *, tenant: str | None, by: str, now: int) -> int:
        def write(_connection: Any) -> int:
            done = 0
            for alert_id in alert_ids:
                self._execute(
                    "UPDATE message SET acked = ?, acked_by = ? WHERE id = ? AND acked = 0"
                    " AND (? IS NULL OR tenant = ?)",
                    (now, by, alert_id, tenant, tenant),
                )
                done += self._connection.changes()
            return done

        return await self._file.transaction(write)

    async def mute(self, mute: Mute) -> None:
        await self._file.transaction(
            lambda _: self._execute(
                "INSERT OR REPLACE INTO mute VALUES (?, ?, ?, ?)",
                (mute.tenant, mute.event, mute.until_unix_ns, mute.by),
            )
        )

    async def mutes(self, now: int) -> list[Mute]:
        return await self._file.run(
            lambda: [
                Mute(*row)
                for row in self._execute("SELECT * FROM mute WHERE until > ? ORDER BY tenant, event", (now,))
            ]
        )

    async def secret(self, tenant: str, channel: str) -> SigningSecret | None:
        def read() -> SigningSecret | None:
            row = self._execute(
                "SELECT sealed FROM secret WHERE tenant = ? AND channel = ?", (tenant, channel)
            ).fetchone()
            if row is None:
                return None
            plain = self._key.unseal(row[0], magic=_MAGIC, format_version=1, name=f"a secret in {self._path}")
            kept = orjson.loads(plain)
            return SigningSecret(
                bytes.fromhex(kept["current"]), bytes.fromhex(kept["previous"]), kept["previous_until"]
            )

        return await self._file.run(read)

    async def keep_secret(self, tenant: str, channel: str, secret: SigningSecret) -> None:
        plain = orjson.dumps(
            {
                "current": secret.current.hex(),
                "previous": secret.previous.hex(),
                "previous_until": secret.previous_until_unix_ns,
            }
        )
        sealed = self._key.seal(plain, magic=_MAGIC, format_version=1)
        await self._file.transaction(
            lambda _: self._execute(
                "INSERT OR REPLACE INTO secret VALUES (?, ?, ?)", (tenant, channel, sealed)
            )
        )

    # -- upkeep ----------------------------------------------------------------------------------------

    async def prune(self, *, created_before_unix_ns: int, now: int) -> int:
        def write(_connection: Any) -> int:
            rows = self._execute(
                f"SELECT id FROM message WHERE created < ? AND {_FINISHED} LIMIT ?",  # noqa: S608
                (created_before_unix_ns, _LOOKED_AT_ONCE),
            ).fetchall()
            self._forget(row[0] for row in rows)
            self._execute("DELETE FROM mute WHERE until <= ?", (now,))
            return len(rows)

        return await self._file.transaction(write)

    async def counts(self) -> AlertCounts:
        def read() -> AlertCounts:
            return AlertCounts(
                messages=count(self._connection, "message"),
                unrouted=count(self._connection, "message WHERE state = 'unrouted' AND acked = 0"),
                pending=count(self._connection, "delivery WHERE state = 'pending'"),
                groups=count(self._connection, "alert_group"),
                full=self._full,
            )

        return await self._file.run(read)

    async def close(self) -> None:
        await self._file.close()

    def _forget(self, alert_ids: Iterable[str]) -> None:
        for alert_id in alert_ids:
            self._execute("DELETE FROM delivery WHERE alert_id = ?", (alert_id,))
            self._execute("DELETE FROM message WHERE id = ?", (alert_id,))

    def _state(self, key: str) -> int:
        row = self._execute("SELECT value FROM state WHERE key = ?", (key,)).fetchone()
        return int(row[0]) if row is not None else 0

    @property
    def _execute(self) -> Callable[..., Any]:
        execute: Callable[..., Any] = self._connection.execute
        return execute


def _group(row: Sequence[Any]) -> AlertGroup:
    tenant, event, reason, opened, ends, first, last, pending, before, messages, sample = row
    return AlertGroup(
        (tenant, event, reason),
        opened,
        ends,
        first,
        last,
        pending,
        before,
        messages,
        orjson.loads(sample),
    )


def _message(row: Sequence[Any]) -> AlertMessage:
    (
        alert_id,
        tenant,
        event,
        reason,
        many,
        total,
        number,
        created,
        first,
        last,
        sample,
        state,
        why,
        by,
        acked,
    ) = row
    return AlertMessage(
        alert_id=alert_id,
        tenant=tenant,
        event=event,
        reason=reason,
        count=many,
        total=total,
        update=number,
        created_unix_ns=created,
        first_unix_ns=first,
        last_unix_ns=last,
        sample=orjson.loads(sample),
        state=AlertState(state),
        why=why,
        acked_by=by,
        acked_unix_ns=acked,
    )
