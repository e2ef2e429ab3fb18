"""Writes the tombstones of expired entries: ephemeral routes, bans, suspensions, old access requests.

Never decides that an entry has expired: readers leave it out from that moment on; this only adds it to the log.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

import structlog

from services.registry.signer.signer_calls import SignerCalls
from services.registry.signer.signer_sync import SignerSync
from snavio.clock import Clock
from snavio.domain.directory import DirectoryView, Draft, Suspension, Value, is_over
from snavio.domain.identity import Identity, IdentityKind
from snavio.errors import SnavioError, Unavailable
from snavio.ports.directory import Directory

AT_ONCE: Final = 500
REASON: Final = "its time was over"


class Sweeper:
    """Sweeps when called; the host keeps the time."""

    def __init__(self, *, directory: Directory, trust: SignerCalls, clock: Clock, trust_domain: str) -> None:
        self._directory = directory
        self._signer_sync = SignerSync(directory, trust, clock)
        self._clock = clock
        self._actor = Identity(trust_domain, IdentityKind.MESH, "registry").spiffe_id
        self._log = structlog.get_logger()

    async def sweep(self) -> None:
        """Write every tombstone that is due."""
        now = self._clock.unix_ns()
        waiting: set[str] = set()
        away = False
        while True:
            # Beside those that wait, or as many of them as are read at once would keep everything else.
            most = AT_ONCE + len(waiting)
            _, ended = await self._directory.read(partial(_ended, now=now, most=most))
            for value in ended:
                if isinstance(value, Suspension) and value.source not in waiting:
                    # One silence of Signer is waited for, and not one for each suspension.
                    lifted, away = (False, True) if away else await self._lifted(value)
                    if not lifted:
                        waiting.add(value.source)
            due = [value for value in ended if not _waits(value, waiting)]
            if not due and len(ended) < most:
                return
            if not due:
                continue
            written = await self._directory.write(
                partial(_tombstones, now=now, due=due), actor=self._actor, reason=REASON
            )
            self._log.info("ended entries swept", count=len(due), version=written.version)

    async def _lifted(self, suspension: Suspension) -> tuple[bool, bool]:
        """Tell Signer that a suspension is over; returns whether it knows, and whether it is away.

        This comes before the tombstone: if Signer is away, the next sweep finds the suspension again.
        """
        try:
            # What the directory says by then: an operator may have suspended it anew.
            await self._signer_sync.agree_on(suspension)
        except SnavioError as error:
            self._log.warning("suspension not lifted yet", source=suspension.source, reason=error.reason)
            return False, isinstance(error, Unavailable)
        return True, False


def _ended(view: DirectoryView, *, now: int, most: int) -> Sequence[Value]:
    return view.ended(now, limit=most)


def _waits(value: Value, waiting: set[str]) -> bool:
    return isinstance(value, Suspension) and value.source in waiting


def _tombstones(view: DirectoryView, *, now: int, due: Sequence[Value]) -> Sequence[Draft]:
    # Looked up again: what was renewed since it was found has not ended.
    still = (value for value in due if view.find(type(value), *value.key) == value)
    return [Draft(value, deleted=True) for value in still if is_over(value, now)]
