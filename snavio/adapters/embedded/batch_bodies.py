"""The bytes of batches: large ones in the payload log, small ones beside their row.

A small one costs one sync instead of two, and does not wait to become large. Every body carries a seal
per message behind its runs, so that damage to one does not cost the others. Never hands out a body whose digest
does not match without saying which messages are damaged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from snavio.adapters.embedded.mailbox_database import MailboxDatabase
from snavio.adapters.embedded.payload_log import PayloadLocation, PayloadLog
from snavio.errors import IntegrityError
from snavio.native import salvage_runs, seal_runs
from snavio.ports.mailbox_store import Damaged, NewBatch

INLINE_BYTES = 8 << 10
"""Of all bodies of a commit: below it, a second file to sync costs more than writing them twice."""
BESIDE = 0
"""Where a segment's number would stand; segments are numbered from 1."""
SEAL_BYTES = 16


@dataclass(frozen=True, slots=True)
class Body:
    """A batch's row, as far as it concerns its bytes."""

    place: PayloadLocation
    digest: bytes
    sealed: bool
    inline: bytes = b""


@dataclass(frozen=True, slots=True)
class Row:
    """A batch's row, as far as its bytes depend on it."""

    topic: str
    batch_id: int
    count: int
    stored_unix_ns: int
    shard: int
    sealed: bool
    digest: bytes
    place: PayloadLocation


class BatchBodies:
    """`digest` is BLAKE3."""

    def __init__(
        self,
        log: PayloadLog,
        database: MailboxDatabase,
        *,
        digest: Callable[[bytes], bytes],
        inline_bytes: int = INLINE_BYTES,
    ) -> None:
        self._log = log
        self._database = database
        self._digest = digest
        self._inline_bytes = inline_bytes

    def write(self, batches: Sequence[NewBatch], *, now_unix_ns: int, room: int) -> list[Body]:
        """Make them durable, but for the small ones, which their transaction makes so. Raises as PayloadLog.append."""
        sealed = [(batch.runs, _seals(batch, now_unix_ns)) for batch in batches]
        growth = sum(len(runs) + len(seals) for runs, seals in sealed)
        digests = [self._of(runs, seals) for runs, seals in sealed]
        if growth <= self._inline_bytes:
            if growth:
                self._log.require_room(growth, room)
            return [
                Body(PayloadLocation(BESIDE, 0, len(runs) + len(seals)), digest, bool(seals), runs + seals)
                for (runs, seals), digest in zip(sealed, digests, strict=True)
            ]
        # The parts of a body follow each other in the log, so nothing has to be copied together.
        places = self._log.append([part for pair in sealed for part in pair], room=room)
        return [
            Body(
                PayloadLocation(first.segment, first.offset, first.length + second.length),
                digest,
                bool(seals),
            )
            for first, second, (_, seals), digest in zip(
                places[::2], places[1::2], sealed, digests, strict=True
            )
        ]

    def release(self, bodies: Sequence[Body]) -> None:
        """They were written for nothing."""
        self._log.release(body.place for body in bodies)

    def store(self, writer: Any, batch_id: int, body: Body) -> None:
        """In the transaction of the row: what does not stand in the log."""
        if body.place.segment == BESIDE:
            writer.execute("INSERT INTO bodies VALUES (?, ?)", (batch_id, body.inline))

    @staticmethod
    def remove(writer: Any, batch_id: int, place: PayloadLocation) -> None:
        """In the transaction that removes the row."""
        if place.segment == BESIDE:
            writer.execute("DELETE FROM bodies WHERE batch_id = ?", (batch_id,))

    def seal(self, batch: NewBatch, batch_id: int, now_unix_ns: int, body: Body) -> bytes:
        """The row's digest: over bytes and columns, so that no row passes for another."""
        return self._row_digest(
            Row(
                batch.topic,
                batch_id,
                batch.count,
                now_unix_ns,
                batch.shard,
                body.sealed,
                b"",
                body.place,
            ),
            body.digest,
        )

    def read(self, row: Row) -> bytes:
        """The runs. Damaged, or another IntegrityError; SegmentGone as PayloadLog.read."""
        body = self._bytes(row)
        cut = len(body) - (SEAL_BYTES * row.count if row.sealed else 0)
        runs, seals = body[:cut], body[cut:]
        if self._row_digest(row, self._of(runs, seals)) == row.digest:
            return runs
        what = f"Batch {row.batch_id} of {row.topic} is not what was stored."
        if not row.sealed:
            raise IntegrityError(what)
        runs, damaged = salvage_runs(body, row.count, _context(row.topic, row.stored_unix_ns, row.shard))
        if all(damaged):
            raise IntegrityError(what)
        raise Damaged(what, runs=runs, damaged=sum(1 << at for at, bad in enumerate(damaged) if bad))

    def _bytes(self, row: Row) -> bytes:
        if row.place.segment != BESIDE:
            return self._log.read(row.place)
        found = self._database.rows("SELECT body FROM bodies WHERE batch_id = ?", (row.batch_id,))
        if not found or not isinstance(found[0][0], bytes):
            raise IntegrityError(f"The bytes of batch {row.batch_id} of {row.topic} are missing.")
        body: bytes = found[0][0]
        return body

    def _of(self, runs: bytes, seals: bytes) -> bytes:
        return self._digest(runs) + (self._digest(seals) if seals else b"")

    def _row_digest(self, row: Row, digest: bytes) -> bytes:
        if not row.sealed and not row.shard:
            # As stores before schema 5 wrote it.
            return self._digest(f"{row.topic}\n{row.batch_id}\n{row.count}\n".encode() + digest)
        columns = (row.topic, row.batch_id, row.count, row.stored_unix_ns, row.shard)
        return self._digest("\n".join(map(str, columns)).encode() + b"\n" + digest)


def _seals(batch: NewBatch, now_unix_ns: int) -> bytes:
    try:
        seals = seal_runs(batch.runs, _context(batch.topic, now_unix_ns, batch.shard))
    except ValueError:
        return b""  # bytes that are nobody's runs are kept as a whole or not at all
    return seals if len(seals) == SEAL_BYTES * batch.count else b""


def _context(topic: str, stored_unix_ns: int, shard: int) -> bytes:
    """Columns that a message's seal covers beside its own bytes."""
    return f"{topic}\n{stored_unix_ns}\n{shard}".encode()
