"""Shows messages to those who look after a topic: by state, time and content, a page at a time, without leasing any.

Never reads more of the disk per page than its bound, and never hides a message because its bytes are damaged.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from services.mailbox.delivery.batch_reader import BatchReader, Reads
from services.mailbox.settle.changes import Stretch, stretches
from services.mailbox.state.batch import Batch
from services.mailbox.state.delivery import Delivery
from services.mailbox.state.ranges import ones
from services.mailbox.state.receipts import ID_STRIDE
from snavio.domain.message import KEPT_STATES, MessageState
from snavio.domain.varint import varint
from snavio.errors import IntegrityError, NotFound, Unreadable
from snavio.native import Received, read_leased_batches
from snavio.ports.mailbox_store import BatchRecord, Damaged, MailboxStore
from snavio.v1.mailbox_pb2 import LeasedBatch, ReceiveResponse

PAGE_BATCHES = 256
MOST_BATCHES = 4096
"""Looked at for one page; a page may end before it is full."""
MOST_OPENED = 256
"""Read from disk and looked into for one page."""
MOST_PAGE_BYTES = 2 << 20
_BEYOND = (1 << 53) - 1
"""Above every batch: their ids times the messages of a batch are ids of messages."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Filter:
    """Which messages. Empty texts and zeros do not matter."""

    states: frozenset[MessageState] = KEPT_STATES
    stored_from_unix_ns: int = 0
    stored_before_unix_ns: int = 0
    source: str = ""
    name: str = ""
    command_id: str = ""
    dead_reason: str = ""
    min_attempts: int = 0
    attributes: tuple[tuple[str, str], ...] = ()
    """All of them; in order of name."""
    idem_key: str = ""

    @property
    def looks_inside(self) -> bool:
        """True when the messages themselves have to be read."""
        return bool(self.source or self.name or self.command_id or self.attributes or self.idem_key)

    @property
    def holding(self) -> MessageState | None:
        """The one state whose index helps; None for several."""
        if len(self.states) == 1:
            return next(iter(self.states))
        return MessageState.READY if self.states == {MessageState.READY, MessageState.INFLIGHT} else None

    def takes_batch(self, record: BatchRecord) -> bool:
        """True when messages stored at that time match."""
        stored, before = record.stored_unix_ns, self.stored_before_unix_ns
        return self.stored_from_unix_ns <= stored and (not before or stored < before)

    def takes(self, one: Stretch) -> bool:
        """True when messages in that state, with that past, match."""
        if one.state not in self.states or deliveries(one) < self.min_attempts:
            return False
        return not self.dead_reason or (
            one.state is MessageState.DEAD
            and one.ending is not None
            and one.ending.reason == self.dead_reason
        )

    def takes_content(self, found: Received | None) -> bool:
        """True when a message with that content matches; one that cannot be read does not."""
        if not self.looks_inside:
            return True
        if found is None:
            return False
        asked = (
            (self.source, found.source),
            (self.name, found.name),
            (self.command_id, found.id),
            (self.idem_key, found.idem_key),
        )
        if not all(not wanted or wanted == held for wanted, held in asked):
            return False
        return dict(found.attrs).items() >= set(self.attributes)


@dataclass(frozen=True, slots=True)
class SeenMessage:
    """One message as it is now."""

    msg_id: int
    stored_unix_ns: int
    stretch: Stretch
    content: Received | None
    """None when it was not asked for or cannot be read."""
    unreadable: bool = False
    shard: int = 0


@dataclass(frozen=True, slots=True)
class Chosen:
    """Messages of one batch, as a bitmap."""

    record: BatchRecord
    bits: int


def deliveries(one: Stretch) -> int:
    """Number of deliveries of messages, one that is under way included."""
    if one.ending is not None:
        return one.ending.attempt
    return one.lease.attempt if one.lease is not None else one.retrying.attempt - 1


class Listing:
    """Lives on one event loop."""

    def __init__(self, *, delivery: Delivery, store: MailboxStore, rows: BatchReader, worker: Reads) -> None:
        self._delivery = delivery
        self._store = store
        self._rows = rows
        self._worker = worker

    async def page(
        self,
        topic: str,
        wanted: Filter,
        *,
        after: int,
        limit: int,
        most_bytes: int = MOST_PAGE_BYTES,
        newest_first: bool = False,
    ) -> tuple[list[SeenMessage], int]:
        """Up to `limit` messages with ids above `after`, and where to go on; 0 at the end.

        With `newest_first` those with ids below `after`, or the newest when it is 0.
        """
        found: list[SeenMessage] = []
        looked = opened = size = 0
        start = after // ID_STRIDE - 1
        if newest_first:
            start = after // ID_STRIDE + 1 if after else _BEYOND
        async for record in self._records(topic, wanted, after=start, newest_first=newest_first):
            looked += 1
            batch = self.batch(topic, record)
            bits = self._bits(wanted, batch, record)
            if after and record.batch_id == after // ID_STRIDE:
                bits &= ones(0, after % ID_STRIDE) if newest_first else ~ones(0, after % ID_STRIDE + 1)
            if bits:
                opened += 1
                contents = await self.contents(topic, record)
                messages = _messages(batch, bits)
                for index, one in reversed(list(messages)) if newest_first else messages:
                    content = contents[index] if contents is not None else None
                    if wanted.takes_content(content):
                        msg_id = record.batch_id * ID_STRIDE + index
                        found.append(
                            SeenMessage(
                                msg_id,
                                record.stored_unix_ns,
                                one,
                                content,
                                unreadable=content is None,
                                shard=record.shard,
                            )
                        )
                        size += len(content.payload) if content else 0
                        if len(found) >= limit or size >= most_bytes:
                            return found, msg_id
            if looked >= MOST_BATCHES or opened >= MOST_OPENED:
                first = record.batch_id * ID_STRIDE
                return found, first if newest_first else first + ID_STRIDE - 1
        return found, 0

    async def chosen(self, topic: str, wanted: Filter, *, through: int) -> AsyncIterator[list[Chosen]]:
        """All that the filter takes in batches up to `through`, a few batches at a time."""
        part: list[Chosen] = []
        async for record in self._records(topic, wanted, after=0):
            if record.batch_id > through:
                break
            batch = self.batch(topic, record)
            bits = self._bits(wanted, batch, record)
            if bits and wanted.looks_inside:
                bits = self._inside(wanted, bits, await self.contents(topic, record))
            if bits:
                part.append(Chosen(record, bits))
            if len(part) >= PAGE_BATCHES:
                yield part
                part = []
        if part:
            yield part

    def batch(self, topic: str, record: BatchRecord) -> Batch:
        """The state of a batch: memory's, which is ahead of the disk, or what the disk says."""
        known = self._delivery.topics.topic(topic)
        found = known.batches.get(record.batch_id) if known else None
        return found or Batch(topic, record)

    async def contents(self, topic: str, record: BatchRecord) -> list[Received | None] | None:
        """Every message of a batch; None for those, or for all, whose bytes are not what was stored."""
        damaged = 0
        try:
            try:
                runs = await self._rows.read(topic, record.batch_id)
            except Damaged as error:
                runs, damaged = error.runs, error.damaged
            found = open_runs(record.batch_id, runs)
        except (IntegrityError, NotFound, Unreadable, ValueError):
            return None
        return [None if damaged >> index & 1 else one for index, one in enumerate(found)]

    async def run(self, work: Callable[[], T]) -> T:
        """Ask the disk, off the event loop."""
        return await self._worker.run(work)

    async def _records(
        self, topic: str, wanted: Filter, *, after: int, newest_first: bool = False
    ) -> AsyncIterator[BatchRecord]:
        while True:
            start = max(0, after)
            records = await self._worker.run(
                lambda start=start: self._store.records(  # type: ignore[misc]
                    topic,
                    after=start,
                    limit=PAGE_BATCHES,
                    holding=wanted.holding,
                    newest_first=newest_first,
                )
            )
            for record in records:
                if wanted.takes_batch(record):
                    yield record
            if len(records) < PAGE_BATCHES:
                return
            after = records[-1].batch_id
            # A listing of a million batches must not keep other calls waiting.
            await asyncio.sleep(0)

    def _bits(self, wanted: Filter, batch: Batch, record: BatchRecord) -> int:
        bits = 0
        for one in stretches(batch):
            if wanted.takes(one):
                bits |= ones(one.lo, one.hi)
        return bits & ones(0, record.count)

    @staticmethod
    def _inside(wanted: Filter, bits: int, contents: list[Received | None] | None) -> int:
        if contents is None:
            return 0
        return sum(
            1 << index
            for index, content in enumerate(contents)
            if bits >> index & 1 and wanted.takes_content(content)
        )


def _messages(batch: Batch, bits: int) -> Iterator[tuple[int, Stretch]]:
    for one in stretches(batch):
        for index in range(one.lo, one.hi):
            if bits >> index & 1:
                yield index, one


def open_runs(batch_id: int, runs: bytes) -> list[Received]:
    """The messages of stored runs. ValueError when they are none."""
    leased = LeasedBatch(batch_id=batch_id, attempt=1).SerializeToString() + runs
    response: Any = ReceiveResponse(boot_epoch=1)
    framed = response.SerializeToString() + b"\x12" + varint(len(leased)) + leased
    return read_leased_batches(framed)[1]
