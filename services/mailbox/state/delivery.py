"""Which messages are ready, which are leased, and when they come back: the mailbox's rules, without any I/O.

A message is in one place at a time: ready, delayed, leased, settling, ended, or on disk only. Oldest first.
Leases are not written down: a restart ends them all, and what they held is delivered again under the attempt
that was last recorded, with another boot epoch in its receipts. So an attempt that a crash cut short is not
counted, and no receipt from before it is valid.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import replace

from services.mailbox.state.leases import (
    DONE,
    GONE,
    LATE,
    Batch,
    RangeLease,
    Receipt,
    Settling,
    Verb,
)
from services.mailbox.state.ordering import Handout
from services.mailbox.state.topics import MILLISECOND, Leased, Topic
from services.mailbox.state.transit import Transit
from snavio.domain.message import Attempt, AttemptOutcome, DeadReason, bounded

__all__ = ["DONE", "GONE", "LATE", "Delivery", "NackTerms"]


class NackTerms:
    """How a consumer gives messages back. Without `delay_ms`, after a pause that grows with the attempts."""

    __slots__ = ("dead", "delay_ms", "reason", "unseen")

    def __init__(
        self, *, delay_ms: int | None = None, dead: bool = False, unseen: bool = False, reason: str = ""
    ) -> None:
        self.delay_ms = delay_ms
        self.dead = dead
        self.unseen = unseen
        """Nobody looked at them: the attempt does not count."""
        self.reason = bounded(reason)


class Delivery(Transit):
    """See the module, and `Transit` for what it is built with."""

    # -- leasing ---------------------------------------------------------------------------------------

    def lease(
        self, name: str, *, holder: str, max_messages: int, max_bytes: int, visibility_ms: int
    ) -> list[Leased]:
        """Lease ready messages, oldest first; by the average size in their batch they fit into `max_bytes`."""
        self.tick()
        topic = self._topics.get(name)
        if topic is None:
            return []
        now = self._clock.mono_ns()
        deadline = now + visibility_ms * MILLISECOND
        messages = min(max_messages, self._room(topic))
        leased: list[Leased] = []
        held_up = self.scattered(topic)
        if held_up:
            self._held_up.add(name)
        untried: list[tuple[int, int, int, int]] = []
        while topic.ready and messages > 0:
            entry = batch_id, lo, hi, attempt = heapq.heappop(topic.ready)
            batch = topic.batches.get(batch_id)
            if batch is None:
                continue  # ended, or found gone
            # What came back from an end is remembered by itself as well: only handing it out makes that less.
            if held_up and attempt == 1 and not batch.retries.over(lo, hi):
                untried.append(entry)
                continue
            free = batch.free(lo, hi, attempt)
            if free != [(lo, hi)]:
                for start, end in free:
                    heapq.heappush(topic.ready, (batch_id, start, end, attempt))
                continue
            if attempt > self.policies.of(name).max_attempts:
                self._exhausted(batch, [(lo, hi)], attempt - 1)
                continue
            fitting = max_bytes * batch.count // max(1, batch.size)
            taken = max(0, min(hi - lo, messages, fitting if leased else max(1, fitting)))
            if taken < hi - lo:
                heapq.heappush(topic.ready, (batch_id, lo + taken, hi, attempt))
            if taken == 0:
                break
            lease = batch.lease(
                lo,
                lo + taken,
                attempt=attempt,
                holder=holder,
                deadline_mono_ns=deadline,
                since_mono_ns=now,
            )
            self._timers.arm(deadline, lease)
            leased.append(Leased(lease, lo, taken))
            messages -= taken
            max_bytes -= batch.size * taken // batch.count
            self._hold(topic, taken)
        for entry in untried:
            heapq.heappush(topic.ready, entry)
        if topic.ready and self.ceiling(name) is not None:
            self._starved.add(name)
        return leased

    def asked_again(self, name: str, caller: str) -> None:
        """A caller with one receive at a time asks for more: it has what it was sent before."""
        if (topic := self._topics.get(name)) is not None:
            topic.ordering.asked_again(caller)

    def handed(self, leased: Iterable[Leased], caller: str = "") -> None:
        """What is still held of these is on its way to a consumer, in one response."""
        handouts: dict[int, Handout] = {}
        for one in (part for taken in leased for part in taken.left()):
            lease, batch, end = one.lease, one.lease.batch, one.first + one.count
            if lease.attempt == 1 and not batch.retries.over(one.first, end):
                ordering, shard = self._topics[batch.topic].ordering, batch.shard
                deepest = ordering.deepest.get(shard, 0)
                handouts[shard] = lease.handout = ordering.handed(
                    shard, batch.batch_id, one.first, end, handout=handouts.get(shard), caller=caller
                )
                if ordering.deepest.get(shard, 0) > deepest:
                    # At once: a crash may come before anything else of this topic is written.
                    self._record(replace(self._progress(batch), order=ordering.mark(shard)))

    def give_back(self, leased: Leased, *, keep: int = 0) -> None:
        """All but the first `keep` messages never left the mailbox: ready again, at the same attempt."""
        lease, batch = leased.lease, leased.lease.batch
        topic = self._topics[batch.topic]
        for lo, hi, held in batch.held.over(leased.first + keep, leased.first + leased.count):
            if held is lease:
                batch.held.cut(lo, hi)
                self._hold(topic, lo - hi)
                lease.left -= hi - lo
                if lease.handout is not None:
                    topic.ordering.unsent(lease.handout, hi - lo)
                heapq.heappush(topic.ready, (batch.batch_id, lo, hi, lease.attempt))
        self._timers.ended(lease)
        self._woken(batch.topic)

    def set_aside(self, batch: Batch, delay_ns: int) -> None:
        """Nobody can have the batch's messages for now: what is ready of it is so again later, at the same attempt."""
        for lo, hi, tried in list(batch.open(batch.busy(0, batch.count), 0, batch.count)):
            self._delay(batch, lo, hi, tried.attempt, delay_ns)

    # -- settling --------------------------------------------------------------------------------------

    def settle(
        self,
        name: str,
        receipts: Iterable[Receipt],
        *,
        holder: str,
        final: bool = True,
        nack: NackTerms | None = None,
    ) -> Settling:
        """Take the receipts as acknowledgements (`final`) or as messages given back.

        The caller commits `progress`, then says `confirm` or `revert`; until then nothing is decided.
        """
        self.tick()
        settling = Settling(final)
        topic = self._topics.get(name)
        back = nack or NackTerms(delay_ms=0)

        def take(lease: RangeLease, lo: int, hi: int) -> None:
            if final:
                lease.batch.move(settling, lo, hi, Verb.ACK, attempt=lease.attempt, lease=lease)
            else:
                self._nack(settling, lease, lo, hi, back)

        for receipt in receipts:
            batch = topic.batches.get(receipt.batch_id) if topic else None
            if topic is None or batch is None:
                settling.codes.append(self._unknown(topic, receipt))
            else:
                batch.settle(receipt, holder, settling, take)
        self.begin(settling)
        return settling

    def _nack(self, settling: Settling, lease: RangeLease, lo: int, hi: int, nack: NackTerms) -> None:
        batch, attempt, now = lease.batch, lease.attempt, self._clock.unix_ns()
        policy = self.policies.of(batch.topic)
        if nack.unseen:
            batch.move(settling, lo, hi, Verb.RETRY, attempt=attempt, lease=lease)
            return
        record = Attempt(attempt, now, AttemptOutcome.NACKED, nack.reason)
        if nack.dead or attempt >= policy.max_attempts:
            why = DeadReason.NACK if nack.dead else DeadReason.MAX_ATTEMPTS
            ending = self._dead(why, attempt, nack.reason)
            batch.move(settling, lo, hi, Verb.END, attempt=attempt, lease=lease, ending=ending, record=record)
            return
        # One pause for messages that come back together: a draw for each would take their stretch to pieces.
        delay_ms = policy.backoff_ms(attempt, self._chance) if nack.delay_ms is None else nack.delay_ms
        delay_ns = delay_ms * MILLISECOND
        batch.move(
            settling,
            lo,
            hi,
            Verb.RETRY,
            attempt=attempt + 1,
            lease=lease,
            record=record,
            delay_ns=delay_ns,
            not_before_unix_ns=now + delay_ns if delay_ns else 0,
        )

    def extend(self, name: str, receipts: Iterable[Receipt], *, holder: str, visibility_ms: int) -> bytes:
        """Count the visibility of what the caller holds from now on; a code per message."""
        self.tick()
        topic = self._topics.get(name)
        codes: list[bytes] = []
        for receipt in receipts:
            batch = topic.batches.get(receipt.batch_id) if topic else None
            if batch is None:
                codes.append(self._unknown(topic, receipt))
                continue
            replaced = [lease for _, _, lease in batch.held.over(receipt.first, receipt.end)]
            answer, leases = batch.extend(
                receipt,
                holder,
                now_mono_ns=self._clock.mono_ns(),
                visibility_ns=visibility_ms * MILLISECOND,
                most=self.policies.of(name).inflight_visibilities,
            )
            codes += answer
            for lease in leases:
                self._timers.arm(lease.deadline_mono_ns, lease)
            for lease in replaced:
                self._timers.ended(lease)
                self._heard(lease)
        return b"".join(codes)

    @staticmethod
    def _unknown(topic: Topic | None, receipt: Receipt) -> bytes:
        waiting = topic is not None and topic.loaded_through < receipt.batch_id <= topic.last_id
        return (LATE if waiting else GONE) * (receipt.end - receipt.first)

    # -- time ------------------------------------------------------------------------------------------

    @property
    def expecting(self) -> bool:
        """Whether some lease or delay will end."""
        return len(self._timers) > 0

    def tick(self) -> None:
        """Bring back what is due: expired leases under the next attempt, delayed messages."""
        expired: dict[int, Batch] = {}
        now = self._clock.mono_ns()
        for due in self._timers.due(now):
            if isinstance(due, RangeLease):
                self._expire(due)
                expired[due.batch.batch_id] = due.batch
                continue
            topic = self._topics.get(due.topic)
            batch = topic.batches.get(due.batch_id) if topic is not None else None
            for lo, hi, until in batch.delayed.over(due.lo, due.hi) if batch is not None else ():
                # A later delay of the same messages has a timer of its own.
                if batch is not None and until <= now:
                    batch.delayed.cut(lo, hi)
                    self._ready(batch, lo, hi, due.attempt)
        for batch in expired.values():
            self._settled(batch)
            if not batch.finished:
                self._record(batch.progress(retain=self.policies.of(batch.topic).retains))

    def _expire(self, lease: RangeLease) -> None:
        batch, topic = lease.batch, self._topics[lease.batch.topic]
        self._heard(lease)
        ranges = batch.expire(lease)
        for lo, hi in ranges:
            self._hold(topic, lo - hi)
        record = Attempt(lease.attempt, self._clock.unix_ns(), AttemptOutcome.EXPIRED)
        for lo, hi in ranges:
            # Before an end too: were that refused, a receipt of this attempt would count for the next holder's lease.
            batch.retry(lo, hi, lease.attempt + 1, 0, record)
        if lease.attempt >= self.policies.of(batch.topic).max_attempts:
            self._exhausted(batch, ranges, lease.attempt)
            return
        for lo, hi in ranges:
            self._ready(batch, lo, hi, lease.attempt + 1)

    # -- ending ----------------------------------------------------------------------------------------

    def _exhausted(self, batch: Batch, ranges: Iterable[tuple[int, int]], attempt: int) -> None:
        """Send messages that were delivered once too often to the DLQ, with the last word on each."""
        settling = Settling()
        for lo, hi in ranges:
            for start, end, tried in list(batch.retrying(lo, hi)):
                error = next(
                    (one.reason for one in reversed(tried.history) if one.reason), "The lease expired."
                )
                ending = self._dead(DeadReason.MAX_ATTEMPTS, attempt, error)
                batch.move(settling, start, end, Verb.END, attempt=attempt, ending=ending)
        self._send_off(settling)

    def condemn(self, name: str, batch_id: int, *, error: str, first: int = 0, end: int | None = None) -> int:
        """Messages that are not what was stored go to the DLQ, whoever holds them; how many did.

        For a batch in memory; their bytes stay on disk, where they can be examined.
        """
        topic = self._topics.get(name)
        batch = topic.batches.get(batch_id) if topic else None
        if batch is None:
            return 0
        settling = Settling()
        last = batch.count if end is None else min(end, batch.count)
        for lo, hi, lease in batch.held.over(first, last):
            ending = self._dead(DeadReason.INTEGRITY, lease.attempt, error)
            batch.move(settling, lo, hi, Verb.END, attempt=lease.attempt, lease=lease, ending=ending)
        for lo, hi, tried in list(batch.open(batch.bound(), first, last)):
            ending = self._dead(DeadReason.INTEGRITY, tried.attempt - 1, error)
            batch.move(settling, lo, hi, Verb.END, attempt=tried.attempt - 1, ending=ending)
        self._send_off(settling)
        return sum(moved.messages for moved in settling.moved)

    def expire_ready(self, name: str, before_ns: int, *, limit: int) -> int:
        """Send what waits since the store's age was at most `before_ns` to the DLQ, unless it is leased.

        It waits since it was stored, or came back from an end. At most `limit` batches of those in memory; of how
        many something went.
        """
        topic = self._topics.get(name)
        if topic is None:
            return 0
        old = [batch for batch in topic.batches.values() if batch.stored_age_ns <= before_ns]
        settling = Settling()
        seen = 0
        for batch in sorted(old, key=lambda one: one.batch_id):
            before = len(settling.moved)
            for lo, hi, tried in list(batch.open(batch.bound(), 0, batch.count)):
                if tried.revived_age_ns > before_ns:
                    continue
                error = next((one.reason for one in reversed(tried.history) if one.reason), "")
                ending = self._dead(DeadReason.EXPIRED, tried.attempt - 1, error)
                batch.move(settling, lo, hi, Verb.END, attempt=tried.attempt - 1, ending=ending)
            # Only those: what is leased or waits anew must not take the place of what is to go.
            seen += len(settling.moved) > before
            if seen >= limit:
                break
        self._send_off(settling)
        return seen

    def sweep(self, name: str) -> None:
        """Drop what the line of ready messages says of batches that are not there any more.

        Who receives does so in passing; where nobody does, it would keep the window full.
        """
        topic = self._topics.get(name)
        if topic is not None and any(entry[0] not in topic.batches for entry in topic.ready):
            topic.ready = [entry for entry in topic.ready if entry[0] in topic.batches]
            heapq.heapify(topic.ready)

    def withdraw(self, name: str, batch_id: int) -> int:
        """Forget a batch that is gone from the disk; how many messages that concerns."""
        topic = self._topics[name]
        batch = topic.batches.pop(batch_id, None)
        if batch is None:
            return 0
        self._recount(topic, batch, gone=True)
        self._hold(topic, -sum(hi - lo for lo, hi, _ in batch.held))
        for _, _, lease in batch.held:
            lease.left = 0
            self._timers.ended(lease)
            self._heard(lease)
        messages = batch.count - batch.settled.bit_count()
        topic.add(-messages, batch.shard)
        topic.lost += messages
        return messages
