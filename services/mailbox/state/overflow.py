"""Room in a topic that is full: refuse the sender, or bury the oldest message in its place, as the topic's rule says.

Never buries for a message that is not stored: the caller commits both together, and what the disk refuses stands as it
did. Never buries what is leased, delayed or on its way somewhere.
"""

from __future__ import annotations

from services.mailbox.state.batch import Batch
from services.mailbox.state.endings import Endings
from services.mailbox.state.policy import Policies
from services.mailbox.state.ready_window import Entry, ReadyWindow
from services.mailbox.state.settling import Settling
from services.mailbox.state.states import Verb
from services.mailbox.state.topic_table import TopicTable
from services.mailbox.state.topics import Topic
from services.mailbox.state.transitions import Transitions
from snavio.domain.directory import WhenFull
from snavio.domain.message import DeadReason


class Overflow:
    """Lives on one event loop."""

    def __init__(
        self,
        *,
        topics: TopicTable,
        window: ReadyWindow,
        endings: Endings,
        transitions: Transitions,
        policies: Policies,
    ) -> None:
        self._topics = topics
        self._window = window
        self._endings = endings
        self._transitions = transitions
        self._policies = policies

    def buries(self, name: str) -> bool:
        """True for a topic that takes a message in place of its oldest."""
        return self._policies.of(name).when_full is WhenFull.BURY_OLDEST

    def unread(self, name: str, messages: int) -> bool:
        """True when so many more would bury messages that are on disk alone: they have to be read first."""
        topic = self._topics.topic(name)
        if topic is None or topic.ready or not self.buries(name):
            return False
        full = any(self._topics.surplus(name, messages, shard) > 0 for shard in topic.by_shard)
        return full and self._window.shortage(name) is not None

    def room(self, name: str, shard: int) -> int:
        """Messages for which a shard has room now, or may make some by what is in memory."""
        free = max(0, -self._topics.surplus(name, 0, shard))
        topic = self._topics.topic(name)
        if topic is None or not self.buries(name):
            return free
        return free + sum(
            hi - lo
            for batch_id, lo, hi, _ in topic.ready
            if (batch := topic.batches.get(batch_id)) is not None and batch.shard == shard
        )

    def reserve(self, name: str, messages: int, shard: int, *, size: int) -> Settling | None:
        """As `TopicTable.reserve`; with what is buried for it, which is to be committed with what is stored."""
        surplus = self._topics.surplus(name, messages, shard)
        if surplus <= 0 or not self.buries(name):
            self._topics.reserve(name, messages, shard, size=size)
            return None
        self._topics.reserve(name, messages, shard, size=size, beyond=True)
        topic = self._topics.by_name[name]
        settling = self._bury(topic, shard, min(surplus, messages))
        if settling is None:
            self._topics.decided(name, size)
            self._topics.release(name, messages, shard)
            raise self._topics.full(name, messages, shard)
        topic.burying[shard] = topic.burying.get(shard, 0) + min(surplus, messages)
        self._transitions.begin(settling)
        return settling

    def decided(self, settling: Settling) -> None:
        """The buried messages are on disk, or stand as they did: `confirm` or `revert` has been said."""
        for moved in settling.moved:
            topic = self._topics.topic(moved.batch.topic)
            if topic is not None:
                topic.burying[moved.batch.shard] -= moved.messages

    def _bury(self, topic: Topic, shard: int, messages: int) -> Settling | None:
        """Begin to end so many of those that are ready in memory, the oldest first; None when they are fewer."""
        chosen: list[tuple[Batch, int, int, int]] = []
        others: list[Entry] = []
        left = messages
        while left > 0 and topic.ready:
            entry = batch_id, lo, hi, attempt = self._window.pop(topic)
            batch = topic.batches.get(batch_id)
            if batch is None:
                continue
            if batch.shard != shard:
                others.append(entry)
                continue
            for start, end in batch.free(lo, hi, attempt):
                taken = min(left, end - start)
                if taken:
                    chosen.append((batch, start, start + taken, attempt))
                    left -= taken
                if taken < end - start:
                    others.append((batch_id, start + taken, end, attempt))
        if left > 0:
            others += [(batch.batch_id, lo, hi, attempt) for batch, lo, hi, attempt in chosen]
        for entry in others:
            self._window.push(topic, entry)
        if left > 0:
            return None
        settling = Settling()
        for batch, lo, hi, attempt in chosen:
            for start, end, tried in list(batch.retrying(lo, hi)):
                error = next((one.reason for one in reversed(tried.history) if one.reason), "")
                ending = self._endings.dead(DeadReason.OVERFLOW, attempt - 1, error)
                batch.move(settling, start, end, Verb.END, attempt=attempt - 1, ending=ending)
        return settling
