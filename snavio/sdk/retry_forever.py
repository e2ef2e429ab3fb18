"""Retries without end a call that fails because a service is away, with pauses that grow to a second.

Never bounds the time: the caller sets a deadline around it, or waits for as long as it is open. Never writes a log
entry per retry: an application's log is not the place to count them.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager
from types import TracebackType

from snavio.errors import SnavioError

LONGEST_PAUSE_S = 1.0
JITTER_S = 0.1


class RetryAttempt(AbstractContextManager[None]):
    """One attempt; what is raised inside of it is kept if another attempt may help."""

    def __init__(self, on: tuple[type[SnavioError], ...]) -> None:
        self._on = on
        self.failed = False

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self.failed = isinstance(error, self._on)
        return self.failed


async def persist(*on: type[SnavioError], first_pause_s: float) -> AsyncIterator[RetryAttempt]:
    """Attempts, to be used as `async for attempt in ...: with attempt: ...`; what is not in `on` is raised at once."""
    pause_s = first_pause_s
    while True:
        attempt = RetryAttempt(on)
        yield attempt
        if not attempt.failed:
            return
        await asyncio.sleep(min(pause_s, LONGEST_PAUSE_S) + random.uniform(0.0, JITTER_S))  # noqa: S311 spreads load
        pause_s *= 2.0
