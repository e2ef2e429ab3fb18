"""Rotates key sets when their time has come: once, however many Signers run and however often they restart.

Never keeps a schedule of its own. When a key set is due stands in the key set, so a rotation and its place in
the schedule are one atomic write; a second scheduler, a restart or a clock that was set back finds it done.
"""

from __future__ import annotations

import math

import structlog

from services.signer.keys.keysets import Keysets
from snavio.clock import Clock
from snavio.domain.keyset import rotation_due_ns
from snavio.errors import Conflict, NotFound
from snavio.ports.keystore import KeyStore

TURN_NS = 60 * 1_000_000_000
# After a long absence everything is due at once. Producers learn of keys by asking, and each rotation writes
# the store: a backlog is worked off over this long.
CATCH_UP_NS = 6 * 3600 * 1_000_000_000
ACTOR = "scheduler"
_TURN = "rotation"
_PAGE = 5000


class RotationSchedule:
    """Call `turn` about once a minute; more often, and from several processes, does no harm."""

    def __init__(self, *, keysets: Keysets, store: KeyStore, clock: Clock, cadence_ns: int) -> None:
        self._keysets = keysets
        self._store = store
        self._clock = clock
        self._cadence_ns = cadence_ns
        self._log = structlog.get_logger()

    async def turn(self) -> list[str]:
        """Rotate what is due, the longest overdue first, no more than a turn's share; returns the sources."""
        now = self._clock.unix_ns()
        due, total = await self._due(now)
        # The turn bounds the pace over all Signers together. Nothing due, nothing written.
        if not due or not await self._store.claim_turn(_TURN, now_ns=now, until_ns=now + TURN_NS):
            return []
        share = max(1, math.ceil(total * TURN_NS / CATCH_UP_NS))
        rotated = []
        for _, source in due[:share]:
            try:
                if await self._keysets.rotate_if_due(source, cadence_ns=self._cadence_ns, actor=ACTOR):
                    rotated.append(source)
            except (Conflict, NotFound) as error:
                self._log.info("not rotated", source=source, reason=error.reason)
        if len(due) > share:
            self._log.warning("rotations are overdue", overdue=len(due) - share)
        return rotated

    async def _due(self, now_ns: int) -> tuple[list[tuple[int, str]], int]:
        due: list[tuple[int, str]] = []
        total, after = 0, ""
        while page := await self._store.keysets(after=after, limit=_PAGE):
            for keyset in page:
                at = rotation_due_ns(keyset, cadence_ns=self._cadence_ns)
                if at <= now_ns:
                    due.append((at, keyset.source))
            total, after = total + len(page), page[-1].source
        return sorted(due), total
