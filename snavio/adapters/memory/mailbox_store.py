"""A mailbox store without a disk: what it holds ends with the process, by configuration and not by accident.

Never touches the file system; "durable" here means "until this process ends". Never hands out bytes that changed
while they were held.
"""

from __future__ import annotations

import secrets
import threading
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from snavio.adapters.batch_rewrite import rewrite_batch
from snavio.adapters.memory.idempotency import CAPACITY, IdempotencyKeys
from snavio.adapters.memory.resends import ResentBatches
from snavio.adapters.tenant_bytes import TenantBytes
from snavio.domain.message import MessageState
from snavio.errors import IntegrityError, NotFound, Saturated
from snavio.native import blake3_digest
from snavio.ports.mailbox_store import (
    ROW_BYTES,
    BatchRecord,
    EndedMessages,
    OrderMark,
    Origin,
    Progress,
    Recall,
    Recognised,
    Retained,
    Send,
    TopicRecord,
)

FULL_RETRY_MS = 1000


@dataclass(slots=True)
class _Row:
    record: BatchRecord
    runs: bytearray
    """Its own copy, so that it can be wiped when it is settled; what Python copied from it cannot be."""
    digest: bytes

    def intact(self) -> bytes:
        """The stored runs. IntegrityError when they have changed."""
        runs = bytes(self.runs)
        if blake3_digest(runs) != self.digest:
            raise IntegrityError(f"Batch {self.record.batch_id} is not what was stored.")
        return runs

    def keep(self, bits: int) -> int:
        """Wipe all messages but those whose bit is set; by how many bytes it grew, usually less than none."""
        smaller = rewrite_batch(self.intact(), bits)
        growth = len(smaller) - len(self.runs)
        self.wipe()
        self.runs, self.digest = bytearray(smaller), blake3_digest(smaller)
        self.record = replace(self.record, size=len(smaller))
        return growth

    def wipe(self) -> None:
        self.runs[:] = bytes(len(self.runs))


class MemoryMailboxStore:
    """See MailboxStore. Most methods are a few dictionary operations under the interpreter's lock.

    Those that read, write or wipe bytes take turns: one thread commits and another reads, and half-wiped bytes would
    look like damaged ones.
    """

    def __init__(self, *, max_bytes: int = 1 << 30, max_keys: int = CAPACITY) -> None:
        self._max_bytes = max_bytes
        self._bytes = threading.Lock()
        self._size = 0
        self._tenants = TenantBytes()
        self._last_id = 0
        self._topics: dict[str, dict[int, _Row]] = {}
        self._orders: dict[str, dict[int, OrderMark]] = {}
        self._sent = ResentBatches()
        self._known = IdempotencyKeys(secret=secrets.token_bytes(32), capacity=max_keys)
        self._age_ns = 0

    def begin_epoch(self, now_unix_ns: int) -> int:
        return now_unix_ns

    @property
    def replay_secret(self) -> bytes:
        return self._known.secret

    def first(self, key: bytes, *, now_unix_ns: int) -> tuple[int, int] | None:
        return self._known.first(key, now_unix_ns=now_unix_ns)

    def recognise(self, sends: Sequence[Send], *, now_unix_ns: int) -> list[Recognised]:
        return self._known.recognise(sends, now_unix_ns=now_unix_ns)

    def commit(
        self, sends: Sequence[Send], progress: Sequence[Progress], *, now_unix_ns: int, age_ns: int = 0
    ) -> list[tuple[int, ...]]:
        growth = sum(len(batch.runs) for send in sends for batch in send.batches)
        with self._bytes:
            if growth and self._size + growth > self._max_bytes:
                raise Saturated("The memory set aside for messages is used up.", retry_after_ms=FULL_RETRY_MS)
            ids = [tuple(self._append(send, now_unix_ns, age_ns)) for send in sends]
            self._known.remember(sends, ids, now_unix_ns=now_unix_ns)
            for state in progress:
                self._settle(state)
                if state.order is not None and state.topic in self._topics:
                    self._orders.setdefault(state.topic, {})[state.order.shard] = state.order
        return ids

    def _append(self, send: Send, now_unix_ns: int, age_ns: int) -> list[int]:
        ids: list[int] = []
        for batch in send.batches:
            self._last_id += 1
            record = BatchRecord.fresh(self._last_id, batch, now_unix_ns, age_ns)
            # Rows of a topic are in order of id because ids only grow.
            self._topics.setdefault(batch.topic, {})[self._last_id] = _Row(
                record, bytearray(batch.runs), blake3_digest(batch.runs)
            )
            self._grow(batch.topic, len(batch.runs), rows=1)
            ids.append(self._last_id)
        if send.origin is not None:
            self._sent.forget(self._sent.expired(now_unix_ns))
            self._sent.remember(send.origin, send.codes, now_unix_ns=now_unix_ns)
        return ids

    def _settle(self, state: Progress) -> None:
        rows = self._topics.get(state.topic, {})
        row = rows.get(state.batch_id)
        if row is None:
            return
        if state.gone:
            del rows[state.batch_id]
            self._grow(state.topic, -len(row.runs), rows=-1)
            row.wipe()
            return
        purged, before = _purged(state.ends), _purged(row.record.ends)
        row.record = replace(
            row.record, settled=state.settled, retries=state.retries, ends=state.ends, age_ns=state.age_ns
        )
        if purged & ~before:
            # Not when the batch ends, which may be in weeks: somebody wanted these bytes to be gone.
            with suppress(IntegrityError):  # damaged before: whoever receives of it finds out which are
                self._grow(state.topic, row.keep(~purged))

    def recall(self, origin: Origin) -> bytes | Recall:
        return self._sent.recall(origin)

    def read(self, topic: str, batch_id: int) -> bytes:
        with self._bytes:
            row = self._topics.get(topic, {}).get(batch_id)
            if row is None:
                raise NotFound(f"Batch {batch_id} of {topic} is gone.")
            return row.intact()

    def rewrite_batch(self, topic: str, batch_id: int, *, keep: int) -> int | None:
        with self._bytes:
            row = self._topics.get(topic, {}).get(batch_id)
            if row is None:
                return None
            self._grow(topic, row.keep(keep))
            return len(row.runs)

    def _grow(self, topic: str, size: int, rows: int = 0) -> None:
        self._size += size
        self._tenants.change([(topic, size + rows * ROW_BYTES)])

    def pending(self, topic: str, *, after: int, limit: int) -> list[BatchRecord]:
        return self.records(topic, after=after, limit=limit, holding=MessageState.READY)

    def records(
        self,
        topic: str,
        *,
        after: int,
        limit: int,
        holding: MessageState | None = None,
        newest_first: bool = False,
    ) -> list[BatchRecord]:
        rows = self._topics.get(topic, {})
        ids = list(rows)
        found: list[BatchRecord] = []
        chosen = ids[: bisect_left(ids, after)][::-1] if newest_first else ids[bisect_right(ids, after) :]
        for batch_id in chosen:
            row = rows.get(batch_id)
            if row is not None and (holding is None or _holds(row.record, holding)):
                found.append(row.record)
                if len(found) == limit:
                    break
        return found

    def record(self, topic: str, batch_id: int) -> BatchRecord | None:
        row = self._topics.get(topic, {}).get(batch_id)
        return None if row is None else row.record

    def retained(self, topic: str, *, limit: int) -> list[Retained]:
        done = [
            Retained(one.batch_id, one.count, _held(one, MessageState.DELIVERED), one.age_ns)
            for one in (row.record for row in list(self._topics.get(topic, {}).values()))
            if not any(
                _holds(one, state) for state in (MessageState.READY, MessageState.DEAD, MessageState.CANCELED)
            )
        ]
        return sorted(done, key=lambda one: (one.age_ns, one.batch_id))[:limit]

    def age(self) -> int:
        return self._age_ns

    def note_age(self, age_ns: int) -> None:
        self._age_ns = max(self._age_ns, age_ns)

    def topics(self) -> list[TopicRecord]:
        return [
            replace(
                _topic_record(topic, [row.record for row in rows.values()]),
                order=tuple(self._orders.get(topic, {}).values()),
            )
            for topic, rows in self._topics.items()
        ]

    def drop_topics(self, names: Sequence[str]) -> list[str]:
        with self._bytes:
            dropped = [name for name in names if self._topics.get(name) == {}]
            for name in dropped:
                del self._topics[name]
                self._orders.pop(name, None)
        return dropped

    def stored_bytes(self) -> Mapping[str, int]:
        return self._tenants.held

    def gauges(self) -> dict[str, float]:
        return {**self._known.gauges(), "store_bytes": self._size}

    def checkpoint(self) -> bool:
        return False

    def close(self) -> None:
        """Forget everything."""
        for rows in self._topics.values():
            for row in rows.values():
                row.wipe()
        self._topics.clear()


def _purged(ends: Sequence[EndedMessages]) -> int:
    """Bitmap of the messages that were deleted."""
    bits = 0
    for one in ends:
        if one.ending.state is MessageState.PURGED:
            bits |= (1 << one.end) - (1 << one.first)
    return bits


def _held(record: BatchRecord, state: MessageState) -> int:
    """Number of messages of a batch that are in `state`."""
    if state in (MessageState.READY, MessageState.INFLIGHT):
        return record.count - record.settled.bit_count()
    if state is MessageState.DELIVERED:
        return record.settled.bit_count() - sum(one.end - one.first for one in record.ends)
    return sum(one.end - one.first for one in record.ends if one.ending.state is state)


def _holds(record: BatchRecord, state: MessageState) -> bool:
    return _held(record, state) > 0


def _topic_record(topic: str, records: list[BatchRecord]) -> TopicRecord:
    unsettled = [record for record in records if _holds(record, MessageState.READY)]
    return TopicRecord(
        topic,
        sum(_held(record, MessageState.READY) for record in unsettled),
        max((record.batch_id for record in records), default=0),
        min((record.stored_unix_ns for record in unsettled), default=0),
        min((record.batch_id for record in unsettled), default=0),
        delivered=sum(_held(record, MessageState.DELIVERED) for record in records),
        dead=sum(_held(record, MessageState.DEAD) for record in records),
        canceled=sum(_held(record, MessageState.CANCELED) for record in records),
        shards=tuple(
            (shard, sum(_held(record, MessageState.READY) for record in unsettled if record.shard == shard))
            for shard in sorted({record.shard for record in unsettled})
        ),
    )
