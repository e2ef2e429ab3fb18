"""Drafts and changes of the directory, and the view of it on which decisions are made. Never does I/O itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from snavio.domain.directory.kinds import V, Value


@dataclass(frozen=True, slots=True)
class Draft:
    """A write that was decided and not yet made."""

    value: Value
    deleted: bool = False


@dataclass(frozen=True, slots=True)
class Change:
    """One entry of the changelog: author, time, value, reason, and the previous value."""

    version: int
    at_ns: int
    actor: str
    value: Value
    """The value after the change; of a deleted entry, its last value."""
    deleted: bool
    reason: str = ""
    before: Value | None = None


class DirectoryView(Protocol):
    """The directory at one moment."""

    def find(self, kind: type[V], *key: str) -> V | None:
        """The value with that key."""
        ...

    def version_of(self, kind: type[Value], *key: str) -> int:
        """Version of the change that wrote the entry; 0 when there is none."""
        ...

    def count(self, kind: type[Value], parent: str) -> int:
        """The number of values of a kind under `parent`."""
        ...

    def under(
        self, kind: type[V], parent: str, *, limit: int, after: tuple[str, ...] = (), ending: str = ""
    ) -> Sequence[V]:
        """The first `limit` values of a kind under `parent`, by key; only those beyond the key `after`, and with
        `ending`, only those whose key has it as the last part."""
        ...

    def beginning(self, kind: type[V], *prefix: str, limit: int, after: tuple[str, ...] = ()) -> Sequence[V]:
        """The first `limit` values of a kind whose keys begin with `prefix`, by key; only those beyond `after`."""
        ...

    def ended(self, now_unix_ns: int, *, limit: int) -> Sequence[Value]:
        """Values that have ended and are still in the directory."""
        ...
