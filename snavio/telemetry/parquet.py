"""Writes and reads the archive's files: columns in, Parquet out.

Never touches a row in Python: columns come as bytes from the native code and go to Arrow unchanged. Rare events are the
exception; there are few.
"""

from __future__ import annotations

import io
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import orjson

from snavio.native import Tombstones, parse_timestamp, telemetry_columns
from snavio.telemetry.schema import BY_NAME, COLUMNS, arrow_schema

MAX_COUNT: Final = (1 << 32) - 1
"""Most commands that one row may stand for: Spark keeps counts of a window in halves of 64 bits."""
ROW_GROUP_ROWS: Final = 1 << 20
STATISTICS: Final = ("at", "event", "command_id", "source", "target")
"""Columns that questions narrow; the smallest and largest values of all the others cost a sixth of a file's CPU."""
_WIDTHS: Final = {"text": 4, "int32": 8, "int64": 8, "float64": 8, "time": 8, "id": 16}
_KINDS: Final = {column.name: column.kind for column in COLUMNS}

Late = tuple[str, str, str, int, int, int]
"""source, target, name, revoked, settled, count; see `telemetry_columns`."""


@dataclass(frozen=True, slots=True)
class EncodedFile:
    """A Parquet file in memory."""

    contents: bytes
    rows: int
    min_at_unix_ns: int
    max_at_unix_ns: int


def encode_pages(
    pages: Sequence[tuple[int, bytes]], *, instance: str, epoch: int, service: str, tombstones: Tombstones
) -> tuple[EncodedFile, list[Late]]:
    """One file of (first number, block fields) pages of one life. ValueError when a page cannot be read."""
    rows, columns, rare, late = telemetry_columns(list(pages), tombstones)
    tables = []
    if rows:
        tables.append(_table(rows, columns, instance=instance, epoch=epoch, service=service))
    if rare:
        tables.append(_rare(rare, instance=instance, epoch=epoch, service=service))
    return encode(_joined(tables)), late


def encode(table: Any) -> EncodedFile:
    """A table in the archive's schema as a file; columns without any value are left out."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    # Half of all columns belong to events that a file does not have, and nulls cost as much to write as values.
    table = table.select(
        [
            field.name
            for field in table.schema
            if not field.nullable or table[field.name].null_count < table.num_rows
        ]
    )
    sink = io.BytesIO()
    text = [name for name in table.column_names if _KINDS[name] in ("text", "float64")]
    delta = [name for name in table.column_names if _KINDS[name] in ("int32", "int64", "time")]
    pq.write_table(
        table,
        sink,
        row_group_size=ROW_GROUP_ROWS,
        compression="zstd",
        compression_level=3,
        use_dictionary=text,
        column_encoding=dict.fromkeys(delta, "DELTA_BINARY_PACKED"),
        write_statistics=[name for name in table.column_names if name in STATISTICS],
        # Readers have the schema; a copy of it in every small file would be a tenth of it.
        store_schema=False,
    )
    ends = pc.min_max(table["at"].cast("int64")).as_py()
    return EncodedFile(sink.getvalue(), table.num_rows, ends["min"] * 1000, ends["max"] * 1000)


def read(contents: bytes) -> Any:
    """The table of a file, in the archive's schema: a missing column is null, an unknown one is left out.

    ValueError when it is not a file of an archive.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        # Not `read_table`, which imports pandas for what it can do beyond one file.
        found = pq.ParquetFile(io.BytesIO(contents)).read()
        arrays = [
            found[field.name].cast(field.type)
            if field.name in found.column_names
            else _nulls(found.num_rows, field.type)
            for field in _schema()
        ]
        return pa.Table.from_arrays(arrays, schema=_schema())
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"not a file of an archive: {error}") from error


def concat(tables: Sequence[Any]) -> Any:
    """Tables one after the other."""
    import pyarrow as pa

    return pa.concat_tables(tables, promote_options="default").unify_dictionaries().combine_chunks()


@cache
def _schema() -> Any:
    return arrow_schema()


def _table(rows: int, columns: dict[str, Any], *, instance: str, epoch: int, service: str) -> Any:
    import pyarrow as pa

    constant = {"instance": instance, "service": service}
    arrays, fields = [], []
    for field in _schema():
        fields.append(field)
        if field.name in constant:
            words = _made("text", [constant[field.name]])
            arrays.append(pa.DictionaryArray.from_arrays(_zeros(rows), words))
        elif field.name == "epoch":
            arrays.append(_of_buffers(field.type, rows, None, array("q", [epoch]) * rows))
        elif field.name in columns and columns[field.name][0]:
            arrays.append(_array(rows, field, *columns[field.name]))
        else:
            fields.pop()
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields, metadata=_schema().metadata))


def _zeros(rows: int) -> Any:
    import pyarrow as pa

    return _of_buffers(pa.int32(), rows, None, bytes(4 * rows))


def _array(rows: int, field: Any, values: bytes, bits: bytes | None, words: list[str] | None) -> Any:
    import pyarrow as pa

    kind = _KINDS[field.name]
    if len(values) != rows * _WIDTHS[kind]:
        raise ValueError(f"{field.name} has another length than its rows.")
    buffers = [None if bits is None else pa.py_buffer(bits), pa.py_buffer(values)]
    if words is not None:
        indices = pa.Array.from_buffers(pa.int32(), rows, buffers)
        return pa.DictionaryArray.from_arrays(indices, _made("text", words))
    if kind == "int32":
        return pa.Array.from_buffers(pa.int64(), rows, buffers).cast(pa.int32())
    return pa.Array.from_buffers(field.type, rows, buffers)


def _nulls(rows: int, kind: Any) -> Any:
    import pyarrow as pa

    return pa.nulls(rows, kind)


def _rare(events: Sequence[tuple[int, int, str, bytes]], *, instance: str, epoch: int, service: str) -> Any:
    import pyarrow as pa

    rows = []
    for seq, at_unix_ns, name, told in events:
        row: dict[str, Any] = {
            "event": name,
            "instance": instance,
            "epoch": epoch,
            "seq": seq,
            "service": service,
            "at": at_unix_ns // 1000,
            "count": 1,
        }
        row.update(_fields(name, told))
        rows.append(row)
    arrays, fields = [], []
    for field in _schema():
        values = [row.get(field.name) for row in rows]
        if any(value is not None for value in values):
            made = _made(_KINDS[field.name], values)
            arrays.append(made.dictionary_encode() if pa.types.is_dictionary(field.type) else made)
            fields.append(field)
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields, metadata=_schema().metadata))


def _made(kind: str, values: Sequence[Any]) -> Any:
    """An array of values, some of them None. `pyarrow.array` would import pandas, wherever that is installed."""
    import pyarrow as pa

    missing = any(value is None for value in values)
    bits = _bits([value is not None for value in values]) if missing else None
    match kind:
        case "text":
            encoded = [b"" if value is None else value.encode() for value in values]
            return _of_buffers(pa.string(), len(values), bits, _offsets(encoded), b"".join(encoded))
        case "texts":
            lists = [value or () for value in values]
            inner = _made("text", [text for each in lists for text in each])
            buffers = [None if bits is None else pa.py_buffer(bits), pa.py_buffer(_offsets(lists))]
            return pa.Array.from_buffers(pa.list_(pa.string()), len(values), buffers, children=[inner])
        case "bool":
            return _of_buffers(pa.bool_(), len(values), bits, _bits(values))
    plain = {
        "int32": ("i", pa.int32()),
        "int64": ("q", pa.int64()),
        "time": ("q", pa.timestamp("us", tz="UTC")),
        "float64": ("d", pa.float64()),
    }
    code, kept_as = plain[kind]
    return _of_buffers(kept_as, len(values), bits, array(code, [value or 0 for value in values]))


def _of_buffers(kind: Any, rows: int, bits: bytes | None, *buffers: Any) -> Any:
    import pyarrow as pa

    given = [None if bits is None else pa.py_buffer(bits), *map(pa.py_buffer, buffers)]
    return pa.Array.from_buffers(kind, rows, given)


def _offsets(values: Iterable[Sequence[Any]]) -> array[int]:
    ends = array("i", [0])
    for value in values:
        ends.append(ends[-1] + len(value))
    return ends


def _bits(values: Sequence[Any]) -> bytes:
    """One bit each, the first the lowest, as Arrow has them."""
    bits = bytearray((len(values) + 7) // 8)
    for place, value in enumerate(values):
        if value:
            bits[place >> 3] |= 1 << (place & 7)
    return bytes(bits)


def _fields(name: str, document: bytes) -> dict[str, Any]:
    """An event's fields by column; fields without a column, or of another type than their column, stay in `extra`."""
    try:
        told = orjson.loads(document)
    except ValueError:
        told = {"unreadable": document.decode("latin-1")}
    if not isinstance(told, dict):
        told = {"value": told}
    known = BY_NAME.get(name)
    columns = {**known.fields, **known.beyond} if known is not None else {}
    row: dict[str, Any] = {}
    extra: dict[str, Any] = {}
    count = told.pop("count", None)
    if type(count) is int and 0 < count <= MAX_COUNT:
        row["count"] = count
    elif count is not None:
        # One event of a broken writer must not keep the others from the archive.
        extra["count"] = count
    for field, value in told.items():
        column = columns.get(field)
        fitted = _fit(_KINDS[column], value) if column is not None and column != "extra" else None
        if column is not None and fitted is not None:
            row[column] = fitted
        elif value is not None:
            extra[field] = value
    if extra:
        row["extra"] = orjson.dumps(extra).decode()
    return row


def _fit(kind: str, value: Any) -> Any:
    """The value in its column's type; None when it is of another kind."""
    match kind, value:
        case "text", str():
            return value
        case "time", str():
            try:
                return parse_timestamp(value) // 1000
            except ValueError:
                return None
        case (("int32" | "int64"), int()) if not isinstance(value, bool) and abs(value) < 1 << 31:
            return value
        case "int64", int() if not isinstance(value, bool) and abs(value) < 1 << 63:
            return value
        case "float64", int() | float() if not isinstance(value, bool):
            return float(value)
        case "bool", bool():
            return value
        case "texts", list() if all(isinstance(text, str) for text in value):
            return value
    return None


def _joined(tables: Sequence[Any]) -> Any:
    if len(tables) == 1:
        return tables[0]
    return concat(tables).sort_by("seq")
