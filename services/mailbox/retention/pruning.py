"""Ends what has waited long enough: ready messages go to the DLQ, delivered, dead and canceled ones are removed.

Never works on the way of a send, a receive or an acknowledgement: a slice of a few batches at a time, between
them, and no longer than its share of a tick. Never removes anything unread in silence: what leaves the DLQ is counted,
and is an event. Never lets what is damaged in one topic keep it from the others.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import ClassVar

import structlog

from services.mailbox.delivery.batch_reader import BatchReader
from services.mailbox.intake.commits import Commits, Outcome
from services.mailbox.oversight.change_requests import Oversight, RequestedChange
from services.mailbox.oversight.listing import Chosen, Filter, Listing
from services.mailbox.retention.batch_rewrite import BatchRewrite
from services.mailbox.retention.empty_topics import EmptyTopics
from services.mailbox.retention.store_clock import SECOND, StoreClock
from services.mailbox.settle.changes import MessageOperation, select
from services.mailbox.state.batch import Batch
from services.mailbox.state.delivery import Delivery
from services.mailbox.state.policy import Policy
from services.mailbox.state.ranges import ones
from services.mailbox.state.topics import Topic
from snavio.clock import Clock
from snavio.domain.directory import WhenFull
from snavio.domain.message import DeadReason, MessageState
from snavio.domain.queue_address import TELEMETRY_NAME
from snavio.errors import SnavioError
from snavio.host.background import background
from snavio.native import format_timestamp
from snavio.ports.mailbox_store import BatchRecord, MailboxStore, Progress
from snavio.telemetry.events import Event, EventJournal, TelemetryDropped
from snavio.telemetry.schema import DLQ_PRUNED

TICK_SECONDS = 1.0
BUDGET_SECONDS = 0.5
"""Of a tick; what there is more to do waits for the next."""
TOPICS_PER_TICK = 64
"""Looked through in turn; those with more than they may keep are looked after at every tick."""
SLICE_BATCHES = 64
SLICE_RETAINED = 1024


@dataclass(frozen=True, slots=True)
class DlqPruned(Event):
    """Dead or canceled messages were removed because they were too old or too many."""

    name: ClassVar[str] = DLQ_PRUNED

    topic: str
    state: str
    cause: str
    """`age` or `depth`."""
    messages: int


class Retention:
    """Lives on one event loop."""

    def __init__(
        self,
        *,
        delivery: Delivery,
        oversight: Oversight,
        listing: Listing,
        batch_rewrite: BatchRewrite,
        rows: BatchReader,
        commits: Commits,
        store: MailboxStore,
        age: StoreClock,
        events: EventJournal,
        clock: Clock,
        empty_topics: EmptyTopics | None = None,
    ) -> None:
        self._empty_topics = empty_topics
        self._delivery = delivery
        self._oversight = oversight
        self._listing = listing
        self._batch_rewrite = batch_rewrite
        self._rows = rows
        self._commits = commits
        self._store = store
        self._age = age
        self._events = events
        self._clock = clock
        self._next = 0
        # Where the search for old ones goes on, by topic and state; only of topics that have some.
        self._cursors: dict[tuple[str, MessageState], int] = {}
        # Telemetry that expired in its queue and was told of, by topic; of topics that exist.
        self._unconsumed: dict[str, int] = {}
        # The count of what was acknowledged, and when it last grew; of the same topics.
        self._taken: dict[str, tuple[int, int]] = {}
        self._log = structlog.get_logger()

    async def step(self) -> None:
        """As much of every kind of work as a tick has time for, topic by topic."""
        until = asyncio.get_running_loop().time() + BUDGET_SECONDS
        await self._note_age()
        self._delivery.shares.stored.recount()
        if self._empty_topics is not None:
            try:
                await self._empty_topics.step()
            except SnavioError as error:
                background().failed("empty_topics", error)
        due = self._due() if self._delivery.policies.known else deque()
        while due:
            topic = due.popleft()
            more = False
            try:
                more = await self.look_after(topic)
            except Exception as error:
                # A damaged page, a slow disk: the topics behind it are none the worse for it. What is too old now is
                # too old at the next tick as well.
                background().failed("retention", error, topic=topic.name)
            if asyncio.get_running_loop().time() >= until:
                return
            if more:
                due.append(topic)
            await asyncio.sleep(0)

    async def _note_age(self) -> None:
        if self._age.due:
            try:
                await self._listing.run(lambda: self._age.note(self._store))
            except SnavioError as error:
                background().failed("retention", error)

    def _due(self) -> deque[Topic]:
        """Some topics in turn, then all with too much or too old messages, wherever they stand."""
        names = self._delivery.topics.names()
        first = self._next if self._next < len(names) else 0
        # Before anything can fail: the same topics first at every tick would be the only ones.
        self._next = first + TOPICS_PER_TICK
        in_turn = names[first : self._next]
        others = names[self._next :] + names[:first]
        known = [topic for name in in_turn if (topic := self._delivery.topics.topic(name)) is not None]
        full = (topic for name in others if (topic := self._delivery.topics.topic(name)) is not None)
        return deque([*known, *filter(self._pressing, full)])

    def _pressing(self, topic: Topic) -> bool:
        if topic.messages:
            ready_s = self._delivery.policies.of(topic.name).ready_s
            if topic.oldest_age_ns <= self._age.before_ns(ready_s):
                return True
            most, _ = self._most(topic, self._delivery.policies.of(topic.name))
            if most and topic.messages > most:
                return True
        if not (topic.delivered or topic.dead or topic.canceled):
            return False
        policy = self._delivery.policies.of(topic.name)
        most_delivered = policy.delivered_messages if policy.retains else 0
        return topic.delivered > most_delivered or max(topic.dead, topic.canceled) > policy.dlq_messages

    async def look_after(self, topic: Topic) -> bool:
        """One slice for one topic; whether there is more to be done at once."""
        policy = self._delivery.policies.of(topic.name)
        more = False
        if topic.messages:
            more |= await self._expire_ready(topic, policy)
            more |= await self._make_room(topic, policy)
        self._tell_unconsumed(topic)
        if topic.delivered:
            more |= await self._remove_delivered(topic, policy)
        for state in (MessageState.DEAD, MessageState.CANCELED):
            if topic.counted(state):
                more |= await self._prune(topic, state, policy)
            else:
                self._cursors.pop((topic.name, state), None)
        await self._batch_rewrite.look_through(topic, policy)
        return more

    async def _expire_ready(self, topic: Topic, policy: Policy) -> bool:
        before = self._age.before_ns(policy.ready_s)
        expired = self._delivery.endings.expire_ready(topic.name, before, limit=SLICE_BATCHES)
        self._delivery.window.sweep(topic.name)
        if topic.oldest_age_ns > before or expired == SLICE_BATCHES:
            return expired == SLICE_BATCHES
        now = self._age.now_ns()
        on_disk = await self._oldest_on_disk(topic, default=now)
        if on_disk <= before:
            asked = self._delivery.window.shortage(topic.name)
            if asked is not None:
                await self._rows.refill(self._delivery, asked)
            return asked is not None
        # Older batches that remain are leased or were requeued: they have their turn with the other topics.
        ages = (batch.stored_age_ns for batch in topic.batches.values() if batch.stored_age_ns > before)
        topic.oldest_age_ns = min(on_disk, min(ages, default=now))
        return False

    async def _make_room(self, topic: Topic, policy: Policy) -> bool:
        """End the oldest of a topic that takes new messages rather than keep them; whether there are more."""
        most, reason = self._most(topic, policy)
        surplus = topic.messages - topic.settling - most
        if not most or surplus <= 0:
            return False
        now = self._age.now_ns()
        ended = self._delivery.endings.expire_ready(
            topic.name, now, limit=SLICE_BATCHES, most_messages=surplus, reason=reason
        )
        self._delivery.window.sweep(topic.name)
        if not ended and (asked := self._delivery.window.shortage(topic.name)) is not None:
            await self._rows.refill(self._delivery, asked)
            return True
        return ended == SLICE_BATCHES

    def _most(self, topic: Topic, policy: Policy) -> tuple[int, str]:
        """Messages that wait before the oldest end, or 0, and the reason of that end."""
        if policy.ready_messages:
            return policy.ready_messages, DeadReason.EXPIRED
        if policy.when_full is WhenFull.BURY_OLDEST:
            # After its capacity was lowered; what is sent makes room for itself alone.
            shards = max(1, len(topic.by_shard))
            return self._delivery.topics.capacity(topic.name) * shards, DeadReason.OVERFLOW
        return 0, DeadReason.EXPIRED

    def _tell_unconsumed(self, topic: Topic) -> None:
        """Tell a tenant, once for each look, that telemetry went from its queue unread."""
        if topic.name.partition("/")[2] != TELEMETRY_NAME:
            return
        taken, taken_unix_ns = self._taken.get(topic.name, (0, 0))
        if topic.acked_total != taken:
            # Within a look; it is told in days.
            taken_unix_ns = self._clock.unix_ns()
            self._taken[topic.name] = (topic.acked_total, taken_unix_ns)
        expired = topic.died.get(DeadReason.EXPIRED, 0)
        # A topic that was let go of and came back counts from nothing.
        news = expired - min(expired, self._unconsumed.get(topic.name, 0))
        if not news:
            return
        self._unconsumed[topic.name] = expired
        age_s = (
            max(0.0, (self._clock.unix_ns() - topic.oldest_unix_ns) / 1e9) if topic.oldest_unix_ns else 0.0
        )
        last = format_timestamp(taken_unix_ns) if taken_unix_ns else None
        event = TelemetryDropped(topic.tenant, news, "queue_unconsumed", age_s, last)
        self._events.record(event, at_unix_ns=self._clock.unix_ns())

    async def _oldest_on_disk(self, topic: Topic, *, default: int) -> int:
        """The age of the first batch that waits on disk alone."""
        after = topic.loaded_through
        if after >= topic.last_id:
            return default
        found = await self._listing.run(lambda: self._store.pending(topic.name, after=after, limit=1))
        return found[0].stored_age_ns if found else default

    async def _remove_delivered(self, topic: Topic, policy: Policy) -> bool:
        """Whole batches, in bulk: a message's retention costs nothing of its own."""
        limit = self._age.now_ns() - policy.delivered_s * SECOND
        surplus = topic.delivered - (policy.delivered_messages if policy.retains else 0)
        old: list[tuple[Progress, int]] = []
        # The turn before the disk is asked: what an operator requeues in between would be removed as it was.
        async with self._oversight.turn(topic.name):
            found = await self._listing.run(lambda: self._store.retained(topic.name, limit=SLICE_RETAINED))
            for one in found:
                # Memory knows better: an acknowledgement that was refused may stand on disk for a moment.
                if one.batch_id in topic.batches or (surplus <= 0 and one.age_ns > limit):
                    continue
                surplus -= one.delivered
                gone = Progress(topic.name, one.batch_id, one.count, ones(0, one.count), forget=True)
                old.append((gone, one.delivered))
            if old:
                await self._forget(topic, old)
        return bool(old) and len(found) == SLICE_RETAINED

    async def _forget(self, topic: Topic, old: list[tuple[Progress, int]]) -> None:
        stored: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        messages = sum(delivered for _, delivered in old)

        def heard(outcome: Outcome) -> None:
            # Also when the caller no longer waits: the change is stored all the same.
            if not isinstance(outcome, SnavioError):
                topic.count(MessageState.DELIVERED, -messages)
                topic.pruned["delivered"] = topic.pruned.get("delivered", 0) + messages
            if not stored.done():
                stored.set_result(outcome)

        self._commits.submit(progress=[progress for progress, _ in old], done=heard)
        outcome = await stored
        if isinstance(outcome, SnavioError):
            raise outcome

    async def _prune(self, topic: Topic, state: MessageState, policy: Policy) -> bool:
        async with self._oversight.turn(topic.name):
            deeper = await self._prune_by_depth(topic, state, policy)
            return await self._prune_by_age(topic, state, policy) or deeper

    async def _prune_by_depth(self, topic: Topic, state: MessageState, policy: Policy) -> bool:
        surplus = topic.counted(state) - policy.dlq_messages
        if surplus <= 0:
            return False
        records = await self._holding(topic, state, after=0)
        removed = await self._purge(
            topic, state, "depth", [(one, ones(0, one.count)) for one in records], surplus
        )
        return 0 < removed < surplus

    async def _prune_by_age(self, topic: Topic, state: MessageState, policy: Policy) -> bool:
        key = (topic.name, state)
        after = self._cursors.get(key, 0)
        records = await self._holding(topic, state, after=after)
        full = len(records) == SLICE_BATCHES
        self._cursors[key] = records[-1].batch_id if full else 0
        limit = self._age.now_ns() - policy.dlq_s * SECOND
        old = [(one, bits) for one in records if (bits := self._older(topic.name, one, limit))]
        return await self._purge(topic, state, "age", old, topic.counted(state)) > 0 and full

    async def _holding(self, topic: Topic, state: MessageState, *, after: int) -> list[BatchRecord]:
        return await self._listing.run(
            lambda: self._store.records(topic.name, after=after, limit=SLICE_BATCHES, holding=state)
        )

    def _older(self, name: str, record: BatchRecord, limit_ns: int) -> int:
        batch: Batch = self._listing.batch(name, record)
        bits = 0
        for lo, hi, ending in batch.ends:
            if ending.age_ns <= limit_ns:
                bits |= ones(lo, hi)
        return bits

    async def _purge(
        self, topic: Topic, state: MessageState, cause: str, old: list[tuple[BatchRecord, int]], most: int
    ) -> int:
        states = frozenset({state})
        part = [
            Chosen(record, bits & select(self._listing.batch(topic.name, record), states, bits))
            for record, bits in old
        ]
        part = [one for one in part if one.bits]
        if not part:
            return 0
        wish = RequestedChange(topic.name, MessageOperation.PURGE, wanted=Filter(states=states))
        removed = await self._oversight.apply(wish, part, most)
        if removed:
            key = f"{state.name.lower()}.{cause}"
            topic.pruned[key] = topic.pruned.get(key, 0) + removed
            event = DlqPruned(topic.name, state.name.lower(), cause, removed)
            self._events.record(event, at_unix_ns=self._clock.unix_ns())
            self._log.warning(
                "dlq pruned", topic=topic.name, state=event.state, cause=cause, messages=removed
            )
        return removed
