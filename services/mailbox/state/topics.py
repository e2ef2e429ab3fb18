"""One topic's state and numbers, and the bounds that hold for all of them.

Values only; the rules that move them are in `delivery`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from services.mailbox.state.batch import Batch
from services.mailbox.state.leases import RangeLease
from services.mailbox.state.ordering import Ordering
from snavio.domain.message import MessageState

MILLISECOND = 1_000_000


@dataclass(frozen=True, slots=True)
class Limits:
    """Every bound of the delivery."""

    topics: int = 10_000
    topic_messages: int = 1_000_000
    """Ready and leased messages of one shard of a topic."""
    inflight_messages: int = 200_000
    """Leased messages of all topics."""
    tenant_inflight_messages: int = 100_000
    """Leased messages of all topics of one tenant: one that never acknowledges must not use up what all share."""
    window_batches: int = 1024
    """Ready stretches of one topic in memory; more waits on disk."""
    resident_batches: int = 65_536
    """Batches of one topic in memory in any state. Beyond it, delayed messages hold up newer ones."""
    topic_spans: int = 100_000
    """Stretches of tried messages of one topic in memory, at some 500 bytes. Beyond it, they hold up newer ones."""
    all_spans: int = 400_000
    """Of all topics; beyond it, tenants with more than an equal part are held up."""
    max_delay_ms: int = 43_200_000
    retry_after_ms: int = 250
    """Hint for senders to a full topic."""


@dataclass(slots=True)
class Topic:
    """One topic's state. `messages` counts what is reserved, on disk and in memory, and not settled."""

    name: str
    messages: int = 0
    stored: bool = False
    """The store knows it. Until its first batch is stored, it only takes up a place in the table."""
    kept_until_mono_ns: int = 0
    """It is not let go before, however empty: it was used lately, or keys of its messages are still known."""
    inflight: int = 0
    settling: int = 0
    last_id: int = 0
    loaded_through: int = 0
    oldest_unix_ns: int = 0
    oldest_age_ns: int = 0
    """Nothing that waits to expire was stored when the store was younger, as of the last look at its retention."""
    version: int = 0
    """Grows when a batch changes that memory may be about to load: what the disk said before is out of date."""
    spans: int = 0
    """Stretches of tried messages in memory."""
    delivered: int = 0
    """Acknowledged and not yet removed."""
    dead: int = 0
    canceled: int = 0
    stored_total: int = 0
    """Taken in since the start."""
    acked_total: int = 0
    batches: dict[int, Batch] = field(default_factory=dict)
    adopted: dict[int, Batch] = field(default_factory=dict)
    """Batches that are not to be delivered from, while a change of them is on its way to disk."""
    ready: list[tuple[int, int, int, int]] = field(default_factory=list)
    """A heap of (batch_id, lo, hi, attempt). An entry may be out of date: ask the batch."""
    died: dict[str, int] = field(default_factory=dict)
    """Messages that went to the DLQ since the start, by reason."""
    by_shard: dict[int, int] = field(default_factory=dict)
    """`messages` by shard."""
    burying: dict[int, int] = field(default_factory=dict)
    """Of these, by shard, the messages that are on their way to the DLQ to make room."""
    ordering: Ordering = field(default_factory=Ordering)

    def add(self, messages: int, shard: int) -> None:
        """So many more are reserved, or are to be delivered; or fewer."""
        self.messages += messages
        self.by_shard[shard] = self.by_shard.get(shard, 0) + messages

    pruned: dict[str, int] = field(default_factory=dict)
    """Messages that retention removed since the start, by what they were and why."""
    lost: int = 0
    """Messages that were to be delivered and were gone from the disk. More than none is a fault of ours."""

    @property
    def tenant(self) -> str:
        """Tenant that owns the topic."""
        return self.name.partition("/")[0]

    def counted(self, state: MessageState) -> int:
        """Number of messages that ended so, and are kept."""
        return {
            MessageState.DELIVERED: self.delivered,
            MessageState.DEAD: self.dead,
            MessageState.CANCELED: self.canceled,
        }[state]

    def count(self, state: MessageState, messages: int) -> None:
        """Add to the number of those that ended so."""
        if state is MessageState.DELIVERED:
            self.delivered += messages
        elif state is MessageState.DEAD:
            self.dead += messages
        elif state is MessageState.CANCELED:
            self.canceled += messages


@dataclass(frozen=True, slots=True)
class Shortage:
    """A question to the disk: the first `limit` batches after `after`; `last_id` is the newest known."""

    topic: str
    after: int
    limit: int
    last_id: int
    version: int = 0


@dataclass(frozen=True, slots=True)
class Leased:
    """Messages to hand out: `first .. first+count` of a batch."""

    lease: RangeLease
    first: int
    count: int

    @property
    def whole(self) -> bool:
        """It is the whole batch, whose stored bytes serve as they are."""
        return self.count == self.lease.batch.count

    def left(self) -> list[Leased]:
        """The parts of these that the lease still holds, after some were taken from it."""
        held = self.lease.batch.held.over(self.first, self.first + self.count)
        return [Leased(self.lease, lo, hi - lo) for lo, hi, lease in held if lease is self.lease]


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
    oldest_age_ms: int
    delivered: int = 0
    dead: int = 0
    canceled: int = 0
    capacity: int = 0
    died: Mapping[str, int] = field(default_factory=dict)
    shards: Mapping[int, int] = field(default_factory=dict)
    """Ready and leased messages by shard."""
    reorder_depth: Mapping[int, int] = field(default_factory=dict)
    """By shard: the most messages that overtook an older one on their first way out."""
    stored_total: int = 0
    """Taken in since the start."""
    acked_total: int = 0
    oldest_ready_unix_ns: int = 0
    """When the oldest that may be received now was stored; 0 when there is none."""
    earliest_run_unix_ns: int = 0
    """Since when, or from when on, the message that waits longest may be received; 0 when none waits."""
    when_full: str = ""
