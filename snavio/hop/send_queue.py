"""What waits for its place in a batch: in the order in which it came, or fairly between sources.

Bounded. Never lets one source keep another from the next batch: between sources, whoever was served least is served
next, and a source whose share is full is refused while the others are not.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from snavio.errors import Saturated
from snavio.ports.queue import BatchPart

RETRY_AFTER_MS = 250
# Sources that are remembered without anything waiting, before those that have nothing to answer for are forgotten.
IDLE_SOURCES = 4096


class SendQueue(Protocol):
    """A line of consignments."""

    size: int
    """Bytes that wait."""
    commands: int
    """Commands that wait."""
    max_bytes: int
    crowded_bytes: int
    """Bytes above which only those are to bring more who have nothing waiting."""
    max_held: int
    """Bytes of one holder, above which it is to bring no more; a line that knows no holders counts all as one's."""

    def held(self, holder: str) -> int:
        """Bytes that `holder` has waiting."""
        ...

    def put(self, batch_part: BatchPart) -> None:
        """Join the line; Saturated when there is no room."""
        ...

    def head(self) -> BatchPart:
        """Who is next; the line must not be empty."""
        ...

    def take(self) -> BatchPart:
        """Take the next out of the line."""
        ...

    def overdue(self, now_mono_ns: int) -> list[BatchPart]:
        """Take out everybody whose time is over."""
        ...

    def __bool__(self) -> bool: ...


class FifoSendQueue:
    """First come, first served."""

    def __init__(self, *, max_bytes: int, what: str) -> None:
        self.size = 0
        self.commands = 0
        self.max_bytes = max_bytes
        self.crowded_bytes = self.max_held = max_bytes // 2
        self._what = what
        self._line: deque[BatchPart] = deque()

    def held(self, _holder: str) -> int:
        """Bytes that wait."""
        return self.size

    def __bool__(self) -> bool:
        return bool(self._line)

    def put(self, batch_part: BatchPart) -> None:
        """Join the end."""
        size = self.size + len(batch_part.freight)
        if size > self.max_bytes:
            raise Saturated(f"{self._what}: too much is waiting.", retry_after_ms=RETRY_AFTER_MS)
        self._line.append(batch_part)
        self.size = size
        self.commands += batch_part.count

    def head(self) -> BatchPart:
        """The one that came first."""
        return self._line[0]

    def take(self) -> BatchPart:
        """The one that came first."""
        first = self._line.popleft()
        self.size -= len(first.freight)
        self.commands -= first.count
        return first

    def overdue(self, now_mono_ns: int) -> list[BatchPart]:
        """Everybody whose time is over."""
        late = [each for each in self._line if each.deadline_mono_ns <= now_mono_ns]
        if late:
            self._line = deque(each for each in self._line if each.deadline_mono_ns > now_mono_ns)
        for each in late:
            self.size -= len(each.freight)
            self.commands -= each.count
        return late


@dataclass(slots=True)
class _Share:
    """What one source has waiting, and how far it has been served."""

    waiting: int = 0
    size: int = 0
    commands: int = 0
    served: int = 0
    """Where its last consignment ends on the common scale of commands."""


@dataclass(frozen=True, slots=True, order=True)
class _Turn:
    start: int
    number: int
    batch_part: BatchPart = field(compare=False)
    source: str = field(compare=False)


class FairSendQueue:
    """Fair queueing by start time: a consignment's turn comes after as many commands as its source has before it.

    A flood of one source thus waits behind itself; a source with little is next, however long the flood's line is.
    """

    def __init__(
        self,
        *,
        max_bytes: int,
        max_source_bytes: int,
        max_source_commands: int,
        source_of: Callable[[BatchPart], str],
        what: str,
    ) -> None:
        self.size = 0
        self.commands = 0
        self.max_bytes = max_bytes
        self.crowded_bytes = self.max_held = max_bytes // 2
        self._max_source_bytes = max_source_bytes
        self._max_source_commands = max_source_commands
        self._source_of = source_of
        self._what = what
        self._turns: list[_Turn] = []
        self._shares: dict[str, _Share] = {}
        self._clock = 0
        self._number = 0
        self.refused = 0
        """Commands that were refused because their source's share was full."""

    def __bool__(self) -> bool:
        return bool(self._turns)

    def held(self, _holder: str) -> int:
        """Bytes that wait."""
        return self.size

    @property
    def sources(self) -> int:
        """Sources that have something waiting."""
        return sum(share.waiting > 0 for share in self._shares.values())

    def put(self, batch_part: BatchPart) -> None:
        """Join the source's own line."""
        source, size = self._source_of(batch_part), len(batch_part.freight)
        share = self._shares.get(source) or _Share()
        over = (
            share.size + size > self._max_source_bytes
            or share.commands + batch_part.count > self._max_source_commands
        )
        # A first one always fits: a share that is smaller than one batch would refuse a source for ever.
        if (share.waiting and over) or self.size + size > self.max_bytes:
            self.refused += batch_part.count
            raise Saturated(f"{self._what}: too much is waiting.", retry_after_ms=RETRY_AFTER_MS)
        self._shares[source] = share
        start = max(self._clock, share.served)
        share.served = start + batch_part.count
        self._count(share, batch_part, +1)
        self._number += 1
        heapq.heappush(self._turns, _Turn(start, self._number, batch_part, source))

    def head(self) -> BatchPart:
        """Of the source that was served least."""
        return self._turns[0].batch_part

    def take(self) -> BatchPart:
        """Of the source that was served least."""
        turn = heapq.heappop(self._turns)
        self._clock = max(self._clock, turn.start)
        self._leave([turn])
        return turn.batch_part

    def overdue(self, now_mono_ns: int) -> list[BatchPart]:
        """Everybody whose time is over."""
        late = [turn for turn in self._turns if turn.batch_part.deadline_mono_ns <= now_mono_ns]
        if late:
            self._turns = [turn for turn in self._turns if turn.batch_part.deadline_mono_ns > now_mono_ns]
            heapq.heapify(self._turns)
        self._leave(late)
        return [turn.batch_part for turn in late]

    def _leave(self, turns: list[_Turn]) -> None:
        for turn in turns:
            share = self._shares[turn.source]
            self._count(share, turn.batch_part, -1)
            if not share.waiting and share.served <= self._clock:
                # It has nothing waiting and nothing to answer for: the next time it begins like anybody.
                del self._shares[turn.source]
        if not self._turns:
            # Nobody waits, so nobody can have been served too much.
            self._shares.clear()
        elif len(self._shares) > IDLE_SOURCES + len(self._turns):
            # Forgiving a source its last consignment is cheaper than remembering everybody who ever came.
            self._shares = {source: each for source, each in self._shares.items() if each.waiting}

    def _count(self, share: _Share, batch_part: BatchPart, sign: int) -> None:
        share.waiting += sign
        size = sign * len(batch_part.freight)
        share.size += size
        share.commands += sign * batch_part.count
        self.size += size
        self.commands += sign * batch_part.count
