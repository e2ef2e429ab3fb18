"""Ends what has waited long enough: ready messages go to the DLQ, delivered, dead and canceled ones are removed.

Never works on the way of a send, a receive or an acknowledgement: a slice of a few batches at a time, between
them. Never removes anything unread in silence: what leaves the DLQ is counted, and is an event.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import ClassVar

import structlog

from services.mailbox.ageing import SECOND, Age
from services.mailbox.changes import Operation, select
from services.mailbox.commits import Commits, Outcome
from services.mailbox.delivery import Delivery
from services.mailbox.leases import Batch
from services.mailbox.listing import Chosen, Filter, Listing
from services.mailbox.oversight import Oversight, Wish
from services.mailbox.policy import Policy
from services.mailbox.ranges import ones
from services.mailbox.rows import Rows
from services.mailbox.topics import Topic
from snavio.clock import Clock
from snavio.domain.message import State
from snavio.errors import IntegrityError, SnavioError
from snavio.ports.mailbox_store import BatchRecord, MailboxStore, Progress
from snavio.telemetry.events import EventJournal, Value
from snavio.telemetry.schema import DLQ_PRUNED

TICK_SECONDS = 1.0
TOPICS_PER_TICK = 64
BATCHES_PER_TICK = 64
RETAINED_PER_TICK = 1024
AGE_TICKS = 10
SPARSE_ROWS = 32
SPARSE = 8
"""A batch of which less than one in so many messages is still needed is written anew without the others."""
LARGE_BYTES = 16 << 10
MOST_HOLLOW = 65_536


@dataclass(frozen=True, slots=True)
class DlqPruned:
    """Dead or canceled messages were removed because they were too old or too many."""

    name: ClassVar[str] = DLQ_PRUNED

    topic: str
    state: str
    cause: str
    """`age` or `depth`."""
    messages: int

    def fields(self) -> Mapping[str, Value]:
        """As they stand."""
        return asdict(self)


class Retention:
    """Lives on one event loop."""

    def __init__(
        self,
        *,
        delivery: Delivery,
        oversight: Oversight,
        listing: Listing,
        rows: Rows,
        commits: Commits,
        store: MailboxStore,
        age: Age,
        events: EventJournal,
        clock: Clock,
    ) -> None:
        self._delivery = delivery
        self._oversight = oversight
        self._listing = listing
        self._rows = rows
        self._commits = commits
        self._store = store
        self._age = age
        self._events = events
        self._clock = clock
        self._ticks = 0
        self._next = 0
        # Where the search for old ones goes on, by topic and state; only of topics that have some.
        self._cursors: dict[tuple[str, State | None], int] = {}
        # Batches that were made small, or could not be; once more would change nothing. The oldest are forgotten.
        self._hollow: dict[int, None] = {}
        self._log = structlog.get_logger()

    async def run(self) -> None:
        """Slice by slice; runs until cancelled."""
        while True:
            await asyncio.sleep(TICK_SECONDS)
            try:
                await self.step()
            except SnavioError as error:
                # The disk is slow or full: what is too old now is too old at the next tick as well.
                self._log.warning("retention waits", reason=error.reason)

    async def step(self) -> None:
        """One slice of every chore."""
        if self._age.due or self._ticks % AGE_TICKS == 0:
            self._age.noted(await self._listing.run(lambda: self._age.note(self._store)))
        self._ticks += 1
        names = self._delivery.names()
        first = self._next if self._next < len(names) else 0
        for name in names[first : first + TOPICS_PER_TICK]:
            topic = self._delivery.topic(name)
            if topic is not None:
                await self.look_after(topic)
        self._next = first + TOPICS_PER_TICK

    async def look_after(self, topic: Topic) -> None:
        """One slice for one topic."""
        policy = self._delivery.policies.of(topic.name)
        if topic.messages:
            await self._expire_ready(topic, policy)
        if topic.delivered:
            await self._remove_delivered(topic, policy)
        for state, messages in ((State.DEAD, topic.dead), (State.CANCELED, topic.canceled)):
            if messages:
                await self._prune(topic, state, messages, policy)
            else:
                self._cursors.pop((topic.name, state), None)
        await self._hollow_out(topic, policy)

    async def _hollow_out(self, topic: Topic, policy: Policy) -> None:
        """Look at some more batches: one straggler, or one dead message, must not pin a megabyte."""
        after = self._cursors.get((topic.name, None), 0)
        records = await self._listing.run(
            lambda: self._store.records(topic.name, after=after, limit=SPARSE_ROWS)
        )
        self._cursors[topic.name, None] = records[-1].batch_id if len(records) == SPARSE_ROWS else 0
        if len(self._cursors) > 4 * self._delivery.limits.topics:
            self._cursors.clear()
        retained_ns = policy.delivered_s * SECOND if policy.retains else 0
        for record in records:
            if record.size < LARGE_BYTES or record.batch_id in self._hollow or not record.settled:
                continue
            if self._age.now_ns() - record.age_ns < retained_ns:
                continue
            if self._sparse(topic.name, record):
                await self._hollow_one(topic, record.batch_id)

    def _sparse(self, name: str, record: BatchRecord) -> bool:
        return self._needed(name, record).bit_count() * SPARSE <= record.count

    def _needed(self, name: str, record: BatchRecord) -> int:
        """Bitmap of the messages whose bytes somebody may still want."""
        batch = self._listing.batch(name, record)
        done = select(batch, frozenset({State.DELIVERED, State.PURGED}), ones(0, batch.count))
        for lo, hi, _ in batch.settling:
            done &= ~ones(lo, hi)
        return ones(0, batch.count) & ~done

    async def _hollow_one(self, topic: Topic, batch_id: int) -> None:
        wish = Wish(topic.name, Operation.PURGE, wanted=Filter(states=frozenset({State.DELIVERED})))
        async with self._oversight.turn(topic.name):
            # Asked again under the turn: what was delivered a moment ago may have been requeued since.
            record = await self._listing.run(lambda: self._store.record(topic.name, batch_id))
            if record is None or not self._sparse(topic.name, record):
                return
            # Said before it is done: nobody may requeue what has no bytes any more.
            everything = Chosen(record, ones(0, record.count))
            await self._oversight.apply(wish, [everything], record.count)
            needed = self._needed(topic.name, record)
            self._hollow[record.batch_id] = None
            if len(self._hollow) > MOST_HOLLOW:
                del self._hollow[next(iter(self._hollow))]
            try:
                size = await self._listing.run(
                    lambda: self._store.hollow(topic.name, record.batch_id, keep=needed)
                )
            except IntegrityError:
                return  # whoever receives of it finds out which messages are damaged
            self._rows.forget(record.batch_id)
            batch = topic.batches.get(record.batch_id)
            if size is not None and batch is not None:
                batch.size = size

    async def _expire_ready(self, topic: Topic, policy: Policy) -> None:
        through = min(self._age.through(policy.ready_s), topic.last_id)
        if not through:
            return
        self._delivery.expire_ready(
            topic.name,
            through,
            limit=BATCHES_PER_TICK,
            revived_through_ns=max(0, self._age.now_ns() - policy.ready_s * SECOND),
        )
        self._delivery.sweep(topic.name)
        asked = self._delivery.shortage(topic.name)
        if asked is not None and asked.after < through:
            await self._rows.refill(self._delivery, asked)

    async def _remove_delivered(self, topic: Topic, policy: Policy) -> None:
        """Whole batches, in bulk: a message's retention costs nothing of its own."""
        limit = self._age.now_ns() - policy.delivered_s * SECOND
        surplus = topic.delivered - (policy.delivered_messages if policy.retains else 0)
        old: list[tuple[Progress, int]] = []
        # The turn before the disk is asked: what an operator requeues in between would be removed as it was.
        async with self._oversight.turn(topic.name):
            found = await self._listing.run(lambda: self._store.retained(topic.name, limit=RETAINED_PER_TICK))
            for one in found:
                # Memory knows better: an acknowledgement that was refused may stand on disk for a moment.
                if one.batch_id in topic.batches or (surplus <= 0 and one.age_ns > limit):
                    continue
                surplus -= one.delivered
                gone = Progress(topic.name, one.batch_id, one.count, ones(0, one.count), forget=True)
                old.append((gone, one.delivered))
            if old:
                await self._forget(topic, old)

    async def _forget(self, topic: Topic, old: list[tuple[Progress, int]]) -> None:
        stored: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        messages = sum(delivered for _, delivered in old)

        def heard(outcome: Outcome) -> None:
            # Also when nobody waits any more: it is done all the same.
            if not isinstance(outcome, SnavioError):
                topic.count(State.DELIVERED, -messages)
                topic.pruned["delivered"] = topic.pruned.get("delivered", 0) + messages
            if not stored.done():
                stored.set_result(outcome)

        self._commits.submit(progress=[progress for progress, _ in old], done=heard)
        outcome = await stored
        if isinstance(outcome, SnavioError):
            raise outcome

    async def _prune(self, topic: Topic, state: State, messages: int, policy: Policy) -> None:
        async with self._oversight.turn(topic.name):
            await self._prune_in_turn(topic, state, messages, policy)

    async def _prune_in_turn(self, topic: Topic, state: State, messages: int, policy: Policy) -> None:
        surplus = messages - policy.dlq_messages
        if surplus > 0:
            records = await self._holding(topic, state, after=0)
            await self._purge(topic, state, "depth", [(one, ones(0, one.count)) for one in records], surplus)
        key = (topic.name, state)
        after = self._cursors.get(key, 0)
        records = await self._holding(topic, state, after=after)
        self._cursors[key] = records[-1].batch_id if len(records) == BATCHES_PER_TICK else 0
        limit = self._age.now_ns() - policy.dlq_s * SECOND
        old = [(one, bits) for one in records if (bits := self._older(topic.name, one, limit))]
        await self._purge(topic, state, "age", old, messages)

    async def _holding(self, topic: Topic, state: State, *, after: int) -> list[BatchRecord]:
        return await self._listing.run(
            lambda: self._store.records(topic.name, after=after, limit=BATCHES_PER_TICK, holding=state)
        )

    def _older(self, name: str, record: BatchRecord, limit_ns: int) -> int:
        batch: Batch = self._listing.batch(name, record)
        bits = 0
        for lo, hi, ending in batch.ends:
            if ending.age_ns <= limit_ns:
                bits |= ones(lo, hi)
        return bits

    async def _purge(
        self, topic: Topic, state: State, cause: str, old: list[tuple[BatchRecord, int]], most: int
    ) -> None:
        states = frozenset({state})
        part = [
            Chosen(record, bits & select(self._listing.batch(topic.name, record), states, bits))
            for record, bits in old
        ]
        part = [one for one in part if one.bits]
        if not part:
            return
        wish = Wish(topic.name, Operation.PURGE, wanted=Filter(states=states))
        removed = await self._oversight.apply(wish, part, most)
        if removed:
            key = f"{state.name.lower()}.{cause}"
            topic.pruned[key] = topic.pruned.get(key, 0) + removed
            event = DlqPruned(topic.name, state.name.lower(), cause, removed)
            self._events.record(event, at_unix_ns=self._clock.unix_ns())
            self._log.warning(
                "dlq pruned", topic=topic.name, state=event.state, cause=cause, messages=removed
            )
