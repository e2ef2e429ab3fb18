"""A directory in memory: the port's promises in their shortest form.

Never for a deployment: it forgets every change at the end of the process.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import TypeVar, cast

from snavio.clock import Clock
from snavio.domain.directory import Change, Draft, V, Value, View
from snavio.ports.directory import ChangePage, Written

T = TypeVar("T")


class MemoryDirectory:
    """A `Directory` whose steps are atomic because they never await; also the `View` of its own present."""

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._epoch = secrets.randbits(63) | 1
        self._state: dict[tuple[str, ...], Value] = {}
        self._log: list[Change] = []

    def find(self, kind: type[V], *key: str) -> V | None:
        return cast("V | None", self._state.get((kind.kind, *key)))

    def count(self, kind: type[Value], parent: str) -> int:
        return sum(type(value) is kind and value.parent == parent for value in self._state.values())

    async def write(self, decide: Callable[[View], Draft], *, actor: str) -> Written:
        draft = decide(self)
        place = (draft.value.kind, *draft.value.key)
        before = self._state.get(place)
        if before is None if draft.deleted else before == draft.value:
            return Written(len(self._log), changed=False)
        value = before if draft.deleted and before is not None else draft.value
        if draft.deleted:
            del self._state[place]
        else:
            self._state[place] = value
        version = len(self._log) + 1
        self._log.append(Change(version, self._clock.unix_ns(), actor, value, draft.deleted))
        return Written(version, changed=True)

    async def read(self, question: Callable[[View], T]) -> tuple[int, T]:
        return len(self._log), question(self)

    async def changes(self, *, since: int, epoch: int, limit: int) -> ChangePage:
        if epoch == self._epoch and since > len(self._log):
            await self.renew_epoch()
        start = since if epoch == self._epoch else 0
        page = tuple(self._log[start : start + limit])
        more = start + len(page) < len(self._log)
        return ChangePage(self._epoch, page[-1].version if more else len(self._log), page, more)

    async def renew_epoch(self) -> int:
        self._epoch = secrets.randbits(63) | 1
        return self._epoch

    async def close(self) -> None:
        """Nothing to release."""
