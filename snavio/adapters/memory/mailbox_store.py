"""A mailbox store without a disk: what it holds ends with the process, by configuration and not by accident.

Never touches the file system; "durable" here means "until this process ends".
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace

from snavio.adapters.memory.recollection import Recollection
from snavio.errors import NotFound, Saturated
from snavio.ports.mailbox_store import BatchRecord, Origin, Progress, Recall, Send, TopicRecord

FULL_RETRY_MS = 1000


@dataclass(slots=True)
class _Row:
    record: BatchRecord
    runs: bytes


class MemoryMailboxStore:
    """See MailboxStore. Every method is a few dictionary operations under the interpreter's lock."""

    def __init__(self, *, max_bytes: int = 1 << 30) -> None:
        self._max_bytes = max_bytes
        self._size = 0
        self._last_id = 0
        self._topics: dict[str, dict[int, _Row]] = {}
        self._sent = Recollection()

    def begin_epoch(self, now_unix_ns: int) -> int:
        return now_unix_ns

    def commit(
        self, sends: Sequence[Send], progress: Sequence[Progress], *, now_unix_ns: int
    ) -> list[tuple[int, ...]]:
        growth = sum(len(batch.runs) for send in sends for batch in send.batches)
        if growth and self._size + growth > self._max_bytes:
            raise Saturated("The memory set aside for messages is used up.", retry_after_ms=FULL_RETRY_MS)
        ids = [tuple(self._append(send, now_unix_ns)) for send in sends]
        for state in progress:
            self._settle(state)
        return ids

    def _append(self, send: Send, now_unix_ns: int) -> list[int]:
        ids: list[int] = []
        for batch in send.batches:
            self._last_id += 1
            record = BatchRecord(self._last_id, batch.count, len(batch.runs), now_unix_ns)
            # Rows of a topic are in order of id because ids only grow.
            self._topics.setdefault(batch.topic, {})[self._last_id] = _Row(record, batch.runs)
            self._size += len(batch.runs)
            ids.append(self._last_id)
        self._sent.remember(send.origin, send.codes)
        self._sent.forget(self._sent.surplus())
        return ids

    def _settle(self, state: Progress) -> None:
        rows = self._topics.get(state.topic, {})
        row = rows.get(state.batch_id)
        if row is None:
            return
        if state.complete:
            del rows[state.batch_id]
            self._size -= len(row.runs)
        else:
            row.record = replace(row.record, settled=state.settled, retries=state.retries)

    def recall(self, origin: Origin) -> bytes | Recall:
        return self._sent.recall(origin)

    def read(self, topic: str, batch_id: int) -> bytes:
        row = self._topics.get(topic, {}).get(batch_id)
        if row is None:
            raise NotFound(f"Batch {batch_id} of {topic} is gone.")
        return row.runs

    def pending(self, topic: str, *, after: int, limit: int) -> list[BatchRecord]:
        rows = self._topics.get(topic, {})
        ids = list(rows)
        start = bisect_right(ids, after)
        return [rows[batch_id].record for batch_id in ids[start : start + limit]]

    def topics(self) -> list[TopicRecord]:
        return [
            TopicRecord(
                topic,
                sum(row.record.count - row.record.settled.bit_count() for row in rows.values()),
                max(rows, default=0),
                min((row.record.stored_unix_ns for row in rows.values()), default=0),
            )
            for topic, rows in self._topics.items()
        ]

    def checkpoint(self) -> bool:
        return False

    def close(self) -> None:
        """Forget everything."""
        self._topics.clear()
