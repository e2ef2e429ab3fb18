"""Results as files that are there whole or not at all.

Never appends: a run that is repeated writes the same names again, so that killing it anywhere doubles nothing.
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


def write_table(frame: DataFrame, folder: Path, *, files: int = 1) -> None:
    """Parquet in a folder that takes the place of what was there, in one rename."""
    fresh = folder.with_name(f".{folder.name}.{os.getpid()}")
    folder.parent.mkdir(parents=True, exist_ok=True)
    frame.coalesce(files).write.mode("overwrite").option("compression", "zstd").parquet(str(fresh))
    if folder.exists():
        old = folder.with_name(f".{folder.name}.old")
        shutil.rmtree(old, ignore_errors=True)
        folder.rename(old)
        fresh.rename(folder)
        shutil.rmtree(old, ignore_errors=True)
    else:
        fresh.rename(folder)


def write_lines(rows: Iterable[Mapping[str, Any]], path: Path) -> int:
    """JSON lines, on disk before they have their name; how many."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
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
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    fresh.write_text(text, "utf-8")
    fresh.replace(path)


def _plain(value: Any) -> str:
    if isinstance(value, datetime | date):
        return value.isoformat() + ("Z" if isinstance(value, datetime) and value.tzinfo is None else "")
    raise TypeError(f"no JSON for {type(value).__name__}")
