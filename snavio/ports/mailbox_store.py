"""Store of the mailbox: batches of messages, their progress, and the sends that were stored.

A store never answers before what it was given is as durable as it will ever be, and never hands out bytes
that are not the ones it was given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from snavio.domain.message import History, MessageEnding, MessageState
from snavio.errors import IntegrityError

MAX_ROW_MESSAGES = 1000
"""Messages in one stored batch; below 1024, the stride of message ids."""
ROW_BYTES = 256
"""Of a batch, beside its messages. They count as stored bytes: else the smallest messages would cost nothing."""
RECALL_SLOTS = 64
"""Last sends of a sender that are recognised when they come again."""
RESEND_NS = 15 * 60 * 1_000_000_000
"""For a sender after its last send: far beyond the longest budget, which ends every resend."""
MAX_SENDERS = 4096
"""Senders that are remembered at once; a process that restarts every second all the time has 900."""


KEY_BYTES = 32
"""Of `Keys.columns`, for one message."""


@dataclass(frozen=True, slots=True)
class Keys:
    """Keys that make a message the same as an earlier one, for `window_ms` after that was stored.

    `columns` has KEY_BYTES for each: see ReplayWindow.
    """

    columns: bytes
    window_ms: int


@dataclass(frozen=True, slots=True)
class NewBatch:
    """Up to MAX_ROW_MESSAGES messages of one topic; `runs` is looked into only to leave duplicates out."""

    topic: str
    count: int
    runs: bytes
    keys: Keys | None = None
    """Without them every message is stored, however often it comes."""
    first: int = 0
    """Number of its first command in the send; for the codes of a batch with keys."""
    shard: int = 0
    """Of its topic; the messages of a batch share one."""
    not_before_unix_ns: int = 0
    """Not to be delivered earlier; 0 at once."""
    groups: bytes = b""
    """Four bytes a message, little-endian: twice the number of its group in the send, and 1 more where duplicates
    refuse the group. Of a group that is refused nothing is stored. Empty where every message is for itself."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Which send this is: the `seq`-th of one process of one peer.

    `epoch` is another one after every restart; a clock that was set back may make it smaller.
    """

    peer: str
    epoch: int
    seq: int


@dataclass(frozen=True, slots=True)
class Send:
    """Batches that came together. `codes` is the outcome to recall, a byte per command; empty if all are in."""

    origin: Origin | None
    """None for a send that is not recognised as a whole when it comes again."""
    codes: bytes
    batches: tuple[NewBatch, ...]


@dataclass(frozen=True, slots=True)
class Recognised:
    """A send without its duplicates."""

    send: Send
    retry_after_ms: int = 0
    """Hint for what is SATURATED."""
    findings: tuple[tuple[NewBatch, bytes, bytes], ...] = ()
    """(as it came, its codes, where the first ones are) of every batch with keys; see ReplayWindow.sift."""
    began_ns: int = 0
    began_unix_ns: int = 0
    """Beginning of this life of the store, on the clock of `findings` and on the wall clock."""

    def stored_unix_ns(self, at_ns: int) -> int:
        """Wall-clock time of one of `findings`; 0 for an earlier life of the store, which nobody measured."""
        if self.began_ns and at_ns <= self.began_ns:
            return 0
        return self.began_unix_ns + at_ns - self.began_ns


@dataclass(frozen=True, slots=True)
class Retry:
    """Messages `first .. end` of a batch have `attempt` before them, and not before that time."""

    first: int
    end: int
    attempt: int
    not_before_unix_ns: int = 0
    history: History = ()
    revived_age_ns: int = 0
    """The store's age when they came back from an end; 0 if they never did."""


@dataclass(frozen=True, slots=True)
class EndedMessages:
    """Messages `first .. end` of a batch are settled, and not by an acknowledgement."""

    first: int
    end: int
    ending: MessageEnding


Position = tuple[int, int]
"""Batch, and message within it."""


@dataclass(frozen=True, slots=True)
class OrderMark:
    """The order of one shard's first deliveries as far as it is known, so that a restart can judge it."""

    shard: int
    deepest: int = 0
    """The most messages that were handed out before an older one."""
    beyond: int = 0
    """Messages that were seen although an older response may not have been: from `oldest` on, up to `newest`."""
    oldest: Position = (0, 0)
    newest: Position = (0, 0)


@dataclass(frozen=True, slots=True)
class Progress:
    """The whole state of one batch. Bit i of `settled`: message i is not to be delivered (any more).

    `retries` and `ends` are in order of `first`. Settled messages without an end were acknowledged.
    """

    topic: str
    batch_id: int
    count: int
    settled: int
    retries: tuple[Retry, ...] = ()
    ends: tuple[EndedMessages, ...] = ()
    retain: bool = False
    """Keep the batch when all of it was acknowledged, until a later progress says `forget`."""
    age_ns: int = 0
    """The store's age when the last of its messages was settled; 0 before."""
    forget: bool = False
    """Remove the batch, whatever is in it."""
    order: OrderMark | None = None
    """To be kept for the batch's topic and shard, whatever becomes of the batch; the last one holds."""

    @property
    def complete(self) -> bool:
        """Nothing is left to deliver."""
        return self.settled == (1 << self.count) - 1

    def counted(self, state: MessageState) -> int:
        """Number of messages that ended in this state."""
        return sum(one.end - one.first for one in self.ends if one.ending.state is state)

    @property
    def delivered(self) -> int:
        """Number of messages that were acknowledged."""
        return self.settled.bit_count() - sum(one.end - one.first for one in self.ends)

    @property
    def gone(self) -> bool:
        """The batch is to be removed: nothing is left to deliver, nothing is dead or canceled, nothing is retained."""
        if self.forget:
            return True
        kept = (self.retain and self.delivered) or any(
            one.ending.state is not MessageState.PURGED for one in self.ends
        )
        return self.complete and not kept


@dataclass(frozen=True, slots=True)
class BatchRecord:
    """A stored batch without its bytes."""

    batch_id: int
    count: int
    size: int
    stored_unix_ns: int
    settled: int = 0
    retries: tuple[Retry, ...] = ()
    ends: tuple[EndedMessages, ...] = ()
    age_ns: int = 0
    shard: int = 0
    stored_age_ns: int = 0
    """The store's age when it was stored; of what came before ages were kept, never less than it was."""

    @classmethod
    def fresh(
        cls, batch_id: int, batch: NewBatch, stored_unix_ns: int, stored_age_ns: int = 0
    ) -> BatchRecord:
        """Of a batch that was just stored."""
        retries = (Retry(0, batch.count, 1, batch.not_before_unix_ns),) if batch.not_before_unix_ns else ()
        size = len(batch.runs)
        return cls(
            batch_id,
            batch.count,
            size,
            stored_unix_ns,
            retries=retries,
            shard=batch.shard,
            stored_age_ns=stored_age_ns,
        )


@dataclass(frozen=True, slots=True)
class Retained:
    """A batch that is kept although nothing of it is ready, leased, dead or canceled."""

    batch_id: int
    count: int
    delivered: int
    age_ns: int
    """The store's age when it ended."""


@dataclass(frozen=True, slots=True)
class TopicRecord:
    """A topic in the store: its messages by state, its highest batch, and its oldest one with unsettled messages."""

    topic: str
    messages: int
    last_batch_id: int
    oldest_unix_ns: int
    first_batch_id: int = 0
    """The oldest with unsettled messages; 0 when there is none."""
    delivered: int = 0
    dead: int = 0
    canceled: int = 0
    shards: tuple[tuple[int, int], ...] = ()
    """(shard, unsettled messages), of shards that have some."""
    order: tuple[OrderMark, ...] = ()

    def with_more(self, other: TopicRecord) -> TopicRecord:
        """Of both; `other` is of the same topic and of other shards."""
        return TopicRecord(
            self.topic,
            self.messages + other.messages,
            max(self.last_batch_id, other.last_batch_id),
            min(filter(None, (self.oldest_unix_ns, other.oldest_unix_ns)), default=0),
            min(filter(None, (self.first_batch_id, other.first_batch_id)), default=0),
            self.delivered + other.delivered,
            self.dead + other.dead,
            self.canceled + other.canceled,
            self.shards + other.shards,
            self.order,
        )


class Damaged(IntegrityError):
    """Some messages of a batch are not what was stored; the others are.

    `runs` can be delivered from, but for the messages whose bits are set in `damaged`: they are empty commands.
    """

    def __init__(self, message: str, *, runs: bytes, damaged: int) -> None:
        super().__init__(message)
        self.runs = runs
        self.damaged = damaged


class Recall(Enum):
    """Why a send's outcome cannot be told from the record."""

    NEW = "new"
    """Never stored: store it."""
    FORGOTTEN = "forgotten"
    """Too old to tell: a later send of the same process took its place in the record."""
    FULL = "full"
    """Not stored, and there is no place to remember its sender: refuse it, or its resend would be stored twice."""


class MailboxStore(Protocol):
    """See the module. `commit` and `checkpoint` are called by one thread each, the rest by any."""

    def begin_epoch(self, now_unix_ns: int) -> int:
        """A boot epoch larger than every earlier one of this store; durable. Called once, at the start."""
        ...

    @property
    def replay_secret(self) -> bytes:
        """Secret under which the columns of Keys are fingerprinted; the same for as long as the store exists."""
        ...

    def recognise(self, sends: Sequence[Send], *, now_unix_ns: int) -> list[Recognised]:
        """Cut batches with keys down to what is new; codes say what became of the rest.

        DUPLICATE, CONFLICT for another payload, or SATURATED when the keys take up all their room; codes are
        then complete. Of a group with a message that is refused nothing is new: what would have been has code 0, and
        leaves no key. Of two messages with one key in one call, the second is the duplicate. Remembers nothing
        itself: call it on the committing thread, and `commit` with what it returned right after it.
        """
        ...

    def commit(
        self, sends: Sequence[Send], progress: Sequence[Progress], *, now_unix_ns: int, age_ns: int = 0
    ) -> list[tuple[int, ...]]:
        """Store all of it or nothing; durable when this returns. The ids of each send's batches, in order.

        `age_ns` is the store's age, kept with every new batch.

        Ids grow in the order given and are never used twice, not even after the batch is gone. Of several
        `progress` for one batch the last one holds; one for a batch that is gone does nothing. A batch whose
        progress is `gone` is removed. Keys are durable with their batch and outlive it: nothing but the end of
        their window, counted while the store is open, makes them forgotten.
        Saturated when there is no space: nothing was stored. Unavailable when the disk failed: readers see
        nothing of it, but a crash may still bring it to light. Reads go on in both cases.
        """
        ...

    def recall(self, origin: Origin) -> bytes | Recall:
        """The `codes` committed with this very send, or why not. Does not block."""
        ...

    def read(self, topic: str, batch_id: int) -> bytes:
        """The batch's runs. NotFound when it is gone; Damaged, or another IntegrityError, when damaged."""
        ...

    def pending(self, topic: str, *, after: int, limit: int) -> list[BatchRecord]:
        """The first `limit` unsettled batches of a topic with ids above `after`, in order of id."""
        ...

    def records(
        self,
        topic: str,
        *,
        after: int,
        limit: int,
        holding: MessageState | None = None,
        newest_first: bool = False,
    ) -> list[BatchRecord]:
        """The first `limit` batches with ids above `after`, settled or not, in order of id; with `newest_first` the
        last ones with ids below `after`, the newest first.

        With `holding`, only those with a message in that state; READY and INFLIGHT both mean unsettled.
        """
        ...

    def record(self, topic: str, batch_id: int) -> BatchRecord | None:
        """One batch; None when it is gone."""
        ...

    def retained(self, topic: str, *, limit: int) -> list[Retained]:
        """The `limit` batches that ended longest ago, of those with acknowledged messages alone."""
        ...

    def rewrite_batch(self, topic: str, batch_id: int, *, keep: int) -> int | None:
        """Let go of the bytes of all messages of a batch whose bits in `keep` are not set; its size now.

        The others keep their numbers. None when it is gone, or something else was done to it meanwhile, or there
        is no room to write it anew. IntegrityError when it is damaged. Durable. Any thread.
        """
        ...

    def age(self) -> int:
        """The time that this store has been open in all its lives, in nanoseconds, as last noted."""
        ...

    def note_age(self, age_ns: int) -> None:
        """Keep the age; it never gets less. Durable. Any thread."""
        ...

    def topics(self) -> list[TopicRecord]:
        """Every topic that held a batch and was not dropped. Costs a pass over all records: for the start."""
        ...

    def drop_topics(self, names: Sequence[str]) -> list[str]:
        """Forget those of the topics that hold no batch; which were forgotten. Durable. Any thread.

        A topic exists again as soon as a batch of it is committed.
        """
        ...

    def stored_bytes(self) -> Mapping[str, int]:
        """Bytes of batches by tenant, which is the first part of a topic's name, as of the last commit.

        Changes with later commits: copy it before going through it. Does not block.
        """
        ...

    def first(self, key: bytes, *, now_unix_ns: int) -> tuple[int, int] | None:
        """The first message with the key of a column, while it is known: its id, and when it was stored; 0 if that was
        in an earlier life of the store. Does not block.
        """
        ...

    def gauges(self) -> dict[str, float]:
        """`replay_keys`, `replay_keys_capacity` and `store_bytes`. Does not block."""
        ...

    def checkpoint(self) -> bool:
        """Housekeeping that must not hold up `commit` for long; called often. Whether there may be more to do."""
        ...

    def close(self) -> None:
        """Nothing is called after this."""
        ...
