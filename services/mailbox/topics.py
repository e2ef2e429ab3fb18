"""One topic's state and numbers, and the bounds that hold for all of them.

Values only; the rules that move them are in `delivery`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from services.mailbox.leases import Batch, Lease

MILLISECOND = 1_000_000


@dataclass(frozen=True, slots=True)
class Limits:
    """Every bound of the delivery."""

    topics: int = 10_000
    topic_messages: int = 1_000_000
    """Ready and leased messages of one topic."""
    inflight_messages: int = 200_000
    """Leased messages of all topics."""
    window_batches: int = 1024
    """Ready stretches of one topic in memory; more waits on disk."""
    resident_batches: int = 65_536
    """Batches of one topic in memory in any state. Beyond it, delayed messages hold up newer ones."""
    max_delay_ms: int = 43_200_000
    retry_after_ms: int = 250
    """Hint for senders to a full topic."""


@dataclass(slots=True)
class Topic:
    """One topic's state. `messages` counts what is reserved, on disk and in memory, and not settled."""

    name: str
    messages: int = 0
    inflight: int = 0
    settling: int = 0
    damaged: int = 0
    last_id: int = 0
    loaded_through: int = 0
    oldest_unix_ns: int = 0
    batches: dict[int, Batch] = field(default_factory=dict)
    ready: list[tuple[int, int, int, int]] = field(default_factory=list)
    """A heap of (batch_id, lo, hi, attempt)."""


@dataclass(frozen=True, slots=True)
class Shortage:
    """A question to the disk: the first `limit` batches after `after`; `last_id` is the newest known."""

    topic: str
    after: int
    limit: int
    last_id: int


@dataclass(frozen=True, slots=True)
class Leased:
    """Messages to hand out: `first .. first+count` of a batch."""

    lease: Lease
    first: int
    count: int

    @property
    def whole(self) -> bool:
        """It is the whole batch, whose stored bytes serve as they are."""
        return self.count == self.lease.batch.count


@dataclass(frozen=True, slots=True)
class Delayed:
    """Messages that are ready at a later time."""

    topic: str
    batch_id: int
    lo: int
    hi: int
    attempt: int


@dataclass(frozen=True, slots=True)
class Counts:
    """One topic in numbers."""

    topic: str
    ready: int
    inflight: int
    damaged: int
    oldest_age_ms: int
