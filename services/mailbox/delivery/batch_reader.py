"""Stored bytes for those who lease them: from memory when they have just been stored, else from disk.

Never keeps more than its bound, never reads the disk on the event loop, and never hands out bytes that changed while
they were kept.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol, TypeVar

import structlog

from services.mailbox.state.delivery import Delivery
from services.mailbox.state.topics import Shortage
from snavio.native import blake3_digest
from snavio.ports.mailbox_store import MailboxStore

T = TypeVar("T")


class Reads(Protocol):
    """A thread for the disk."""

    async def run(self, work: Callable[[], T]) -> T:
        """Run `work` and return its result; Saturated or Unavailable when the disk is too slow."""
        ...


class BatchReader:
    """The bytes of recent batches, least recently used out first. Batch ids are unique across topics.

    Whoever wants a part of a batch has all of it checked. That is 70 µs for a thousand messages of 400 bytes: next to
    nothing for `async for`, which gets about as many at a time, and a twentieth of the CPU that a receive of ten takes
    with its acknowledgement. Digests of parts would be more to keep than that is worth.
    """

    def __init__(self, store: MailboxStore, *, worker: Reads, max_bytes: int = 32 << 20) -> None:
        self._store = store
        self._worker = worker
        self._max_bytes = max_bytes
        self._size = 0
        self._rows: OrderedDict[int, tuple[bytes, bytes]] = OrderedDict()
        self.reads = 0
        """Number of batches that were read from disk."""
        self._log = structlog.get_logger()

    def keep(self, batch_id: int, runs: bytes) -> None:
        """Remember what was just stored or read."""
        if batch_id in self._rows or len(runs) > self._max_bytes:
            return
        self._rows[batch_id] = runs, blake3_digest(runs)
        self._size += len(runs)
        while self._size > self._max_bytes:
            _, (oldest, _) = self._rows.popitem(last=False)
            self._size -= len(oldest)

    def forget(self, batch_id: int) -> None:
        """The batch is settled."""
        if (kept := self._rows.pop(batch_id, None)) is not None:
            self._size -= len(kept[0])

    async def read(self, topic: str, batch_id: int) -> bytes:
        """See MailboxStore.read."""
        runs = self._kept(batch_id)
        if runs is None:
            runs = await self._worker.run(lambda: self._store.read(topic, batch_id))
            self.reads += 1
            self.keep(batch_id, runs)
        return runs

    def _kept(self, batch_id: int) -> bytes | None:
        kept = self._rows.get(batch_id)
        if kept is None:
            return None
        runs, digest = kept
        if blake3_digest(runs) != digest:
            # The disk's copy has a digest of its own: it decides what of the batch can still be delivered.
            self._log.error("bytes changed in memory", batch_id=batch_id)
            self.forget(batch_id)
            return None
        self._rows.move_to_end(batch_id)
        return runs

    async def refill(self, delivery: Delivery, asked: Shortage) -> None:
        """Answer a shortage from the disk."""
        records = await self._worker.run(
            lambda: self._store.pending(asked.topic, after=asked.after, limit=asked.limit)
        )
        delivery.window.refill(asked, records)
