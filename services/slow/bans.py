"""Turns repeated bans of single Fast instances into a ban in the directory, for all of them.

Never bans on one instance's word once: only many bans in a short time do, and they are counted in the store that all
Slows share.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import structlog

from services.slow.dominance import Dominance
from snavio.clock import Clock
from snavio.errors import BadRequest, SnavioError
from snavio.ports.coordination import BanSeen, Coordination
from snavio.rpc.channel import MeshChannel
from snavio.rpc.server import Call
from snavio.v1 import registry_pb2 as reg
from snavio.v1 import slow_pb2 as wire

MOST = 1000
# Of a report that does not say: the fairness window, and the ban, of a route without its own rules.
WINDOW_MS = 30_000
CALL_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Escalation:
    """The number of bans within a time that become a durable one, and its length."""

    bans: int
    within_ms: int
    ban_ms: int


class Bans:
    """Counts and escalates."""

    def __init__(
        self,
        *,
        store: Coordination,
        registry: MeshChannel,
        dominance: Dominance,
        clock: Clock,
        escalation: Escalation,
    ) -> None:
        self._store = store
        self._registry = registry
        self._dominance = dominance
        self._clock = clock
        self._escalation = escalation
        self._counts: Counter[str] = Counter()
        self._log = structlog.get_logger()

    def counters(self) -> dict[str, int]:
        """Reports, and what became of them."""
        return dict(self._counts)

    async def report(self, request: wire.ReportBansRequest, _call: Call) -> wire.ReportBansResponse:
        """Count every ban; those that were too many become bans in the directory."""
        if len(request.ban) > MOST:
            raise BadRequest(f"ban: must be at most {MOST}.", reason="too-many")
        for ban in request.ban:
            if not (0.0 <= ban.source_share <= 1.0 and 0.0 <= ban.competing_share <= 1.0):
                raise BadRequest("ban: shares are from 0 to 1.", reason="bad-field")
            self._dominance.reported(ban.source, (ban.target, ban.name), ban.competing_share)
        if not request.ban:
            return wire.ReportBansResponse()
        keys = [(ban.source, ban.target, ban.name) for ban in request.ban]
        within_ms = self._escalation.within_ms
        # One offence is seen by every Fast that the source sends to, each within its own window.
        seen = [
            BanSeen(key, min(ban.window_ms or WINDOW_MS, within_ms))
            for key, ban in zip(keys, request.ban, strict=True)
        ]
        counts = await self._store.count_bans(seen, within_ms=within_ms)
        self._counts["reported"] += len(keys)
        due = {
            key: (ban, count)
            for key, ban, count in zip(keys, request.ban, counts, strict=True)
            if count >= self._escalation.bans
        }
        escalated = [key for key, (ban, count) in due.items() if await self._escalated(ban, count)]
        if escalated:
            # Only now: a ban that Registry did not take is tried again with the next report.
            await self._store.forget_bans(escalated)
        self._counts["escalated"] += len(escalated)
        return wire.ReportBansResponse(escalated=len(escalated))

    async def _escalated(self, ban: wire.BanReport, count: int) -> bool:
        minutes = self._escalation.within_ms // 60_000
        entry = reg.Ban(
            list=reg.BAN_LIST_WARM_BAN,
            source=ban.source,
            target=ban.target,
            name=ban.name,
            until_unix_ns=self._clock.unix_ns() + self._escalation.ban_ms * 1_000_000,
            reason=f"{count} bans from the warm path within {minutes} min.",
            evidence=f"source_share={ban.source_share:.2f} competing_share={ban.competing_share:.2f} "
            f"dispatch_volume={ban.dispatch_volume}",
        )
        try:
            await self._registry.call(
                "/snavio.v1.Registry/SetBan",
                reg.SetBanRequest(ban=entry),
                reg.WriteResponse,
                timeout_s=CALL_SECONDS,
            )
        except SnavioError as error:
            self._counts["refused"] += 1
            self._log.warning("a ban did not reach the directory", reason=error.reason)
            return False
        return True
