"""The directory's tables in SQLite, and its values as bytes with a checksum.

Never returns a row whose checksum does not fit.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Final, TypeAlias

import orjson

from snavio.adapters.embedded.store_file import checksum
from snavio.domain.directory import KINDS, Change, Draft, Value, expiry_of, revive
from snavio.errors import IntegrityError

SCHEMA_VERSION: Final = 3
SCHEMA: Final = (
    "CREATE TABLE meta (name TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT, WITHOUT ROWID",
    # AUTOINCREMENT: a version is never given twice, not even after the newest line was lost.
    """CREATE TABLE changelog (
        version INTEGER PRIMARY KEY AUTOINCREMENT, at_ns INTEGER NOT NULL, actor TEXT NOT NULL,
        reason TEXT NOT NULL, kind TEXT NOT NULL, key TEXT NOT NULL, parent TEXT NOT NULL,
        value BLOB NOT NULL, before BLOB, deleted INTEGER NOT NULL, checksum BLOB NOT NULL) STRICT""",
    "CREATE INDEX changelog_by_key ON changelog (kind, key, version)",
    "CREATE INDEX changelog_by_parent ON changelog (kind, parent, key, version)",
    "CREATE INDEX changelog_by_time ON changelog (at_ns)",
    """CREATE TABLE record (
        kind TEXT NOT NULL, key TEXT NOT NULL, parent TEXT NOT NULL, version INTEGER NOT NULL,
        expires_ns INTEGER NOT NULL, value BLOB NOT NULL, checksum BLOB NOT NULL,
        PRIMARY KEY (kind, key)) STRICT, WITHOUT ROWID""",
    "CREATE INDEX record_by_parent ON record (kind, parent)",
    "CREATE INDEX record_by_end ON record (expires_ns) WHERE expires_ns > 0",
    "CREATE TRIGGER changelog_keeps BEFORE DELETE ON changelog BEGIN SELECT raise(ABORT, 'append-only'); END",
    "CREATE TRIGGER changelog_stays BEFORE UPDATE ON changelog BEGIN SELECT raise(ABORT, 'append-only'); END",
)
LOG_COLUMNS: Final = "version, at_ns, actor, reason, kind, value, before, deleted, checksum"
RECORD_COLUMNS: Final = "kind, key, version, value, checksum"

LogRow: TypeAlias = tuple[int, int, str, str, str, bytes, bytes | None, int, bytes]
RecordRow: TypeAlias = tuple[str, str, int, bytes, bytes]


def key_text(key: tuple[str, ...]) -> str:
    """A key as one text; no stored name has a line break, so no two keys share one."""
    return "\n".join(key)


def append(
    connection: Any, draft: Draft, *, before: Value | None, at_ns: int, actor: str, reason: str
) -> int | None:
    """Write one draft to log and state, inside the caller's transaction; its version, or None if it changes nothing."""
    value = draft.value
    if before is None if draft.deleted else before == value:
        return None
    if draft.deleted and before is not None:
        # A tombstone records the value that was deleted, not the one in the request.
        value = before
    blob, key = encode(value), key_text(value.key)
    old = encode(before) if before is not None else None
    line_sum = checksum((at_ns, actor, reason, value.kind, blob, old or b"", int(draft.deleted)))
    (version,) = connection.execute(
        "INSERT INTO changelog (at_ns, actor, reason, kind, key, parent, value, before, deleted, checksum)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING version",
        (at_ns, actor, reason, value.kind, key, value.parent, blob, old, draft.deleted, line_sum),
    ).fetchone()
    if draft.deleted:
        connection.execute("DELETE FROM record WHERE kind = ? AND key = ?", (value.kind, key))
    else:
        record_sum = checksum((value.kind, key, version, blob))
        connection.execute(
            "INSERT OR REPLACE INTO record VALUES (?, ?, ?, ?, ?, ?, ?)",
            (value.kind, key, value.parent, version, expiry_of(value), blob, record_sum),
        )
    number: int = version
    return number


def change_of(row: LogRow) -> Change:
    """The `Change` of a row of the log."""
    version, at_ns, actor, reason, kind, value, before, deleted, kept = row
    if kept != checksum((at_ns, actor, reason, kind, value, before or b"", deleted)):
        raise IntegrityError(f"The directory's change {version} is damaged.")
    old = decode(kind, before) if before is not None else None
    return Change(version, at_ns, actor, decode(kind, value), bool(deleted), reason, old)


def value_of(row: RecordRow) -> Value:
    """The value of a row of the present state."""
    kind, key, version, value, kept = row
    if kept != checksum((kind, key, version, value)):
        raise IntegrityError(f"The directory's {kind} record {key.split(chr(10))!r} is damaged.")
    return decode(kind, value)


def record_line(value: Value, version: int) -> bytes:
    """A record as a line of a survey."""
    blob = encode(value)
    record_sum = checksum((value.kind, key_text(value.key), version, blob))
    return b"%s %d %s" % (record_sum.hex().encode(), version, blob)


def encode(value: Value) -> bytes:
    """The value's fields as bytes."""
    return orjson.dumps(asdict(value), option=orjson.OPT_SORT_KEYS)


def decode(kind: str, blob: bytes) -> Value:
    """The inverse of `encode`."""
    if kind not in KINDS:
        raise IntegrityError(f"The directory holds an entry of the unknown kind {kind!r}.")
    return revive(kind, orjson.loads(blob))
