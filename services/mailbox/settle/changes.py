"""Operators' changes of messages: cancel, resume, requeue, purge; pure rules over one batch.

Never touches a message whose last change is still on its way to disk, and never one in a state that the operation
does not name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from itertools import pairwise
from types import MappingProxyType
from typing import Final

from services.mailbox.state.batch import Batch
from services.mailbox.state.leases import RangeLease
from services.mailbox.state.ranges import ones, zeros
from services.mailbox.state.settling import FIRST, Retrying, Settling
from services.mailbox.state.states import Verb
from snavio.domain.message import KEPT_STATES, MessageEnding, MessageState


class MessageOperation(IntEnum):
    """The numbers of `snavio.v1.Operation`."""

    CANCEL = 1
    RESUME = 2
    REQUEUE = 3
    PURGE = 4


CHANGES: Final[Mapping[MessageOperation, frozenset[MessageState]]] = MappingProxyType(
    {
        MessageOperation.CANCEL: frozenset({MessageState.READY, MessageState.INFLIGHT, MessageState.DEAD}),
        MessageOperation.RESUME: frozenset({MessageState.CANCELED}),
        MessageOperation.REQUEUE: frozenset(
            {MessageState.READY, MessageState.DELIVERED, MessageState.DEAD, MessageState.CANCELED}
        ),
        MessageOperation.PURGE: KEPT_STATES,
    }
)
"""The states that each operation changes."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Messages `lo .. hi` of a batch that are in one state and have one past."""

    lo: int
    hi: int
    state: MessageState
    retrying: Retrying = FIRST
    """Of those that have not ended."""
    lease: RangeLease | None = None
    ending: MessageEnding | None = None
    """Of those that ended, and not by an acknowledgement."""


@dataclass(frozen=True, slots=True)
class Order:
    """An operation with the states that it is to find, and what to write down."""

    operation: MessageOperation
    states: frozenset[MessageState]
    reason: str = ""
    at_unix_ns: int = 0
    age_ns: int = 0

    @property
    def changing(self) -> frozenset[MessageState]:
        """The states whose messages are changed."""
        return self.states & CHANGES[self.operation]


def stretches(batch: Batch) -> Iterator[Stretch]:
    """The whole batch, in order; what is on its way to disk is where it is going."""
    marks = sorted(
        {0, batch.count}
        | {edge for lo, hi, _ in batch.held for edge in (lo, hi)}
        | {edge for lo, hi, _ in batch.ends for edge in (lo, hi)}
        | {edge for lo, hi, _ in batch.retries for edge in (lo, hi)}
        | {edge for lo, hi in zeros(batch.settled, batch.count) for edge in (lo, hi)}
    )
    for lo, hi in pairwise(marks):
        if batch.settled >> lo & 1:
            found = batch.ends.over(lo, hi)
            ending = found[0][2] if found else None
            yield Stretch(lo, hi, ending.state if ending else MessageState.DELIVERED, ending=ending)
            continue
        held, tried = batch.held.over(lo, hi), batch.retries.over(lo, hi)
        lease = held[0][2] if held else None
        retrying = tried[0][2] if tried else FIRST
        yield Stretch(lo, hi, MessageState.INFLIGHT if lease else MessageState.READY, retrying, lease)


def select(batch: Batch, states: frozenset[MessageState], bits: int) -> int:
    """Bitmap of those of `bits` that are in one of `states`."""
    found = 0
    for one in stretches(batch):
        if one.state in states:
            found |= ones(one.lo, one.hi)
    return found & bits


def changeable(batch: Batch, order: Order, bits: int) -> int:
    """Bitmap of those of `bits` that the order would change now."""
    moving = 0
    for lo, hi, _ in batch.settling:
        moving |= ones(lo, hi)
    found = select(batch, order.changing, bits) & ~moving
    if order.operation is MessageOperation.REQUEUE:
        # A message that is ready now has nothing to gain; one that waits, or was tried, has.
        for one in stretches(batch):
            if one.state is MessageState.READY and one.retrying.fresh:
                found &= ~ones(one.lo, one.hi)
    return found


def change(settling: Settling, batch: Batch, order: Order, bits: int) -> int:
    """Begin to change what of `bits` the order changes; how many messages."""
    chosen = changeable(batch, order, bits)
    before = len(settling.moved)
    for one in list(stretches(batch)):
        outside = ~chosen & ones(0, batch.count) | ones(0, one.lo)
        for lo, hi in zeros(outside, one.hi):
            _move(settling, batch, order, replace(one, lo=lo, hi=hi))
    return sum(moved.messages for moved in settling.moved[before:])


def _move(settling: Settling, batch: Batch, order: Order, one: Stretch) -> None:
    lo, hi = one.lo, one.hi
    if order.operation is MessageOperation.RESUME:
        reached = max(1, one.ending.attempt) if one.ending else 1
        batch.move(settling, lo, hi, Verb.REVIVE, attempt=reached, age_ns=order.age_ns)
    elif order.operation is MessageOperation.REQUEUE:
        verb = Verb.RETRY if one.state is MessageState.READY else Verb.REVIVE
        batch.move(settling, lo, hi, verb, attempt=1, age_ns=order.age_ns)
    else:
        purged = order.operation is MessageOperation.PURGE
        # The delivery that a lease stands for has begun, and counts.
        attempt = one.lease.attempt + 1 if one.lease else one.retrying.attempt
        ending = MessageEnding(
            MessageState.PURGED if purged else MessageState.CANCELED,
            0 if purged else attempt,
            "" if purged else order.reason,
            at_unix_ns=order.at_unix_ns,
            age_ns=order.age_ns,
        )
        batch.move(settling, lo, hi, Verb.END, attempt=attempt, lease=one.lease, ending=ending)
