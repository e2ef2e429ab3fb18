"""Queries on the directory's tables, each inside the caller's transaction.

Never reads more rows than it may return, and never writes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from snavio.adapters.embedded.directory_rows import (
    LOG_COLUMNS,
    RECORD_COLUMNS,
    change_of,
    key_text,
    value_of,
)
from snavio.domain.directory import Change, V, Value
from snavio.errors import BadRequest, NotFound

_LINE = f"SELECT {LOG_COLUMNS} FROM changelog"  # noqa: S608  constants
_RECORD = f"SELECT {RECORD_COLUMNS} FROM record"  # noqa: S608


@dataclass(frozen=True, slots=True)
class SqliteView:
    """The directory as the current transaction sees it."""

    connection: Any

    def find(self, kind: type[V], *key: str) -> V | None:
        # No stored name has a line break, so a key with one can match no row.
        row = self.connection.execute(
            f"{_RECORD} WHERE kind = ? AND key = ?", (kind.kind, key_text(key))
        ).fetchone()
        return None if row is None else cast("V", value_of(row))

    def version_of(self, kind: type[Value], *key: str) -> int:
        row = self.connection.execute(
            "SELECT version FROM record WHERE kind = ? AND key = ?", (kind.kind, key_text(key))
        ).fetchone()
        return 0 if row is None else cast("int", row[0])

    def count(self, kind: type[Value], parent: str) -> int:
        (number,) = self.connection.execute(
            "SELECT count(*) FROM record WHERE kind = ? AND parent = ?", (kind.kind, parent)
        ).fetchone()
        return cast("int", number)

    def under(
        self, kind: type[V], parent: str, *, limit: int, after: tuple[str, ...] = (), ending: str = ""
    ) -> Sequence[V]:
        last = "\n" + ending if ending else ""
        rows = self.connection.execute(
            f"{_RECORD} WHERE kind = ? AND parent = ? AND key > ?"
            " AND (? = '' OR substr(key, -length(?)) = ?) ORDER BY key LIMIT ?",
            (kind.kind, parent, key_text(after), last, last, last, limit),
        )
        return [cast("V", value_of(row)) for row in rows]

    def beginning(self, kind: type[V], *prefix: str, limit: int, after: tuple[str, ...] = ()) -> Sequence[V]:
        # A whole key, or a key that goes on after a line break; 0x0b is the character after the break.
        whole, past = key_text(prefix), key_text(after)
        rows = self.connection.execute(
            f"{_RECORD} WHERE kind = ? AND key >= ? AND key < ? AND key > ? ORDER BY key LIMIT ?",
            # Of two lower bounds SQLite seeks to either: both have to be near.
            (kind.kind, max(whole, past), whole + "\x0b" if prefix else "\U0010ffff", past, limit),
        )
        return [cast("V", value_of(row)) for row in rows]

    def ended(self, now_unix_ns: int, *, limit: int) -> Sequence[Value]:
        rows = self.connection.execute(
            f"{_RECORD} WHERE expires_ns > 0 AND expires_ns <= ? ORDER BY expires_ns LIMIT ?",
            (now_unix_ns, limit),
        )
        return [value_of(row) for row in rows]


def newest_version(connection: Any) -> int:
    """The directory's version."""
    (version,) = connection.execute("SELECT coalesce(max(version), 0) FROM changelog").fetchone()
    return cast("int", version)


def newest_time(connection: Any) -> int:
    """The time of the newest line."""
    (at_ns,) = connection.execute("SELECT coalesce(max(at_ns), 0) FROM changelog").fetchone()
    return cast("int", at_ns)


def version_at(connection: Any, at_ns: int) -> int:
    """The newest version that is not after a time. Uses the index: time and version rise together."""
    row = connection.execute(
        "SELECT version FROM changelog WHERE at_ns <= ? ORDER BY at_ns DESC, version DESC LIMIT 1", (at_ns,)
    ).fetchone()
    return 0 if row is None else cast("int", row[0])


def history(connection: Any, kind: type[Value], key: Sequence[str], limit: int) -> tuple[Change, ...]:
    """The newest lines about one entry, oldest first."""
    rows = connection.execute(
        f"{_LINE} WHERE kind = ? AND key = ? ORDER BY version DESC LIMIT ?",
        (kind.kind, key_text(tuple(key)), limit),
    ).fetchall()
    return tuple(change_of(row) for row in reversed(rows))


def standing_at(
    connection: Any, kind: type[Value], *, version: int, parent: str, ending: str, limit: int
) -> tuple[Change, ...]:
    """Entries under `parent` that were in force at `version`."""
    last = "\n" + ending if ending else ""
    rows = connection.execute(
        f"{_LINE} WHERE NOT deleted AND version IN ("  # noqa: S608
        " SELECT max(version) FROM changelog WHERE kind = ? AND parent = ? AND version <= ?"
        " AND (? = '' OR substr(key, -length(?)) = ?) GROUP BY key)"
        " ORDER BY key LIMIT ?",
        (kind.kind, parent, version, last, last, last, limit),
    )
    return tuple(change_of(row) for row in rows)


def between(connection: Any, kind: type[Value], *, after: int, upto: int, limit: int) -> tuple[Change, ...]:
    """Lines of a kind in a range of versions."""
    rows = connection.execute(
        f"{_LINE} WHERE version > ? AND version <= ? AND +kind = ? ORDER BY version LIMIT ?",
        (after, upto, kind.kind, limit),
    )
    return tuple(change_of(row) for row in rows)


def lines_after(connection: Any, since: int, limit: int) -> tuple[Change, ...]:
    """Lines of every kind, in order."""
    rows = connection.execute(f"{_LINE} WHERE version > ? ORDER BY version LIMIT ?", (since, limit))
    return tuple(change_of(row) for row in rows)


def dump(
    connection: Any, *, version: int, newest: int, after: str, limit: int, kind: type[Value] | None = None
) -> tuple[tuple[Change, ...], str]:
    """A page of the entries in force at `version`, and the key at which the next page begins.

    Walks the log by key, not the present state, so entries that were deleted or replaced since are found as they were.
    """
    if version > newest:
        raise NotFound(f"There is no version {version} yet.", reason="unknown-version")
    at_kind, _, at_key = after.partition("\n")
    if after and (not at_key or (kind is not None and at_kind != kind.kind)):
        raise BadRequest("page_token: must be one that an earlier page gave.", reason="bad-field")
    # Two forms: with the row-value comparison alone, SQLite would seek to the kind and scan its keys.
    beyond = "(kind, key) > (?, ?)" if kind is None else "kind = ? AND key > ?"
    # The page's end is taken before tombstones are left out, so a page may be short and still makes progress.
    rows = connection.execute(
        f"SELECT place_kind, place_key, {LOG_COLUMNS} FROM ("  # noqa: S608
        " SELECT kind AS place_kind, key AS place_key, max(version) AS newest FROM changelog"
        f" WHERE {beyond} AND version <= ? GROUP BY kind, key ORDER BY kind, key LIMIT ?)"
        " JOIN changelog ON version = newest ORDER BY place_kind, place_key",
        (at_kind if kind is None else kind.kind, at_key, version, limit),
    ).fetchall()
    entries = tuple(change_of(row[2:]) for row in rows if not row[9])
    return entries, f"{rows[-1][0]}\n{rows[-1][1]}" if len(rows) == limit else ""
