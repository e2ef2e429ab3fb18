"""Ends that no consumer asked for: the last attempt, damage, and age.

Never ends a message without a reason in the DLQ.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from services.mailbox.state.batch import Batch
from services.mailbox.state.settling import Settling
from services.mailbox.state.states import Verb
from services.mailbox.state.topic_table import TopicTable
from services.mailbox.state.transitions import Transitions
from snavio.clock import Clock
from snavio.domain.message import DeadReason, MessageEnding, MessageState, bounded


class Endings:
    """Lives on one event loop."""

    def __init__(self, *, topics: TopicTable, transitions: Transitions, clock: Clock) -> None:
        self._topics = topics
        self._transitions = transitions
        self._clock = clock

    def dead(self, reason: str, attempt: int, last_error: str) -> MessageEnding:
        """A record for the DLQ."""
        age_ns = self._transitions.age_ns()
        return MessageEnding(
            MessageState.DEAD, attempt, reason, bounded(last_error), self._clock.unix_ns(), age_ns
        )

    def exhausted(self, batch: Batch, ranges: Iterable[tuple[int, int]], attempt: int) -> None:
        """Send messages that were delivered once too often to the DLQ, with the last word on each."""
        settling = Settling()
        for lo, hi in ranges:
            for start, end, tried in list(batch.retrying(lo, hi)):
                error = next(
                    (one.reason for one in reversed(tried.history) if one.reason), "The lease expired."
                )
                ending = self.dead(DeadReason.MAX_ATTEMPTS, attempt, error)
                batch.move(settling, start, end, Verb.END, attempt=attempt, ending=ending)
        self._transitions.send_off(settling)

    def condemn(self, name: str, batch_id: int, *, error: str, first: int = 0, end: int | None = None) -> int:
        """Send messages that are not what was stored to the DLQ, leased or not; how many.

        For a batch in memory; their bytes stay on disk, where they can be examined.
        """
        topic = self._topics.topic(name)
        batch = topic.batches.get(batch_id) if topic else None
        if batch is None:
            return 0
        settling = Settling()
        last = batch.count if end is None else min(end, batch.count)
        for lo, hi, lease in batch.held.over(first, last):
            ending = self.dead(DeadReason.INTEGRITY, lease.attempt, error)
            batch.move(settling, lo, hi, Verb.END, attempt=lease.attempt, lease=lease, ending=ending)
        for lo, hi, tried in list(batch.open(batch.bound(), first, last)):
            ending = self.dead(DeadReason.INTEGRITY, tried.attempt - 1, error)
            batch.move(settling, lo, hi, Verb.END, attempt=tried.attempt - 1, ending=ending)
        self._transitions.send_off(settling)
        return sum(moved.messages for moved in settling.moved)

    def expire_ready(
        self,
        name: str,
        before_ns: int,
        *,
        limit: int,
        most_messages: float = math.inf,
        reason: str = DeadReason.EXPIRED,
    ) -> int:
        """Send what waits since the store's age was at most `before_ns` to the DLQ, unless it is leased.

        It waits since it was stored, or came back from an end. At most `limit` batches of those in memory, the oldest
        first, and no further one after `most_messages`; of how many something went. For want of room no message more
        than that goes.
        """
        topic = self._topics.topic(name)
        if topic is None:
            return 0
        old = [batch for batch in topic.batches.values() if batch.stored_age_ns <= before_ns]
        settling = Settling()
        seen = 0
        for batch in sorted(old, key=lambda one: one.batch_id):
            if sum(moved.messages for moved in settling.moved) >= most_messages:
                break
            before = len(settling.moved)
            for lo, end, tried in list(batch.open(batch.bound(), 0, batch.count)):
                left = most_messages - sum(moved.messages for moved in settling.moved)
                if tried.revived_age_ns > before_ns:
                    continue
                whole = reason != DeadReason.OVERFLOW or left >= end - lo
                hi = end if whole else lo + max(0, int(left))
                if hi == lo:
                    break
                error = next((one.reason for one in reversed(tried.history) if one.reason), "")
                ending = self.dead(reason, tried.attempt - 1, error)
                batch.move(settling, lo, hi, Verb.END, attempt=tried.attempt - 1, ending=ending)
            # Only those: leased and requeued messages must not take the place of messages to remove.
            seen += len(settling.moved) > before
            if seen >= limit:
                break
        self._transitions.send_off(settling)
        return seen
