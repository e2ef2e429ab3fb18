"""What the mailbox stands on: batches of messages, what is settled of them, and which sends were stored.

A store never answers before what it was given is as durable as it will ever be, and never hands out bytes
that are not the ones it was given.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

MAX_ROW_MESSAGES = 1000
"""Messages in one stored batch; below 1024, the stride of message ids."""
RECALL_SLOTS = 64
"""How many of a peer's last sends are recognised when they come again."""


@dataclass(frozen=True, slots=True)
class NewBatch:
    """Up to MAX_ROW_MESSAGES messages of one topic; `runs` is never looked into."""

    topic: str
    count: int
    runs: bytes


@dataclass(frozen=True, slots=True)
class Origin:
    """Which send this is: the `seq`-th of one process of one peer. `epoch` grows with every restart of it."""

    peer: str
    epoch: int
    seq: int


@dataclass(frozen=True, slots=True)
class Send:
    """Batches that came together. `codes` is the outcome to recall, a byte per command; empty if all are in."""

    origin: Origin
    codes: bytes
    batches: tuple[NewBatch, ...]


@dataclass(frozen=True, slots=True)
class Retry:
    """Messages `first .. end` of a batch have `attempt` before them, and not before that time."""

    first: int
    end: int
    attempt: int
    not_before_unix_ns: int = 0


@dataclass(frozen=True, slots=True)
class Progress:
    """The whole state of one batch. Bit i of `settled`: message i is done. `retries` are in order of `first`.

    A batch of which every message is settled is removed.
    """

    topic: str
    batch_id: int
    count: int
    settled: int
    retries: tuple[Retry, ...] = ()

    @property
    def complete(self) -> bool:
        """Nothing is left to deliver."""
        return self.settled == (1 << self.count) - 1


@dataclass(frozen=True, slots=True)
class BatchRecord:
    """A stored batch without its bytes."""

    batch_id: int
    count: int
    size: int
    stored_unix_ns: int
    settled: int = 0
    retries: tuple[Retry, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicRecord:
    """What a topic holds: unsettled messages, its highest batch, and when its oldest batch was stored."""

    topic: str
    messages: int
    last_batch_id: int
    oldest_unix_ns: int


class Recall(Enum):
    """Why a send's outcome cannot be told from the record."""

    NEW = "new"
    """Never stored: store it."""
    FORGOTTEN = "forgotten"
    """Too old to tell: a later send of this peer, or of its successor, took its place in the record."""


class MailboxStore(Protocol):
    """See the module. `commit` and `checkpoint` are called by one thread each, the rest by any."""

    def begin_epoch(self, now_unix_ns: int) -> int:
        """A boot epoch larger than every earlier one of this store; durable. Called once, at the start."""
        ...

    def commit(
        self, sends: Sequence[Send], progress: Sequence[Progress], *, now_unix_ns: int
    ) -> list[tuple[int, ...]]:
        """Store all of it or nothing; durable when this returns. The ids of each send's batches, in order.

        Ids grow in the order given and are never used twice, not even after the batch is gone. Of several
        `progress` for one batch the last one holds; one for a batch that is gone does nothing.
        Saturated when there is no space: nothing was stored. Unavailable when the disk failed: readers see
        nothing of it, but a crash may still bring it to light. Reads go on in both cases.
        """
        ...

    def recall(self, origin: Origin) -> bytes | Recall:
        """The `codes` committed with this very send, or why not. Does not block."""
        ...

    def read(self, topic: str, batch_id: int) -> bytes:
        """The batch's runs. NotFound when it is gone; IntegrityError when they are not what was stored."""
        ...

    def pending(self, topic: str, *, after: int, limit: int) -> list[BatchRecord]:
        """The first `limit` unsettled batches of a topic with ids above `after`, in order of id."""
        ...

    def topics(self) -> list[TopicRecord]:
        """Every topic that ever held a batch. Costs a pass over all records: for the start."""
        ...

    def checkpoint(self) -> bool:
        """Housekeeping that must not hold up `commit` for long; called often. Whether there may be more to do."""
        ...

    def close(self) -> None:
        """Nothing is called after this."""
        ...
