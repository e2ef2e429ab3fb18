"""Batches in memory and the order in which their messages are delivered: ready heap, delays, and the rest on disk.

Never holds more than a window of a topic in memory, and never leaves a message that is due out of the heap.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from services.mailbox.state.batch import Batch
from services.mailbox.state.timers import Timers
from services.mailbox.state.topic_table import TopicTable
from services.mailbox.state.topics import MILLISECOND, Delayed, Shortage, Topic
from snavio.clock import Clock
from snavio.ports.mailbox_store import BatchRecord

Entry = tuple[int, int, int, int]
"""(batch_id, lo, hi, attempt) of messages that were ready when it was pushed. It may be out of date: ask the batch."""


class ReadyWindow:
    """Lives on one event loop."""

    def __init__(self, topics: TopicTable, clock: Clock) -> None:
        self.timers = Timers(self._still_delayed)
        """Ends of leases and delays."""
        self.held_up: set[str] = set()
        """Topics of which nothing untried was handed out."""
        self._topics = topics
        self._limits = topics.limits
        self._clock = clock

    # -- the heap --------------------------------------------------------------------------------------

    @staticmethod
    def push(topic: Topic, entry: Entry) -> None:
        """Put messages in line; those that wait for them are not woken."""
        heapq.heappush(topic.ready, entry)

    @staticmethod
    def pop(topic: Topic) -> Entry:
        """Take the oldest messages out of the line, which is not empty."""
        return heapq.heappop(topic.ready)

    def ready(self, batch: Batch, lo: int, hi: int, attempt: int) -> None:
        """Put messages in line, and wake those that wait for them."""
        self.push(self._topics.by_name[batch.topic], (batch.batch_id, lo, hi, attempt))
        self._topics.wake(batch.topic)

    def delay(self, batch: Batch, lo: int, hi: int, attempt: int, wait_ns: int) -> None:
        """Put messages in line later."""
        until = self._clock.mono_ns() + wait_ns
        batch.delay(lo, hi, until)
        self.timers.arm(until, Delayed(batch.topic, batch.batch_id, lo, hi, attempt))

    def due(self, delayed: Delayed, now_mono_ns: int) -> None:
        """Put delayed messages in line whose time has come."""
        topic = self._topics.topic(delayed.topic)
        batch = topic.batches.get(delayed.batch_id) if topic is not None else None
        if batch is None:
            return
        for lo, hi, until in batch.delayed.over(delayed.lo, delayed.hi):
            # A later delay of the same messages has a timer of its own.
            if until <= now_mono_ns:
                batch.due(lo, hi)
                self.ready(batch, lo, hi, delayed.attempt)

    def wait_ns(self, not_before_unix_ns: int) -> int:
        """Time to keep a message back; 0 or less when it is due."""
        # The wall clock bridges a restart and nothing else; a jump of it costs at most the longest delay.
        longest_ns = self._limits.max_delay_ms * MILLISECOND
        return min(not_before_unix_ns - self._clock.unix_ns(), longest_ns) if not_before_unix_ns else 0

    def sweep(self, name: str) -> None:
        """Drop entries of batches that are not there any more.

        A receive does so in passing; where there is none, they would keep the window full.
        """
        topic = self._topics.topic(name)
        if topic is not None and any(entry[0] not in topic.batches for entry in topic.ready):
            topic.ready = [entry for entry in topic.ready if entry[0] in topic.batches]
            heapq.heapify(topic.ready)

    # -- memory and disk -------------------------------------------------------------------------------

    def stored(self, name: str, record: BatchRecord) -> bool:
        """Take in a reserved batch that is on disk. True when it is now in memory too. Called in order of id."""
        topic = self._topics.by_name[name]
        caught_up = topic.loaded_through >= topic.last_id
        self._topics.grown(topic, record)
        if record.batch_id <= topic.loaded_through:
            return record.batch_id in topic.batches  # a refill had seen it first
        loaded = caught_up and self._has_room(topic, self._limits.window_batches)
        if loaded:
            topic.loaded_through = record.batch_id
            self.load(topic, Batch(name, record))
        self._topics.wake(name)
        return loaded

    def shortage(self, name: str) -> Shortage | None:
        """Question to the disk before leasing; None when memory has enough or disk has no more."""
        topic = self._topics.topic(name)
        if topic is None or topic.loaded_through >= topic.last_id:
            return None
        if not self._has_room(topic, max(1, self._limits.window_batches // 16)):
            return None
        most = max(1, self._limits.window_batches // 2)
        return Shortage(name, topic.loaded_through, most, topic.last_id, topic.version)

    def refill(self, asked: Shortage, records: Sequence[BatchRecord]) -> None:
        """Take in the disk's answer to a shortage; ignored when memory has moved on since."""
        topic = self._topics.topic(asked.topic)
        if topic is None or (topic.loaded_through, topic.version) != (asked.after, asked.version):
            return
        for record in records:
            topic.loaded_through = record.batch_id
            if record.batch_id not in topic.batches:
                # A change that is on its way knows more of the batch than the disk did.
                self.load(topic, topic.adopted.get(record.batch_id) or Batch(topic.name, record))
        if len(records) < asked.limit:
            # Not up to the newest stored batch: one may have been stored after the disk was asked.
            topic.loaded_through = max(topic.loaded_through, asked.last_id)
        if records:
            self._topics.wake(asked.topic)

    def _has_room(self, topic: Topic, ready: int) -> bool:
        few = len(topic.ready) < ready and len(topic.batches) < self._limits.resident_batches
        return few and not self.scattered(topic)

    def load(self, topic: Topic, batch: Batch) -> None:
        """Deliver from a batch: what is due of it is in line, the rest later."""
        topic.batches[batch.batch_id] = batch
        self.recount(topic, batch)
        busy = batch.busy(0, batch.count)
        for lo, hi, retrying in batch.open(busy, 0, batch.count):
            wait_ns = self.wait_ns(retrying.not_before_unix_ns)
            if wait_ns > 0:
                self.delay(batch, lo, hi, retrying.attempt, wait_ns)
            else:
                self.push(topic, (batch.batch_id, lo, hi, retrying.attempt))

    # -- tried messages --------------------------------------------------------------------------------

    def scattered(self, topic: Topic) -> bool:
        """True when so many messages were given back one by one that no others are leased before some of them end.

        Each such stretch is remembered by itself; a consumer that gives back every second message of a backlog would
        otherwise have all of it in memory.
        """
        return self._topics.shares.spans.held_up(topic) is not None

    @property
    def spans(self) -> int:
        """Stretches of tried messages in memory, of all topics."""
        return self._topics.shares.spans.shares.used

    def recount(self, topic: Topic, batch: Batch, *, gone: bool = False) -> None:
        """Count the batch's stretches of tried messages again; `gone` when it leaves memory."""
        change = (0 if gone else len(batch.retries)) - batch.counted
        if not change:
            return
        spans = self._topics.shares.spans
        before = spans.held_up(topic), spans.crowded
        spans.changed(topic, change)
        batch.counted += change
        if change < 0 and before != (spans.held_up(topic), spans.crowded):
            self._go_on()

    def settled(self, batch: Batch) -> None:
        """Count again after a change of a batch, if it is one to deliver from."""
        topic = self._topics.by_name[batch.topic]
        if topic.batches.get(batch.batch_id) is batch:
            self.recount(topic, batch)

    def _go_on(self) -> None:
        """Wake topics that are held up no longer."""
        for name in list(self.held_up):
            topic = self._topics.topic(name)
            if topic is None or not self.scattered(topic):
                self.held_up.discard(name)
                self._topics.wake(name)

    def _still_delayed(self, delayed: Delayed, until: int) -> bool:
        topic = self._topics.topic(delayed.topic)
        batch = topic.batches.get(delayed.batch_id) if topic is not None else None
        if batch is None:
            return False
        return any(due == until for _, _, due in batch.delayed.over(delayed.lo, delayed.hi))
