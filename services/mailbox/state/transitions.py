"""Decisions about messages on their way to disk: counted, written down, and believed once the disk has them.

Never leaves a message in two places, and never counts one before the disk does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from services.mailbox.state.batch import Batch
from services.mailbox.state.inflight import InflightCounts
from services.mailbox.state.leases import RangeLease
from services.mailbox.state.policy import Policies
from services.mailbox.state.ranges import ones
from services.mailbox.state.ready_window import ReadyWindow
from services.mailbox.state.settling import Moved, Settling
from services.mailbox.state.states import Verb
from services.mailbox.state.topic_table import TopicTable
from services.mailbox.state.topics import Topic
from snavio.domain.message import MessageState
from snavio.ports.mailbox_store import BatchRecord, Progress

_REFUSED_PAUSE_NS = 1_000_000_000


class Transitions:
    """`record(progress)` is called for what is to reach the disk without an answer.

    `commit_ended(settling)` is called for messages that end by themselves; its owner commits them, then calls
    `confirm` or `revert`. `age_ns()` is the store's age.
    """

    def __init__(
        self,
        *,
        topics: TopicTable,
        window: ReadyWindow,
        inflight: InflightCounts,
        policies: Policies,
        record: Callable[[Progress], None],
        commit_ended: Callable[[Settling], object] | None = None,
        age_ns: Callable[[], int] = lambda: 0,
    ) -> None:
        self._topics = topics
        self._window = window
        self._inflight = inflight
        self._policies = policies
        self._limits = topics.limits
        self.record = record
        self.commit_ended = commit_ended or self._end_at_once
        self.age_ns = age_ns

    def adopt(self, name: str, record: BatchRecord) -> Batch | None:
        """The batch of a record from the disk, to be changed; None when the record is out of date."""
        topic = self._topics.by_name[name]
        known = topic.batches.get(record.batch_id) or topic.adopted.get(record.batch_id)
        if known is not None:
            return known
        batch = Batch(name, record)
        # It was loaded, delivered and let go of since the disk was asked: the disk must be asked again.
        if record.batch_id <= topic.loaded_through and batch.settled != ones(0, batch.count):
            return None
        topic.adopted[record.batch_id] = batch
        return batch

    def disown(self, name: str, batch: Batch) -> None:
        """Forget an adopted batch of which nothing was changed."""
        if not len(batch.settling):
            self._topics.by_name[name].adopted.pop(batch.batch_id, None)

    def begin(self, settling: Settling) -> None:
        """Count what has begun to move, and write down what the disk is to say."""
        touched: dict[int, Batch] = {}
        for moved in settling.moved:
            topic = self._topics.by_name[moved.batch.topic]
            if moved.lease is not None:
                self._inflight.hold(topic, -moved.messages)
                self._window.timers.ended(moved.lease)
                self.heard(moved.lease)
            if moved.verb is Verb.REVIVE:
                topic.add(moved.messages, moved.batch.shard)
            if not moved.ended or moved.verb is Verb.REVIVE:
                topic.settling += moved.messages
            touched[moved.batch.batch_id] = moved.batch
        for batch in touched.values():
            self._window.settled(batch)
            batch.age_ns = self.age_ns()
            progress = self.progress(batch)
            order = self._topics.by_name[batch.topic].ordering.mark(batch.shard)
            settling.progress.append(replace(progress, order=order) if order is not None else progress)

    def progress(self, batch: Batch) -> Progress:
        """State of a batch for the disk, counting on what is on its way there."""
        return batch.progress(retain=self._policies.of(batch.topic).retains)

    def heard(self, lease: RangeLease) -> None:
        """Note that the lease's holder has the response that it came with, or is not to have it any more."""
        if lease.handout is not None:
            self._topics.by_name[lease.batch.topic].ordering.heard(lease.handout)

    def confirm(self, settling: Settling) -> list[int]:
        """Believe decisions that are on disk. The ids of batches of which nothing is left to deliver."""
        finished: list[int] = []
        for moved in settling.moved:
            batch, topic = moved.batch, self._topics.by_name[moved.batch.topic]
            batch.confirm(moved)
            self._arrive(topic, moved)
            if topic.batches.get(batch.batch_id) is not batch:
                self._let_go(topic, batch)
            elif batch.finished:
                del topic.batches[batch.batch_id]
                self._window.recount(topic, batch, gone=True)
                finished.append(batch.batch_id)
            elif moved.verb is Verb.RETRY or moved.verb is Verb.REVIVE:
                if moved.delay_ns:
                    self._window.delay(batch, moved.lo, moved.hi, moved.attempt, moved.delay_ns)
                else:
                    self._window.ready(batch, moved.lo, moved.hi, moved.attempt)
            if batch.finished:
                self._finish(topic, batch)
            if not len(batch.settling):
                topic.adopted.pop(batch.batch_id, None)
        return finished

    def _arrive(self, topic: Topic, moved: Moved) -> None:
        """Count messages where they are now."""
        messages = moved.messages
        if not moved.ended or moved.verb is Verb.REVIVE:
            topic.settling -= messages
        if moved.ended:
            for lo, hi, ending in moved.ends:
                topic.count(ending.state, lo - hi)
            topic.count(MessageState.DELIVERED, sum(hi - lo for lo, hi, _ in moved.ends) - messages)
        elif moved.verb is not Verb.RETRY:
            topic.add(-messages, moved.batch.shard)
        if moved.verb is Verb.ACK:
            topic.count(MessageState.DELIVERED, messages)
            topic.acked_total += messages
        elif moved.ending is not None:
            topic.count(moved.ending.state, messages)
            if moved.ending.state is MessageState.DEAD:
                reason = moved.ending.reason
                topic.died[reason] = topic.died.get(reason, 0) + messages

    def _finish(self, topic: Topic, batch: Batch) -> None:
        if batch.batch_id > topic.loaded_through:
            topic.version += 1
        progress = self.progress(batch)
        if progress.gone:
            topic.count(MessageState.DELIVERED, -progress.delivered)

    def _let_go(self, topic: Topic, batch: Batch) -> None:
        """End the change of a batch that was not in memory: bring it in if it has something to deliver."""
        if len(batch.settling) or topic.adopted.pop(batch.batch_id, None) is None:
            return
        if batch.batch_id > topic.loaded_through:
            topic.version += 1  # it will come when its turn comes, as the disk has it now
        elif batch.finished:
            pass
        elif len(topic.batches) < self._limits.resident_batches:
            self._window.load(topic, batch)
            self._topics.wake(topic.name)
        else:
            topic.loaded_through = batch.batch_id - 1
            topic.version += 1

    def revert(self, settling: Settling) -> None:
        """Undo decisions that the disk refused: everything stands as it did."""
        touched: dict[int, Batch] = {}
        for moved in settling.moved:
            batch, topic = moved.batch, self._topics.by_name[moved.batch.topic]
            if topic.batches.get(batch.batch_id) is batch:
                touched[batch.batch_id] = batch
            batch.revert(moved)
            topic.ordering.unwritten(batch.shard)
            self._window.settled(batch)
            if moved.verb is Verb.REVIVE:
                topic.add(-moved.messages, batch.shard)
            if not moved.ended or moved.verb is Verb.REVIVE:
                topic.settling -= moved.messages
            if moved.lease is not None:
                self._inflight.hold(topic, moved.messages)
                # Its timer may have fired, or been swept up, while it held nothing.
                self._window.timers.arm(moved.lease.deadline_mono_ns, moved.lease)
            elif not moved.ended and topic.batches.get(batch.batch_id) is batch:
                # Not at once: the same messages would be refused again and again.
                for lo, hi, retrying in list(batch.retrying(moved.lo, moved.hi)):
                    wait_ns = max(_REFUSED_PAUSE_NS, self._window.wait_ns(retrying.not_before_unix_ns))
                    self._window.delay(batch, lo, hi, retrying.attempt, wait_ns)
            if not len(batch.settling):
                topic.adopted.pop(batch.batch_id, None)
        for batch in touched.values():
            # What was written down while this was on its way counted on it, and may have been taken.
            self.record(self.progress(batch))

    def send_off(self, settling: Settling) -> None:
        """Begin transitions without a caller, such as expiry, and have them committed."""
        if settling.moved:
            self.begin(settling)
            self.commit_ended(settling)

    def _end_at_once(self, settling: Settling) -> None:
        for progress in settling.progress:
            self.record(progress)
        self.confirm(settling)
