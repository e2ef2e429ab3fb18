"""The archive's columns as Spark reads them, from the contract that lies beside this file.

Never infers: a file without a column gives nulls, a column of another type is an error of that file.
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any, Final

from pyspark.sql import types as T

_TYPES: Final[dict[str, T.DataType]] = {
    "text": T.StringType(),
    "int32": T.IntegerType(),
    "int64": T.LongType(),
    "float64": T.DoubleType(),
    "bool": T.BooleanType(),
    "time": T.TimestampType(),
    "id": T.BinaryType(),
    "texts": T.ArrayType(T.StringType()),
}


@cache
def contract() -> dict[str, Any]:
    """The contract as plain values."""
    loaded: dict[str, Any] = json.loads(files("spark").joinpath("schema.json").read_text("utf-8"))
    return loaded


def event_schema(*columns: str) -> T.StructType:
    """All columns, or those that are named. Nothing is required: Parquet's readers do not check it anyway."""
    fields = [
        T.StructField(column["name"], _TYPES[column["kind"]], nullable=True)
        for column in contract()["columns"]
        if not columns or column["name"] in columns
    ]
    return T.StructType(fields)
