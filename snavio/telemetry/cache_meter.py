"""The metrics of a cache, and an event for each refresh.

Never touched by a command: usage is counted natively per batch and read here, refreshes are counted as they happen.
Never fills the archive: a refresh goes `onward` only when it ended something.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from snavio.clock import Clock
from snavio.host.introspection import Introspection
from snavio.telemetry.events import CacheRefreshed, Event
from snavio.telemetry.latency import LatencyWindow

ACL, ROUTING, HMAC = "ACL", "Routing", "HMAC"
USAGE: Final = "Snavio.Cache.Usage"
DUE, RECOVERED, EPOCH_CHANGED = "due", "recovered", "epoch-changed"


class CacheMeter:
    """One cache. `age_ns` returns its age, None before the first read.

    `first_stale_s` is the age at which the first of its entries are stale, where they differ.
    """

    def __init__(
        self,
        cache_type: str,
        *,
        fresh_s: float,
        stale_s: float,
        age_ns: Callable[[], int | None],
        clock: Clock,
        record: Callable[[Event], None],
        onward: Callable[[Event], None] = lambda _event: None,
        first_stale_s: float | None = None,
    ) -> None:
        self._type = cache_type
        self._fresh_s = fresh_s
        self._stale_s = stale_s
        self._age_ns = age_ns
        self._record = record
        self._onward = onward
        self._first_stale_s = fresh_s if first_stale_s is None else first_stale_s
        self._durations = LatencyWindow(clock=clock)

    def refreshed(self, *, took_ns: int, age_ns: int | None, another: str = "") -> None:
        """Record a refresh; `age_ns` is the age before it, None for the first time.

        `another` names the authority's new epoch, if the cache was dropped because of it.
        """
        self._durations.add(took_ns)
        if age_ns is None:
            return
        age_s, reason, detail = age_ns / 1e9, DUE, ""
        if another:
            reason, detail = EPOCH_CHANGED, another
        elif age_s >= self._first_stale_s:
            reason, detail = RECOVERED, f"entries were stale from {self._first_stale_s:g} s on"
        event = CacheRefreshed(self._type, age_s, self._fresh_s, self._stale_s, reason, detail)
        self._record(event)
        if reason != DUE:
            self._onward(event)

    def register(self, introspection: Introspection, stale_usage: Callable[[], int]) -> None:
        """Register the metrics under the names of the telemetry catalogue."""
        prefix = f"Snavio.Cache.{self._type}."
        introspection.counts(lambda: {"Usage.Stale": stale_usage()}, prefix=prefix)
        introspection.times(f"{prefix}RefreshDuration", self._durations.read, ever=self._durations.ever)
        introspection.gauges(lambda: {"StaleWindowSeconds": self._stale_for_s()}, prefix=prefix)

    def _stale_for_s(self) -> float:
        """Seconds since it became stale; 0 while it is fresh."""
        age_ns = self._age_ns()
        return max(0.0, (age_ns or 0) / 1e9 - self._fresh_s)
