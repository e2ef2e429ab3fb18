"""A batch of writes before it is made: each decision sees the effect of the earlier ones in the batch.

Never touches the directory underneath; the caller writes the batch or drops it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast

from snavio.domain.directory.changes import DirectoryView, Draft
from snavio.domain.directory.kinds import V, Value

Place = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Difference:
    """The change that a batch makes to one entry."""

    before: Value | None
    after: Value | None
    version: int
    """Version of the entry before; 0 when there was none."""


class Overlay:
    """A `View` of the directory after the drafts."""

    def __init__(self, base: DirectoryView) -> None:
        self._base = base
        self._drafts: dict[Place, Draft] = {}
        # Kept as the batch grows: counting anew for each write would cost the square of the batch.
        self._counts: dict[Place, int] = {}

    def add(self, draft: Draft) -> None:
        """Apply `draft` to the view."""
        value = draft.value
        before = self.find(type(value), *value.key)
        if before is not None:
            self._counts[value.kind, before.parent] = self.count(type(value), before.parent) - 1
        if not draft.deleted:
            self._counts[value.kind, value.parent] = self.count(type(value), value.parent) + 1
        self._drafts[value.kind, *value.key] = draft

    @property
    def drafts(self) -> Sequence[Draft]:
        """The drafts to write, in order; the last one of each entry."""
        return tuple(self._drafts.values())

    def differences(self) -> Sequence[Difference]:
        """The changes that writing the drafts would make; without entries that stay the same."""
        return tuple(self._differences())

    def find(self, kind: type[V], *key: str) -> V | None:
        draft = self._drafts.get((kind.kind, *key))
        if draft is None:
            return self._base.find(kind, *key)
        return None if draft.deleted else cast("V", draft.value)

    def version_of(self, kind: type[Value], *key: str) -> int:
        return self._base.version_of(kind, *key)

    def count(self, kind: type[Value], parent: str) -> int:
        place = (kind.kind, parent)
        if place not in self._counts:
            self._counts[place] = self._base.count(kind, parent)
        return self._counts[place]

    def under(
        self, kind: type[V], parent: str, *, limit: int, after: tuple[str, ...] = (), ending: str = ""
    ) -> Sequence[V]:
        base = self._base.under(kind, parent, limit=limit + len(self._drafts), after=after, ending=ending)
        return self._merged(
            kind,
            base,
            lambda value: value.parent == parent and value.key > after and ending in ("", value.key[-1]),
        )[:limit]

    def beginning(self, kind: type[V], *prefix: str, limit: int, after: tuple[str, ...] = ()) -> Sequence[V]:
        base = self._base.beginning(kind, *prefix, limit=limit + len(self._drafts), after=after)
        return self._merged(
            kind, base, lambda value: value.key[: len(prefix)] == prefix and value.key > after
        )[:limit]

    def ended(self, now_unix_ns: int, *, limit: int) -> Sequence[Value]:
        return self._base.ended(now_unix_ns, limit=limit)

    def _merged(self, kind: type[V], base: Sequence[V], fits: object) -> list[V]:
        assert callable(fits)
        values = {value.key: value for value in base}
        for draft in self._drafts.values():
            if type(draft.value) is kind and fits(draft.value):
                if draft.deleted:
                    values.pop(draft.value.key, None)
                else:
                    values[draft.value.key] = draft.value
        return [values[key] for key in sorted(values)]

    def _differences(self) -> Iterator[Difference]:
        for draft in self._drafts.values():
            kind, key = type(draft.value), draft.value.key
            before = self._base.find(kind, *key)
            after = None if draft.deleted else draft.value
            if before != after:
                yield Difference(before, after, self._base.version_of(kind, *key))
