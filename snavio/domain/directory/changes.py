"""What a write leaves: drafts, changes, and the view of the directory that decisions are made from."""

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
    """One entry of the changelog: who, when, what, why, and what stood there before."""

    version: int
    at_ns: int
    actor: str
    value: Value
    """What holds now; of a deleted entry, what held last."""
    deleted: bool
    reason: str = ""
    before: Value | None = None


class DirectoryView(Protocol):
    """The directory at one moment."""

    def find(self, kind: type[V], *key: str) -> V | None:
        """The value with that key."""
        ...

    def version_of(self, kind: type[Value], *key: str) -> int:
        """Version of the change that wrote it; 0 when there is none."""
        ...

    def count(self, kind: type[Value], parent: str) -> int:
        """How many values of a kind stand under `parent`."""
        ...

    def under(self, kind: type[V], parent: str, *, limit: int) -> Sequence[V]:
        """The first `limit` values of a kind under `parent`, by key."""
        ...

    def beginning(self, kind: type[V], *prefix: str, limit: int) -> Sequence[V]:
        """The first `limit` values of a kind whose keys begin with `prefix`, by key."""
        ...

    def ended(self, now_unix_ns: int, *, limit: int) -> Sequence[Value]:
        """Values whose time is over and which still stand in the directory."""
        ...
