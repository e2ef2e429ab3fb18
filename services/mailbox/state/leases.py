"""Leases on messages of one batch: their holders, and the meaning of a receipt.

A receipt moves messages only for the holder of the lease that it names; anything else changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from services.mailbox.state.ordering import Handout
from services.mailbox.state.ranges import ones
from services.mailbox.state.receipts import DONE, GONE, LATE, Receipt
from services.mailbox.state.settling import Settling

if TYPE_CHECKING:
    from services.mailbox.state.batch import Batch


@dataclass(slots=True, eq=False)
class RangeLease:
    """One caller's right to settle some messages of one batch, until a monotonic deadline."""

    batch: Batch
    first: int
    end: int
    attempt: int
    holder: str
    deadline_mono_ns: int
    left: int
    """Number of messages that are still held under it."""
    since_mono_ns: int = 0
    """When they were received; an extension does not change it."""
    visibility_ns: int = 0
    """As it was asked for, or as an extension from now on asked for it; what is added to the end does not change it."""
    handout: Handout | None = None
    """The response in which they left for the first time; None at a later attempt."""


Take = Callable[[RangeLease, int, int], None]
"""Moves messages `lo .. hi`, which are held under the lease."""


def settle(batch: Batch, receipt: Receipt, holder: str, settling: Settling, take: Take) -> None:
    """`take` what the receipt rightly names, and append a code for every message it names."""
    codes, position, end = settling.codes, receipt.first, min(receipt.end, batch.count)
    for lo, hi, lease in batch.held.over(receipt.first, end):
        _explain(batch, position, lo, settling)
        position = hi
        if lease.holder != holder or lease.attempt != receipt.attempt:
            codes.append(LATE * (hi - lo))
            continue
        codes.append(DONE * (hi - lo))
        take(lease, lo, hi)
    _explain(batch, position, end, settling)
    codes.append(GONE * (receipt.end - max(end, receipt.first)))


def _explain(batch: Batch, lo: int, hi: int, settling: Settling) -> None:
    """Codes for messages that are not leased: ended before, or given back."""
    if lo >= hi:
        return
    for start, end, earlier in batch.settling.over(lo, hi):
        if earlier is not settling and batch.settled & ones(start, end):
            settling.after.add(earlier)
    gone = (batch.settled & ones(lo, hi)) >> lo
    if gone == 0:
        settling.codes.append(LATE * (hi - lo))
    else:
        settling.codes += [GONE if gone >> bit & 1 else LATE for bit in range(hi - lo)]


def extend(
    batch: Batch,
    receipt: Receipt,
    holder: str,
    *,
    now_mono_ns: int,
    visibility_ns: int,
    most: int,
    add: bool = False,
) -> tuple[list[bytes], list[RangeLease]]:
    """Give what the receipt rightly names a new deadline; a code per message, and the new leases.

    It is that long from now, or with `add` from the deadline before. No lease lasts longer than `most` times its
    visibility: what is held for ever is retained for ever.
    """
    asked = Settling()
    leases: list[RangeLease] = []

    def take(lease: RangeLease, lo: int, hi: int) -> None:
        asked_ns = lease.visibility_ns if add else visibility_ns
        longest_ns = max(asked_ns, lease.deadline_mono_ns - lease.since_mono_ns, most * asked_ns)
        wanted = visibility_ns + (lease.deadline_mono_ns if add else now_mono_ns)
        deadline = min(wanted, lease.since_mono_ns + longest_ns)
        lease.left -= hi - lo
        leases.append(
            batch.lease(
                lo,
                hi,
                attempt=lease.attempt,
                holder=holder,
                deadline_mono_ns=deadline,
                since_mono_ns=lease.since_mono_ns,
            )
        )
        leases[-1].handout, leases[-1].visibility_ns = lease.handout, asked_ns

    settle(batch, receipt, holder, asked, take)
    return asked.codes, leases
