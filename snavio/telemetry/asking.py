"""Answers SQL questions about an archive, with DuckDB, reading only.

Never lets a question write, load, attach or reach anything but the archive's files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from snavio.errors import BadRequest, IntegrityError, StateError
from snavio.telemetry.inspection import hours
from snavio.telemetry.schema import COLUMNS

MAX_ROWS: Final = 100_000
MEMORY: Final = "1GB"
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
class Answer:
    """Names of columns, and rows; `more` when there were too many to tell."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    more: bool


def ask(archive: Path, question: str, *, limit: int = MAX_ROWS) -> Answer:
    """The answer to one SELECT over the view `events`.

    StateError when DuckDB is not installed; BadRequest, in one sentence, for a question it cannot answer;
    IntegrityError for a file that it cannot read.
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
        connection = _connect(duckdb, archive)
        try:
            cursor = connection.execute(question)
            rows = cursor.fetchmany(limit + 1)
            names = tuple(column[0] for column in cursor.description)
        finally:
            connection.close()
    except (duckdb.IOException, duckdb.InvalidInputException) as error:
        raise IntegrityError(f"The archive cannot be read: {_sentence(error)}") from error
    except duckdb.Error as error:
        raise BadRequest(f"DuckDB does not answer that: {_sentence(error)}", reason="bad-question") from error
    return Answer(names, tuple(rows[:limit]), len(rows) > limit)


def _connect(duckdb: Any, archive: Path) -> Any:
    root = archive.resolve()
    files = [
        path
        for hour in hours(root)
        for file in hour.files
        if (path := root / hour.folder / file.name).is_file()
    ]
    connection = duckdb.connect(":memory:")
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute(f"SET memory_limit = '{MEMORY}'")
    connection.execute(f"SET allowed_directories = [{_quoted(str(root))}]")
    connection.execute("SET enable_external_access = false")
    connection.execute(f"CREATE VIEW events AS {_view(files)}")
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
    """Whether it is text at all: an argument that was no UTF-8 comes with stand-ins for its bytes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _sentence(error: Exception) -> str:
    return " ".join(str(error).split("\n\n")[0].split())
