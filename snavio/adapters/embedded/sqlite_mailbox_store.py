"""The mailbox's store: payloads in a log, and a row in SQLite for each batch that says where, and what is done.

Never refers to bytes before they are synced, never hands out bytes whose digest does not match, never uses a
batch id twice, and never does housekeeping on the way of a commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from snavio.adapters.batch_rewrite import rewrite_batch
from snavio.adapters.embedded.batch_bodies import INLINE_BYTES, BatchBodies, Body, Row
from snavio.adapters.embedded.disk import Disk, SystemDisk
from snavio.adapters.embedded.mailbox_database import MailboxDatabase
from snavio.adapters.embedded.mailbox_rows import (
    RECORD_COLUMNS,
    STATE_COLUMNS,
    decode_record,
    encode_delay,
    encode_state,
)
from snavio.adapters.embedded.payload_compaction import PayloadCompaction
from snavio.adapters.embedded.payload_log import SEGMENT_BYTES, PayloadLocation, PayloadLog, SegmentGone
from snavio.adapters.embedded.replay_keys import ReplayKeys
from snavio.adapters.embedded.sqlite import StoreLock
from snavio.adapters.memory.idempotency import CAPACITY
from snavio.adapters.memory.resends import ResentBatches
from snavio.adapters.tenant_bytes import TenantBytes
from snavio.domain.message import MessageState
from snavio.errors import IntegrityError, NotFound, Saturated
from snavio.ports.mailbox_store import (
    RECALL_SLOTS,
    ROW_BYTES,
    BatchRecord,
    NewBatch,
    OrderMark,
    Origin,
    Progress,
    Recall,
    Recognised,
    Retained,
    Send,
    TopicRecord,
)

SPARSE = 1 / 8
CRAMPED_SPARSE = 1 / 2
"""When there is no room, copying half a segment to free the other half is worth it."""
_KEEP_STATE = (
    f"UPDATE batches SET ({STATE_COLUMNS}) = (?, ?, ?, ?, ?, ?, ?, ?, ?) WHERE topic_id = ? AND id = ?"  # noqa: S608
)
_HOLDING = {
    None: "1",
    MessageState.READY: "unsettled > 0",
    MessageState.INFLIGHT: "unsettled > 0",
    MessageState.DELIVERED: "delivered > 0",
    MessageState.DEAD: "dead > 0",
    MessageState.CANCELED: "canceled > 0",
}


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
        max_keys: int = CAPACITY,
        inline_bytes: int = INLINE_BYTES,
    ) -> None:
        self._digest = digest
        self._max_bytes = max_bytes
        self._cramped = False
        # In a small store the spare segments would be a good part of it.
        self._spare = max_bytes >= 32 * segment_bytes
        self._sent = ResentBatches()
        self._lock = StoreLock(path)
        try:
            self._database = MailboxDatabase(path)
        except BaseException:
            self._lock.release()
            raise
        try:
            self._load()
            self._keys = ReplayKeys(self._database, digest=digest, capacity=max_keys)
            live = dict(
                self._database.rows(
                    "SELECT segment, sum(size) FROM batches WHERE segment > 0 GROUP BY segment"
                )
            )
            self._database_bytes = self._database.used_bytes()
            self._log = PayloadLog(
                path.parent, disk=disk or SystemDisk(), live=live, segment_bytes=segment_bytes
            )
            self._bodies = BatchBodies(self._log, self._database, digest=digest, inline_bytes=inline_bytes)
        except BaseException:
            self._database.close()
            self._lock.release()
            raise
        self._compaction = PayloadCompaction(self._log, self._database)

    def _load(self) -> None:
        rows = self._database.rows
        self._topic_ids: dict[str, int] = dict(rows("SELECT name, id FROM topics"))
        ((self._last_id,),) = rows("SELECT last_batch_id FROM counters")
        sent = "SELECT peer, epoch, seq, codes FROM peers ORDER BY stored_unix_ns, peer, epoch, seq"
        for peer, epoch, seq, codes in rows(sent):
            self._sent.remember(Origin(peer, epoch, seq), codes)
        stored = "SELECT name, sum(size) + count(*) * ? FROM batches JOIN topics ON topics.id = topic_id GROUP BY name"
        self._tenants = TenantBytes(rows(stored, (ROW_BYTES,)))

    # -- writing ---------------------------------------------------------------------------------------

    def begin_epoch(self, now_unix_ns: int) -> int:
        # The counter outlives a clock that was set back between two starts.
        advance = "UPDATE counters SET epoch = max(epoch + 1, ?) RETURNING epoch"
        with self._database.transaction(undone=lambda: None) as writer:
            epoch: int = writer.execute(advance, (now_unix_ns,)).fetchall()[0][0]
        return epoch

    @property
    def replay_secret(self) -> bytes:
        return self._keys.known.secret

    def first(self, key: bytes, *, now_unix_ns: int) -> tuple[int, int] | None:
        return self._keys.known.first(key, now_unix_ns=now_unix_ns)

    def recognise(self, sends: Sequence[Send], *, now_unix_ns: int) -> list[Recognised]:
        return self._keys.known.recognise(sends, now_unix_ns=now_unix_ns)

    def commit(
        self, sends: Sequence[Send], progress: Sequence[Progress], *, now_unix_ns: int, age_ns: int = 0
    ) -> list[tuple[int, ...]]:
        last = {(state.topic, state.batch_id): state for state in progress}
        orders = {(state.topic, state.order.shard): state.order for state in progress if state.order}
        batches = [batch for send in sends for batch in send.batches]
        try:
            room = self._max_bytes - self._database_bytes
            bodies = self._bodies.write(batches, now_unix_ns=now_unix_ns, room=room)
            ids, dead = self._store_rows(sends, last.values(), bodies, (now_unix_ns, age_ns), orders)
        except Saturated:
            self._cramped = True
            raise
        except IntegrityError:
            if bodies:
                raise
            # Removing bytes goes over the pages beside them. One that is damaged must not keep its neighbours' messages
            # from being acknowledged, which would be delivered again and again: their bytes stay.
            ids, dead = self._store_rows(
                sends, last.values(), bodies, (now_unix_ns, age_ns), orders, removing=False
            )
        self._log.release(dead)
        self._keys.known.remember(sends, ids, now_unix_ns=now_unix_ns)
        if bodies:
            self._cramped = False
        for send in sends:
            if send.origin is not None:
                self._sent.remember(send.origin, send.codes, now_unix_ns=now_unix_ns)
        return ids

    def _store_rows(
        self,
        sends: Sequence[Send],
        states: Iterable[Progress],
        bodies: list[Body],
        times: tuple[int, int],
        orders: Mapping[tuple[str, int], OrderMark],
        *,
        removing: bool = True,
    ) -> tuple[list[tuple[int, ...]], list[PayloadLocation]]:
        """The ids of each send's batches, and the places of batches that are gone."""
        before, (now_unix_ns, _) = self._last_id, times
        made: list[str] = []
        stored = iter(bodies)
        sending = {(send.origin.peer, send.origin.epoch) for send in sends if send.origin is not None}
        ended = self._sent.expired(now_unix_ns, sending=sending)
        try:
            with self._database.transaction(undone=lambda: self._bodies.release(bodies)) as writer:
                ids = [self._append(writer, send, stored, made, times=times) for send in sends]
                if bodies:
                    writer.execute("UPDATE counters SET last_batch_id = ?", (self._last_id,))
                self._keys.store(writer, sends, ids, now_unix_ns=now_unix_ns)
                dead = self._settle(writer, states, removing=removing)
                for (topic, _), mark in orders.items():
                    self._keep_order(writer, topic, mark)
                for sender in ended:
                    writer.execute("DELETE FROM peers WHERE peer = ? AND epoch = ?", sender)
        except BaseException:
            # Ids of topics that were rolled back would be given to other topics.
            for name in made:
                self._topic_ids.pop(name, None)
            self._last_id = before
            raise
        self._sent.forget(ended)
        batches = (batch for send in sends for batch in send.batches)
        self._tenants.change(
            (batch.topic, body.place.length + ROW_BYTES) for batch, body in zip(batches, bodies, strict=True)
        )
        self._tenants.change((topic, -place.length - ROW_BYTES) for topic, place in dead)
        return ids, [place for _, place in dead]

    def _append(
        self,
        writer: Any,
        send: Send,
        stored: Iterator[Body],
        made: list[str],
        *,
        times: tuple[int, int],
    ) -> tuple[int, ...]:
        now_unix_ns, age_ns = times
        ids = []
        for batch in send.batches:
            body = next(stored)
            self._last_id += 1
            writer.execute(
                "INSERT INTO batches (topic_id, id, count, unsettled, segment, offset, size, stored_unix_ns, "
                "settled, retries, state_check, digest, sealed, shard, stored_age_ns) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?, x'', ?, ?, ?, ?, ?, ?)",
                (
                    self._topic_id(writer, batch.topic, made),
                    self._last_id,
                    batch.count,
                    batch.count,
                    body.place.segment,
                    body.place.offset,
                    body.place.length,
                    now_unix_ns,
                    *encode_delay(batch.count, batch.not_before_unix_ns),
                    self._bodies.seal(batch, self._last_id, now_unix_ns, body),
                    body.sealed,
                    batch.shard,
                    age_ns,
                ),
            )
            self._bodies.store(writer, self._last_id, body)
            ids.append(self._last_id)
        if send.origin is None:
            return tuple(ids)
        peer, epoch, seq = send.origin.peer, send.origin.epoch, send.origin.seq
        writer.execute(
            "INSERT OR REPLACE INTO peers VALUES (?, ?, ?, ?, ?, ?)",
            (peer, epoch, seq % RECALL_SLOTS, seq, send.codes, now_unix_ns),
        )
        return tuple(ids)

    def _settle(
        self, writer: Any, states: Iterable[Progress], *, removing: bool
    ) -> list[tuple[str, PayloadLocation]]:
        """Keep what is done of batches; topics and places of those that are gone."""
        dead: list[tuple[str, PayloadLocation]] = []
        for state in states:
            topic_id = self._topic_ids.get(state.topic)
            if topic_id is None:
                continue
            key = (topic_id, state.batch_id)
            if state.gone:
                delete = "DELETE FROM batches WHERE topic_id = ? AND id = ? RETURNING segment, offset, size"
                for row in writer.execute(delete, key).fetchall():
                    place = PayloadLocation(*row)
                    dead.append((state.topic, place))
                    if removing:
                        self._bodies.remove(writer, state.batch_id, place)
                continue
            writer.execute(_KEEP_STATE, (*encode_state(state), *key))
        return dead

    def _keep_order(self, writer: Any, topic: str, mark: OrderMark) -> None:
        if (topic_id := self._topic_ids.get(topic)) is not None:
            values = (topic_id, mark.shard, mark.deepest, mark.beyond, *mark.oldest, *mark.newest)
            writer.execute("INSERT OR REPLACE INTO orders VALUES (?, ?, ?, ?, ?, ?, ?, ?)", values)

    def _topic_id(self, writer: Any, name: str, made: list[str]) -> int:
        topic_id = self._topic_ids.get(name)
        if topic_id is None:
            # It may be there although it was dropped, if that failed.
            insert = "INSERT INTO topics (name) VALUES (?) ON CONFLICT DO UPDATE SET name = name RETURNING id"
            ((topic_id,),) = writer.execute(insert, (name,)).fetchall()
            self._topic_ids[name] = topic_id
            made.append(name)
        return topic_id

    def drop_topics(self, names: Sequence[str]) -> list[str]:
        drop = (
            "DELETE FROM topics WHERE name = ? "
            "AND NOT EXISTS (SELECT 1 FROM batches WHERE topic_id = topics.id) RETURNING id"
        )
        with self._database.transaction(undone=lambda: None) as writer:
            dropped = []
            for name in names:
                for (topic_id,) in writer.execute(drop, (name,)).fetchall():
                    # Its id may be given to another topic.
                    writer.execute("DELETE FROM orders WHERE topic_id = ?", (topic_id,))
                    dropped.append(name)
            for name in dropped:
                # Before the commit, which may fail: without an id it is only looked up again.
                self._topic_ids.pop(name, None)
        return dropped

    def stored_bytes(self) -> Mapping[str, int]:
        return self._tenants.held

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
        row = self._row(topic, batch_id)
        if row is None:
            raise NotFound(f"Batch {batch_id} of {topic} is gone.")
        return self._bodies.read(row)

    def _row(self, topic: str, batch_id: int) -> Row | None:
        found = self._database.rows(
            "SELECT count, stored_unix_ns, shard, sealed, digest, segment, offset, size FROM batches "
            "WHERE topic_id = ? AND id = ?",
            (self._topic_ids.get(topic), batch_id),
        )
        if not found:
            return None
        ((count, stored_unix_ns, shard, sealed, digest, *place),) = found
        return Row(
            topic, batch_id, count, stored_unix_ns, shard, bool(sealed), digest, PayloadLocation(*place)
        )

    def rewrite_batch(self, topic: str, batch_id: int, *, keep: int) -> int | None:
        topic_id = self._topic_ids.get(topic)
        row = self._row(topic, batch_id)
        if row is None:
            return None
        try:
            runs = rewrite_batch(self._bodies.read(row), keep)
            batch = NewBatch(topic, row.count, runs, shard=row.shard)
            room = self._max_bytes - self._database_bytes
            (body,) = self._bodies.write([batch], now_unix_ns=row.stored_unix_ns, room=room)
        except (SegmentGone, Saturated):
            return None
        digest = self._bodies.seal(batch, batch_id, row.stored_unix_ns, body)
        new, old = body.place, row.place
        with self._database.transaction(undone=lambda: self._bodies.release([body])) as writer:
            # Only if it is where it was: it may have been moved, and what was read may be gone.
            held = writer.execute(
                "UPDATE batches SET segment = ?, offset = ?, size = ?, sealed = ?, digest = ? "
                "WHERE topic_id = ? AND id = ? AND segment = ? AND offset = ? AND size = ? RETURNING id",
                (
                    *(new.segment, new.offset, new.length, body.sealed, digest),
                    *(topic_id, batch_id, old.segment, old.offset, old.length),
                ),
            ).fetchall()
            if held:
                self._bodies.remove(writer, batch_id, old)
                self._bodies.store(writer, batch_id, body)
        self._log.release([old if held else new])
        if held:
            self._tenants.change([(topic, new.length - old.length)])
        return new.length if held else None

    def pending(self, topic: str, *, after: int, limit: int) -> list[BatchRecord]:
        return self._records("topic_id = ? AND id > ? AND unsettled > 0 ORDER BY id", topic, after, limit)

    def records(
        self,
        topic: str,
        *,
        after: int,
        limit: int,
        holding: MessageState | None = None,
        newest_first: bool = False,
    ) -> list[BatchRecord]:
        side, order = ("<", "id DESC") if newest_first else (">", "id")
        where = f"topic_id = ? AND id {side} ? AND {_HOLDING[holding]} ORDER BY {order}"
        return self._records(where, topic, after, limit)

    def record(self, topic: str, batch_id: int) -> BatchRecord | None:
        found = self._records("topic_id = ? AND id = ?", topic, batch_id, 1)
        return found[0] if found else None

    def retained(self, topic: str, *, limit: int) -> list[Retained]:
        found = self._database.rows(
            "SELECT id, count, delivered, age_ns FROM batches INDEXED BY batches_delivered "
            "WHERE topic_id = ? AND unsettled = 0 AND dead = 0 AND canceled = 0 ORDER BY age_ns, id LIMIT ?",
            (self._topic_ids.get(topic), limit),
        )
        return [Retained(*row) for row in found]

    def _records(self, where: str, topic: str, number: int, limit: int) -> list[BatchRecord]:
        # `where` is one of this file's own words, never a caller's.
        rows = self._database.rows(
            f"SELECT {RECORD_COLUMNS} FROM batches WHERE {where} LIMIT ?",  # noqa: S608
            (self._topic_ids.get(topic), number, limit),
        )
        return [decode_record(row) for row in rows]

    # -- age -------------------------------------------------------------------------------------------

    def age(self) -> int:
        ((age_ns,),) = self._database.rows("SELECT age_ns FROM age")
        return int(age_ns)

    def note_age(self, age_ns: int) -> None:
        with self._database.transaction(undone=lambda: None) as writer:
            writer.execute("UPDATE age SET age_ns = max(age_ns, ?)", (age_ns,))

    def topics(self) -> list[TopicRecord]:
        rows = self._database.rows(
            "SELECT name, coalesce(sum(unsettled), 0), coalesce(max(batches.id), 0), "
            "coalesce(min(CASE WHEN unsettled > 0 THEN stored_unix_ns END), 0), "
            "coalesce(min(CASE WHEN unsettled > 0 THEN batches.id END), 0), "
            "coalesce(sum(delivered), 0), coalesce(sum(dead), 0), coalesce(sum(canceled), 0), "
            "coalesce(shard, 0) "
            "FROM topics LEFT JOIN batches ON topic_id = topics.id GROUP BY topics.id, shard"
        )
        found: dict[str, TopicRecord] = {}
        for name, unsettled, last, oldest, first, delivered, dead, canceled, shard in rows:
            shards = ((shard, unsettled),) if unsettled else ()
            one = TopicRecord(name, unsettled, last, oldest, first, delivered, dead, canceled, shards)
            found[name] = one if name not in found else found[name].with_more(one)
        orders = (
            "SELECT name, orders.* FROM orders JOIN topics ON topics.id = topic_id ORDER BY topic_id, shard"
        )
        for name, _, shard, deepest, beyond, *at in self._database.rows(orders):
            mark = OrderMark(shard, deepest, beyond, (at[0], at[1]), (at[2], at[3]))
            found[name] = replace(found[name], order=(*found[name].order, mark))
        return list(found.values())

    def gauges(self) -> dict[str, float]:
        return {**self._keys.known.gauges(), "store_bytes": self._log.size + self._database_bytes}

    # -- housekeeping ----------------------------------------------------------------------------------

    def checkpoint(self) -> bool:
        """Copy SQLite's log into its file, remove dead segments, move a little out of a sparse one."""
        try:
            # On a full disk the log cannot grow, and acknowledgements need its space.
            self._database.copy_log(at_once=self._cramped)
        finally:
            try:
                more = self._reclaim()
            finally:
                # Whatever becomes of the segments: keys that nobody removes take up all the room there is for new ones.
                ended = self._keys.forget_ended()
        return ended or more

    def _reclaim(self) -> bool:
        self._database_bytes = self._database.used_bytes()
        cramped = self._cramped
        if cramped:
            self._log.seal_if_sparse(CRAMPED_SPARSE)
        self._log.remove_dead(spare=self._spare and not cramped)
        self._log.cool()
        return self._compaction.step(CRAMPED_SPARSE if cramped else SPARSE)

    def close(self) -> None:
        self._database.close()
        self._log.close()
        self._lock.release()
