"""What each topic has in memory and on disk, and the bounds on both: the mailbox's counting, without any I/O.

Never holds more than a window of a topic in memory, and never takes in more than a topic may hold.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from services.mailbox.state.bounds import MailboxShares
from services.mailbox.state.leases import Batch
from services.mailbox.state.ordering import Ordering
from services.mailbox.state.timers import Timers
from services.mailbox.state.topics import MILLISECOND, Counts, Delayed, Limits, Shortage, Topic
from snavio.clock import Clock
from snavio.errors import Saturated
from snavio.ports.mailbox_store import BatchRecord, TopicRecord

KEPT_EMPTY_NS = 60_000_000_000
"""For an empty topic after its last message came: one that is used now and then is not made anew."""


class Stock:
    """See the module. `woken(topic)` is called at every transition to ready."""

    def __init__(
        self,
        *,
        clock: Clock,
        records: Iterable[TopicRecord],
        woken: Callable[[str], None],
        limits: Limits | None = None,
        shares: MailboxShares | None = None,
    ) -> None:
        self.limits = limits or Limits()
        self.shares = shares or MailboxShares.undivided(self.limits)
        self.inflight = 0
        self.rejected: Counter[str] = Counter()
        """Messages that were not taken in since the start, by the bound that kept them out."""
        self._clock = clock
        self._woken = woken
        self._topics = {one.topic: _topic(one) for one in records}
        for tenant, topics in Counter(one.tenant for one in self._topics.values()).items():
            self.shares.topics.found(tenant, topics)
        self._tenants: dict[str, int] = {}
        """Leased messages by tenant; only of tenants that have some."""
        self._timers = Timers(self._still_delayed)
        self._starved: set[str] = set()
        """Topics with ready messages that a ceiling kept back."""
        self._held_up: set[str] = set()
        """Topics of which nothing untried was handed out."""

    # -- arriving --------------------------------------------------------------------------------------

    def reserve(self, name: str, messages: int, shard: int = 0, *, size: int = 0) -> None:
        """Take up room for messages that are about to be stored, of `size` bytes.

        Saturated when the shard is full, or the tenant has its share of bytes or topics. Afterwards `decided` is
        called, whatever became of them, and `release` for those that were not stored.
        """
        topic = self._topics.get(name)
        held = topic.by_shard.get(shard, 0) if topic is not None else 0
        if held + messages > self.limits.topic_messages:
            self.rejected["shard-full"] += messages
            raise Saturated("The topic is full.", retry_after_ms=self.limits.retry_after_ms)
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
            topic = self._topics[name] = Topic(name)
        topic.add(messages, shard)

    def decided(self, name: str, size: int) -> None:
        """The store has what was reserved, and counts its bytes itself; or it was refused."""
        self.shares.stored.decided(name.partition("/")[0], size)

    def release(self, name: str, messages: int, shard: int = 0) -> None:
        """They were not stored after all."""
        topic = self._topics[name]
        topic.add(-messages, shard)
        if not topic.stored and not topic.messages:
            self.let_go(topic)

    def keep(self, name: str, window_ns: int) -> None:
        """Keys of the topic's messages are known for so long."""
        topic = self._topics.get(name)
        if topic is not None:
            topic.kept_until_mono_ns = max(topic.kept_until_mono_ns, self._clock.mono_ns() + window_ns)

    def vacant(self, topic: Topic) -> bool:
        """Nothing of it is stored or on its way, and has not been for a while."""
        if topic.messages or topic.settling or topic.batches or topic.adopted or topic.lost:
            return False
        if topic.delivered or topic.dead or topic.canceled:
            return False
        return topic.stored and self._clock.mono_ns() >= topic.kept_until_mono_ns

    def let_go(self, topic: Topic) -> None:
        """Forget a topic that is vacant, and not in the store any more."""
        if self._topics.get(topic.name) is topic:
            del self._topics[topic.name]
            self.shares.topics.give_back(topic.tenant)
            self._starved.discard(topic.name)
            self._held_up.discard(topic.name)

    def stored(self, name: str, record: BatchRecord) -> bool:
        """A reserved batch is on disk. True when it is now in memory too. Called in order of id."""
        topic = self._topics[name]
        caught_up = topic.loaded_through >= topic.last_id
        topic.last_id = max(topic.last_id, record.batch_id)
        topic.stored_total += record.count
        topic.stored = True
        topic.kept_until_mono_ns = max(topic.kept_until_mono_ns, self._clock.mono_ns() + KEPT_EMPTY_NS)
        if record.batch_id <= topic.loaded_through:
            return record.batch_id in topic.batches  # a refill had seen it first
        loaded = caught_up and self._has_room(topic, self.limits.window_batches)
        if loaded:
            topic.loaded_through = record.batch_id
            self._load(topic, Batch(name, record))
        self._woken(name)
        return loaded

    def shortage(self, name: str) -> Shortage | None:
        """What to fetch from disk before leasing; None when memory has enough or disk has no more."""
        topic = self._topics.get(name)
        if topic is None or topic.loaded_through >= topic.last_id:
            return None
        if not self._has_room(topic, max(1, self.limits.window_batches // 16)):
            return None
        most = max(1, self.limits.window_batches // 2)
        return Shortage(name, topic.loaded_through, most, topic.last_id, topic.version)

    def refill(self, asked: Shortage, records: Sequence[BatchRecord]) -> None:
        """What the disk answered to a shortage; ignored when memory has moved on since."""
        topic = self._topics.get(asked.topic)
        if topic is None or (topic.loaded_through, topic.version) != (asked.after, asked.version):
            return
        for record in records:
            topic.loaded_through = record.batch_id
            if record.batch_id not in topic.batches:
                # A change that is on its way knows more of the batch than the disk did.
                self._load(topic, topic.adopted.get(record.batch_id) or Batch(topic.name, record))
        if len(records) < asked.limit:
            # Not up to what is stored now: a batch may have been stored after the disk was asked.
            topic.loaded_through = max(topic.loaded_through, asked.last_id)
        if records:
            self._woken(asked.topic)

    def _has_room(self, topic: Topic, ready: int) -> bool:
        few = len(topic.ready) < ready and len(topic.batches) < self.limits.resident_batches
        return few and not self.scattered(topic)

    def scattered(self, topic: Topic) -> bool:
        """So many messages were tried and given back one by one that no others are handed out before some of them end.

        Each such stretch is remembered by itself; a consumer that gives back every second message of a backlog would
        otherwise have all of it in memory.
        """
        return self.shares.spans.held_up(topic) is not None

    @property
    def spans(self) -> int:
        """Stretches of tried messages in memory, of all topics."""
        return self.shares.spans.shares.used

    def _recount(self, topic: Topic, batch: Batch, *, gone: bool = False) -> None:
        change = (0 if gone else len(batch.retries)) - batch.counted
        if not change:
            return
        spans = self.shares.spans
        before = spans.held_up(topic), spans.crowded
        spans.changed(topic, change)
        batch.counted += change
        if change < 0 and before != (spans.held_up(topic), spans.crowded):
            self._go_on()

    def _go_on(self) -> None:
        """Wake topics that are held up no longer."""
        for name in list(self._held_up):
            topic = self._topics.get(name)
            if topic is None or not self.scattered(topic):
                self._held_up.discard(name)
                self._woken(name)

    def _load(self, topic: Topic, batch: Batch) -> None:
        topic.batches[batch.batch_id] = batch
        self._recount(topic, batch)
        busy = batch.busy(0, batch.count)
        for lo, hi, retrying in batch.open(busy, 0, batch.count):
            wait_ns = self._wait_ns(retrying.not_before_unix_ns)
            if wait_ns > 0:
                self._delay(batch, lo, hi, retrying.attempt, wait_ns)
            else:
                heapq.heappush(topic.ready, (batch.batch_id, lo, hi, retrying.attempt))

    def _ready(self, batch: Batch, lo: int, hi: int, attempt: int) -> None:
        heapq.heappush(self._topics[batch.topic].ready, (batch.batch_id, lo, hi, attempt))
        self._woken(batch.topic)

    def _delay(self, batch: Batch, lo: int, hi: int, attempt: int, wait_ns: int) -> None:
        until = self._clock.mono_ns() + wait_ns
        batch.delayed.put(lo, hi, until)
        self._timers.arm(until, Delayed(batch.topic, batch.batch_id, lo, hi, attempt))

    def _still_delayed(self, delayed: Delayed, until: int) -> bool:
        topic = self._topics.get(delayed.topic)
        batch = topic.batches.get(delayed.batch_id) if topic is not None else None
        if batch is None:
            return False
        return any(due == until for _, _, due in batch.delayed.over(delayed.lo, delayed.hi))

    @property
    def timers(self) -> int:
        """Ends of leases and delays that are remembered."""
        return len(self._timers)

    def _wait_ns(self, not_before_unix_ns: int) -> int:
        """How long to keep a message back; 0 or less when it is due."""
        # The wall clock bridges a restart and nothing else; a jump of it costs at most the longest delay.
        longest_ns = self.limits.max_delay_ms * MILLISECOND
        return min(not_before_unix_ns - self._clock.unix_ns(), longest_ns) if not_before_unix_ns else 0

    # -- counting --------------------------------------------------------------------------------------

    def ceiling(self, name: str) -> str | None:
        """Which bound keeps the messages of this topic from being leased now; None when none does."""
        if self.inflight >= self.limits.inflight_messages:
            return "inflight-ceiling"
        if self._tenants.get(name.partition("/")[0], 0) >= self.limits.tenant_inflight_messages:
            return "tenant-inflight-ceiling"
        return None

    def kept_back(self, name: str) -> str | None:
        """Which bound keeps back messages that are ready; None when there are none, or no bound does."""
        topic = self._topics.get(name)
        return self.ceiling(name) if topic is not None and topic.ready else None

    def has_more(self, name: str) -> bool:
        """True where another receive of this topic may find something."""
        topic = self._topics.get(name)
        if topic is None:
            return False
        return bool(topic.ready and self.ceiling(name) is None) or self.shortage(name) is not None

    def _room(self, topic: Topic) -> int:
        held = self._tenants.get(topic.tenant, 0)
        return min(self.limits.inflight_messages - self.inflight, self.limits.tenant_inflight_messages - held)

    def _hold(self, topic: Topic, messages: int) -> None:
        topic.inflight += messages
        self.inflight += messages
        held = self._tenants.get(topic.tenant, 0) + messages
        if held:
            self._tenants[topic.tenant] = held
        else:
            self._tenants.pop(topic.tenant, None)
        if messages < 0 and self._starved:
            starved, self._starved = self._starved, set()
            for name in starved:
                self._woken(name)

    def counts(self, name: str) -> Counts | None:
        """A topic in numbers; None when there is no such topic."""
        topic = self._topics.get(name)
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
            self.limits.topic_messages * max(1, len(topic.by_shard)),
            topic.died,
            topic.by_shard,
            topic.ordering.deepest,
            topic.stored_total,
            topic.acked_total,
        )

    def names(self) -> list[str]:
        """Every topic of which something was stored."""
        return [name for name, topic in self._topics.items() if topic.stored]

    def topic(self, name: str) -> Topic | None:
        """A topic's state, to look at."""
        return self._topics.get(name)


def _topic(record: TopicRecord) -> Topic:
    # What is before the first unsettled batch is only kept, and never delivered from.
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
