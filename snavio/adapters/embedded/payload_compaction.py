"""Moves the last live payloads out of a segment that is mostly dead, so that one straggler pins no 64 MiB.

Never moves more than a bounded step at a time, and never lets go of the old copy before the new one and the
row that points to it are durable.
"""

from __future__ import annotations

from snavio.adapters.embedded.mailbox_database import MailboxDatabase
from snavio.adapters.embedded.payload_log import PayloadLocation, PayloadLog, SegmentGone
from snavio.errors import IntegrityError, Saturated, Unavailable

STEP_BYTES = 1 << 20
STEP_ROWS = 256


class PayloadCompaction:
    """Runs on the housekeeping thread, beside commits and reads."""

    def __init__(self, log: PayloadLog, database: MailboxDatabase) -> None:
        self._log = log
        self._database = database

    def step(self, share: float) -> bool:
        """Move some of the sparsest segment, if less than `share` of it is live; whether anything was moved."""
        segment = self._log.sparse(share)
        if segment is None:
            return False
        rows = self._survivors(segment)
        try:
            payloads = [self._log.read(place) for _, place in rows]
        except (IntegrityError, SegmentGone, Unavailable):
            payloads = []
        if not payloads:
            # Damaged, unreadable, or counted for a transaction that may yet come to light: it stays as it is.
            self._log.leave(segment)
            return True
        try:
            moved = self._log.append(payloads)
        except Saturated:
            return False
        self._point(rows, moved)
        return True

    def _survivors(self, segment: int) -> list[tuple[tuple[int, int], PayloadLocation]]:
        found = self._database.survey(
            "SELECT topic_id, id, offset, size FROM batches WHERE segment = ? LIMIT ?", (segment, STEP_ROWS)
        )
        rows: list[tuple[tuple[int, int], PayloadLocation]] = []
        total = 0
        for topic_id, batch_id, offset, size in found:
            total += size
            if rows and total > STEP_BYTES:
                break
            rows.append(((topic_id, batch_id), PayloadLocation(segment, offset, size)))
        return rows

    def _point(
        self, rows: list[tuple[tuple[int, int], PayloadLocation]], moved: list[PayloadLocation]
    ) -> None:
        dead: list[PayloadLocation] = []
        with self._database.transaction(undone=lambda: self._log.release(moved)) as writer:
            for (key, old), new in zip(rows, moved, strict=True):
                # A batch that was settled since it was read has no row, one that was made smaller is
                # elsewhere: the copy of either is dead at birth.
                held = writer.execute(
                    "UPDATE batches SET segment = ?, offset = ? "
                    "WHERE topic_id = ? AND id = ? AND segment = ? AND offset = ? RETURNING id",
                    (new.segment, new.offset, *key, old.segment, old.offset),
                ).fetchall()
                dead.append(old if held else new)
        self._log.release(dead)
