"""Queries on the directory's past, from the log of every change.

Lines are never edited and never deleted: the answer about a moment never changes. Times in the log never step back, so
every moment belongs to exactly one version.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from snavio.domain.directory import Change, Value


@dataclass(frozen=True, slots=True)
class Dump:
    """A page of the directory at `version`, ordered by kind and key."""

    directory_epoch: int
    version: int
    entries: tuple[Change, ...]
    """Each with the version, time and author of the change that wrote it."""
    after: str
    """Start of the next page; empty at the end."""


class Changelog(Protocol):
    """See the module. Every method answers from one moment."""

    async def version_at(self, at_ns: int) -> int:
        """The directory's version at that time; 0 before the first change."""
        ...

    async def history(self, kind: type[Value], key: Sequence[str], *, limit: int) -> tuple[Change, ...]:
        """The newest `limit` changes of one entry, oldest of them first."""
        ...

    async def standing_at(
        self, kind: type[Value], *, version: int, parent: str, ending: str = "", limit: int
    ) -> tuple[Change, ...]:
        """The entries of a kind under `parent` in force at `version`, as the changes that wrote them, by key.

        `ending`, if given, is the required last part of their keys.
        """
        ...

    async def between(self, kind: type[Value], *, after: int, upto: int, limit: int) -> tuple[Change, ...]:
        """Changes of a kind with `after` < version ≤ `upto`, in order."""
        ...

    async def dump(self, *, version: int, after: str, limit: int, kind: type[Value] | None = None) -> Dump:
        """A page of everything, or of one kind, in force at `version`; 0 means now.

        The same version gives the same pages whatever is written meanwhile. NotFound for a version in the future.
        """
        ...
