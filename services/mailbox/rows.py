"""Stored bytes for those who lease them: from memory when they have just been stored, else from disk.

Never keeps more than its bound, and never reads the disk on the event loop.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol, TypeVar

from services.mailbox.delivery import Delivery
from services.mailbox.topics import Shortage
from snavio.ports.mailbox_store import MailboxStore

T = TypeVar("T")


class Reads(Protocol):
    """A thread for the disk."""

    async def run(self, work: Callable[[], T]) -> T:
        """What `work` returns or raises; Saturated or Unavailable when the disk is too slow."""
        ...


class Rows:
    """The bytes of recent batches, least recently used out first. Batch ids are unique across topics."""

    def __init__(self, store: MailboxStore, *, worker: Reads, max_bytes: int = 32 << 20) -> None:
        self._store = store
        self._worker = worker
        self._max_bytes = max_bytes
        self._size = 0
        self._rows: OrderedDict[int, bytes] = OrderedDict()

    def keep(self, batch_id: int, runs: bytes) -> None:
        """Remember what was just stored or read."""
        if batch_id in self._rows:
            return
        self._rows[batch_id] = runs
        self._size += len(runs)
        while self._size > self._max_bytes:
            _, oldest = self._rows.popitem(last=False)
            self._size -= len(oldest)

    def forget(self, batch_id: int) -> None:
        """The batch is settled."""
        runs = self._rows.pop(batch_id, None)
        if runs is not None:
            self._size -= len(runs)

    async def read(self, topic: str, batch_id: int) -> bytes:
        """See MailboxStore.read."""
        runs = self._rows.get(batch_id)
        if runs is None:
            runs = await self._worker.run(lambda: self._store.read(topic, batch_id))
            self.keep(batch_id, runs)
        else:
            self._rows.move_to_end(batch_id)
        return runs

    async def refill(self, delivery: Delivery, asked: Shortage) -> None:
        """Answer a shortage from the disk."""
        records = await self._worker.run(
            lambda: self._store.pending(asked.topic, after=asked.after, limit=asked.limit)
        )
        delivery.refill(asked, records)
