"""Answers SQL queries on an archive, with DuckDB, reading only.

Never lets a query write, load, attach or reach anything but the archive's files. Never fails for an unreadable file,
and never counts a file that the given keys do not verify: both are left out and reported.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from snavio.errors import BadRequest, IntegrityError, StateError
from snavio.signed.archive_manifest import FileEntry, folder_of, present
from snavio.signed.verification import VerifyingKey
from snavio.telemetry.archive_inspection import ArchiveFinding, believed, check_file, check_readable, hours
from snavio.telemetry.schema import COLUMNS

MAX_ROWS: Final = 100_000
MEMORY: Final = "1GB"
HOUR_NS: Final = 3_600_000_000_000
_TYPES: Final = {
    "text": "VARCHAR",
    "int32": "INTEGER",
    "int64": "BIGINT",
    "float64": "DOUBLE",
    "bool": "BOOLEAN",
    "time": "TIMESTAMP WITH TIME ZONE",
    "id": "BLOB",
    "texts": "VARCHAR[]",
}


@dataclass(frozen=True, slots=True)
class QueryResult:
    """Names of columns, and rows; `more` when rows were cut off."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    more: bool
    left_out: tuple[ArchiveFinding, ...] = ()
    """Files and manifests that the answer leaves out."""


def ask(
    archive: Path,
    question: str,
    *,
    limit: int = MAX_ROWS,
    keys: Sequence[VerifyingKey] | None = None,
    since_unix_ns: int | None = None,
    until_unix_ns: int | None = None,
) -> QueryResult:
    """The answer to one SELECT over the view `events`, which with a range has its events only.

    Only files that may have events of the range are opened and hashed.

    With `keys`, only files count that a verified manifest lists and that match it; without, every file that a manifest
    lists and that can be read. StateError when DuckDB is not installed; BadRequest, in one sentence, for an invalid
    query; IntegrityError when a file disappears or breaks while it is read.
    """
    try:
        import duckdb
    except ImportError:
        raise StateError(
            "Questions need DuckDB: install it with `pip install 'snavio[archive]'`.", reason="no-duckdb"
        ) from None
    if not _encodes(question):
        raise BadRequest("A question is text in UTF-8.", reason="bad-question")
    try:
        statements = duckdb.extract_statements(question)
        if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
            raise BadRequest(
                "A question is one SELECT over `events`; nothing else is run.", reason="not-a-select"
            )
        span = Span(since_unix_ns, until_unix_ns)
        files, left_out = _files(archive.resolve(), keys, span)
        # Spilled data goes to a folder that is deleted with the answer. DuckDB's default is the working folder, which a
        # query could then read and fill.
        with (
            tempfile.TemporaryDirectory(prefix="snavio-") as aside,
            closing(_connect(duckdb, archive.resolve(), files, aside, span)) as connection,
        ):
            cursor = connection.execute(question)
            rows = cursor.fetchmany(limit + 1)
            names = tuple(column[0] for column in cursor.description)
    except duckdb.IOException as error:
        raise IntegrityError(f"The archive cannot be read: {_sentence(error)}") from error
    except duckdb.Error as error:
        # The files were valid a moment ago, so the query is at fault.
        raise BadRequest(f"DuckDB does not answer that: {_sentence(error)}", reason="bad-question") from error
    return QueryResult(names, tuple(rows[:limit]), len(rows) > limit, tuple(left_out))


@dataclass(frozen=True, slots=True)
class Span:
    """Event times, nanoseconds since the epoch; None is open."""

    since_unix_ns: int | None = None
    until_unix_ns: int | None = None

    def touches(self, file: FileEntry) -> bool:
        """True if a file may have events of it."""
        early = self.until_unix_ns is None or file.min_at_unix_ns < self.until_unix_ns
        return early and (self.since_unix_ns is None or file.max_at_unix_ns >= self.since_unix_ns)

    @property
    def folder(self) -> str:
        """The first folder that may have some: an hour before, for a Relay whose clock is behind."""
        return "" if self.since_unix_ns is None else folder_of(max(self.since_unix_ns - HOUR_NS, 0))

    def condition(self) -> str:
        """As SQL. Times in the archive have microseconds: a begin within one is after it."""
        parts = []
        if self.since_unix_ns is not None:
            parts.append(f'"at" >= make_timestamptz({-(-self.since_unix_ns // 1000)})')
        if self.until_unix_ns is not None:
            parts.append(f'"at" < make_timestamptz({-(-self.until_unix_ns // 1000)})')
        return " AND ".join(parts)


def _files(
    root: Path, keys: Sequence[VerifyingKey] | None, span: Span
) -> tuple[list[Path], list[ArchiveFinding]]:
    """The files to query, and the defects of the others."""
    files: list[Path] = []
    left_out: list[ArchiveFinding] = []
    for hour in hours(root, since=span.folder):
        if keys is None:
            listed, findings = hour.files, hour.findings
        else:
            good, findings = believed(hour, keys)
            listed = present(good)
        left_out += findings
        for file in filter(span.touches, listed):
            path = root / hour.folder / file.name
            problem = check_readable(path, file) if keys is None else check_file(path, file)
            if problem is None:
                files.append(path)
            else:
                left_out.append(ArchiveFinding(f"{hour.folder}/{file.name}", *problem))
    return files, left_out


def _connect(duckdb: Any, root: Path, files: Sequence[Path], aside: str, span: Span) -> Any:
    connection = duckdb.connect(":memory:")
    for setting in (
        "TimeZone = 'UTC'",
        f"memory_limit = '{MEMORY}'",
        f"temp_directory = {_quoted(aside)}",
        f"allowed_directories = [{_quoted(str(root))}]",
        "enable_external_access = false",
    ):
        connection.execute(f"SET {setting}")
    condition = span.condition()
    view = _view(files)
    within = f"SELECT * FROM ({view}) WHERE {condition}" if condition else view  # noqa: S608
    connection.execute(f"CREATE VIEW events AS {within}")
    connection.execute("SET lock_configuration = true")
    return connection


def _view(files: Sequence[Path]) -> str:
    typed = ", ".join(f'CAST(NULL AS {_TYPES[column.kind]}) AS "{column.name}"' for column in COLUMNS)
    empty = f"SELECT {typed} WHERE false"
    if not files:
        return empty
    names = ", ".join(_quoted(str(path)) for path in files)
    # By name: a column that an old file lacks is null, and one that only a newer file has is there.
    return f"{empty} UNION ALL BY NAME SELECT * FROM read_parquet([{names}], union_by_name = true, hive_partitioning = false)"  # noqa: E501, S608


def _encodes(text: str) -> bool:
    """True if the text is valid Unicode: an argument that was no UTF-8 contains surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _sentence(error: Exception) -> str:
    return " ".join(str(error).split("\n\n")[0].split())
