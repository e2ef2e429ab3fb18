"""Reads all of a SQLite directory beside its owner's thread: another connection, one read transaction.

Never makes a Python object per record: a page of thousands is one row, made by SQLite without the GIL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import apsw

from snavio.adapters.embedded.checksums import connect
from snavio.adapters.embedded.sqlite import BUSY_TIMEOUT_MS, store_errors
from snavio.domain.directory import Value

SURVEY_SECONDS: Final = 120.0
PAGE_RECORDS: Final = 5_000
_PAGE: Final = """
    SELECT CAST(group_concat(hex(checksum) || ' ' || version || ' ' || CAST(value AS TEXT), char(10)) AS BLOB),
           max(key)
    FROM (SELECT key, version, value, checksum FROM record WHERE kind = ? AND key > ? ORDER BY key LIMIT ?)
"""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SqliteSurvey:
    """A `Survey` within a read transaction."""

    connection: Any
    version: int
    epoch: int

    def records(self, kind: type[Value]) -> Iterator[bytes]:
        after = ""
        while True:
            page, last = self.connection.execute(_PAGE, (kind.kind, after, PAGE_RECORDS)).fetchone()
            if last is None:
                return
            yield page
            after = last


def survey(path: Path, take: Callable[[SqliteSurvey], T]) -> T:
    """The result of `take` on the directory at `path`; blocks. The process must own the store."""
    with store_errors(path):
        connection: Any = connect(path, flags=apsw.SQLITE_OPEN_READONLY)
        try:
            connection.set_busy_timeout(BUSY_TIMEOUT_MS)
            connection.execute("BEGIN DEFERRED")
            (epoch,) = connection.execute("SELECT value FROM meta WHERE name = 'epoch'").fetchone()
            (version,) = connection.execute("SELECT coalesce(max(version), 0) FROM changelog").fetchone()
            return take(SqliteSurvey(connection, version, epoch))
        finally:
            connection.close()
