"""The mailbox's store in one SQLite file: a batch is a row, and a commit is one fsync for everything in it.

Never hands out bytes whose digest does not match, never uses a batch id twice, and never checkpoints on the
committing connection: that would put the whole backlog of the log into one sender's latency.
"""

from __future__ import annotations

import struct
import threading
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import apsw

from snavio.adapters.embedded.sqlite import StoreLock, open_store, store_errors
from snavio.adapters.memory.recollection import Recollection
from snavio.errors import IntegrityError, NotFound, Saturated
from snavio.ports.mailbox_store import (
    RECALL_SLOTS,
    BatchRecord,
    Origin,
    Progress,
    Recall,
    Retry,
    Send,
    TopicRecord,
)

APPLICATION_ID = 0x534E4D42
SCHEMA_VERSION = 1
# Batches of 1000 messages are rows of some 450 KB. Per message and including the checkpoints, pages of 4, 8,
# 16 and 32 KiB cost 1.22, 1.10, 0.92 and 0.92 µs of CPU (medians of 6, interleaved).
PAGE_SIZE = 16_384
CACHE_KIB = 32 << 10
CHECKPOINT_BYTES = 16 << 20
RESTART_BYTES = 64 << 20
TRUNCATE_BYTES = 256 << 20
FULL_RETRY_MS = 1000
HOUSEKEEPING_WAIT_MS = 50

# The state of a batch is apart from its bytes, so that settling a few messages does not rewrite a megabyte,
# and stands in order of topic, so that a window of a topic is one short read.
_CREATE = (
    "CREATE TABLE boot (id INTEGER PRIMARY KEY CHECK (id = 1), epoch INTEGER NOT NULL) STRICT",
    "INSERT INTO boot VALUES (1, 0)",
    "CREATE TABLE topics (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE) STRICT",
    # AUTOINCREMENT, because a reused id would let an old receipt settle a new message.
    "CREATE TABLE payloads (id INTEGER PRIMARY KEY AUTOINCREMENT, runs BLOB NOT NULL) STRICT",
    """CREATE TABLE batches (
        topic_id INTEGER NOT NULL, id INTEGER NOT NULL, count INTEGER NOT NULL, unsettled INTEGER NOT NULL,
        size INTEGER NOT NULL, stored_unix_ns INTEGER NOT NULL, settled BLOB NOT NULL, retries BLOB NOT NULL,
        state_check INTEGER NOT NULL, digest BLOB NOT NULL, PRIMARY KEY (topic_id, id)
    ) STRICT, WITHOUT ROWID""",
    """CREATE TABLE peers (
        peer TEXT NOT NULL, slot INTEGER NOT NULL, epoch INTEGER NOT NULL, seq INTEGER NOT NULL,
        codes BLOB NOT NULL, stored_unix_ns INTEGER NOT NULL, PRIMARY KEY (peer, slot)
    ) STRICT, WITHOUT ROWID""",
)
_RETRY = struct.Struct("<HHIq")
_NOTHING = zlib.crc32(b"")


class SqliteMailboxStore:
    """See MailboxStore.

    Three connections: `commit` has one, `checkpoint` has one, everything else shares one. `digest` is BLAKE3.
    """

    def __init__(self, path: Path, *, digest: Callable[[bytes], bytes], max_bytes: int = 64 << 30) -> None:
        self._path = path
        self._digest = digest
        self._lock = StoreLock(path)
        self._writing, self._reading = threading.Lock(), threading.Lock()
        self._log_pages = 0
        self._sent = Recollection()
        try:
            self._writer, self._reader, self._housekeeper = (self._connect() for _ in range(3))
            with store_errors(path):
                self._writer.set_wal_hook(self._committed)
                self._writer.pragma("cache_size", -CACHE_KIB)
                # It waits while it keeps the commits out.
                self._housekeeper.set_busy_timeout(HOUSEKEEPING_WAIT_MS)
                self._writer.pragma("max_page_count", max(64, max_bytes // PAGE_SIZE))
                rows = self._reader.execute("SELECT name, id FROM topics")
                self._topic_ids: dict[str, int] = dict(rows)
                sent = "SELECT peer, epoch, seq, codes FROM peers ORDER BY stored_unix_ns, epoch, seq"
                for peer, epoch, seq, codes in self._reader.execute(sent):
                    self._sent.remember(Origin(peer, epoch, seq), codes)
        except BaseException:
            self._lock.release()
            raise

    def _connect(self) -> Any:
        connection = open_store(
            self._path,
            application_id=APPLICATION_ID,
            schema_version=SCHEMA_VERSION,
            create=_CREATE,
            page_size=PAGE_SIZE,
        )
        connection.wal_autocheckpoint(0)
        return connection

    def _committed(self, _connection: object, _name: str, log_pages: int) -> int:
        self._log_pages = log_pages
        return 0

    # -- writing ---------------------------------------------------------------------------------------

    def begin_epoch(self, now_unix_ns: int) -> int:
        # The counter outlives a clock that was set back between two starts.
        with self._writing, store_errors(self._path):
            advance = "UPDATE boot SET epoch = max(epoch + 1, ?) RETURNING epoch"
            epoch: int = self._writer.execute(advance, (now_unix_ns,)).fetchall()[0][0]
        return epoch

    def commit(
        self, sends: Sequence[Send], progress: Sequence[Progress], *, now_unix_ns: int
    ) -> list[tuple[int, ...]]:
        known = len(self._topic_ids)
        last = {(state.topic, state.batch_id): state for state in progress}
        with self._writing, store_errors(self._path):
            self._writer.execute("BEGIN IMMEDIATE")
            try:
                ids = [self._append(send, now_unix_ns) for send in sends]
                self._settle(last.values())
                self._writer.execute("COMMIT")
            except BaseException as error:
                if self._writer.in_transaction:
                    self._writer.execute("ROLLBACK")
                # Ids of topics that were rolled back would be given to other topics.
                for name in list(self._topic_ids)[known:]:
                    del self._topic_ids[name]
                if isinstance(error, apsw.FullError):
                    raise Saturated(f"{self._path} is full.", retry_after_ms=FULL_RETRY_MS) from error
                raise
        for send in sends:
            self._sent.remember(send.origin, send.codes)
        self._sent.forget(self._sent.surplus())
        return ids

    def _append(self, send: Send, now_unix_ns: int) -> tuple[int, ...]:
        execute, ids = self._writer.execute, []
        for batch in send.batches:
            execute("INSERT INTO payloads (runs) VALUES (?)", (batch.runs,))
            batch_id = self._writer.last_insert_rowid()
            execute(
                "INSERT INTO batches VALUES (?, ?, ?, ?, ?, ?, x'', x'', ?, ?)",
                (
                    self._topic_id(batch.topic),
                    batch_id,
                    batch.count,
                    batch.count,
                    len(batch.runs),
                    now_unix_ns,
                    _NOTHING,
                    self._seal(batch.topic, batch_id, batch.count, batch.runs),
                ),
            )
            ids.append(batch_id)
        peer, epoch, seq = send.origin.peer, send.origin.epoch, send.origin.seq
        execute(
            "INSERT OR REPLACE INTO peers VALUES (?, ?, ?, ?, ?, ?)",
            (peer, seq % RECALL_SLOTS, epoch, seq, send.codes, now_unix_ns),
        )
        for forgotten in self._sent.surplus():
            execute("DELETE FROM peers WHERE peer = ?", (forgotten,))
        return tuple(ids)

    def _settle(self, states: Any) -> None:
        for state in states:
            topic_id = self._topic_ids.get(state.topic)
            if topic_id is None:
                continue
            key = (topic_id, state.batch_id)
            if state.complete:
                self._writer.execute("DELETE FROM batches WHERE topic_id = ? AND id = ?", key)
                self._writer.execute("DELETE FROM payloads WHERE id = ?", (state.batch_id,))
                continue
            settled = state.settled.to_bytes((state.count + 7) // 8, "little")
            retries = b"".join(
                _RETRY.pack(retry.first, retry.end, retry.attempt, retry.not_before_unix_ns)
                for retry in state.retries
            )
            unsettled = state.count - state.settled.bit_count()
            self._writer.execute(
                "UPDATE batches SET unsettled = ?, settled = ?, retries = ?, state_check = ? "
                "WHERE topic_id = ? AND id = ?",
                (unsettled, settled, retries, zlib.crc32(settled + retries), *key),
            )

    def _topic_id(self, name: str) -> int:
        topic_id = self._topic_ids.get(name)
        if topic_id is None:
            self._writer.execute("INSERT INTO topics (name) VALUES (?)", (name,))
            topic_id = self._topic_ids[name] = self._writer.last_insert_rowid()
        return topic_id

    def _seal(self, topic: str, batch_id: int, count: int, runs: bytes) -> bytes:
        """Over bytes, count and place, so that no row passes for another."""
        return self._digest(f"{topic}\n{batch_id}\n{count}\n".encode() + self._digest(runs))

    # -- reading ---------------------------------------------------------------------------------------

    def recall(self, origin: Origin) -> bytes | Recall:
        return self._sent.recall(origin)

    def read(self, topic: str, batch_id: int) -> bytes:
        with self._reading, store_errors(self._path):
            found = self._reader.execute(
                "SELECT count, digest, runs FROM batches JOIN payloads USING (id) "
                "WHERE topic_id = ? AND batches.id = ?",
                (self._topic_ids.get(topic), batch_id),
            ).fetchone()
        if found is None:
            raise NotFound(f"Batch {batch_id} of {topic} is gone.")
        count, digest, runs = found
        if self._seal(topic, batch_id, count, runs) != digest:
            raise IntegrityError(f"Batch {batch_id} of {topic} is not what was stored.")
        return bytes(runs)

    def pending(self, topic: str, *, after: int, limit: int) -> list[BatchRecord]:
        with self._reading, store_errors(self._path):
            rows = self._reader.execute(
                "SELECT id, count, size, stored_unix_ns, settled, retries, state_check FROM batches "
                "WHERE topic_id = ? AND id > ? ORDER BY id LIMIT ?",
                (self._topic_ids.get(topic), after, limit),
            ).fetchall()
        return [_record(row) for row in rows]

    def topics(self) -> list[TopicRecord]:
        with self._reading, store_errors(self._path):
            rows = self._reader.execute(
                "SELECT name, coalesce(sum(unsettled), 0), coalesce(max(batches.id), 0), "
                "coalesce(min(stored_unix_ns), 0) "
                "FROM topics LEFT JOIN batches ON topic_id = topics.id GROUP BY topics.id"
            ).fetchall()
        return [TopicRecord(*row) for row in rows]

    # -- housekeeping ----------------------------------------------------------------------------------

    def checkpoint(self) -> None:
        """Copy the log into the file beside the commits; stop them only to start the log anew."""
        if self._log_pages * PAGE_SIZE < CHECKPOINT_BYTES:
            return
        with store_errors(self._path):
            try:
                self._copy_log()
            except apsw.BusyError:
                # A reader is in the way: next time. But a log that only grows must not do so in silence.
                if self._log_pages * PAGE_SIZE > TRUNCATE_BYTES:
                    raise

    def _copy_log(self) -> None:
        self._housekeeper.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        size = self._log_pages * PAGE_SIZE
        if size < RESTART_BYTES:
            return
        self._housekeeper.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        mode = apsw.SQLITE_CHECKPOINT_TRUNCATE if size > TRUNCATE_BYTES else apsw.SQLITE_CHECKPOINT_RESTART
        # Without this a log under steady load is never caught up with and grows until the disk is full.
        with self._writing, self._reading:
            self._housekeeper.wal_checkpoint(mode=mode)

    def close(self) -> None:
        with self._writing, self._reading:
            for connection in (self._reader, self._housekeeper, self._writer):
                connection.close()
        self._lock.release()


def _record(row: tuple[int, int, int, int, bytes, bytes, int]) -> BatchRecord:
    batch_id, count, size, stored_unix_ns, settled, retries, state_check = row
    if zlib.crc32(settled + retries) != state_check:
        # A damaged state must not hide messages: without it, they are delivered once more.
        return BatchRecord(batch_id, count, size, stored_unix_ns)
    return BatchRecord(
        batch_id,
        count,
        size,
        stored_unix_ns,
        int.from_bytes(settled, "little"),
        tuple(Retry(*fields) for fields in _RETRY.iter_unpack(retries)),
    )
