"""Relay's outbox: received pages that are not archived or not cut by tenant yet, and its progress; one owner.

Every method is one step: it happened in whole and is durable when it returns, or nothing of it happened. Unavailable
when the store cannot be written now, IntegrityError when it is damaged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class JournalLife:
    """One life of one writing process: everything up to `durable_seq` was received. Closed ones accept no more."""

    instance: str
    epoch: int
    service: str
    durable_seq: int
    closed: bool = False
    heard_unix_ns: int = field(default=0, compare=False)
    """Time of its writer's last page, to a day."""


@dataclass(frozen=True, slots=True)
class NewPage:
    """Consecutive events of one life, as block fields of a journal page."""

    instance: str
    epoch: int
    first_seq: int
    last_seq: int
    stored_unix_ns: int
    body: bytes


@dataclass(frozen=True, slots=True)
class PageInfo:
    """A stored page without its bytes; ids grow."""

    page_id: int
    instance: str
    epoch: int
    service: str
    first_seq: int
    last_seq: int
    stored_unix_ns: int
    size: int

    @property
    def events(self) -> int:
        """The number of events in it."""
        return self.last_seq - self.first_seq + 1


@dataclass(frozen=True, slots=True)
class UncutPage:
    """A page for the cutter; `body` is None where it is damaged."""

    page_id: int
    instance: str
    epoch: int
    events: int
    body: bytes | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class PlannedExport:
    """An export with fixed number, time and pages, so that every attempt at it writes the same files."""

    number: int
    exported_unix_ns: int
    folder: str
    pages: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RevokedRight:
    """A right that change `version` of the directory revoked."""

    source: str
    target: str
    name: str
    version: int
    revoked_unix_ns: int


@dataclass(frozen=True, slots=True)
class Cursor:
    """The position up to which the directory's changes are known."""

    epoch: int = 0
    version: int = 0


class Outbox(Protocol):
    """See the module."""

    async def lives(self) -> list[JournalLife]:
        """Every remembered life."""
        ...

    async def forget_lives(self, *, before_unix_ns: int) -> int:
        """Forget lives that were last active before then, unless they have pages left; their number."""
        ...

    async def pages(self) -> list[PageInfo]:
        """Every page that is not archived, oldest first."""
        ...

    async def store(self, pages: Sequence[NewPage], lives: Sequence[JournalLife]) -> list[int]:
        """Add pages, and update lives; the pages' ids. Saturated when the outbox is full."""
        ...

    async def bodies(self, page_ids: Sequence[int]) -> list[bytes]:
        """The pages' bytes, in that order; IntegrityError when one is damaged."""
        ...

    async def plan(self, exported_unix_ns: int, folder: str, pages: Sequence[int]) -> PlannedExport:
        """Plan an export under the next number."""
        ...

    async def planned(self) -> list[PlannedExport]:
        """Planned exports that are not finished, by number."""
        ...

    async def finish(
        self, number: int, *, newest_unix_ns: int, pages: Sequence[NewPage], lives: Sequence[JournalLife]
    ) -> list[int]:
        """The export is in the archive: let go of its pages, and store the events that it caused; the new pages' ids.

        A page is forgotten once it is archived and cut, whichever comes last.
        """
        ...

    async def uncut(self, after: int, *, max_bytes: int) -> list[UncutPage]:
        """Pages after that one, in order of their ids, archived or not: at least one if there is one."""
        ...

    async def forget(self, cut_through: int) -> None:
        """Pages up to that one were cut by tenant: forget those that are archived too."""
        ...

    async def last_page(self) -> int:
        """The newest id that was given; 0 before the first."""
        ...

    async def number(self) -> int:
        """Use up the next export number, for files that are written outside of a planned export."""
        ...

    async def hours(self) -> list[str]:
        """Folders with exports that are not compacted."""
        ...

    async def compacted(self, folder: str) -> None:
        """Mark the folder as compacted."""
        ...

    async def cursor(self) -> Cursor:
        """The position from which to read the directory's changes."""
        ...

    async def revoked_rights(self) -> list[RevokedRight]:
        """Revoked rights, as far as they are remembered."""
        ...

    async def remember_revoked(
        self,
        rights: Sequence[RevokedRight],
        cursor: Cursor,
        *,
        forget_before_unix_ns: int,
        pages: Sequence[NewPage] = (),
        lives: Sequence[JournalLife] = (),
    ) -> list[int]:
        """Store revoked rights and the new position in the changes, with the events that they caused."""
        ...

    async def exported_until_unix_ns(self) -> int:
        """Time of the newest archived event; 0 while the archive is empty."""
        ...

    async def close(self) -> None:
        """Release it."""
        ...
