"""Reads the rows of a damaged SQLite store table by table, and compares two states of it row by row.

Never writes to the store that it reads.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import apsw

from snavio.adapters.embedded.checksums import connect

SEQUENCE: Final = "sqlite_sequence"
_FAULTS: Final = (apsw.CorruptError, apsw.IOError, apsw.NotADBError, apsw.SQLError)
Key = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class LostRow:
    """One row by its table and primary key."""

    table: str
    key: Key
    fate: str
    """`gone`; `older`: an earlier state of it is back; `back`: it had been removed; `doubtful`: on a damaged page."""

    def told(self) -> dict[str, object]:
        """The row as text for a report."""
        key = [one.hex() if isinstance(one, bytes) else one for one in self.key]
        return {"table": self.table, "key": key, "fate": self.fate}


def unchecked(path: Path) -> Any:
    """A connection that does not verify checksums. For a copy only: it writes none either."""
    return apsw.Connection(str(path), vfs="unix")


def schema(connection: Any) -> list[tuple[str, str, str]]:
    """Type, name and statement of every object in the store, tables first."""
    found = connection.execute(
        "SELECT type, name, sql FROM sqlite_schema WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%' "
        "ORDER BY type = 'table' DESC, type = 'index' DESC"
    )
    return [(kind, name, sql) for kind, name, sql in found]


def tables(connection: Any) -> list[str]:
    """Names of its tables, SQLite's own counters included."""
    found = [name for kind, name, _ in schema(connection) if kind == "table"]
    if connection.execute("SELECT 1 FROM sqlite_schema WHERE name = ?", (SEQUENCE,)).fetchone():
        found.append(SEQUENCE)
    return found


def key_columns(connection: Any, table: str) -> list[str]:
    """The table's primary key, or the rowid."""
    columns = connection.execute(f"PRAGMA table_info({table})").fetchall()
    key = [row[1] for row in sorted(columns, key=lambda row: row[5]) if row[5]]
    return key or ["rowid"]


def rows(connection: Any, table: str) -> Iterator[tuple[Key, Key]]:
    """Key and columns of each row, read from both ends as far as SQLite can."""
    seen: set[Key] = set()
    for order in ("", "DESC"):
        try:
            for key, row in _in_order(connection, table, order):
                if key in seen:
                    return
                seen.add(key)
                yield key, row
        except _FAULTS:
            continue
        return


def _in_order(connection: Any, table: str, order: str) -> Iterator[tuple[Key, Key]]:
    key = key_columns(connection, table)
    # By the key, which is the table itself: an index that holds all columns may be what is damaged.
    by = ", ".join(f"{column} {order}" for column in key)
    question = f"SELECT {', '.join(key)}, * FROM {table} NOT INDEXED ORDER BY {by}"  # noqa: S608 the schema's names
    for row in connection.execute(question):
        yield row[: len(key)], row[len(key) :]


def states(path: Path) -> dict[str, dict[Key, bytes]]:
    """A digest of every readable row of the store at `path`, by table and key."""
    connection = unchecked(path)
    try:
        return {
            table: {
                key: hashlib.blake2b(repr(row).encode(), digest_size=16).digest()
                for key, row in rows(connection, table)
            }
            for table in tables(connection)
        }
    except _FAULTS:
        return {}
    finally:
        connection.close()


def difference(later: dict[str, dict[Key, bytes]], kept: dict[str, dict[Key, bytes]]) -> list[LostRow]:
    """Rows of `later` that `kept` lacks or has in an older form."""
    found: list[LostRow] = []
    for table, before in later.items():
        after = kept.get(table, {})
        found += [LostRow(table, key, "gone") for key in before if key not in after]
        found += [LostRow(table, key, "older") for key, row in before.items() if after.get(key, row) != row]
        found += [LostRow(table, key, "back") for key in after if key not in before]
    return found


@dataclass(frozen=True, slots=True)
class RowRange:
    """Rows of a table on pages with wrong checksums: between two readable keys."""

    table: str
    after: Key | None
    before: Key | None

    def told(self) -> str:
        """The range in words; None is the table's end."""
        first, last = ("the beginning" if self.after is None else self.after), self.before or "the end"
        return f"{self.table}: rows between {first} and {last} stood on damaged pages"


def doubtful(path: Path) -> tuple[list[RowRange], list[LostRow]]:
    """Ranges of the store at `path` on pages with wrong checksums, and the rows visible in them."""
    stretches: list[RowRange] = []
    found: list[LostRow] = []
    plain, checked = unchecked(path), connect(path, flags=apsw.SQLITE_OPEN_READONLY)
    try:
        for table in tables(plain):
            sure: set[Key] = set()
            ends: list[Key | None] = []
            for order in ("", "DESC"):
                last: Key | None = None
                try:
                    for key, _ in _in_order(checked, table, order):
                        last = key
                        sure.add(key)
                    break
                except _FAULTS:
                    ends.append(last)
            if len(ends) == 2:
                stretches.append(RowRange(table, *ends))
                found += [LostRow(table, key, "doubtful") for key, _ in rows(plain, table) if key not in sure]
    finally:
        checked.close()
        plain.close()
    return stretches, found
