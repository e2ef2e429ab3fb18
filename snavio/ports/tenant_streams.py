"""Signed streams of tenants, with the drafts that wait to be sealed; one owner.

Every method is one step: it happened in whole and is durable when it returns, or nothing of it happened. Never appends
an envelope that does not continue the chain as it is stored, and never gives a number twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from snavio.domain.stream import Position


@dataclass(frozen=True, slots=True)
class NewDraft:
    """Events of one tenant, source and family that become one envelope, with the envelope's id."""

    envelope_id: str
    tenant: str
    source: str
    family: str
    cut_unix_ns: int
    events: int
    body: bytes = field(repr=False)
    """A JSON array in its canonical form."""


@dataclass(frozen=True, slots=True)
class StoredDraft:
    """A stored draft; ids grow in the order in which drafts were cut."""

    draft_id: int
    new: NewDraft


@dataclass(frozen=True, slots=True)
class StreamEntry:
    """One sealed envelope, in the bytes that readers get."""

    seq: int
    envelope_id: str
    source: str
    family: str
    events: int
    issued_unix_ns: int
    digest: str
    """`prev` of the next one."""
    body: bytes = field(repr=False)
    """The whole envelope, canonical JSON."""


@dataclass(frozen=True, slots=True)
class StreamPart:
    """Consecutive entries, filtered; `through` is the last number that was looked at."""

    entries: tuple[StreamEntry, ...]
    through: int


@dataclass(frozen=True, slots=True)
class Pruned:
    """Entries that were removed."""

    entries: int = 0
    early: int = 0
    """Of them, those that were removed for their bytes, before their time."""


@dataclass(frozen=True, slots=True)
class SpokenOf:
    """A tenant that a life of a process has spoken of; a gap in that life may be one in the tenant's events."""

    instance: str
    epoch: int
    tenant: str


@dataclass(frozen=True, slots=True)
class DroppedDrafts:
    """Drafts of one tenant that were never sealed."""

    events: int
    oldest_unix_ns: int


class TenantStreams(Protocol):
    """See the module. Unavailable when it cannot be written now, IntegrityError when it is damaged."""

    async def cut_through(self) -> int:
        """The outbox's page up to which drafts were cut; 0 before the first."""
        ...

    async def cut(self, page_id: int, drafts: Sequence[NewDraft], *, spoken: Sequence[SpokenOf] = ()) -> None:
        """Store drafts together with the page up to which they were cut. Conflict if the page is not a newer one."""
        ...

    async def rewind(self) -> None:
        """Cut from the first page on: the outbox is another one, whose pages were never cut."""
        ...

    async def spoken_of(self, instance: str, epoch: int) -> list[str]:
        """Tenants that this life of a process has spoken of."""
        ...

    async def waiting(self) -> Mapping[str, int]:
        """Number of drafts by tenant."""
        ...

    async def drafts(self, tenant: str, *, limit: int, max_bytes: int) -> list[StoredDraft]:
        """The tenant's oldest drafts, in order; at least one if there is one."""
        ...

    async def drop_drafts(
        self, *, cut_before_unix_ns: int, max_bytes_per_tenant: int
    ) -> Mapping[str, DroppedDrafts]:
        """Forget drafts that are too old, and the oldest of tenants with too many bytes of them; by tenant."""
        ...

    async def tenants(self) -> list[str]:
        """Every tenant with a stream."""
        ...

    async def window(self, tenant: str) -> Position:
        """The readable part; a tenant without a stream gets the position at which it will begin."""
        ...

    async def append(
        self,
        tenant: str,
        *,
        expected: Position,
        fence: int,
        drafts: Sequence[int],
        entries: Sequence[StreamEntry],
    ) -> Position:
        """Append and forget the drafts, if the stream is still where `expected` says and no newer fence was seen.

        Conflict `moved-on` otherwise; nothing has happened then.
        """
        ...

    async def read(
        self,
        tenant: str,
        *,
        after: int,
        sources: frozenset[str] = frozenset(),
        families: frozenset[str] = frozenset(),
        limit: int,
        max_bytes: int,
    ) -> StreamPart:
        """Entries after a number, of these sources and families; empty sets choose all. At least one, if there is one.

        OutsideReplayWindow when entries after that number have been removed.
        """
        ...

    async def begin_epoch(self, tenant: str) -> Position:
        """Begin a new epoch of one stream, without the entries of the one before: nobody can verify them any more."""
        ...

    async def counts(self, tenant: str) -> Mapping[str, int]:
        """Number of events that are kept, by family."""
        ...

    async def queued_through(self) -> Mapping[str, int]:
        """By tenant, the number up to which envelopes were sent to its queue."""
        ...

    async def queued(self, tenant: str, seq: int) -> None:
        """Remember that envelopes up to `seq` were sent; an older number sends those after it again."""
        ...

    async def prune(self, *, issued_before_unix_ns: int, max_bytes_per_tenant: int) -> Pruned:
        """Remove entries that are too old, and the oldest of streams that are too large."""
        ...

    async def close(self) -> None:
        """Release it."""
        ...
