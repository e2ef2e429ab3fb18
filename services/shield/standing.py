"""Whether Shield may judge at all: key sets from Signer and suspensions from Registry, and how old both are.

Never serves on data older than its stale limit: a Shield that has not heard of a revocation for too long
refuses everything instead of letting a revoked key or a suspended source in.
"""

from __future__ import annotations

from enum import StrEnum

from services.shield.keys import HeldKeys
from services.shield.suspensions import HeldSuspensions
from snavio.telemetry.cache import USAGE, CacheMeter
from snavio.transport.introspection import Introspection


class Phase(StrEnum):
    """How old keys or suspensions are; the same words as Fast's."""

    FRESH = "Fresh"
    """Used as they are."""
    STALE = "Stale"
    """Used, and asked for again at once."""
    EXPIRED = "Expired"
    """Not used: everything is refused."""


class Standing:
    """Both authorities, and whether they were heard of lately."""

    def __init__(
        self,
        *,
        keys: HeldKeys,
        suspensions: HeldSuspensions,
        fresh_ms: int,
        stale_ms: int,
        meter: CacheMeter,
    ) -> None:
        self._keys = keys
        self._suspensions = suspensions
        self._fresh_ns = fresh_ms * 1_000_000
        self._stale_ns = stale_ms * 1_000_000
        self._meter = meter
        self._phase = Phase.EXPIRED
        self._used = dict.fromkeys(Phase, 0)
        self._stale_keys = 0
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
        """What was forgotten because Signer was away for too long."""
        return self._keys.counters()

    def register(self, introspection: Introspection) -> None:
        """Tell operators under document 001's names."""
        introspection.counts(lambda: {f"{USAGE}.{phase}": used for phase, used in self._used.items()})
        self._meter.register(introspection, lambda: self._stale_keys)
        introspection.gauges(self._suspensions.gauges, prefix="directory.")
        # Shield lets nobody in on older suspensions, so a suspended source is out by then, whatever happens.
        introspection.gauges(lambda: {"bound_s": self._stale_ns / 1e9}, prefix="directory.")

    def usable(self) -> bool:
        """Whether neither authority has been away for too long. What is stale is asked for again."""
        keys, suspensions = self._phase_of(self._keys.age_ns()), self._phase_of(self._suspensions.age_ns())
        self._keys_are_stale = keys is Phase.STALE
        if Phase.EXPIRED in (keys, suspensions):
            self._used[Phase.EXPIRED] += 1
            return False
        self._phase = Phase.STALE if Phase.STALE in (keys, suspensions) else Phase.FRESH
        if keys is Phase.STALE:
            self._keys.nudge()
        if suspensions is Phase.STALE:
            self._suspensions.nudge()
        return True

    def used(self, commands: int) -> None:
        """So many commands were judged by what `usable` found; once per batch."""
        self._used[self._phase] += commands
        if self._keys_are_stale:
            self._stale_keys += commands

    def _phase_of(self, age_ns: int | None) -> Phase:
        if age_ns is None or age_ns >= self._stale_ns:
            return Phase.EXPIRED
        return Phase.STALE if age_ns >= self._fresh_ns else Phase.FRESH

    def key_may_be_newer(self) -> None:
        """A command named a key version that is not known here: look again soon."""
        self._keys.nudge()
