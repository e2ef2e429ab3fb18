"""Batch parts that wait to be sent: the interface of every send queue, and the one that keeps the order of arrival.

Bounded: never takes a part above its limit, which is refused with a retry hint. `FairSendQueue` is fair by source.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

from snavio.errors import Saturated
from snavio.ports.queue import BatchPart

RETRY_AFTER_MS = 250


class SendQueue(Protocol):
    """Batch parts in the order in which they are sent."""

    size: int
    """Bytes that wait."""
    commands: int
    """Commands that wait."""
    max_bytes: int
    crowded_bytes: int
    """Bytes above which only holders with nothing waiting are to send more."""
    max_held: int
    """Bytes of one holder, above which it is to send no more; a queue without holders counts all as one's."""

    def held(self, holder: str) -> int:
        """Bytes that `holder` has waiting."""
        ...

    def put(self, batch_part: BatchPart) -> None:
        """Append a part; Saturated when there is no room."""
        ...

    def head(self) -> BatchPart:
        """The next part; the queue must not be empty."""
        ...

    def take(self) -> BatchPart:
        """Remove and return the head."""
        ...

    def overdue(self, now_mono_ns: int) -> list[BatchPart]:
        """Remove and return every part whose deadline has passed."""
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
        self._parts: deque[BatchPart] = deque()

    def held(self, _holder: str) -> int:
        """Bytes that wait."""
        return self.size

    def __bool__(self) -> bool:
        return bool(self._parts)

    def put(self, batch_part: BatchPart) -> None:
        """Append a part at the end."""
        size = self.size + len(batch_part.buffer)
        if size > self.max_bytes:
            raise Saturated(
                f"{self._what}: too much is waiting, {self.size} of {self.max_bytes} bytes.",
                retry_after_ms=RETRY_AFTER_MS,
            )
        self._parts.append(batch_part)
        self.size = size
        self.commands += batch_part.count

    def head(self) -> BatchPart:
        """The part that came first."""
        return self._parts[0]

    def take(self) -> BatchPart:
        """Remove and return the part that came first."""
        first = self._parts.popleft()
        self.size -= len(first.buffer)
        self.commands -= first.count
        return first

    def overdue(self, now_mono_ns: int) -> list[BatchPart]:
        """Remove and return every part whose deadline has passed."""
        late = [each for each in self._parts if each.deadline_mono_ns <= now_mono_ns]
        if late:
            self._parts = deque(each for each in self._parts if each.deadline_mono_ns > now_mono_ns)
        for each in late:
            self.size -= len(each.buffer)
            self.commands -= each.count
        return late
