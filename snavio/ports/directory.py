"""Where Registry keeps the directory: its present state and the log of every change that led to it.

State and log move together or not at all; a change's version is its place in the log and rises for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from snavio.domain.directory import Change, DirectoryView, Draft
from snavio.ports.changelog import Changelog
from snavio.ports.survey import Survey

T = TypeVar("T")
Decision = Callable[[DirectoryView], Draft | Sequence[Draft]]
"""What shall be written, given what stands there; several drafts are written all or not at all."""


@dataclass(frozen=True, slots=True)
class Written:
    """What became of a write."""

    version: int
    """Of the directory after it."""
    changed: bool
    """False when the directory said the same before; nothing is logged then."""


@dataclass(frozen=True, slots=True)
class ChangePage:
    """Changes in order; `version` is what the reader has after applying them."""

    directory_epoch: int
    version: int
    changes: tuple[Change, ...]
    more: bool


class Directory(Changelog, Protocol):
    """See the module. After Unavailable a write's outcome is unknown; every write may be repeated."""

    async def write(self, decide: Decision, *, actor: str, reason: str = "") -> Written:
        """Look and write as one step: no other write comes between what `decide` saw and what it decided.

        Every draft that changes something becomes a line of the log, in order, with the same time, author and
        reason. What `decide` raises comes out, and nothing is written. Durable when this returns.
        """
        ...

    async def read(self, question: Callable[[DirectoryView], T]) -> tuple[int, T]:
        """The answer from one moment, and the version of that moment."""
        ...

    async def changes(self, *, since: int, epoch: int, limit: int) -> ChangePage:
        """Changes after version `since` of epoch `epoch`.

        Another epoch answers from the start. So does a reader who is ahead of the log: that proves a log that
        went back in time (a restored backup), and the directory takes a new epoch first.
        """
        ...

    @property
    def standing(self) -> tuple[int, int]:
        """Epoch and version of what is durable, from memory: for readers who have it all already."""
        ...

    async def survey(self, take: Callable[[Survey], T]) -> T:
        """What `take` makes of the directory at one moment, on a thread of its own: reads and writes go on.

        One at a time. What `take` raises comes out.
        """
        ...

    async def renew_epoch(self) -> int:
        """Tell every reader to start again; for a directory that came from a backup."""
        ...

    async def close(self) -> None:
        """Release the store."""
        ...
