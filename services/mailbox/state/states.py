"""States that a message in memory can be in, and every transition between them: the one place that lists both.

Values only; `Batch` makes the transitions, and the tests' twin compares each of them with these tables. A message is
in exactly one state at a time, and never changes it in a step that is not listed here.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from services.mailbox.state.ranges import covered, ones
from snavio.domain.message import MessageState

if TYPE_CHECKING:
    from services.mailbox.state.batch import Batch


class Place(Enum):
    """State of one message of a batch in memory. Messages of other batches are on disk only, or gone."""

    READY = "ready"
    """May be leased."""
    DELAYED = "delayed"
    """Ready from a later time on. Operators see it as ready."""
    LEASED = "leased"
    """Held by one consumer until a deadline. Operators see it as inflight."""
    SETTLING = "settling"
    """Decided about, and the decision is on its way to disk; nothing else can be decided meanwhile."""
    DELIVERED = "delivered"
    DEAD = "dead"
    CANCELED = "canceled"
    PURGED = "purged"


class Verb(Enum):
    """Decision about messages that is on its way to disk."""

    ACK = "ack"
    RETRY = "retry"
    """Ready again under an attempt that is written down."""
    END = "end"
    """Dead, canceled or purged; the ending says which."""
    REVIVE = "revive"
    """Ready again after an end."""


ENDED: Final = frozenset({Place.DELIVERED, Place.DEAD, Place.CANCELED, Place.PURGED})
"""Settled, and never delivered again unless an operator says so."""

DECISIONS: Final[Mapping[Verb, tuple[frozenset[Place], frozenset[Place]]]] = MappingProxyType(
    {
        Verb.ACK: (frozenset({Place.LEASED}), frozenset({Place.DELIVERED})),
        # A nack, or an operator who requeues what is ready or delayed.
        Verb.RETRY: (frozenset({Place.LEASED, Place.READY, Place.DELAYED}), frozenset({Place.READY})),
        # A last attempt, an age, damage, or an operator's cancel and purge; those of what has ended, too.
        Verb.END: (
            frozenset(
                {Place.LEASED, Place.READY, Place.DELAYED, Place.DELIVERED, Place.DEAD, Place.CANCELED}
            ),
            frozenset({Place.DEAD, Place.CANCELED, Place.PURGED}),
        ),
        # An operator's resume and requeue.
        Verb.REVIVE: (
            frozenset({Place.DELIVERED, Place.DEAD, Place.CANCELED}),
            frozenset({Place.READY}),
        ),
    }
)
"""Of each decision: the states that it may take messages from, and those in which they arrive once it is on disk."""

STEPS: Final[Mapping[str, frozenset[tuple[Place, Place]]]] = MappingProxyType(
    {
        "lease": frozenset({(Place.READY, Place.LEASED)}),
        # The response never left the mailbox.
        "give_back": frozenset({(Place.LEASED, Place.READY)}),
        "expire": frozenset({(Place.LEASED, Place.READY)}),
        "delay": frozenset({(Place.READY, Place.DELAYED)}),
        "due": frozenset({(Place.DELAYED, Place.READY)}),
        "move": frozenset((start, Place.SETTLING) for starts, _ in DECISIONS.values() for start in starts),
        "confirm": frozenset((Place.SETTLING, end) for _, ends in DECISIONS.values() for end in ends),
        # The disk refused: back where it was. What was delayed has lost its timer, and is delayed anew.
        "revert": frozenset(
            (Place.SETTLING, Place.READY if start is Place.DELAYED else start)
            for starts, _ in DECISIONS.values()
            for start in starts
        ),
    }
)
"""Transitions of each step of `Batch`, by the method that makes it. There are no others."""

_PLACES: Final = {
    MessageState.DEAD: Place.DEAD,
    MessageState.CANCELED: Place.CANCELED,
    MessageState.PURGED: Place.PURGED,
}


def places(batch: Batch) -> dict[Place, int]:
    """Bitmap of a batch's messages by state."""
    moving = covered(batch.settling, batch.count)
    held, delayed = covered(batch.held, batch.count), covered(batch.delayed, batch.count)
    ended = batch.settled & ~moving
    found = dict.fromkeys(Place, 0) | {Place.SETTLING: moving, Place.LEASED: held, Place.DELAYED: delayed}
    found[Place.READY] = ones(0, batch.count) & ~(moving | held | delayed | ended)
    found[Place.DELIVERED] = ended
    for lo, hi, ending in batch.ends:
        bits = ones(lo, hi) & ended
        found[_PLACES[ending.state]] |= bits
        found[Place.DELIVERED] &= ~bits
    return found
