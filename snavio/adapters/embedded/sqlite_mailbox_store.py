"""The mailbox's store: payloads in a log, and a row in SQLite for each batch that says where, and what is done.

Never refers to bytes before they are synced, never hands out bytes whose digest does not match, never uses a
batch id twice, and never does housekeeping on the way of a commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from snavio.adapters.embedded.compaction import Compaction
from snavio.adapters.embedded.disk import Disk, SystemDisk
from snavio.adapters.embedded.mailbox_database import MailboxDatabase
from snavio.adapters.embedded.mailbox_rows import UNTOUCHED, decode_record, encode_state
from snavio.adapters.embedded.payload_log import SEGMENT_BYTES, PayloadLog, Place, SegmentGone
from snavio.adapters.embedded.sqlite import StoreLock
from snavio.adapters.memory.recollection import Recollection
from snavio.errors import IntegrityError, NotFound, Saturated
from snavio.ports.mailbox_store import (
    RECALL_SLOTS,
    BatchRecord,
    Origin,
    Progress,
    Recall,
    Send,
    TopicRecord,
)

SPARSE = 1 / 8
CRAMPED_SPARSE = 1 / 2
"""When there is no room, copying half a segment to free the other half is worth it."""


class SqliteMailboxStore:
    """See MailboxStore. `digest` is BLAKE3.

    `max_bytes` bounds segments and database together; beside it there is SQLite's log, of some 20 MB.
    """

    def __init__(
        self,
        path: Path,
        *,
        digest: Callable[[bytes], bytes],
        max_bytes: int = 64 << 30,
        segment_bytes: int = SEGMENT_BYTES,
        disk: Disk | None = None,
    ) -> None:
        self._digest = digest
        self._max_bytes = max_bytes
        self._cramped = False
        # In a small store the spare segments would be a good part of it.
        self._spare = max_bytes >= 32 * segment_bytes
        self._sent = Recollection()
        self._lock = StoreLock(path)
        try:
            self._database = MailboxDatabase(path)
        except BaseException:
            self._lock.release()
            raise
        try:
            self._load()
            live = dict(self._database.rows("SELECT segment, sum(size) FROM batches GROUP BY segment"))
            self._database_bytes = self._database.used_bytes()
            self._log = PayloadLog(
                path.parent, disk=disk or SystemDisk(), live=live, segment_bytes=segment_bytes
            )
        except BaseException:
            self._database.close()
            self._lock.release()
            raise
        self._compaction = Compaction(self._log, self._database)

    def _load(self) -> None:
        rows = self._database.rows
        self._topic_ids: dict[str, int] = dict(rows("SELECT name, id FROM topics"))
        ((self._last_id,),) = rows("SELECT last_batch_id FROM counters")
        sent = "SELECT peer, epoch, seq, codes FROM peers ORDER BY stored_unix_ns, epoch, seq"
        for peer, epoch, seq, codes in rows(sent):
            self._sent.remember(Origin(peer, epoch, seq), codes)

    # -- writing ---------------------------------------------------------------------------------------

    def begin_epoch(self, now_unix_ns: int) -> int:
        # The counter outlives a clock that was set back between two starts.
        advance = "UPDATE counters SET epoch = max(epoch + 1, ?) RETURNING epoch"
        with self._database.transaction(undone=lambda: None) as writer:
            epoch: int = writer.execute(advance, (now_unix_ns,)).fetchall()[0][0]
        return epoch

    def commit(
        self, sends: Sequence[Send], progress: Sequence[Progress], *, now_unix_ns: int
    ) -> list[tuple[int, ...]]:
        last = {(state.topic, state.batch_id): state for state in progress}
        try:
            places, digests = self._store_payloads(sends)
            ids, dead = self._store_rows(sends, last.values(), places, digests, now_unix_ns)
        except Saturated:
            self._cramped = True
            raise
        self._log.release(dead)
        if places:
            self._cramped = False
        for send in sends:
            self._sent.remember(send.origin, send.codes)
        self._sent.forget(self._sent.surplus())
        return ids

    def _store_payloads(self, sends: Sequence[Send]) -> tuple[list[Place], list[bytes]]:
        payloads = [batch.runs for send in sends for batch in send.batches]
        if not payloads:
            return [], []
        digests = [self._digest(payload) for payload in payloads]
        return self._log.append(payloads, room=self._max_bytes - self._database_bytes), digests

    def _store_rows(
        self,
        sends: Sequence[Send],
        states: Iterable[Progress],
        places: list[Place],
        digests: list[bytes],
        now_unix_ns: int,
    ) -> tuple[list[tuple[int, ...]], list[Place]]:
        """The ids of each send's batches, and the places of batches that are gone."""
        known, before = len(self._topic_ids), self._last_id
        stored = zip(places, digests, strict=True)
        try:
            with self._database.transaction(undone=lambda: self._log.release(places)) as writer:
                ids = [self._append(writer, send, stored, now_unix_ns) for send in sends]
                if places:
                    writer.execute("UPDATE counters SET last_batch_id = ?", (self._last_id,))
                dead = self._settle(writer, states)
        except BaseException:
            # Ids of topics that were rolled back would be given to other topics.
            for name in list(self._topic_ids)[known:]:
                del self._topic_ids[name]
            self._last_id = before
            raise
        return ids, dead

    def _append(
        self, writer: Any, send: Send, stored: Iterator[tuple[Place, bytes]], now_unix_ns: int
    ) -> tuple[int, ...]:
        ids = []
        for batch in send.batches:
            place, digest = next(stored)
            self._last_id += 1
            writer.execute(
                "INSERT INTO batches VALUES (?, ?, ?, ?, ?, ?, ?, ?, x'', x'', ?, ?)",
                (
                    self._topic_id(writer, batch.topic),
                    self._last_id,
                    batch.count,
                    batch.count,
                    place.segment,
                    place.offset,
                    place.length,
                    now_unix_ns,
                    UNTOUCHED,
                    self._seal(batch.topic, self._last_id, batch.count, digest),
                ),
            )
            ids.append(self._last_id)
        peer, epoch, seq = send.origin.peer, send.origin.epoch, send.origin.seq
        writer.execute(
            "INSERT OR REPLACE INTO peers VALUES (?, ?, ?, ?, ?, ?)",
            (peer, seq % RECALL_SLOTS, epoch, seq, send.codes, now_unix_ns),
        )
        for forgotten in self._sent.surplus():
            writer.execute("DELETE FROM peers WHERE peer = ?", (forgotten,))
        return tuple(ids)

    def _settle(self, writer: Any, states: Iterable[Progress]) -> list[Place]:
        """Keep what is done of batches; the places of those that are gone."""
        dead: list[Place] = []
        for state in states:
            topic_id = self._topic_ids.get(state.topic)
            if topic_id is None:
                continue
            key = (topic_id, state.batch_id)
            if state.complete:
                delete = "DELETE FROM batches WHERE topic_id = ? AND id = ? RETURNING segment, offset, size"
                dead.extend(Place(*row) for row in writer.execute(delete, key).fetchall())
                continue
            writer.execute(
                "UPDATE batches SET unsettled = ?, settled = ?, retries = ?, state_check = ? "
                "WHERE topic_id = ? AND id = ?",
                (*encode_state(state), *key),
            )
        return dead

    def _topic_id(self, writer: Any, name: str) -> int:
        topic_id = self._topic_ids.get(name)
        if topic_id is None:
            writer.execute("INSERT INTO topics (name) VALUES (?)", (name,))
            topic_id = self._topic_ids[name] = writer.last_insert_rowid()
        return topic_id

    def _seal(self, topic: str, batch_id: int, count: int, digest: bytes) -> bytes:
        """Over bytes, count and id, so that no row passes for another."""
        return self._digest(f"{topic}\n{batch_id}\n{count}\n".encode() + digest)

    # -- reading ---------------------------------------------------------------------------------------

    def recall(self, origin: Origin) -> bytes | Recall:
        return self._sent.recall(origin)

    def read(self, topic: str, batch_id: int) -> bytes:
        try:
            return self._read(topic, batch_id)
        except SegmentGone:
            pass  # it was moved, or settled, between finding its place and reading there
        try:
            return self._read(topic, batch_id)
        except SegmentGone:
            raise IntegrityError(f"The segment that batch {batch_id} of {topic} is in is missing.") from None

    def _read(self, topic: str, batch_id: int) -> bytes:
        found = self._database.rows(
            "SELECT count, digest, segment, offset, size FROM batches WHERE topic_id = ? AND id = ?",
            (self._topic_ids.get(topic), batch_id),
        )
        if not found:
            raise NotFound(f"Batch {batch_id} of {topic} is gone.")
        ((count, digest, *place),) = found
        runs = self._log.read(Place(*place))
        if self._seal(topic, batch_id, count, self._digest(runs)) != digest:
            raise IntegrityError(f"Batch {batch_id} of {topic} is not what was stored.")
        return runs

    def pending(self, topic: str, *, after: int, limit: int) -> list[BatchRecord]:
        rows = self._database.rows(
            "SELECT id, count, size, stored_unix_ns, settled, retries, state_check FROM batches "
            "WHERE topic_id = ? AND id > ? ORDER BY id LIMIT ?",
            (self._topic_ids.get(topic), after, limit),
        )
        return [decode_record(row) for row in rows]

    def topics(self) -> list[TopicRecord]:
        rows = self._database.rows(
            "SELECT name, coalesce(sum(unsettled), 0), coalesce(max(batches.id), 0), "
            "coalesce(min(stored_unix_ns), 0) "
            "FROM topics LEFT JOIN batches ON topic_id = topics.id GROUP BY topics.id"
        )
        return [TopicRecord(*row) for row in rows]

    # -- housekeeping ----------------------------------------------------------------------------------

    def checkpoint(self) -> bool:
        """Copy SQLite's log into its file, remove dead segments, move a little out of a sparse one."""
        try:
            # On a full disk the log cannot grow, and acknowledgements need its space.
            self._database.copy_log(at_once=self._cramped)
        finally:
            more = self._reclaim()
        return more

    def _reclaim(self) -> bool:
        self._database_bytes = self._database.used_bytes()
        cramped = self._cramped
        if cramped:
            self._log.seal_if_sparse(CRAMPED_SPARSE)
        self._log.remove_dead(spare=self._spare and not cramped)
        return self._compaction.step(CRAMPED_SPARSE if cramped else SPARSE)

    def close(self) -> None:
        self._database.close()
        self._log.close()
        self._lock.release()
