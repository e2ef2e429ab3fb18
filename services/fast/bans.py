"""Reports sources that lost the warm path here: an event for each ban, and a report to Slow, which counts them.

Never repeats a report whose answer was lost: counted twice, one ban could become a durable one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from snavio.clock import Clock
from snavio.host.periodic import Periodic
from snavio.native import WarmBan
from snavio.rpc.channel import MeshChannel
from snavio.telemetry.dispatch_events import WarmPathBan
from snavio.telemetry.events import Event, moment
from snavio.v1.slow_pb2 import BanReport, ReportBansRequest, ReportBansResponse

CALL_SECONDS = 1.0
PAUSE_SECONDS = 0.2
LONGEST_PAUSE_SECONDS = 5.0
MAX_REPORTS = 1000


class WarmBans:
    """Reports bans of plans to Slow; bounded: when Slow is away for long, the oldest reports are lost and counted."""

    def __init__(
        self, *, slow: MeshChannel, clock: Clock, instance: str, record: Callable[[Event], None]
    ) -> None:
        self._slow = slow
        self._clock = clock
        self._instance = instance
        self._record = record
        self._reports: deque[BanReport] = deque(maxlen=MAX_REPORTS)
        self._sends = Periodic(
            "warm bans",
            self._send,
            every_s=None,
            first_s=PAUSE_SECONDS,
            longest_s=LONGEST_PAUSE_SECONDS,
            quiet_s=PAUSE_SECONDS,
        )
        self._counts = {"reported": 0, "lost": 0, "escalated": 0}

    def start(self) -> None:
        """Report in the background."""
        self._sends.start()

    async def stop(self) -> None:
        """End the reporting; what was not reported is lost."""
        await self._sends.stop()

    def counters(self) -> dict[str, int]:
        """Reports by outcome."""
        return dict(self._counts)

    def imposed(self, bans: Iterable[WarmBan]) -> None:
        """Record the bans that a plan has begun, and report them soon."""
        for ban in bans:
            until = moment(self._clock.unix_ns() + ban.ban_ns)
            self._record(
                WarmPathBan(
                    source=ban.source,
                    target=ban.target,
                    command_name=ban.name,
                    source_share=ban.source_share,
                    competing_share=ban.competing_share,
                    dispatch_volume=ban.volume,
                    retry_after_ms=ban.ban_ns // 1_000_000,
                    throttle_until=until or "",
                )
            )
            if len(self._reports) == MAX_REPORTS:
                self._counts["lost"] += 1
            self._reports.append(
                BanReport(
                    source=ban.source,
                    target=ban.target,
                    name=ban.name,
                    source_share=ban.source_share,
                    competing_share=ban.competing_share,
                    dispatch_volume=min(ban.volume, 2**32 - 1),
                    window_ms=min(ban.window_ns // 1_000_000, 2**32 - 1),
                )
            )
            self._sends.nudge()

    async def _send(self) -> None:
        reports = list(self._reports)
        self._reports.clear()
        try:
            answer = await self._slow.call(
                "/snavio.v1.Slow/ReportBans",
                ReportBansRequest(instance=self._instance, ban=reports),
                ReportBansResponse,
                timeout_s=CALL_SECONDS,
            )
        except Exception:
            self._counts["lost"] += len(reports)
            raise
        self._counts["reported"] += len(reports)
        self._counts["escalated"] += answer.escalated
