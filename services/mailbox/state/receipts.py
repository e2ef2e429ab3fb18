"""Receipts: the messages that a consumer settles or keeps, as it names them, and the codes with which it is answered.

Never trusted: a receipt says what its sender believes, and the lease decides.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count, groupby
from operator import sub

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
