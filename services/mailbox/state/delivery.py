"""Rules of delivery: what is leased, to whom and for how long, and when it comes back, without any I/O.

A message is in one state at a time, see `states`. Oldest first.
Leases are not written down: a restart ends them all, and what they held is delivered again under the attempt
that was last recorded, with another boot epoch in its receipts. So an attempt that a crash cut short is not
counted, and no receipt from before it is valid.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import replace

from services.mailbox.state.batch import Batch
from services.mailbox.state.bounds import MailboxShares
from services.mailbox.state.endings import Endings
from services.mailbox.state.inflight import InflightCounts
from services.mailbox.state.leases import RangeLease, extend, settle
from services.mailbox.state.ordering import Handout
from services.mailbox.state.overflow import Overflow
from services.mailbox.state.policy import Policies
from services.mailbox.state.ready_window import Entry, ReadyWindow
from services.mailbox.state.receipts import GONE, LATE, Receipt
from services.mailbox.state.settling import Settling
from services.mailbox.state.states import Verb
from services.mailbox.state.topic_table import TopicTable
from services.mailbox.state.topics import MILLISECOND, Leased, Limits, Topic
from services.mailbox.state.transitions import Transitions
from snavio.clock import Clock
from snavio.domain.message import Attempt, AttemptOutcome, DeadReason, bounded
from snavio.ports.mailbox_store import Progress, TopicRecord


class NackTerms:
    """Terms on which a consumer gives messages back. Without `delay_ms`, after a pause that grows with the attempts."""

    __slots__ = ("dead", "delay_ms", "reason", "unseen")

    def __init__(
        self, *, delay_ms: int | None = None, dead: bool = False, unseen: bool = False, reason: str = ""
    ) -> None:
        self.delay_ms = delay_ms
        self.dead = dead
        self.unseen = unseen
        """The application did not see them: the attempt does not count."""
        self.reason = bounded(reason)


class Delivery:
    """The mailbox's state, composed: topics and their room, the ready window, leased messages, transitions, endings.

    `woken(topic)` is called at every transition to ready; see `Transitions` for `record`, `commit_ended` and `age_ns`.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        boot_epoch: int,
        records: Iterable[TopicRecord],
        woken: Callable[[str], None],
        record: Callable[[Progress], None],
        limits: Limits | None = None,
        shares: MailboxShares | None = None,
        policies: Policies | None = None,
        commit_ended: Callable[[Settling], object] | None = None,
        age_ns: Callable[[], int] = lambda: 0,
        chance: random.Random | None = None,
    ) -> None:
        self.limits = limits or Limits()
        self.shares = shares or MailboxShares.undivided(self.limits)
        self.policies = policies or Policies()
        self.boot_epoch = boot_epoch
        self.topics = TopicTable(
            clock=clock,
            records=records,
            woken=woken,
            limits=self.limits,
            shares=self.shares,
            own_capacity=lambda name: self.policies.of(name).capacity,
            when_full=lambda name: self.policies.of(name).when_full.label,
        )
        self.window = ReadyWindow(self.topics, clock)
        self.inflight = InflightCounts(self.limits, self.topics.wake)
        self.topics.forgotten += [self.window.held_up.discard, self.inflight.forget]
        self.transitions = Transitions(
            topics=self.topics,
            window=self.window,
            inflight=self.inflight,
            policies=self.policies,
            record=record,
            commit_ended=commit_ended,
            age_ns=age_ns,
        )
        self.endings = Endings(topics=self.topics, transitions=self.transitions, clock=clock)
        self.overflow = Overflow(
            topics=self.topics,
            window=self.window,
            endings=self.endings,
            transitions=self.transitions,
            policies=self.policies,
        )
        self._clock = clock
        # Spreads retries; nothing secret depends on it.
        self._chance = chance or random.Random()  # noqa: S311
        for topic in self.topics.by_name.values():
            # Of which keys are known at a start is not counted by topic: as long as any may be.
            self.topics.keep(topic.name, self.policies.of(topic.name).replay_ms * MILLISECOND)

    def kept_back(self, name: str) -> str | None:
        """The ceiling that keeps back messages that are ready; None when there are none, or no ceiling does."""
        topic = self.topics.topic(name)
        return self.inflight.ceiling(name) if topic is not None and topic.ready else None

    def has_more(self, name: str) -> bool:
        """True where another receive of this topic may find something."""
        topic = self.topics.topic(name)
        if topic is None:
            return False
        available = topic.ready and self.inflight.ceiling(name) is None
        return bool(available) or self.window.shortage(name) is not None

    # -- leasing ---------------------------------------------------------------------------------------

    def lease(
        self, name: str, *, holder: str, max_messages: int, max_bytes: int, visibility_ms: int
    ) -> list[Leased]:
        """Lease ready messages, oldest first; by the average size in their batch they fit into `max_bytes`."""
        self.tick()
        topic = self.topics.topic(name)
        if topic is None:
            return []
        now = self._clock.mono_ns()
        deadline = now + visibility_ms * MILLISECOND
        messages = min(max_messages, self.inflight.room(topic))
        leased: list[Leased] = []
        held_up = self.window.scattered(topic)
        if held_up:
            self.window.held_up.add(name)
        untried: list[Entry] = []
        while topic.ready and messages > 0:
            entry = batch_id, lo, hi, attempt = self.window.pop(topic)
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
                    self.window.push(topic, (batch_id, start, end, attempt))
                continue
            if attempt > self.policies.of(name).max_attempts:
                self.endings.exhausted(batch, [(lo, hi)], attempt - 1)
                continue
            fitting = max_bytes * batch.count // max(1, batch.size)
            taken = max(0, min(hi - lo, messages, fitting if leased else max(1, fitting)))
            if taken < hi - lo:
                self.window.push(topic, (batch_id, lo + taken, hi, attempt))
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
            self.window.timers.arm(deadline, lease)
            leased.append(Leased(lease, lo, taken))
            messages -= taken
            max_bytes -= batch.size * taken // batch.count
            self.inflight.hold(topic, taken)
        for entry in untried:
            self.window.push(topic, entry)
        if topic.ready and self.inflight.ceiling(name) is not None:
            self.inflight.starved.add(name)
        return leased

    def asked_again(self, name: str, caller: str) -> None:
        """Note that a caller with one receive at a time asks for more: it has what it was sent before."""
        if (topic := self.topics.topic(name)) is not None:
            topic.ordering.asked_again(caller)

    def handed(self, leased: Iterable[Leased], caller: str = "") -> None:
        """Note that what is still held of these is on its way to a consumer, in one response."""
        handouts: dict[int, Handout] = {}
        for one in (part for taken in leased for part in taken.left()):
            lease, batch, end = one.lease, one.lease.batch, one.first + one.count
            if lease.attempt == 1 and not batch.retries.over(one.first, end):
                ordering, shard = self.topics.by_name[batch.topic].ordering, batch.shard
                deepest = ordering.deepest.get(shard, 0)
                handouts[shard] = lease.handout = ordering.handed(
                    shard, batch.batch_id, one.first, end, handout=handouts.get(shard), caller=caller
                )
                if ordering.deepest.get(shard, 0) > deepest:
                    # At once: a crash may come before anything else of this topic is written.
                    self.transitions.record(
                        replace(self.transitions.progress(batch), order=ordering.mark(shard))
                    )

    def give_back(self, leased: Leased, *, keep: int = 0) -> None:
        """Make all but the first `keep` messages ready again, at the same attempt: they never left the mailbox."""
        lease, batch = leased.lease, leased.lease.batch
        topic = self.topics.by_name[batch.topic]
        for lo, hi, held in batch.held.over(leased.first + keep, leased.first + leased.count):
            if held is lease:
                batch.give_back(lease, lo, hi)
                self.inflight.hold(topic, lo - hi)
                if lease.handout is not None:
                    topic.ordering.unsent(lease.handout, hi - lo)
                self.window.push(topic, (batch.batch_id, lo, hi, lease.attempt))
        self.window.timers.ended(lease)
        self.topics.wake(batch.topic)

    def set_aside(self, batch: Batch, delay_ns: int) -> None:
        """Delay what is ready of a batch whose bytes cannot be read for now, at the same attempt."""
        for lo, hi, tried in list(batch.open(batch.busy(0, batch.count), 0, batch.count)):
            self.window.delay(batch, lo, hi, tried.attempt, delay_ns)

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
        topic = self.topics.topic(name)
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
                settle(batch, receipt, holder, settling, take)
        self.transitions.begin(settling)
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
            ending = self.endings.dead(why, attempt, nack.reason)
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

    def extend(
        self, name: str, receipts: Iterable[Receipt], *, holder: str, visibility_ms: int, add: bool = False
    ) -> bytes:
        """Count the visibility of what the caller holds from now on, or `add` it to the end; a code per message."""
        self.tick()
        topic = self.topics.topic(name)
        codes: list[bytes] = []
        for receipt in receipts:
            batch = topic.batches.get(receipt.batch_id) if topic else None
            if batch is None:
                codes.append(self._unknown(topic, receipt))
                continue
            replaced = [lease for _, _, lease in batch.held.over(receipt.first, receipt.end)]
            answer, leases = extend(
                batch,
                receipt,
                holder,
                now_mono_ns=self._clock.mono_ns(),
                visibility_ns=visibility_ms * MILLISECOND,
                most=self.policies.of(name).inflight_visibilities,
                add=add,
            )
            codes += answer
            for lease in leases:
                self.window.timers.arm(lease.deadline_mono_ns, lease)
            for lease in replaced:
                self.window.timers.ended(lease)
                self.transitions.heard(lease)
        return b"".join(codes)

    @staticmethod
    def _unknown(topic: Topic | None, receipt: Receipt) -> bytes:
        waiting = topic is not None and topic.loaded_through < receipt.batch_id <= topic.last_id
        return (LATE if waiting else GONE) * (receipt.end - receipt.first)

    # -- time ------------------------------------------------------------------------------------------

    @property
    def expecting(self) -> bool:
        """True while some lease or delay will end."""
        return len(self.window.timers) > 0

    def tick(self) -> None:
        """Bring back what is due: expired leases under the next attempt, delayed messages."""
        expired: dict[int, Batch] = {}
        now = self._clock.mono_ns()
        for due in self.window.timers.due(now):
            if isinstance(due, RangeLease):
                self._expire(due)
                expired[due.batch.batch_id] = due.batch
                continue
            self.window.due(due, now)
        for batch in expired.values():
            self.window.settled(batch)
            if not batch.finished:
                self.transitions.record(self.transitions.progress(batch))

    def _expire(self, lease: RangeLease) -> None:
        batch, topic = lease.batch, self.topics.by_name[lease.batch.topic]
        self.transitions.heard(lease)
        ranges = batch.expire(lease)
        for lo, hi in ranges:
            self.inflight.hold(topic, lo - hi)
        record = Attempt(lease.attempt, self._clock.unix_ns(), AttemptOutcome.EXPIRED)
        for lo, hi in ranges:
            # Before an end too: were that refused, a receipt of this attempt would count for the next holder's lease.
            batch.retry(lo, hi, lease.attempt + 1, 0, record)
        if lease.attempt >= self.policies.of(batch.topic).max_attempts:
            self.endings.exhausted(batch, ranges, lease.attempt)
            return
        for lo, hi in ranges:
            self.window.ready(batch, lo, hi, lease.attempt + 1)

    # -- disk ------------------------------------------------------------------------------------------

    def withdraw(self, name: str, batch_id: int) -> int:
        """Forget a batch that is gone from the disk; how many messages that concerns."""
        topic = self.topics.by_name[name]
        batch = topic.batches.pop(batch_id, None)
        if batch is None:
            return 0
        self.window.recount(topic, batch, gone=True)
        self.inflight.hold(topic, -sum(hi - lo for lo, hi, _ in batch.held))
        for _, _, lease in batch.held:
            lease.left = 0
            self.window.timers.ended(lease)
            self.transitions.heard(lease)
        messages = batch.count - batch.settled.bit_count()
        topic.add(-messages, batch.shard)
        topic.lost += messages
        return messages
