"""Leases on one stored batch: who holds which messages, and what an acknowledgement of them means.

A receipt moves messages only for the holder of the lease that it names; anything else changes nothing. What
an acknowledgement says is believed only once it is on disk: until then the messages are *settling*, neither
leased nor ready, and go back to their lease when the disk refuses.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count, groupby
from operator import sub

from services.mailbox.ranges import RangeMap, ones, zeros
from snavio.ports.mailbox_store import BatchRecord, Progress, Retry

DONE, LATE, GONE = b"\x01", b"\x02", b"\x03"
ID_STRIDE = 1024


@dataclass(frozen=True, slots=True)
class Receipt:
    """Messages `first .. end` of one batch as received at `attempt`."""

    batch_id: int
    first: int
    end: int
    attempt: int


def receipts(msg_ids: Sequence[int], attempts: Sequence[int]) -> Iterator[Receipt]:
    """The ranges that the two lists name, in their order; the lists are equally long."""
    position = 0
    for attempt, same in groupby(attempts):
        length = len(list(same))
        part = msg_ids[position : position + length]
        position += length
        start = 0
        # Consecutive ids keep their distance to a counter, so runs are found without a loop in Python.
        for _, run in groupby(map(sub, part, count())):
            end = start + len(list(run))
            first, last = part[start], part[end - 1]
            while first <= last:
                stop = min(last, first | (ID_STRIDE - 1)) + 1
                yield Receipt(first // ID_STRIDE, first % ID_STRIDE, (stop - 1) % ID_STRIDE + 1, attempt)
                first = stop
            start = end


@dataclass(slots=True, eq=False)
class Lease:
    """One caller's right to settle some messages of one batch, until a monotonic deadline."""

    batch: Batch
    first: int
    end: int
    attempt: int
    holder: str
    deadline_mono_ns: int
    left: int
    """How many messages are still held under it."""


@dataclass(slots=True, eq=False)
class Settling:
    """Acknowledgements, or messages given back, on their way to disk."""

    final: bool
    """Acknowledged, as opposed to given back."""
    delay_ns: int = 0
    moved: list[tuple[Lease, int, int]] = field(default_factory=list)
    codes: list[bytes] = field(default_factory=list)
    progress: list[Progress] = field(default_factory=list)
    after: set[Settling] = field(default_factory=set)
    """Earlier ones that an answer of "gone" relies on: it is true only if they reach the disk."""


class Batch:
    """The state of one stored batch in memory."""

    __slots__ = (
        "acking",
        "batch_id",
        "count",
        "held",
        "retries",
        "settled",
        "settling",
        "size",
        "stored_unix_ns",
        "topic",
    )

    def __init__(self, topic: str, record: BatchRecord) -> None:
        self.topic = topic
        self.batch_id = record.batch_id
        self.count = record.count
        self.size = record.size
        self.stored_unix_ns = record.stored_unix_ns
        self.settled = record.settled
        self.acking = 0
        self.held: RangeMap[Lease] = RangeMap()
        self.settling: RangeMap[Settling] = RangeMap()
        self.retries: RangeMap[tuple[int, int]] = RangeMap()
        for retry in record.retries:
            self.retries.put(retry.first, retry.end, (retry.attempt, retry.not_before_unix_ns))

    def unsettled(self) -> Iterator[tuple[int, int, int, int]]:
        """(lo, hi, attempt, not_before_unix_ns) of everything that is to be delivered."""
        for lo, hi in zeros(self.settled, self.count):
            position = lo
            for start, end, (attempt, not_before) in self.retries.over(lo, hi):
                if position < start:
                    yield position, start, 1, 0
                yield start, end, attempt, not_before
                position = end
            if position < hi:
                yield position, hi, 1, 0

    def lease(self, lo: int, hi: int, *, attempt: int, holder: str, deadline_mono_ns: int) -> Lease:
        """Hold `lo .. hi`, which is ready."""
        lease = Lease(self, lo, hi, attempt, holder, deadline_mono_ns, hi - lo)
        self.held.put(lo, hi, lease)
        return lease

    def expire(self, lease: Lease) -> list[tuple[int, int]]:
        """End the lease; the ranges that were still held under it."""
        ranges = [(lo, hi) for lo, hi, held in self.held.over(lease.first, lease.end) if held is lease]
        for lo, hi in ranges:
            self.held.cut(lo, hi)
        lease.left = 0
        return ranges

    def retry(self, lo: int, hi: int, attempt: int, not_before_unix_ns: int) -> None:
        """Note which attempt `lo .. hi` has before it."""
        if attempt > 1:
            self.retries.put(lo, hi, (attempt, not_before_unix_ns))
        else:
            self.retries.cut(lo, hi)

    def settle(self, receipt: Receipt, holder: str, settling: Settling, *, not_before_unix_ns: int) -> None:
        """Move what the receipt rightly names to `settling`, and append a code for every message it names."""
        codes, position, end = settling.codes, receipt.first, min(receipt.end, self.count)
        for lo, hi, lease in self.held.over(receipt.first, end):
            self._explain(position, lo, settling)
            position = hi
            if lease.holder != holder or lease.attempt != receipt.attempt:
                codes.append(LATE * (hi - lo))
                continue
            codes.append(DONE * (hi - lo))
            self.held.cut(lo, hi)
            lease.left -= hi - lo
            self.settling.put(lo, hi, settling)
            settling.moved.append((lease, lo, hi))
            if settling.final:
                self.acking |= ones(lo, hi)
            else:
                self.retry(lo, hi, lease.attempt + 1, not_before_unix_ns)
        self._explain(position, end, settling)
        codes.append(GONE * (receipt.end - max(end, receipt.first)))

    def _explain(self, lo: int, hi: int, settling: Settling) -> None:
        """Codes for messages that nobody holds: acknowledged before, or given back."""
        if lo >= hi:
            return
        for _, _, earlier in self.settling.over(lo, hi):
            if earlier.final and earlier is not settling:
                settling.after.add(earlier)
        gone = ((self.settled | self.acking) & ones(lo, hi)) >> lo
        if gone == 0:
            settling.codes.append(LATE * (hi - lo))
        else:
            settling.codes += [GONE if gone >> bit & 1 else LATE for bit in range(hi - lo)]

    def extend(self, receipt: Receipt, holder: str, deadline_mono_ns: int) -> tuple[list[bytes], list[Lease]]:
        """Give what the receipt rightly names a new deadline; a code per message, and the new leases."""
        asked = Settling(final=False)
        leases: list[Lease] = []
        position, end = receipt.first, min(receipt.end, self.count)
        for lo, hi, lease in self.held.over(receipt.first, end):
            self._explain(position, lo, asked)
            position = hi
            rightful = lease.holder == holder and lease.attempt == receipt.attempt
            asked.codes.append((DONE if rightful else LATE) * (hi - lo))
            if rightful:
                lease.left -= hi - lo
                leases.append(
                    self.lease(
                        lo, hi, attempt=lease.attempt, holder=holder, deadline_mono_ns=deadline_mono_ns
                    )
                )
        self._explain(position, end, asked)
        asked.codes.append(GONE * (receipt.end - max(end, receipt.first)))
        return asked.codes, leases

    def progress(self) -> Progress:
        """What the disk is to say, counting on what is on its way there."""
        settled = self.settled | self.acking
        retries = tuple(Retry(lo, hi, attempt, not_before) for lo, hi, (attempt, not_before) in self.retries)
        return Progress(self.topic, self.batch_id, self.count, settled, retries)

    def confirm(self, lo: int, hi: int, *, final: bool) -> bool:
        """The disk has it. True when nothing of the batch is left."""
        self.settling.cut(lo, hi)
        if final:
            self.acking &= ~ones(lo, hi)
            self.settled |= ones(lo, hi)
            self.retries.cut(lo, hi)
        return self.settled == ones(0, self.count)

    def revert(self, lease: Lease, lo: int, hi: int, *, final: bool) -> None:
        """The disk refused: the caller holds it again, and may say so again."""
        self.settling.cut(lo, hi)
        if final:
            self.acking &= ~ones(lo, hi)
        else:
            self.retry(lo, hi, lease.attempt, 0)
        self.held.put(lo, hi, lease)
        lease.left += hi - lo
