"""The fairness ledger that `watch` leaves: who is under suspicion, and how near a ban.

Never judges, and never guesses at a line that is not whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson

from snavio.audit.index_file import moment
from snavio.errors import NotFound

FILE: Final = "ledger.jsonl"
MOST: Final = 100_000
_NUMBERS: Final = ("points", "alarm_points", "permits_used", "others_refused", "refused", "seconds_to_ban")
_TEXTS: Final = ("kind", "source", "since")


@dataclass(frozen=True, slots=True)
class Ledger:
    """Its rows, worst first, and when it was written."""

    at: str
    rows: tuple[dict[str, Any], ...]


def read_ledger(folder: Path) -> Ledger:
    """The ledger in a folder of results; NotFound where no `watch` has written one."""
    path = folder / FILE
    try:
        written_ns, lines = path.stat().st_mtime_ns, path.read_bytes().splitlines()
    except OSError:
        raise NotFound(
            f"There is no ledger in {folder}: `snavio spark watch` writes one.", reason="no-ledger"
        ) from None
    rows = []
    for line in lines[:MOST]:
        try:
            found = orjson.loads(line)
            whole = all(type(found[name]) is int for name in _NUMBERS) and all(
                isinstance(found[name], str) and found[name].isprintable() for name in _TEXTS
            )
        except (ValueError, KeyError, TypeError):
            continue
        if whole:
            rows.append({"target": None, "near": False, **found})
    return Ledger(moment(written_ns), tuple(rows))
