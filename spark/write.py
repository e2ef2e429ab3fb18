"""Results as files that are there whole or not at all.

Never appends: a run that is repeated writes the same names again, so that killing it anywhere doubles nothing. What a
kill leaves has a name that the next run uses again, so that nothing adds up. One writer per folder at a time.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Mapping
from datetime import date, datetime
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame


def write_table(frame: DataFrame, folder: Path, *, files: int = 0) -> None:
    """Parquet in a folder that takes the place of what was there; as many files as Spark finds fit, or `files`.

    Never by fewer tasks than counted: rows move to their writers instead, or one core would do all of the counting.

    A folder cannot be replaced in one step: the old one goes aside, the new one takes its name. Killed in between,
    there is no table until the next write, which begins by putting the old one back.
    """
    fresh, old = _aside(folder, "new"), _aside(folder, "old")
    folder.parent.mkdir(parents=True, exist_ok=True)
    if old.exists() and not folder.exists():
        old.rename(folder)
    shaped = frame.repartition(files) if files else frame.hint("rebalance")
    shaped.write.mode("overwrite").option("compression", "zstd").parquet(str(fresh))
    shutil.rmtree(old, ignore_errors=True)
    if folder.exists():
        folder.rename(old)
    fresh.rename(folder)
    shutil.rmtree(old, ignore_errors=True)


def write_lines(rows: Iterable[Mapping[str, Any]], path: Path) -> int:
    """JSON lines, on disk before they have their name; how many."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = _aside(path, "new")
    count = 0
    with fresh.open("w", encoding="utf-8") as out:
        for row in rows:
            out.write(json.dumps(row, default=_plain, sort_keys=True, ensure_ascii=False) + "\n")
            count += 1
        out.flush()
        os.fsync(out.fileno())
    fresh.replace(path)
    return count


def write_text(text: str, path: Path) -> None:
    """One file, whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = _aside(path, "new")
    fresh.write_text(text, "utf-8")
    fresh.replace(path)


def _aside(path: Path, what: str) -> Path:
    return path.with_name(f".{path.name}.{what}")


def _plain(value: Any) -> str:
    if isinstance(value, datetime | date):
        return value.isoformat() + ("Z" if isinstance(value, datetime) and value.tzinfo is None else "")
    raise TypeError(f"no JSON for {type(value).__name__}")
