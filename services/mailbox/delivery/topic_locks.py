"""One at a time for each topic, in the order in which they came.

Never keeps anything for a topic that nobody works on or waits for.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field


@dataclass(slots=True)
class _Line:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    people: int = 0


class TopicLocks:
    """Lives on one event loop. `len` is the number of topics with a holder or a waiter."""

    def __init__(self) -> None:
        self._lines: dict[str, _Line] = {}

    def __len__(self) -> int:
        return len(self._lines)

    @asynccontextmanager
    async def of(self, topic: str) -> AsyncIterator[None]:
        """Be the only one with a turn of this topic."""
        line = self._lines.setdefault(topic, _Line())
        # Counted, and not read from the lock: it is free for a moment between two turns, and a caller that came
        # just then would get a second lock for the same topic.
        line.people += 1
        try:
            async with line.lock:
                yield
        finally:
            line.people -= 1
            if not line.people:
                del self._lines[topic]
