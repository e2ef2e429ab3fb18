"""Copies the mailbox: its database at one moment, and the bytes of every batch that it names then.

The segments go on while they are read: a batch may be acknowledged and its bytes overwritten, or moved. Never keeps a
row in the copy without bytes that its digest vouches for, unless the bytes are damaged in the mailbox itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from snavio.adapters.embedded.batch_bodies import BESIDE, BatchBodies, Row
from snavio.adapters.embedded.checksums import connect
from snavio.adapters.embedded.disk import SystemDisk
from snavio.adapters.embedded.payload_log import PayloadLocation, PayloadLog, SegmentGone
from snavio.adapters.embedded.sqlite import store_errors
from snavio.adapters.embedded.store_copy import copy_database, reading
from snavio.errors import IntegrityError
from snavio.native import blake3_digest

STEP_ROWS: Final = 256
STEP_BYTES: Final = 4 << 20
_Found = tuple[int, Row]
_COLUMNS: Final = (
    "topic_id, batches.id, name, count, stored_unix_ns, shard, sealed, digest, segment, offset, size"
)


@dataclass(frozen=True, slots=True)
class CopiedMailbox:
    """Batches whose bytes are in segments."""

    batches: int = 0
    settled_meanwhile: int = 0
    """Acknowledged after the copy began, and not in it."""
    damaged: int = 0
    """In the mailbox itself: a mailbox that opens the copy finds them damaged too."""


def copy_mailbox(source: Path, target: Path) -> CopiedMailbox:
    """Copy `mailbox.db` at `source` and the bytes it needs to the folder of `target`."""
    copy_database(source, target)
    with store_errors(target):
        connection: Any = connect(target)
        try:
            copying = _Copying(source, target, connection)
            try:
                return copying.run()
            finally:
                copying.close()
        finally:
            connection.close()


def damaged_batches(path: Path) -> list[tuple[str, int]]:
    """Topic and id of the batches of the mailbox at `path` whose bytes are not what was stored. Nobody owns it."""
    found: list[tuple[str, int]] = []
    with reading(path) as connection:
        log = PayloadLog(path.parent, disk=SystemDisk(), live={})
        try:
            bodies = _Bodies(log)
            for _, row in _rows(connection):
                try:
                    bodies.whole(row)
                except (IntegrityError, SegmentGone):
                    found.append((row.topic, row.batch_id))
        finally:
            log.close()
    return found


def _rows(connection: Any, where: str = "segment > 0", values: tuple[int, ...] = ()) -> Iterator[_Found]:
    """One by one: all of them could be more than fits into memory. `where` is this file's own words."""
    for topic_id, batch_id, name, count, stored, shard, sealed, digest, *place in connection.execute(
        f"SELECT {_COLUMNS} FROM batches JOIN topics ON topics.id = topic_id WHERE {where} "  # noqa: S608
        "ORDER BY segment, offset",
        values,
    ):
        yield (
            topic_id,
            Row(name, batch_id, count, stored, shard, bool(sealed), digest, PayloadLocation(*place)),
        )


class _Bodies(BatchBodies):
    """Bodies in segments alone."""

    def __init__(self, log: PayloadLog) -> None:
        self._log = log
        self._digest = blake3_digest

    def whole(self, row: Row) -> bytes:
        """The bytes as they lie in the segment, if they are what was stored."""
        self.read(row)
        return self._log.read(row.place)


class _Copying:
    def __init__(self, source: Path, target: Path, connection: Any) -> None:
        self._source = source
        self._target = target
        self._connection = connection
        self._open()
        self._fresh = PayloadLog(target.parent, disk=SystemDisk(), live={})
        self._settled = self._damaged = self._copied = 0

    def _open(self) -> None:
        self._log = PayloadLog(self._source.parent, disk=SystemDisk(), live={})
        self._bodies = _Bodies(self._log)

    def close(self) -> None:
        self._log.close()
        self._fresh.close()

    def run(self) -> CopiedMailbox:
        waiting: list[tuple[tuple[int, int], bytes]] = []
        size = 0
        with reading(self._target) as rows:
            for topic_id, row in _rows(rows):
                key = (topic_id, row.batch_id)
                body = self._body(key, row)
                if body is None:
                    continue
                waiting.append((key, body))
                size += len(body)
                if len(waiting) >= STEP_ROWS or size >= STEP_BYTES:
                    self._store(waiting)
                    waiting, size = [], 0
            self._store(waiting)
        return CopiedMailbox(self._copied, self._settled, self._damaged)

    def _body(self, key: tuple[int, int], row: Row) -> bytes | None:
        try:
            return self._bodies.whole(row)
        except (IntegrityError, SegmentGone):
            pass
        # Not where it was: the mailbox has gone on, or the bytes are damaged. Its own row knows, and is copied anew.
        found = self._renewed(key)
        if found is None:
            self._settled += 1
            return None
        if found.place.segment == BESIDE:
            self._copied += 1
            return None
        self._log.close()
        self._open()
        try:
            return self._bodies.whole(found)
        except (IntegrityError, SegmentGone):
            self._damaged += 1
        try:
            # Damaged in part: what can be salvaged of it can be salvaged from the copy as well.
            return self._log.read(found.place)
        except (IntegrityError, SegmentGone):
            return None

    def _renewed(self, key: tuple[int, int]) -> Row | None:
        """The batch's row as it is in the mailbox now, in the copy too; None when it is gone."""
        with reading(self._source) as live:
            live.execute("BEGIN")
            row = live.execute("SELECT * FROM batches WHERE topic_id = ? AND id = ?", key).fetchone()
            body = live.execute("SELECT * FROM bodies WHERE batch_id = ?", key[1:]).fetchone()
            found = [one for _, one in _rows(live, "topic_id = ? AND batches.id = ?", key)]
        copy = self._connection
        with copy:
            copy.execute("DELETE FROM batches WHERE topic_id = ? AND id = ?", key)
            for table, values in (("batches", row), ("bodies", body)):
                if values is not None and row is not None:
                    marks = ", ".join("?" * len(values))
                    copy.execute(f"INSERT OR REPLACE INTO {table} VALUES ({marks})", values)  # noqa: S608
        return found[0] if found else None

    def _store(self, waiting: list[tuple[tuple[int, int], bytes]]) -> None:
        if not waiting:
            return
        places = self._fresh.append([body for _, body in waiting])
        with self._connection:
            for (key, _), place in zip(waiting, places, strict=True):
                self._connection.execute(
                    "UPDATE batches SET segment = ?, offset = ?, size = ? WHERE topic_id = ? AND id = ?",
                    (place.segment, place.offset, place.length, *key),
                )
        self._copied += len(waiting)
