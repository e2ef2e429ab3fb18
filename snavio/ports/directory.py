"""Registry's directory: its present state and the log of every change that led to it.

State and log change together or not at all; a change's version is its place in the log and only rises.
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
"""Returns the drafts to write, given the current view; several drafts are written all or not at all."""


@dataclass(frozen=True, slots=True)
class Written:
    """The result of a write."""

    version: int
    """Of the directory after it."""
    changed: bool
    """False when the directory had the same value before; nothing is logged then."""


@dataclass(frozen=True, slots=True)
class ChangePage:
    """Changes in order; `version` is the reader's version after applying them."""

    directory_epoch: int
    version: int
    changes: tuple[Change, ...]
    more: bool


class Directory(Changelog, Protocol):
    """See the module. After Unavailable a write's outcome is unknown; every write may be repeated."""

    async def write(self, decide: Decision, *, actor: str, reason: str = "") -> Written:
        """Read and write as one step: no other write comes between the view of `decide` and its drafts.

        Every draft that changes something becomes a line of the log, in order, with the same time, author and reason.
        An exception of `decide` is passed on, and nothing is written. Durable when this returns.
        """
        ...

    async def read(self, question: Callable[[DirectoryView], T]) -> tuple[int, T]:
        """The result of a query on one moment, and the version of that moment."""
        ...

    async def changes(self, *, since: int, epoch: int, limit: int) -> ChangePage:
        """Changes after version `since` of epoch `epoch`.

        Another epoch is answered from the start. So is a reader that is ahead of the log: that proves a log that went
        back in time (a restored backup), and the directory takes a new epoch first.
        """
        ...

    @property
    def standing(self) -> tuple[int, int]:
        """Epoch and version of the durable state, from memory: for readers that have all of it already."""
        ...

    async def survey(self, take: Callable[[Survey], T]) -> T:
        """The result of `take` on the directory at one moment, on its own thread: reads and writes go on.

        One at a time. An exception of `take` is passed on.
        """
        ...

    async def renew_epoch(self) -> int:
        """Make every reader start again; for a directory that was restored from a backup."""
        ...

    async def close(self) -> None:
        """Release the store."""
        ...
