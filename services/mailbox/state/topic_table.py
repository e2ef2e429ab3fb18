"""Topics by name, the room that is taken up in them, and their numbers.

Never takes in more than a shard, a tenant's share or the number of topics allows, and never forgets a topic that holds
a message or keys.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from itertools import islice

from services.mailbox.state.bounds import MailboxShares
from services.mailbox.state.ordering import Ordering
from services.mailbox.state.topics import MILLISECOND, Counts, Limits, Topic
from snavio.clock import Clock
from snavio.domain.directory import WhenFull
from snavio.errors import Saturated
from snavio.ports.mailbox_store import BatchRecord, TopicRecord

LOOKED_AT = 256
"""Of the stretches or batches of a topic, for its numbers: a reading must not cost what the topic holds."""
KEPT_EMPTY_NS = 60_000_000_000
"""For an empty topic after its last message came: one that is used now and then is not made anew."""


class TopicTable:
    """`woken(topic)` is called at every transition of a message to ready."""

    def __init__(
        self,
        *,
        clock: Clock,
        records: Iterable[TopicRecord],
        woken: Callable[[str], None],
        limits: Limits,
        shares: MailboxShares,
        own_capacity: Callable[[str], int] = lambda _name: 0,
        when_full: Callable[[str], str] = lambda _name: "refuse",
    ) -> None:
        self._own_capacity = own_capacity
        self._when_full = when_full
        self.limits = limits
        self.shares = shares
        self.woken = woken
        self.rejected: Counter[str] = Counter()
        """Messages that were not taken in since the start, by the bound that kept them out."""
        self.by_name = {one.topic: _topic(one) for one in records}
        self.forgotten: list[Callable[[str], None]] = []
        """Called with the name of a topic that was let go."""
        self._clock = clock
        for tenant, topics in Counter(one.tenant for one in self.by_name.values()).items():
            shares.topics.found(tenant, topics)

    def wake(self, name: str) -> None:
        """Tell the waiting receives of a topic that something is ready."""
        self.woken(name)

    def topic(self, name: str) -> Topic | None:
        """State of one topic; None when there is none."""
        return self.by_name.get(name)

    def names(self) -> list[str]:
        """Every topic of which something was stored."""
        return [name for name, topic in self.by_name.items() if topic.stored]

    # -- room ------------------------------------------------------------------------------------------

    def capacity(self, name: str) -> int:
        """Ready and leased messages that a shard of the topic may hold: by its own rule, and never beyond the bound."""
        own = self._own_capacity(name)
        return min(own, self.limits.topic_messages) if own else self.limits.topic_messages

    def surplus(self, name: str, messages: int, shard: int) -> int:
        """Number of messages that would be too many in a shard after so many more; 0 or less when there is room."""
        return self._held(name, shard) + messages - self.capacity(name)

    def full(self, name: str, messages: int, shard: int) -> Saturated:
        """The answer for so many messages for which a shard has no room; it counts them as rejected."""
        self.rejected["shard-full"] += messages
        return Saturated(self._full(name, shard), retry_after_ms=self.limits.retry_after_ms)

    def _full(self, name: str, shard: int) -> str:
        return (
            f"The topic {name} is full: it holds {self._held(name, shard)} of {self.capacity(name)} messages."
        )

    def _held(self, name: str, shard: int) -> int:
        topic = self.by_name.get(name)
        return topic.by_shard.get(shard, 0) - topic.burying.get(shard, 0) if topic is not None else 0

    def reserve(
        self, name: str, messages: int, shard: int = 0, *, size: int = 0, beyond: bool = False
    ) -> None:
        """Take up room for messages that are about to be stored, of `size` bytes.

        Saturated when the shard is full, unless they may go `beyond` its capacity, or the tenant has its share of bytes
        or topics. Afterwards `decided` is called in either case, and `release` for those that were not stored.
        """
        topic = self.by_name.get(name)
        if not beyond and self.surplus(name, messages, shard) > 0:
            raise self.full(name, messages, shard)
        tenant = name.partition("/")[0]
        try:
            self.shares.stored.reserve(tenant, size)
        except Saturated:
            self.rejected["store-bytes"] += messages
            raise
        if topic is None:
            try:
                self.shares.topics.take(tenant)
            except Saturated:
                self.shares.stored.decided(tenant, size)
                self.rejected["too-many-topics"] += messages
                raise
            topic = self.by_name[name] = Topic(name)
        topic.add(messages, shard)

    def room(self, name: str, shard: int = 0) -> tuple[int, str]:
        """Messages that still fit, and the refusal that one more would get; nothing is taken up."""
        topic, tenant = self.by_name.get(name), name.partition("/")[0]
        left = max(0, -self.surplus(name, 0, shard))
        if not left and self._when_full(name) == WhenFull.BURY_OLDEST.label:
            left = self.capacity(name)
        if not left:
            return 0, self._full(name, shard)
        if not self.shares.stored.shares.room(tenant):
            return 0, str(self.shares.stored.shares.saturated(tenant))
        if topic is None and not self.shares.topics.room(tenant):
            return 0, str(self.shares.topics.saturated(tenant))
        return left, ""

    def decided(self, name: str, size: int) -> None:
        """Stop counting bytes that were reserved: the store has them and counts them itself, or they were refused."""
        self.shares.stored.decided(name.partition("/")[0], size)

    def release(self, name: str, messages: int, shard: int = 0) -> None:
        """Free the room of messages that were not stored."""
        topic = self.by_name[name]
        topic.add(-messages, shard)
        if not topic.stored and not topic.messages:
            self.let_go(topic)

    def keep(self, name: str, window_ns: int) -> None:
        """Keep the topic for as long as keys of its messages are known."""
        topic = self.by_name.get(name)
        if topic is not None:
            topic.kept_until_mono_ns = max(topic.kept_until_mono_ns, self._clock.mono_ns() + window_ns)

    def vacant(self, topic: Topic) -> bool:
        """True when nothing of the topic is stored or on its way, and has not been for a while."""
        if topic.messages or topic.settling or topic.batches or topic.adopted or topic.lost:
            return False
        if topic.delivered or topic.dead or topic.canceled:
            return False
        return topic.stored and self._clock.mono_ns() >= topic.kept_until_mono_ns

    def let_go(self, topic: Topic) -> None:
        """Forget a topic that is vacant, and not in the store any more."""
        if self.by_name.get(topic.name) is topic:
            del self.by_name[topic.name]
            self.shares.topics.give_back(topic.tenant)
            for follow in self.forgotten:
                follow(topic.name)

    def grown(self, topic: Topic, record: BatchRecord) -> None:
        """Count a reserved batch that is on disk now."""
        topic.last_id = max(topic.last_id, record.batch_id)
        topic.stored_total += record.count
        topic.stored = True
        topic.kept_until_mono_ns = max(topic.kept_until_mono_ns, self._clock.mono_ns() + KEPT_EMPTY_NS)

    def received(self, name: str, receiver: str) -> None:
        """Messages were handed out: what watches over routes asks when, and to whom."""
        topic = self.by_name.get(name)
        if topic is not None:
            topic.received_unix_ns = self._clock.unix_ns()
            topic.receiver = receiver

    # -- numbers ---------------------------------------------------------------------------------------

    def counts(self, name: str) -> Counts | None:
        """A topic in numbers; None when there is no such topic."""
        topic = self.by_name.get(name)
        if topic is None or not topic.stored:
            return None
        inflight = topic.inflight + topic.settling
        oldest = next(iter(topic.batches.values())).stored_unix_ns if topic.batches else topic.oldest_unix_ns
        age_ns = self._clock.unix_ns() - oldest if topic.messages and oldest else 0
        return Counts(
            name,
            max(0, topic.messages - inflight),
            inflight,
            max(0, age_ns) // MILLISECOND,
            topic.delivered,
            topic.dead,
            topic.canceled,
            self.capacity(name) * max(1, len(topic.by_shard)),
            topic.died,
            topic.by_shard,
            topic.ordering.deepest,
            topic.stored_total,
            topic.acked_total,
            topic.received_unix_ns,
            topic.receiver,
            *self._waiting_since(topic),
            self._when_full(name),
        )

    def _waiting_since(self, topic: Topic) -> tuple[int, int]:
        """When the oldest ready message was stored, and since or from when on one may be received."""
        found = [
            (batch.stored_unix_ns, max(batch.stored_unix_ns, tried.not_before_unix_ns))
            for batch_id, lo, hi, attempt in topic.ready[:LOOKED_AT]
            if (batch := topic.batches.get(batch_id)) is not None
            for start, end in batch.free(lo, hi, attempt)[:1]
            for _, _, tried in islice(batch.retrying(start, end), 1)
        ]
        if found:
            return min(stored for stored, _ in found), min(run for _, run in found)
        if topic.loaded_through < topic.last_id and topic.messages and topic.oldest_unix_ns:
            # Not in memory yet: as the disk said at the start, or when somebody looked.
            return topic.oldest_unix_ns, topic.oldest_unix_ns
        delayed = [
            tried.not_before_unix_ns
            for batch in islice(topic.batches.values(), LOOKED_AT)
            for lo, hi, _ in batch.delayed
            for _, _, tried in batch.retrying(lo, hi)
        ]
        return 0, min(filter(None, delayed), default=0)


def _topic(record: TopicRecord) -> Topic:
    # Batches before the first unsettled one are only retained, and never delivered from.
    loaded = record.first_batch_id - 1 if record.messages else record.last_batch_id
    return Topic(
        record.topic,
        record.messages,
        stored=True,
        last_id=record.last_batch_id,
        loaded_through=max(0, loaded),
        oldest_unix_ns=record.oldest_unix_ns,
        delivered=record.delivered,
        dead=record.dead,
        canceled=record.canceled,
        by_shard=dict(record.shards),
        ordering=Ordering(record.order),
    )
