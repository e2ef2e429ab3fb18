"""Age of the key sets from Signer and of the suspensions from Registry; Shield judges only while both are young enough.

Never serves on data older than its stale limit: a Shield without news of revocations for too long refuses everything
instead of letting a revoked key or a suspended source in.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Final

from services.shield.key_cache import KeyCache
from services.shield.suspension_cache import SuspensionCache
from snavio.clock import Clock
from snavio.host.introspection import Introspection
from snavio.telemetry.cache_meter import HMAC, USAGE, CacheMeter
from snavio.telemetry.events import CacheExpired, Event

SUSPENSIONS: Final = "Suspensions"
TELL_NS: Final = 60 * 1_000_000_000


class FreshnessPhase(StrEnum):
    """Age of keys or suspensions, in the words that Fast uses too."""

    FRESH = "Fresh"
    """Used as they are."""
    STALE = "Stale"
    """Used, and read again at once."""
    EXPIRED = "Expired"
    """Not used: everything is refused."""


class CacheFreshness:
    """Both caches, and the age of each."""

    def __init__(
        self,
        *,
        keys: KeyCache,
        suspensions: SuspensionCache,
        fresh_ms: int,
        stale_ms: int,
        meter: CacheMeter,
        clock: Clock,
        record: Callable[[Event], None] = lambda _event: None,
    ) -> None:
        self._clock = clock
        self._record = record
        self._refused = 0
        self._untold = 0
        self._told_mono_ns: int | None = None
        self._keys = keys
        self._suspensions = suspensions
        self._fresh_ns = fresh_ms * 1_000_000
        self._stale_ns = stale_ms * 1_000_000
        self._meter = meter
        self._phase = FreshnessPhase.EXPIRED
        self._used = dict.fromkeys(FreshnessPhase, 0)
        self._stale_keys = 0
        self._expired: tuple[str, int | None] = (HMAC, None)
        self._keys_are_stale = False

    async def start(self, *, within_s: float) -> None:
        """Read both once, then keep reading."""
        await self._keys.start(within_s=within_s)
        await self._suspensions.start(within_s=within_s)

    async def stop(self) -> None:
        """End the pulls."""
        await self._keys.stop()
        await self._suspensions.stop()

    def counters(self) -> dict[str, int]:
        """Keys forgotten because Signer was away for too long, and commands refused meanwhile."""
        return {**self._keys.counters(), "refused_out_of_date": self._refused}

    def register(self, introspection: Introspection) -> None:
        """Publish its counters and gauges."""
        introspection.counts(lambda: {f"{USAGE}.{phase}": used for phase, used in self._used.items()})
        self._meter.register(introspection, lambda: self._stale_keys)
        introspection.gauges(self._suspensions.feed.gauges, prefix="directory.")
        # Shield admits nothing on older suspensions, so a suspended source is out by then, whatever happens.
        introspection.gauges(lambda: {"bound_s": self._stale_ns / 1e9}, prefix="directory.")

    def usable(self) -> bool:
        """True while neither authority has been away for too long. A stale cache is read again soon."""
        keys_age, suspensions_age = self._keys.age_ns(), self._suspensions.age_ns()
        keys, suspensions = self._phase_of(keys_age), self._phase_of(suspensions_age)
        self._keys_are_stale = keys is FreshnessPhase.STALE
        if FreshnessPhase.EXPIRED in (keys, suspensions):
            self._expired = (
                (HMAC, keys_age) if keys is FreshnessPhase.EXPIRED else (SUSPENSIONS, suspensions_age)
            )
            return False
        if self._told_mono_ns is not None:
            self._tell()
            self._told_mono_ns = None
        self._phase = (
            FreshnessPhase.STALE if FreshnessPhase.STALE in (keys, suspensions) else FreshnessPhase.FRESH
        )
        if keys is FreshnessPhase.STALE:
            self._keys.nudge()
        if suspensions is FreshnessPhase.STALE:
            self._suspensions.nudge()
        return True

    def used(self, commands: int) -> None:
        """Count commands that were judged after `usable`; once per batch."""
        self._used[self._phase] += commands
        if self._keys_are_stale:
            self._stale_keys += commands

    def turned_away(self, commands: int) -> None:
        """Count commands refused because `usable` was false; an event says so at once, then once a minute."""
        self._used[FreshnessPhase.EXPIRED] += commands
        self._refused += commands
        self._untold += commands
        now = self._clock.mono_ns()
        if self._told_mono_ns is None or now - self._told_mono_ns >= TELL_NS:
            self._told_mono_ns = now
            self._tell()

    def _tell(self) -> None:
        count, self._untold = self._untold, 0
        if count:
            cache, age_ns = self._expired
            age_s = None if age_ns is None else age_ns / 1e9
            detail = f"{count} commands were refused as saturated"
            self._record(CacheExpired(cache, age_s, self._stale_ns / 1e9, "out-of-date", detail, count=count))

    def _phase_of(self, age_ns: int | None) -> FreshnessPhase:
        if age_ns is None or age_ns >= self._stale_ns:
            return FreshnessPhase.EXPIRED
        return FreshnessPhase.STALE if age_ns >= self._fresh_ns else FreshnessPhase.FRESH

    def key_may_be_newer(self) -> None:
        """Read the keys again soon: a command named a key version that is not known here."""
        self._keys.nudge()
