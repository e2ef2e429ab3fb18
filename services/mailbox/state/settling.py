"""Decisions about messages between the moment they are made and the moment the disk has them.

Values only; `Batch` moves the messages, and remembers here where they were, for a disk that refuses.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from services.mailbox.state.states import Verb
from snavio.domain.message import History, MessageEnding
from snavio.ports.mailbox_store import Progress

if TYPE_CHECKING:
    from services.mailbox.state.batch import Batch
    from services.mailbox.state.leases import RangeLease


class Retrying(NamedTuple):
    """Retry state of a message range: next attempt, not-before time, history."""

    attempt: int
    not_before_unix_ns: int
    history: History
    revived_age_ns: int = 0
    """The store's age when they came back from an end: from then on they wait anew. 0 if they never did."""

    @property
    def fresh(self) -> bool:
        """They were never tried, and wait for nothing."""
        return self.attempt == 1 and not self.not_before_unix_ns and not self.history


FIRST = Retrying(1, 0, ())


@dataclass(frozen=True, slots=True, eq=False)
class Moved:
    """Messages `lo .. hi` on their way, and where they were before."""

    batch: Batch
    lo: int
    hi: int
    verb: Verb
    attempt: int
    """The one that they have before them afterwards, or ended with."""
    lease: RangeLease | None
    ended: bool
    """They had ended before: acknowledged, or as `ends` says."""
    retries: list[tuple[int, int, Retrying]]
    ends: list[tuple[int, int, MessageEnding]]
    ending: MessageEnding | None = None
    delay_ns: int = 0

    @property
    def messages(self) -> int:
        """Number of messages."""
        return self.hi - self.lo


@dataclass(slots=True, eq=False)
class Settling:
    """Decisions about messages on their way to disk."""

    final: bool = False
    """Acknowledged, as opposed to anything else."""
    moved: list[Moved] = field(default_factory=list)
    codes: list[bytes] = field(default_factory=list)
    progress: list[Progress] = field(default_factory=list)
    after: set[Settling] = field(default_factory=set)
    """Earlier ones that an answer of "gone" relies on: it is true only if they reach the disk."""
