"""Migrates a directory of an earlier schema, in the transaction that opens it.

Never changes the content of a log line: versions, times and authors stay, and so does the present state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import orjson

from snavio.adapters.embedded.directory_rows import SCHEMA, append
from snavio.adapters.embedded.store_file import checksum
from snavio.domain.directory import Draft, Route, Value, revive
from snavio.errors import IntegrityError


def from_first(connection: Any) -> None:
    """Schema 1 had no keys, reasons or earlier values in its log; rewrite every line to fill them in."""
    lines = connection.execute(
        "SELECT version, at_ns, actor, kind, value, deleted, checksum FROM changelog ORDER BY version"
    ).fetchall()
    for statement in (
        "DROP TRIGGER changelog_keeps",
        "DROP TRIGGER changelog_stays",
        "DROP TABLE changelog",
        "DROP TABLE record",
        *(statement for statement in SCHEMA if "TABLE meta" not in statement),
    ):
        connection.execute(statement)
    standing: dict[tuple[str, ...], Value] = {}
    for version, at_ns, actor, kind, blob, deleted, kept in lines:
        # Checked before it is rewritten: a new checksum would make damage look valid.
        if kept != checksum((at_ns, actor, kind, blob, bool(deleted))):
            raise IntegrityError(f"The directory's change {version} is damaged.")
        value = revive(kind, orjson.loads(blob))
        if isinstance(value, Route) and value.topic:
            value = value.addressed_to(value.topic.partition("/")[0])
        place = (kind, *value.key)
        # Versions have gaps where lines were lost; the counter must continue after the highest one.
        connection.execute("DELETE FROM sqlite_sequence WHERE name = 'changelog'")
        connection.execute("INSERT INTO sqlite_sequence VALUES ('changelog', ?)", (version - 1,))
        append(
            connection,
            Draft(value, bool(deleted)),
            before=standing.get(place),
            at_ns=at_ns,
            actor=actor,
            reason="",
        )
        if deleted:
            standing.pop(place, None)
        else:
            standing[place] = value


def from_second(_connection: Any) -> None:
    """Schema 3 has more fields in its values. Old values are read as they are; a program of schema 2 could not read
    new ones, and would take a right that ends for damage.
    """


MIGRATIONS: Final[Mapping[int, Callable[[Any], None]]] = {1: from_first, 2: from_second}
