"""A directory in memory: the port's promises in their shortest form.

Never for a deployment: every change is lost at the end of the process.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar, cast

from snavio.adapters.embedded.directory_rows import record_line
from snavio.clock import Clock
from snavio.domain.directory import Change, DirectoryView, Draft, V, Value, is_over
from snavio.errors import NotFound
from snavio.ports.changelog import Dump
from snavio.ports.directory import ChangePage, Decision, Written
from snavio.ports.survey import Survey

T = TypeVar("T")


class MemoryDirectory:
    """A `Directory` whose steps are atomic because they never await; also the `View` of its own present."""

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._epoch = secrets.randbits(63) | 1
        self._state: dict[tuple[str, ...], Change] = {}
        self._log: list[Change] = []

    # -- the view ----------------------------------------------------------------------------------------

    def find(self, kind: type[V], *key: str) -> V | None:
        change = self._state.get((kind.kind, *key))
        return None if change is None else cast("V", change.value)

    def version_of(self, kind: type[Value], *key: str) -> int:
        change = self._state.get((kind.kind, *key))
        return 0 if change is None else change.version

    def count(self, kind: type[Value], parent: str) -> int:
        return len(self._values(kind, lambda value: value.parent == parent))

    def under(
        self, kind: type[V], parent: str, *, limit: int, after: tuple[str, ...] = (), ending: str = ""
    ) -> Sequence[V]:
        return self._values(
            kind,
            lambda value: value.parent == parent and value.key > after and ending in ("", value.key[-1]),
        )[:limit]

    def beginning(self, kind: type[V], *prefix: str, limit: int, after: tuple[str, ...] = ()) -> Sequence[V]:
        return self._values(kind, lambda value: value.key[: len(prefix)] == prefix and value.key > after)[
            :limit
        ]

    def ended(self, now_unix_ns: int, *, limit: int) -> Sequence[Value]:
        return [change.value for change in self._state.values() if is_over(change.value, now_unix_ns)][:limit]

    def _values(self, kind: type[V], fits: Callable[[Value], bool]) -> list[V]:
        found = [change.value for change in self._state.values() if type(change.value) is kind]
        return cast("list[V]", sorted(filter(fits, found), key=lambda value: value.key))

    # -- the directory -----------------------------------------------------------------------------------

    async def write(self, decide: Decision, *, actor: str, reason: str = "") -> Written:
        decided = decide(self)
        at_ns = max(self._clock.unix_ns(), self._log[-1].at_ns if self._log else 0)
        before = len(self._log)
        for draft in (decided,) if isinstance(decided, Draft) else decided:
            self._put(draft, at_ns=at_ns, actor=actor, reason=reason)
        return Written(len(self._log), changed=len(self._log) > before)

    def _put(self, draft: Draft, *, at_ns: int, actor: str, reason: str) -> None:
        place = (draft.value.kind, *draft.value.key)
        stood = self._state.get(place)
        before = stood.value if stood is not None else None
        if before is None if draft.deleted else before == draft.value:
            return
        value = before if draft.deleted and before is not None else draft.value
        change = Change(len(self._log) + 1, at_ns, actor, value, draft.deleted, reason, before)
        self._log.append(change)
        if draft.deleted:
            del self._state[place]
        else:
            self._state[place] = change

    async def read(self, question: Callable[[DirectoryView], T]) -> tuple[int, T]:
        return len(self._log), question(self)

    async def changes(self, *, since: int, epoch: int, limit: int) -> ChangePage:
        if epoch == self._epoch and since > len(self._log):
            await self.renew_epoch()
        start = since if epoch == self._epoch else 0
        page = tuple(self._log[start : start + limit])
        more = start + len(page) < len(self._log)
        return ChangePage(self._epoch, page[-1].version if more else len(self._log), page, more)

    @property
    def standing(self) -> tuple[int, int]:
        return self._epoch, len(self._log)

    async def survey(self, take: Callable[[Survey], T]) -> T:
        # Copied first: the thread must not see what is written meanwhile.
        moment = _MemorySurvey(len(self._log), self._epoch, tuple(self._state.values()))
        return await asyncio.to_thread(take, moment)

    async def renew_epoch(self) -> int:
        self._epoch = secrets.randbits(63) | 1
        return self._epoch

    async def close(self) -> None:
        """Nothing to release."""

    # -- the log -----------------------------------------------------------------------------------------

    async def version_at(self, at_ns: int) -> int:
        return max((change.version for change in self._log if change.at_ns <= at_ns), default=0)

    async def history(self, kind: type[Value], key: Sequence[str], *, limit: int) -> tuple[Change, ...]:
        found = [c for c in self._log if type(c.value) is kind and c.value.key == tuple(key)]
        return tuple(found[-limit:])

    async def standing_at(
        self, kind: type[Value], *, version: int, parent: str, ending: str = "", limit: int
    ) -> tuple[Change, ...]:
        log = [c for c in self._log[:version] if type(c.value) is kind and c.value.parent == parent]
        fitting = [c for c in _standing(log) if not ending or c.value.key[-1] == ending]
        return tuple(fitting[:limit])

    async def between(self, kind: type[Value], *, after: int, upto: int, limit: int) -> tuple[Change, ...]:
        return tuple([c for c in self._log[after:upto] if type(c.value) is kind][:limit])

    async def dump(self, *, version: int, after: str, limit: int, kind: type[Value] | None = None) -> Dump:
        if version > len(self._log):
            raise NotFound(f"There is no version {version} yet.", reason="unknown-version")
        version = version or len(self._log)
        rest = [
            change
            for change in _standing(self._log[:version])
            if _place(change) > after and kind in (None, type(change.value))
        ]
        end = _place(rest[limit - 1]) if len(rest) > limit else ""
        return Dump(self._epoch, version, tuple(rest[:limit]), end)


@dataclass(frozen=True, slots=True)
class _MemorySurvey:
    """A `Survey` of a copy."""

    version: int
    epoch: int
    state: tuple[Change, ...]

    def records(self, kind: type[Value]) -> Iterator[bytes]:
        found = [change for change in self.state if type(change.value) is kind]
        yield b"\n".join(record_line(c.value, c.version) for c in sorted(found, key=_place))


def _place(change: Change) -> str:
    return "\n".join((change.value.kind, *change.value.key))


def _standing(log: Iterable[Change]) -> list[Change]:
    newest = {_place(change): change for change in log}
    return [newest[place] for place in sorted(newest) if not newest[place].deleted]
