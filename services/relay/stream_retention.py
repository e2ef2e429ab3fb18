"""Ends what is too old or too much: envelopes behind the replay window, and drafts that nobody could sign.

Never drops a draft in silence: its tenant and the archive are told how many events went with it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import structlog

from services.relay.stream_tails import StreamTails
from snavio.clock import Clock
from snavio.host.periodic import Periodic
from snavio.ports.tenant_streams import TenantStreams
from snavio.telemetry.events import Event, TelemetryDropped

LOOK_SECONDS: Final = 10.0


class StreamRetention:
    """Lives on one event loop."""

    def __init__(
        self,
        *,
        streams: TenantStreams,
        tails: StreamTails,
        tell: Callable[[Sequence[Event]], Awaitable[None]],
        clock: Clock,
        window_s: float,
        max_bytes_per_tenant: int,
    ) -> None:
        self._streams = streams
        self._tails = tails
        self._tell = tell
        self._clock = clock
        self._window_ns = round(window_s * 1e9)
        self._max_bytes = max_bytes_per_tenant
        self._looks = Periodic("stream retention", self.look, every_s=LOOK_SECONDS, longest_s=60.0)
        self._counts = {"pruned": 0, "pruned_early": 0, "dropped_events": 0}
        self._log = structlog.get_logger()

    async def start(self) -> None:
        """Look until `stop`."""
        self._looks.start()

    async def stop(self) -> None:
        """End."""
        await self._looks.stop()

    def counters(self) -> dict[str, int]:
        """Counters of removals; `pruned_early` are those for bytes, before their time."""
        return dict(self._counts)

    async def look(self) -> None:
        """Remove what has to go."""
        now = self._clock.unix_ns()
        pruned = await self._streams.prune(
            issued_before_unix_ns=now - self._window_ns, max_bytes_per_tenant=self._max_bytes
        )
        self._counts["pruned"] += pruned.entries
        self._counts["pruned_early"] += pruned.early
        if pruned.entries:
            await self._tails.refresh()
        gone = await self._streams.drop_drafts(
            cut_before_unix_ns=now - self._window_ns, max_bytes_per_tenant=self._max_bytes
        )
        events: list[Event] = []
        for tenant, dropped in gone.items():
            age_s = (now - dropped.oldest_unix_ns) / 1e9
            events.append(TelemetryDropped(tenant, dropped.events, "not-sealed", age_s, None))
            self._counts["dropped_events"] += dropped.events
            self._log.error("events were never sealed", tenant=tenant, events=dropped.events)
        await self._tell(events)
