"""Retry budget and pauses between attempts.

Never lets retries grow beyond a tenth of the traffic for long: a mesh that refuses must not be hammered by
those it refused.
"""

from __future__ import annotations

import random

SHARE = 0.1
CAPACITY = 1000.0
INITIAL = 100.0
FLOOR_PER_SECOND = 10.0
FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 2.0
SHIELD_BEHIND_MS = 250


class RetryBudget:
    """A bucket that commands fill by `SHARE` each, and time by `FLOOR_PER_SECOND`; a retry takes a token.

    Its capacity covers what one broken connection leaves without an answer.
    """

    __slots__ = ("_at_mono_ns", "_tokens")

    def __init__(self, *, now_mono_ns: int) -> None:
        self._tokens = INITIAL
        self._at_mono_ns = now_mono_ns

    def deposit(self, sent: int) -> None:
        """Count traffic; called once per batch, so that a send pays nothing for it."""
        self._tokens = min(CAPACITY, self._tokens + sent * SHARE)

    def withdraw(self, *, now_mono_ns: int) -> bool:
        """Pay for one retry; False if the budget has none."""
        seconds = (now_mono_ns - self._at_mono_ns) / 1e9
        self._at_mono_ns = now_mono_ns
        self._tokens = min(CAPACITY, self._tokens + seconds * FLOOR_PER_SECOND)
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True


def shield_behind_ms(attempts: int) -> int:
    """Pause for a Shield that does not know a new key yet: three of them cover its slowest good pull."""
    return SHIELD_BEHIND_MS << min(attempts - 1, 10)


def pause_s(attempts: int, retry_after_ms: int, jitter: random.Random) -> float:
    """Full jitter under a doubling ceiling, on top of the server's hint.

    On top, not instead: producers that were refused together with the same hint must not come back together.
    """
    ceiling = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(attempts - 1, 10))
    return retry_after_ms / 1000 + jitter.uniform(0.0, ceiling)
