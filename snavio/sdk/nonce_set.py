"""Ids of envelopes that were seen, in the order in which they came, for a time and up to a number.

Never lets a look keep an id alive: its time counts from when it was first seen.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from snavio.clock import Clock
from snavio.errors import BadRequest

TTL_S: Final = 25 * 3600.0
"""An hour longer than envelopes are kept to be read again."""
MOST: Final = 200_000


class NonceSet:
    """Bounded: beyond it the chain protects, which an older envelope does not continue."""

    def __init__(self, *, clock: Clock, ttl_s: float = TTL_S, most: int = MOST) -> None:
        if ttl_s <= 0 or most < 1:
            raise BadRequest("A nonce set needs a time and room for one id.", reason="bad-nonce-set")
        self._clock = clock
        self._ttl_ns = round(ttl_s * 1e9)
        self._most = most
        self._until: OrderedDict[str, int] = OrderedDict()
        self.replays = 0

    def add(self, nonce: str) -> bool:
        """Remember an id; False, and counted, when it was seen within its time."""
        now = self._clock.mono_ns()
        self._forget(now)
        if nonce in self._until:
            self.replays += 1
            return False
        if len(self._until) >= self._most:
            self._until.popitem(last=False)
        self._until[nonce] = now + self._ttl_ns
        return True

    def __contains__(self, nonce: str) -> bool:
        self._forget(self._clock.mono_ns())
        return nonce in self._until

    def __len__(self) -> int:
        return len(self._until)

    def _forget(self, now: int) -> None:
        while self._until and next(iter(self._until.values())) <= now:
            self._until.popitem(last=False)
