"""Gives stores restored from a backup new epochs, so that caches of the lost time are dropped.

Never changes a store's records: only the names and numbers that distinguish it from its past.
"""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from snavio.adapters.embedded import (
    directory_rows,
    mailbox_rows,
    sqlite_alerts,
    sqlite_capabilities,
    sqlite_certificates,
    sqlite_coordination,
    sqlite_outbox,
    sqlite_tenant_streams,
)
from snavio.adapters.embedded.checksums import connect
from snavio.adapters.embedded.sqlite import store_errors
from snavio.adapters.embedded.store_copy import reading
from snavio.errors import StateError

JUMP: Final = 1 << 30
"""Added to counters, so that numbers given out after the backup are not given out again."""


def _directory(store: Any, _now_ns: int) -> None:
    # Caches, snapshots and Relay's cursor follow one epoch; another one means reading everything anew.
    store.execute("UPDATE meta SET value = ? WHERE name = 'epoch'", (secrets.randbits(63) | 1,))


def _coordination(store: Any, now_ns: int) -> None:
    # Counted and claimed since the backup is forgotten: limits wait for the next interval, strict routes refuse
    # for as long as an id may not come again.
    store.execute("UPDATE epoch SET name = ?, born_ms = ?", (uuid.uuid4().hex, now_ns // 1_000_000))


def _mailbox(store: Any, now_ns: int) -> None:
    # Receipts carry the epoch of the mailbox's start, and messages numbers that consumers may remember.
    store.execute(
        "UPDATE counters SET epoch = max(epoch + 1, ?), last_batch_id = last_batch_id + ?", (now_ns, JUMP)
    )


def _outbox(store: Any, _now_ns: int) -> None:
    # An export's number names files of the archive, which may be newer than this outbox.
    store.execute("UPDATE state SET value = value + ? WHERE key IN ('last_export', 'last_page')", (JUMP,))


def _streams(store: Any, now_ns: int) -> None:
    # Numbers that were given out after the backup must not come again with other events behind them: a reader's
    # bookmark of the lost time is below the new epoch, and it is told so.
    sqlite_tenant_streams.renew_epochs(store, now_ns)


RENEWALS: Final[Mapping[str, Callable[[Any, int], None]]] = {
    "mailbox/mailbox.db": _mailbox,
    "relay/outbox.db": _outbox,
    "relay/streams.db": _streams,
    "slow/coordination.db": _coordination,
    "registry/directory.db": _directory,
}
"""By the store's place in a state folder. Signer renews the key store's epoch itself: the store is sealed."""


SCHEMAS: Final[Mapping[str, int]] = {
    "mailbox/mailbox.db": mailbox_rows.SCHEMA_VERSION,
    "relay/outbox.db": sqlite_outbox.SCHEMA_VERSION,
    "relay/streams.db": sqlite_tenant_streams.SCHEMA_VERSION,
    "relay/alerts.db": sqlite_alerts.SCHEMA_VERSION,
    "slow/coordination.db": sqlite_coordination.SCHEMA_VERSION,
    "registry/directory.db": directory_rows.SCHEMA_VERSION,
    "signer/capabilities.db": sqlite_capabilities.SCHEMA_VERSION,
    "signer/certificates.db": sqlite_certificates.SCHEMA_VERSION,
}


def require_known(path: Path, place: str) -> None:
    """StateError for a store of a newer program: no service of this one would open it."""
    with reading(path) as store:
        found = store.pragma("user_version")
    if found > SCHEMAS[place]:
        raise StateError(
            f"{place} of the backup was written by a newer Snavio: schema {found}, we know {SCHEMAS[place]}.",
            reason="newer-backup",
        )


def renew(path: Path, place: str, *, now_ns: int) -> None:
    """Renew the epoch of the store at `path`, whose place in its state folder is `place`; some stores have none."""
    step = RENEWALS.get(place)
    if step is None:
        return
    with store_errors(path):
        connection: Any = connect(path)
        try:
            connection.pragma("synchronous", "FULL")
            with connection:
                step(connection, now_ns)
        finally:
            connection.close()
