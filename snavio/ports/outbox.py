"""What Relay has received and not yet archived, and how far it has come; one owner.

Every method is one step: it happened in whole and is durable when it returns, or nothing of it happened. Unavailable
when the store cannot be written now, IntegrityError when it is damaged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class JournalLife:
    """One life of one writing process: everything up to `durable_seq` was received. Closed ones take no more."""

    instance: str
    epoch: int
    service: str
    durable_seq: int
    closed: bool = False
    heard_unix_ns: int = field(default=0, compare=False)
    """When its writer was last heard of, to a day."""


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
        """How many events it holds."""
        return self.last_seq - self.first_seq + 1


@dataclass(frozen=True, slots=True)
class PlannedExport:
    """An export whose number, time and pages are fixed, so that every attempt at it writes the same files."""

    number: int
    exported_unix_ns: int
    folder: str
    pages: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RevokedRight:
    """A right that was taken away by change `version` of the directory."""

    source: str
    target: str
    name: str
    version: int
    revoked_unix_ns: int


@dataclass(frozen=True, slots=True)
class Cursor:
    """How far the directory's changes are known."""

    epoch: int = 0
    version: int = 0


class Outbox(Protocol):
    """See the module."""

    async def lives(self) -> list[JournalLife]:
        """Every life that is remembered."""
        ...

    async def forget_lives(self, *, before_unix_ns: int) -> int:
        """Forget lives that were last heard of before then, unless pages of them are left; how many."""
        ...

    async def pages(self) -> list[PageInfo]:
        """Every page that is not archived, oldest first."""
        ...

    async def store(self, pages: Sequence[NewPage], lives: Sequence[JournalLife]) -> list[int]:
        """Add pages, and set lives to what they are now; the pages' ids. Saturated when the outbox is full."""
        ...

    async def bodies(self, page_ids: Sequence[int]) -> list[bytes]:
        """The pages' bytes, in that order; IntegrityError when one is damaged."""
        ...

    async def plan(self, exported_unix_ns: int, folder: str, pages: Sequence[int]) -> PlannedExport:
        """Fix an export under the next number."""
        ...

    async def planned(self) -> list[PlannedExport]:
        """Exports that were fixed and not finished, by number."""
        ...

    async def finish(
        self, number: int, *, newest_unix_ns: int, pages: Sequence[NewPage], lives: Sequence[JournalLife]
    ) -> list[int]:
        """The export is in the archive: forget its pages, and store what it gave rise to; the new pages' ids."""
        ...

    async def number(self) -> int:
        """The next number of an export, used up; for what is written outside of a planned export."""
        ...

    async def hours(self) -> list[str]:
        """Folders that were exported to and are not compacted."""
        ...

    async def compacted(self, folder: str) -> None:
        """That folder needs no more compaction."""
        ...

    async def cursor(self) -> Cursor:
        """Where to go on reading the directory's changes."""
        ...

    async def graves(self) -> list[RevokedRight]:
        """Rights that were taken away, as far as they are remembered."""
        ...

    async def bury(
        self,
        graves: Sequence[RevokedRight],
        cursor: Cursor,
        *,
        forget_before_unix_ns: int,
        pages: Sequence[NewPage] = (),
        lives: Sequence[JournalLife] = (),
    ) -> list[int]:
        """Remember rights that were taken away, and how far the changes are known; with what that gave rise to."""
        ...

    async def exported_until_unix_ns(self) -> int:
        """Time of the newest event in the archive; 0 while it is empty."""
        ...

    async def close(self) -> None:
        """Release it."""
        ...
