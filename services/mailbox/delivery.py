"""Which messages are ready, which are leased, and when they come back: the mailbox's rules, without any I/O.

A message is in one place at a time: ready, delayed, leased, settling, or on disk only. Oldest first. Only a
window of each topic is in memory; the rest waits on disk. Leases are not written down: a restart ends them
all, and what they held is delivered again under the attempt that was last recorded, with another boot epoch
in its receipts. So an attempt that a crash cut short is not counted, and no receipt from before it is valid.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence

from services.mailbox.leases import GONE, LATE, Batch, Lease, Receipt, Settling
from services.mailbox.timers import Timers
from services.mailbox.topics import MILLISECOND, Counts, Delayed, Leased, Limits, Shortage, Topic
from snavio.clock import Clock
from snavio.ports.mailbox_store import BatchRecord, Progress, TopicRecord


class Delivery:
    """See the module.

    `woken(topic)` is called at every transition to ready, `record(progress)` for what is to reach the disk
    without anybody waiting for it.
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
    ) -> None:
        self.boot_epoch = boot_epoch
        self.limits = limits or Limits()
        self.inflight = 0
        self._clock = clock
        self._woken = woken
        self._record = record
        self._topics = {
            one.topic: Topic(
                one.topic, one.messages, last_id=one.last_batch_id, oldest_unix_ns=one.oldest_unix_ns
            )
            for one in records
        }
        self._timers = Timers()
        self._starved: set[str] = set()
        """Topics with ready messages that the global ceiling kept back."""

    # -- arriving --------------------------------------------------------------------------------------

    def reserve(self, name: str, messages: int) -> bool:
        """Take up room for messages that are about to be stored; False when the topic is full."""
        topic = self._topics.get(name)
        if topic is None:
            if len(self._topics) >= self.limits.topics:
                return False
            topic = self._topics[name] = Topic(name)
        if topic.messages + messages > self.limits.topic_messages:
            return False
        topic.messages += messages
        return True

    def release(self, name: str, messages: int) -> None:
        """They were not stored after all."""
        self._topics[name].messages -= messages

    def stored(self, name: str, record: BatchRecord) -> bool:
        """A reserved batch is on disk. True when it is now in memory too. Called in order of id."""
        topic = self._topics[name]
        caught_up = topic.loaded_through >= topic.last_id
        topic.last_id = max(topic.last_id, record.batch_id)
        if record.batch_id <= topic.loaded_through:
            return record.batch_id in topic.batches  # a refill had seen it first
        loaded = caught_up and self._has_room(topic, self.limits.window_batches)
        if loaded:
            self._load(topic, record)
        self._woken(name)
        return loaded

    def shortage(self, name: str) -> Shortage | None:
        """What to fetch from disk before leasing; None when memory has enough or disk has no more."""
        topic = self._topics.get(name)
        if topic is None or topic.loaded_through >= topic.last_id:
            return None
        if not self._has_room(topic, max(1, self.limits.window_batches // 16)):
            return None
        return Shortage(name, topic.loaded_through, max(1, self.limits.window_batches // 2), topic.last_id)

    def refill(self, asked: Shortage, records: Sequence[BatchRecord]) -> None:
        """What the disk answered to a shortage; ignored when memory has moved on since."""
        topic = self._topics[asked.topic]
        if topic.loaded_through != asked.after:
            return
        for record in records:
            self._load(topic, record)
        if len(records) < asked.limit:
            # Not up to what is stored now: a batch may have been stored after the disk was asked.
            topic.loaded_through = max(topic.loaded_through, asked.last_id)
        if records:
            self._woken(asked.topic)

    def _has_room(self, topic: Topic, ready: int) -> bool:
        return len(topic.ready) < ready and len(topic.batches) < self.limits.resident_batches

    def _load(self, topic: Topic, record: BatchRecord) -> None:
        topic.loaded_through = record.batch_id
        batch = topic.batches[record.batch_id] = Batch(topic.name, record)
        now_unix_ns = self._clock.unix_ns()
        for lo, hi, attempt, not_before_unix_ns in batch.unsettled():
            # The wall clock bridges a restart and nothing else; a jump of it costs at most the longest delay.
            wait_ns = min(not_before_unix_ns - now_unix_ns, self.limits.max_delay_ms * MILLISECOND)
            if not_before_unix_ns and wait_ns > 0:
                self._delay(batch, lo, hi, attempt, wait_ns)
            else:
                heapq.heappush(topic.ready, (batch.batch_id, lo, hi, attempt))

    # -- leasing ---------------------------------------------------------------------------------------

    def lease(
        self, name: str, *, holder: str, max_messages: int, max_bytes: int, visibility_ms: int
    ) -> list[Leased]:
        """Lease ready messages, oldest first; by the average size in their batch they fit into `max_bytes`."""
        self.tick()
        topic = self._topics.get(name)
        if topic is None:
            return []
        deadline = self._clock.mono_ns() + visibility_ms * MILLISECOND
        messages = min(max_messages, self.limits.inflight_messages - self.inflight)
        leased: list[Leased] = []
        while topic.ready and messages > 0:
            batch_id, lo, hi, attempt = heapq.heappop(topic.ready)
            batch = topic.batches.get(batch_id)
            if batch is None:
                continue  # damaged, or found gone
            fitting = max_bytes * batch.count // max(1, batch.size)
            taken = max(0, min(hi - lo, messages, fitting if leased else max(1, fitting)))
            if taken < hi - lo:
                heapq.heappush(topic.ready, (batch_id, lo + taken, hi, attempt))
            if taken == 0:
                break
            lease = batch.lease(lo, lo + taken, attempt=attempt, holder=holder, deadline_mono_ns=deadline)
            self._timers.arm(deadline, lease)
            leased.append(Leased(lease, lo, taken))
            messages -= taken
            max_bytes -= batch.size * taken // batch.count
            self._hold(topic, taken)
        if topic.ready and self.inflight >= self.limits.inflight_messages:
            self._starved.add(name)
        return leased

    def give_back(self, leased: Leased, *, keep: int = 0) -> None:
        """All but the first `keep` messages never left the mailbox: ready again, at the same attempt."""
        lease, batch = leased.lease, leased.lease.batch
        topic = self._topics[batch.topic]
        for lo, hi, held in batch.held.over(leased.first + keep, leased.first + leased.count):
            if held is lease:
                batch.held.cut(lo, hi)
                self._hold(topic, lo - hi)
                lease.left -= hi - lo
                heapq.heappush(topic.ready, (batch.batch_id, lo, hi, lease.attempt))
        self._timers.ended(lease)
        self._woken(batch.topic)

    def withdraw(self, name: str, batch_id: int, *, damaged: bool) -> int:
        """Stop delivering a batch whose bytes cannot be read; how many messages that concerns.

        A damaged one stays on disk, where it can be examined, and is tried again after a restart.
        """
        topic = self._topics[name]
        batch = topic.batches.pop(batch_id, None)
        if batch is None:
            return 0
        held = sum(hi - lo for lo, hi, _ in batch.held)
        self._hold(topic, -held)
        for _, _, lease in batch.held:
            lease.left = 0
            self._timers.ended(lease)
        messages = batch.count - batch.settled.bit_count()
        topic.messages -= messages
        topic.damaged += messages if damaged else 0
        return messages

    # -- settling --------------------------------------------------------------------------------------

    def settle(
        self, name: str, receipts: Iterable[Receipt], *, holder: str, final: bool, delay_ms: int = 0
    ) -> Settling:
        """Take the receipts as acknowledgements (`final`) or as messages given back.

        The caller commits `progress`, then says `confirm` or `revert`; until then nothing is decided.
        """
        self.tick()
        settling = Settling(final, delay_ms * MILLISECOND)
        not_before = self._clock.unix_ns() + settling.delay_ns if delay_ms else 0
        topic = self._topics.get(name)
        touched: dict[int, Batch] = {}
        for receipt in receipts:
            batch = topic.batches.get(receipt.batch_id) if topic else None
            if topic is None or batch is None:
                settling.codes.append(self._unknown(topic, receipt))
                continue
            batch.settle(receipt, holder, settling, not_before_unix_ns=not_before)
            touched[receipt.batch_id] = batch
        for lease, lo, hi in settling.moved:
            assert topic is not None
            self._hold(topic, lo - hi)
            topic.settling += hi - lo
            self._timers.ended(lease)
        moved = {lease.batch.batch_id for lease, _, _ in settling.moved}
        settling.progress = [batch.progress() for batch_id, batch in touched.items() if batch_id in moved]
        return settling

    def confirm(self, settling: Settling) -> list[int]:
        """It is on disk. The batches of which nothing is left."""
        finished: list[int] = []
        for lease, lo, hi in settling.moved:
            batch, topic = lease.batch, self._topics[lease.batch.topic]
            topic.settling -= hi - lo
            known = topic.batches.get(batch.batch_id) is batch
            if batch.confirm(lo, hi, final=settling.final) and known:
                del topic.batches[batch.batch_id]
                finished.append(batch.batch_id)
            if not known:
                continue
            if settling.final:
                topic.messages -= hi - lo
            elif settling.delay_ns:
                self._delay(batch, lo, hi, lease.attempt + 1, settling.delay_ns)
            else:
                self._ready(batch, lo, hi, lease.attempt + 1)
        return finished

    def revert(self, settling: Settling) -> None:
        """The disk refused it: the leases stand as they did."""
        for lease, lo, hi in settling.moved:
            batch, topic = lease.batch, self._topics[lease.batch.topic]
            topic.settling -= hi - lo
            batch.revert(lease, lo, hi, final=settling.final)
            self._hold(topic, hi - lo)
            # Its timer may have fired, or been swept up, while it held nothing.
            self._timers.arm(lease.deadline_mono_ns, lease)

    def extend(self, name: str, receipts: Iterable[Receipt], *, holder: str, visibility_ms: int) -> bytes:
        """Count the visibility of what the caller holds from now on; a code per message."""
        self.tick()
        topic = self._topics.get(name)
        deadline = self._clock.mono_ns() + visibility_ms * MILLISECOND
        codes: list[bytes] = []
        for receipt in receipts:
            batch = topic.batches.get(receipt.batch_id) if topic else None
            if batch is None:
                codes.append(self._unknown(topic, receipt))
                continue
            replaced = [lease for _, _, lease in batch.held.over(receipt.first, receipt.end)]
            answer, leases = batch.extend(receipt, holder, deadline)
            codes += answer
            for lease in leases:
                self._timers.arm(deadline, lease)
            for lease in replaced:
                self._timers.ended(lease)
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
        for due in self._timers.due(self._clock.mono_ns()):
            if isinstance(due, Lease):
                self._expire(due)
                expired[due.batch.batch_id] = due.batch
                continue
            topic = self._topics[due.topic]
            if due.batch_id in topic.batches:
                heapq.heappush(topic.ready, (due.batch_id, due.lo, due.hi, due.attempt))
                self._woken(due.topic)
        for batch in expired.values():
            self._record(batch.progress())

    def _expire(self, lease: Lease) -> None:
        batch, topic = lease.batch, self._topics[lease.batch.topic]
        for lo, hi in batch.expire(lease):
            self._hold(topic, lo - hi)
            batch.retry(lo, hi, lease.attempt + 1, 0)
            self._ready(batch, lo, hi, lease.attempt + 1)

    def _ready(self, batch: Batch, lo: int, hi: int, attempt: int) -> None:
        heapq.heappush(self._topics[batch.topic].ready, (batch.batch_id, lo, hi, attempt))
        self._woken(batch.topic)

    def _delay(self, batch: Batch, lo: int, hi: int, attempt: int, wait_ns: int) -> None:
        self._timers.arm(
            self._clock.mono_ns() + wait_ns, Delayed(batch.topic, batch.batch_id, lo, hi, attempt)
        )

    # -- counting --------------------------------------------------------------------------------------

    def _hold(self, topic: Topic, messages: int) -> None:
        topic.inflight += messages
        self.inflight += messages
        if messages < 0 and self._starved:
            starved, self._starved = self._starved, set()
            for name in starved:
                self._woken(name)

    def counts(self, name: str) -> Counts | None:
        """A topic in numbers; None when there is no such topic."""
        topic = self._topics.get(name)
        if topic is None:
            return None
        inflight = topic.inflight + topic.settling
        oldest = next(iter(topic.batches.values())).stored_unix_ns if topic.batches else topic.oldest_unix_ns
        age_ns = self._clock.unix_ns() - oldest if topic.messages and oldest else 0
        ready = max(0, topic.messages - inflight)
        return Counts(name, ready, inflight, topic.damaged, max(0, age_ns) // MILLISECOND)

    def names(self) -> list[str]:
        """Every topic."""
        return list(self._topics)
