"""Writes batches anew of which little is still needed: one straggler, or one dead message, must not pin a megabyte.

Never lets go of bytes that somebody may still want, or may ask back: that they are gone is on disk first.
"""

from __future__ import annotations

from services.mailbox.delivery.batch_reader import BatchReader
from services.mailbox.oversight.change_requests import Oversight, RequestedChange
from services.mailbox.oversight.listing import Chosen, Filter, Listing
from services.mailbox.retention.store_clock import SECOND, StoreClock
from services.mailbox.settle.changes import MessageOperation, select
from services.mailbox.state.delivery import Delivery
from services.mailbox.state.policy import Policy
from services.mailbox.state.ranges import ones
from services.mailbox.state.topics import Topic
from snavio.domain.message import MessageState
from snavio.errors import IntegrityError, Unreadable
from snavio.ports.mailbox_store import BatchRecord, MailboxStore

SPARSE_ROWS = 32
SPARSE = 8
"""A batch of which less than one in so many messages is still needed is written anew without the others."""
LARGE_BYTES = 16 << 10
MOST_HOLLOW = 65_536


class BatchRewrite:
    """Lives on one event loop."""

    def __init__(
        self,
        *,
        delivery: Delivery,
        oversight: Oversight,
        listing: Listing,
        rows: BatchReader,
        store: MailboxStore,
        age: StoreClock,
    ) -> None:
        self._delivery = delivery
        self._oversight = oversight
        self._listing = listing
        self._rows = rows
        self._store = store
        self._age = age
        # Where the search goes on, by topic.
        self._cursors: dict[str, int] = {}
        # Batches that were made small, or could not be; once more would change nothing. The oldest are forgotten.
        self._seen: dict[int, None] = {}

    async def look_through(self, topic: Topic, policy: Policy) -> None:
        """Look at some more batches."""
        after = self._cursors.get(topic.name, 0)
        records = await self._listing.run(
            lambda: self._store.records(topic.name, after=after, limit=SPARSE_ROWS)
        )
        self._cursors[topic.name] = records[-1].batch_id if len(records) == SPARSE_ROWS else 0
        if len(self._cursors) > self._delivery.limits.topics:
            self._cursors.clear()
        retained_ns = policy.delivered_s * SECOND if policy.retains else 0
        for record in records:
            if record.size < LARGE_BYTES or record.batch_id in self._seen or not record.settled:
                continue
            if self._age.now_ns() - record.age_ns < retained_ns:
                continue
            if self._sparse(topic.name, record):
                await self._make_smaller(topic, record.batch_id)

    def _sparse(self, name: str, record: BatchRecord) -> bool:
        return self._needed(name, record).bit_count() * SPARSE <= record.count

    def _needed(self, name: str, record: BatchRecord) -> int:
        """Bitmap of the messages whose bytes are still needed."""
        batch = self._listing.batch(name, record)
        done = select(batch, frozenset({MessageState.DELIVERED, MessageState.PURGED}), ones(0, batch.count))
        for lo, hi, _ in batch.settling:
            done &= ~ones(lo, hi)
        return ones(0, batch.count) & ~done

    async def _make_smaller(self, topic: Topic, batch_id: int) -> None:
        wish = RequestedChange(
            topic.name, MessageOperation.PURGE, wanted=Filter(states=frozenset({MessageState.DELIVERED}))
        )
        async with self._oversight.turn(topic.name):
            # Asked again under the turn: what was delivered a moment ago may have been requeued since.
            record = await self._listing.run(lambda: self._store.record(topic.name, batch_id))
            if record is None or not self._sparse(topic.name, record):
                return
            # Recorded before it is done: a message without its bytes must not be requeued.
            everything = Chosen(record, ones(0, record.count))
            await self._oversight.apply(wish, [everything], record.count)
            needed = self._needed(topic.name, record)
            self._seen[record.batch_id] = None
            if len(self._seen) > MOST_HOLLOW:
                del self._seen[next(iter(self._seen))]
            try:
                size = await self._listing.run(
                    lambda: self._store.rewrite_batch(topic.name, record.batch_id, keep=needed)
                )
            except (IntegrityError, Unreadable):
                return  # the next receive finds out which messages are damaged
            self._rows.forget(record.batch_id)
            batch = topic.batches.get(record.batch_id)
            if size is not None and batch is not None:
                batch.size = size
