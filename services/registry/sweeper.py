"""Writes the tombstones of what ends by itself: ephemeral routes, bans, suspensions, old access requests.

Never decides that something has ended: readers leave it out from that moment on; this makes the log say so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import structlog

from services.registry.trust import Trust
from snavio.clock import Clock
from snavio.domain.directory import Draft, Service, Suspension, Value, View, require_source
from snavio.domain.identity import Identity, Kind
from snavio.ports.directory import Directory

AT_ONCE: Final = 500
REASON: Final = "its time was over"


class Sweeper:
    """Sweeps when asked; somebody else keeps the time."""

    def __init__(self, *, directory: Directory, trust: Trust, clock: Clock, trust_domain: str) -> None:
        self._directory = directory
        self._trust = trust
        self._clock = clock
        self._actor = Identity(trust_domain, Kind.MESH, "registry").spiffe_id
        self._log = structlog.get_logger()

    async def sweep(self) -> None:
        """Write every tombstone that is due."""
        now = self._clock.unix_ns()
        while True:
            _, ended = await self._directory.read(lambda view: view.ended(now, limit=AT_ONCE))
            if not ended:
                return
            for value in ended:
                if isinstance(value, Suspension):
                    await self._lift(value)
            written = await self._directory.write(
                lambda view: _tombstones(view, now), actor=self._actor, reason=REASON
            )
            self._log.info("ended entries swept", count=len(ended), version=written.version)

    async def _lift(self, suspension: Suspension) -> None:
        # Before the tombstone: if Signer is away, the next sweep finds the suspension again and repeats this.
        named = require_source(suspension.source, "suspension.source")
        _, service = await self._directory.read(lambda view: view.find(Service, *named.key))
        if service is not None:
            await self._trust.principals(service, suspended=False)


def _tombstones(view: View, now: int) -> Sequence[Draft]:
    # Looked up again: what was renewed since it was found has not ended.
    ended: Sequence[Value] = view.ended(now, limit=AT_ONCE)
    return [Draft(value, deleted=True) for value in ended]
