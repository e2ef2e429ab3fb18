"""One stored batch in memory: which of its messages are where, and every step that moves them.

Never has a message in two places. What is decided about messages is believed only once it is on disk: until then they
are *settling*, in no other place, and go back to where they were when the disk refuses.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from services.mailbox.state.leases import RangeLease
from services.mailbox.state.ranges import RangeMap, ones, zeros
from services.mailbox.state.settling import FIRST, Moved, Retrying, Settling
from services.mailbox.state.states import Verb
from snavio.domain.message import MAX_HISTORY, Attempt, History, MessageEnding, MessageState
from snavio.ports.mailbox_store import BatchRecord, EndedMessages, Progress, Retry

NOTES_BYTES = 32 << 10
"""Bound on reasons and attempts that one batch remembers. Beyond it, only the last attempt, without words."""
_RECORD_BYTES = 48
_SHORT = 64


class Batch:
    """The state of one stored batch in memory. What is settling counts as done already."""

    __slots__ = (
        "age_ns",
        "batch_id",
        "count",
        "counted",
        "delayed",
        "ends",
        "failures",
        "held",
        "noted",
        "reads_then",
        "retries",
        "settled",
        "settling",
        "shard",
        "size",
        "stored_age_ns",
        "stored_unix_ns",
        "topic",
    )

    def __init__(self, topic: str, record: BatchRecord) -> None:
        self.topic = topic
        self.batch_id = record.batch_id
        self.count = record.count
        self.size = record.size
        self.shard = record.shard
        self.stored_unix_ns = record.stored_unix_ns
        self.stored_age_ns = record.stored_age_ns
        self.settled = record.settled
        self.age_ns = record.age_ns
        self.noted = 0
        self.counted = 0
        """Stretches of tried messages when they were counted last."""
        self.failures = 0
        """Failed reads of its bytes; see `UnreadableBatches`."""
        self.reads_then = 0
        """Number of batches that had been read when that last happened."""
        self.held: RangeMap[RangeLease] = RangeMap()
        self.settling: RangeMap[Settling] = RangeMap()
        self.delayed: RangeMap[int] = RangeMap()
        """Until when, on the monotonic clock."""
        self.retries: RangeMap[Retrying] = RangeMap()
        self.ends: RangeMap[MessageEnding] = RangeMap()
        for retry in record.retries:
            self.retries.put(
                retry.first,
                retry.end,
                Retrying(retry.attempt, retry.not_before_unix_ns, retry.history, retry.revived_age_ns),
            )
            self.noted += _weight(retry.history)
        for one in record.ends:
            self.ends.put(one.first, one.end, one.ending)
            self.noted += _weight(one.ending.history) + len(one.ending.last_error)

    # -- what is where ---------------------------------------------------------------------------------

    def busy(self, lo: int, hi: int) -> int:
        """Bitmap of those of `lo .. hi`, and perhaps others, that are not to be handed out now."""
        bits = self.settled
        for places in (self.held, self.settling, self.delayed):
            if len(places):
                for start, end, _ in places.over(lo, hi):
                    bits |= ones(start, end)
        return bits

    def bound(self) -> int:
        """Bitmap of those that are not ready, now or later: ended, leased or settling."""
        bits = self.settled
        for places in (self.held, self.settling):
            for start, end, _ in places:
                bits |= ones(start, end)
        return bits

    def open(self, busy: int, lo: int, hi: int) -> Iterator[tuple[int, int, Retrying]]:
        """The stretches of `lo .. hi` outside of `busy`, with what they have before them."""
        for start, end in zeros(busy | ones(0, lo), hi):
            yield from self.retrying(start, end)

    def retrying(self, lo: int, hi: int) -> Iterator[tuple[int, int, Retrying]]:
        """Retry state of all of `lo .. hi`, in stretches."""
        position = lo
        for start, end, retrying in self.retries.over(lo, hi):
            if position < start:
                yield position, start, FIRST
            yield start, end, retrying
            position = end
        if position < hi:
            yield position, hi, FIRST

    def free(self, lo: int, hi: int, attempt: int) -> list[tuple[int, int]]:
        """The parts of `lo .. hi`, which was ready at `attempt`, that still are."""
        busy = self.busy(lo, hi) & ones(lo, hi)
        if not busy and not len(self.retries):
            return [(lo, hi)] if attempt == 1 else []
        return [(start, end) for start, end, one in self.open(busy, lo, hi) if one.attempt == attempt]

    @property
    def finished(self) -> bool:
        """Nothing is left to deliver, and the disk knows."""
        return self.settled == ones(0, self.count) and not len(self.settling)

    def progress(self, *, retain: bool) -> Progress:
        """State of the batch for the disk, counting on what is on its way there."""
        return Progress(
            self.topic,
            self.batch_id,
            self.count,
            self.settled,
            tuple(Retry(lo, hi, *retrying) for lo, hi, retrying in self.retries),
            tuple(EndedMessages(lo, hi, ending) for lo, hi, ending in self.ends),
            retain,
            self.age_ns,
        )

    # -- moving ----------------------------------------------------------------------------------------

    def lease(
        self, lo: int, hi: int, *, attempt: int, holder: str, deadline_mono_ns: int, since_mono_ns: int
    ) -> RangeLease:
        """Hold `lo .. hi`, which is ready."""
        visibility_ns = deadline_mono_ns - since_mono_ns
        lease = RangeLease(
            self, lo, hi, attempt, holder, deadline_mono_ns, hi - lo, since_mono_ns, visibility_ns
        )
        self.held.put(lo, hi, lease)
        return lease

    def give_back(self, lease: RangeLease, lo: int, hi: int) -> None:
        """Make `lo .. hi` ready again, which are held under the lease and never left the mailbox."""
        self.held.cut(lo, hi)
        lease.left -= hi - lo

    def delay(self, lo: int, hi: int, until_mono_ns: int) -> None:
        """Keep `lo .. hi` back until then, which are ready."""
        self.delayed.put(lo, hi, until_mono_ns)

    def due(self, lo: int, hi: int) -> None:
        """Make `lo .. hi` ready, whose delay is over."""
        self.delayed.cut(lo, hi)

    def expire(self, lease: RangeLease) -> list[tuple[int, int]]:
        """End the lease; the ranges that were still held under it."""
        ranges = [(lo, hi) for lo, hi, held in self.held.over(lease.first, lease.end) if held is lease]
        for lo, hi in ranges:
            self.held.cut(lo, hi)
        lease.left = 0
        return ranges

    def move(
        self,
        settling: Settling,
        lo: int,
        hi: int,
        verb: Verb,
        *,
        attempt: int,
        lease: RangeLease | None = None,
        ending: MessageEnding | None = None,
        record: Attempt | None = None,
        not_before_unix_ns: int = 0,
        delay_ns: int = 0,
        age_ns: int = 0,
    ) -> Moved:
        """Begin to move `lo .. hi`, which are all ended or all not, and held under `lease` or not at all."""
        bits = ones(lo, hi)
        moved = Moved(
            self,
            lo,
            hi,
            verb,
            attempt,
            lease,
            bool(self.settled & bits),
            self.retries.over(lo, hi) if len(self.retries) else [],
            self.ends.over(lo, hi) if len(self.ends) else [],
            ending,
            delay_ns,
        )
        settling.moved.append(moved)
        if lease is not None:
            self.held.cut(lo, hi)
            lease.left -= hi - lo
        if len(self.delayed):
            self.delayed.cut(lo, hi)
        self.settling.put(lo, hi, settling)
        if verb is Verb.ACK:
            self.settled |= bits
            if moved.retries:
                self.retries.cut(lo, hi)
        elif verb is Verb.RETRY:
            self.retry(lo, hi, attempt, not_before_unix_ns, record)
        elif verb is Verb.END:
            assert ending is not None
            self._end(lo, hi, ending, record)
        else:
            self._revive(lo, hi, attempt, max(1, age_ns))
        return moved

    def retry(self, lo: int, hi: int, attempt: int, not_before_unix_ns: int, record: Attempt | None) -> None:
        """Note which attempt `lo .. hi` has before it."""
        for start, end, before in list(self.retrying(lo, hi)):
            history = self._noted(before.history, record)
            if attempt > 1 or not_before_unix_ns or history or before.revived_age_ns:
                after = Retrying(attempt, not_before_unix_ns, history, before.revived_age_ns)
                self.retries.put(start, end, after)
            else:
                self.retries.cut(start, end)

    def _end(self, lo: int, hi: int, ending: MessageEnding, record: Attempt | None) -> None:
        self.noted += len(ending.last_error)
        if self.noted > NOTES_BYTES:
            ending = replace(ending, last_error=ending.last_error[:_SHORT])
        spans: list[tuple[int, int, MessageEnding]] = []
        if self.settled & ones(lo, hi):
            # Dead and then canceled, say: what was known of its attempts stays known.
            for start, end, was in self.ends.over(lo, hi):
                spans.append((start, end, replace(ending, history=was.history, attempt=was.attempt)))
            self.ends.put(lo, hi, ending)
            if ending.state is MessageState.PURGED:
                return
        else:
            for start, end, tried in list(self.retrying(lo, hi)):
                history = self._noted(tried.history, record)
                spans.append((start, end, replace(ending, history=history)))
            self.settled |= ones(lo, hi)
            self.retries.cut(lo, hi)
        for start, end, known in spans:
            self.ends.put(start, end, known)

    def _revive(self, lo: int, hi: int, attempt: int, age_ns: int) -> None:
        self.retries.put(lo, hi, Retrying(attempt, 0, (), age_ns))
        for start, end, ending in self.ends.over(lo, hi):
            self.retries.put(start, end, Retrying(attempt, 0, ending.history, age_ns))
        self.settled &= ~ones(lo, hi)
        self.ends.cut(lo, hi)

    def _noted(self, history: History, record: Attempt | None) -> History:
        if record is None:
            return history
        self.noted += _weight((record,))
        if self.noted > NOTES_BYTES:
            return (replace(record, reason=""),)
        return (*history, record)[-MAX_HISTORY:]

    def confirm(self, moved: Moved) -> None:
        """The decision is on disk: the messages are where it took them."""
        self.settling.cut(moved.lo, moved.hi)

    def revert(self, moved: Moved) -> None:
        """The disk refused: everything is where it was, and its holder may settle it again."""
        lo, hi = moved.lo, moved.hi
        self.settling.cut(lo, hi)
        self.settled = self.settled | ones(lo, hi) if moved.ended else self.settled & ~ones(lo, hi)
        self.retries.cut(lo, hi)
        self.ends.cut(lo, hi)
        for start, end, retrying in moved.retries:
            self.retries.put(start, end, retrying)
        for start, end, ending in moved.ends:
            self.ends.put(start, end, ending)
        if moved.lease is not None:
            self.held.put(lo, hi, moved.lease)
            moved.lease.left += hi - lo


def _weight(history: History) -> int:
    return sum(_RECORD_BYTES + len(one.reason) for one in history)
