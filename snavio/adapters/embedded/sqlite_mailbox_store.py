"""The mailbox's store: payloads in a log, and a row in SQLite for each batch that says where, and what is done.

Never refers to bytes before they are synced, never hands out bytes whose digest does not match, never uses a
batch id twice, and never does housekeeping on the way of a commit.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw

from snavio.adapters.embedded.compaction import Compaction
from snavio.adapters.embedded.disk import Disk, SystemDisk
from snavio.adapters.embedded.mailbox_rows import (
    APPLICATION_ID,
    CREATE,
    SCHEMA_VERSION,
    UNTOUCHED,
    decode_record,
    encode_state,
)
from snavio.adapters.embedded.payload_log import (
    FULL_RETRY_MS,
    SEGMENT_BYTES,
    PayloadLog,
    Place,
    SegmentGone,
)
from snavio.adapters.embedded.sqlite import StoreLock, open_store, store_errors
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

PAGE_SIZE = 4096
CHECKPOINT_BYTES = 16 << 20
COMPLAINT_BYTES = 256 << 20
HOUSEKEEPING_WAIT_MS = 50
SPARSE = 1 / 8
CRAMPED_SPARSE = 1 / 2
"""When there is no room, copying half a segment to free the other half is worth it."""


class SqliteMailboxStore:
    """See MailboxStore.

    Three connections: `commit` has one, `checkpoint` has one, everything else shares one. `digest` is BLAKE3.
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
        self._path = path
        self._digest = digest
        self._max_bytes = max_bytes
        self._lock = StoreLock(path)
        self._writing, self._reading = threading.Lock(), threading.Lock()
        self._log_pages = 0
        self._cramped = False
        self._sent = Recollection()
        try:
            self._writer, self._reader, self._housekeeper = (self._connect() for _ in range(3))
            with store_errors(path):
                self._writer.set_wal_hook(self._committed)
                # It waits while it keeps the commits out.
                self._housekeeper.set_busy_timeout(HOUSEKEEPING_WAIT_MS)
                self._load()
                live = dict(self._reader.execute("SELECT segment, sum(size) FROM batches GROUP BY segment"))
            self._database_bytes = self._measure()
            self._log = PayloadLog(
                path.parent, disk=disk or SystemDisk(), live=live, segment_bytes=segment_bytes
            )
        except BaseException:
            self._lock.release()
            raise
        self._compaction = Compaction(self._log, reader=self._housekeeper, transaction=self._transaction)

    def _connect(self) -> Any:
        connection = open_store(
            self._path,
            application_id=APPLICATION_ID,
            schema_version=SCHEMA_VERSION,
            create=CREATE,
            page_size=PAGE_SIZE,
        )
        connection.wal_autocheckpoint(0)
        return connection

    def _load(self) -> None:
        self._topic_ids: dict[str, int] = dict(self._reader.execute("SELECT name, id FROM topics"))
        self._last_id: int = self._reader.execute("SELECT last_batch_id FROM counters").fetchall()[0][0]
        sent = "SELECT peer, epoch, seq, codes FROM peers ORDER BY stored_unix_ns, epoch, seq"
        for peer, epoch, seq, codes in self._reader.execute(sent):
            self._sent.remember(Origin(peer, epoch, seq), codes)

    def _committed(self, _connection: object, _name: str, log_pages: int) -> int:
        self._log_pages = log_pages
        return 0

    # -- writing ---------------------------------------------------------------------------------------

    def begin_epoch(self, now_unix_ns: int) -> int:
        # The counter outlives a clock that was set back between two starts.
        with self._writing, store_errors(self._path):
            advance = "UPDATE counters SET epoch = max(epoch + 1, ?) RETURNING epoch"
            epoch: int = self._writer.execute(advance, (now_unix_ns,)).fetchall()[0][0]
        return epoch

    def commit(
        self, sends: Sequence[Send], progress: Sequence[Progress], *, now_unix_ns: int
    ) -> list[tuple[int, ...]]:
        last = {(state.topic, state.batch_id): state for state in progress}
        try:
            places, digests = self._store_payloads(sends)
            known, before = len(self._topic_ids), self._last_id
            try:
                with self._transaction(places):
                    stored = iter(zip(places, digests, strict=True))
                    ids = [self._append(send, stored, now_unix_ns) for send in sends]
                    dead = self._settle(last.values())
            except BaseException:
                # Ids of topics that were rolled back would be given to other topics.
                for name in list(self._topic_ids)[known:]:
                    del self._topic_ids[name]
                self._last_id = before
                raise
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
        places = self._log.append(payloads, room=self._max_bytes - self._database_bytes)
        return places, [self._digest(payload) for payload in payloads]

    @contextmanager
    def _transaction(self, places: list[Place]) -> Iterator[Any]:
        """All or nothing. `places` are what it begins to refer to: released if it certainly did not happen."""
        committing = False
        with self._writing, store_errors(self._path):
            try:
                self._writer.execute("BEGIN IMMEDIATE")
                yield self._writer
                committing = True
                self._writer.execute("COMMIT")
            except BaseException as error:
                if self._writer.in_transaction:
                    self._writer.execute("ROLLBACK")
                full = isinstance(error, apsw.FullError)
                # After a failed sync, a crash may bring the transaction to light: then its payloads are needed.
                if full or not committing:
                    self._log.release(places)
                if full:
                    raise Saturated(f"{self._path} is full.", retry_after_ms=FULL_RETRY_MS) from error
                raise

    def _append(self, send: Send, stored: Iterator[tuple[Place, bytes]], now_unix_ns: int) -> tuple[int, ...]:
        execute, ids = self._writer.execute, []
        for batch in send.batches:
            place, digest = next(stored)
            self._last_id += 1
            execute(
                "INSERT INTO batches VALUES (?, ?, ?, ?, ?, ?, ?, ?, x'', x'', ?, ?)",
                (
                    self._topic_id(batch.topic),
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
        if ids:
            execute("UPDATE counters SET last_batch_id = ?", (self._last_id,))
        peer, epoch, seq = send.origin.peer, send.origin.epoch, send.origin.seq
        execute(
            "INSERT OR REPLACE INTO peers VALUES (?, ?, ?, ?, ?, ?)",
            (peer, seq % RECALL_SLOTS, epoch, seq, send.codes, now_unix_ns),
        )
        for forgotten in self._sent.surplus():
            execute("DELETE FROM peers WHERE peer = ?", (forgotten,))
        return tuple(ids)

    def _settle(self, states: Any) -> list[Place]:
        """Keep what is done of batches; the places of those that are gone."""
        dead: list[Place] = []
        for state in states:
            topic_id = self._topic_ids.get(state.topic)
            if topic_id is None:
                continue
            key = (topic_id, state.batch_id)
            if state.complete:
                delete = "DELETE FROM batches WHERE topic_id = ? AND id = ? RETURNING segment, offset, size"
                dead.extend(Place(*row) for row in self._writer.execute(delete, key).fetchall())
                continue
            self._writer.execute(
                "UPDATE batches SET unsettled = ?, settled = ?, retries = ?, state_check = ? "
                "WHERE topic_id = ? AND id = ?",
                (*encode_state(state), *key),
            )
        return dead

    def _topic_id(self, name: str) -> int:
        topic_id = self._topic_ids.get(name)
        if topic_id is None:
            self._writer.execute("INSERT INTO topics (name) VALUES (?)", (name,))
            topic_id = self._topic_ids[name] = self._writer.last_insert_rowid()
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
        with self._reading, store_errors(self._path):
            found = self._reader.execute(
                "SELECT count, digest, segment, offset, size FROM batches WHERE topic_id = ? AND id = ?",
                (self._topic_ids.get(topic), batch_id),
            ).fetchone()
        if found is None:
            raise NotFound(f"Batch {batch_id} of {topic} is gone.")
        count, digest, *place = found
        runs = self._log.read(Place(*place))
        if self._seal(topic, batch_id, count, self._digest(runs)) != digest:
            raise IntegrityError(f"Batch {batch_id} of {topic} is not what was stored.")
        return runs

    def pending(self, topic: str, *, after: int, limit: int) -> list[BatchRecord]:
        with self._reading, store_errors(self._path):
            rows = self._reader.execute(
                "SELECT id, count, size, stored_unix_ns, settled, retries, state_check FROM batches "
                "WHERE topic_id = ? AND id > ? ORDER BY id LIMIT ?",
                (self._topic_ids.get(topic), after, limit),
            ).fetchall()
        return [decode_record(row) for row in rows]

    def topics(self) -> list[TopicRecord]:
        with self._reading, store_errors(self._path):
            rows = self._reader.execute(
                "SELECT name, coalesce(sum(unsettled), 0), coalesce(max(batches.id), 0), "
                "coalesce(min(stored_unix_ns), 0) "
                "FROM topics LEFT JOIN batches ON topic_id = topics.id GROUP BY topics.id"
            ).fetchall()
        return [TopicRecord(*row) for row in rows]

    # -- housekeeping ----------------------------------------------------------------------------------

    def checkpoint(self) -> bool:
        """Copy SQLite's log into its file, remove dead segments, move a little out of sparse ones."""
        with store_errors(self._path):
            self._copy_log()
            self._database_bytes = self._measure()
            if self._cramped:
                self._log.seal_if_sparse(CRAMPED_SPARSE)
            self._log.remove_dead()
            return self._compaction.step(CRAMPED_SPARSE if self._cramped else SPARSE)

    def _copy_log(self) -> None:
        if self._log_pages * PAGE_SIZE < CHECKPOINT_BYTES:
            return
        try:
            self._housekeeper.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
            # Under steady load a passive one never catches up, and the log would grow until the disk is full.
            with self._writing, self._reading:
                self._housekeeper.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_RESTART)
        except apsw.BusyError:
            # A reader is in the way: next time. But a log that only grows must not do so in silence.
            if self._log_pages * PAGE_SIZE > COMPLAINT_BYTES:
                raise

    def _measure(self) -> int:
        """Bytes of the database that are in use; free pages are there for rows to come."""
        with store_errors(self._path):
            pages = self._housekeeper.pragma("page_count") - self._housekeeper.pragma("freelist_count")
            return int(pages) * PAGE_SIZE

    def close(self) -> None:
        with self._writing, self._reading:
            for connection in (self._reader, self._housekeeper, self._writer):
                connection.close()
        self._log.close()
        self._lock.release()
