"""Moves the last live payloads out of a segment that is mostly dead, so that one straggler pins no 64 MiB.

Never moves more than a bounded step at a time, and never lets go of the old copy before the new one and the
row that points to it are durable.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from snavio.adapters.embedded.payload_log import PayloadLog, Place, SegmentGone
from snavio.errors import IntegrityError, Saturated

STEP_BYTES = 1 << 20
STEP_ROWS = 256

Transaction = Callable[[list[Place]], AbstractContextManager[Any]]
"""A transaction on the committing connection; the places are released if it certainly did not happen."""


class Compaction:
    """Runs on the housekeeping thread; `reader` is that thread's connection."""

    def __init__(self, log: PayloadLog, *, reader: Any, transaction: Transaction) -> None:
        self._log = log
        self._reader = reader
        self._transaction = transaction

    def step(self, share: float) -> bool:
        """Move some of the sparsest segment, if less than `share` of it is live; whether anything was moved."""
        segment = self._log.sparse(share)
        if segment is None:
            return False
        rows = self._survivors(segment)
        try:
            payloads = [self._log.read(place) for _, place in rows]
        except (IntegrityError, SegmentGone):
            payloads = []
        if not payloads:
            # Damaged, or counted for a transaction that may yet come to light: it stays as it is.
            self._log.leave(segment)
            return True
        try:
            moved = self._log.append(payloads)
        except Saturated:
            return False
        self._point(rows, moved)
        return True

    def _survivors(self, segment: int) -> list[tuple[tuple[int, int], Place]]:
        found = self._reader.execute(
            "SELECT topic_id, id, offset, size FROM batches WHERE segment = ? LIMIT ?", (segment, STEP_ROWS)
        ).fetchall()
        rows: list[tuple[tuple[int, int], Place]] = []
        total = 0
        for topic_id, batch_id, offset, size in found:
            total += size
            if rows and total > STEP_BYTES:
                break
            rows.append(((topic_id, batch_id), Place(segment, offset, size)))
        return rows

    def _point(self, rows: list[tuple[tuple[int, int], Place]], moved: list[Place]) -> None:
        dead: list[Place] = []
        with self._transaction(moved) as writer:
            for (key, old), new in zip(rows, moved, strict=True):
                # A batch that was settled since it was read has no row, and its copy is dead at birth.
                held = writer.execute(
                    "UPDATE batches SET segment = ?, offset = ? WHERE topic_id = ? AND id = ? RETURNING id",
                    (new.segment, new.offset, *key),
                ).fetchall()
                dead.append(old if held else new)
        self._log.release(dead)
