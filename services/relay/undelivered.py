"""Keeps envelopes that a tenant's queue refuses for good: the DLQ of what Relay sends.

Never keeps more than a bound for each tenant, and never stays silent: the tenant and the operators are told of each.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import structlog

from services.relay.tenant_events import family_of
from snavio.errors import SnavioError
from snavio.ports.archive import Archive
from snavio.ports.tenant_streams import StreamEntry
from snavio.telemetry.events import Event, PublishFailed, TelemetryDropped
from snavio.telemetry.schema import DROPPED

FOLDER: Final = "undelivered"
MOST_OF_A_TENANT: Final = 100


class Undelivered:
    """Files beside the archive's hours: `undelivered/<tenant>/<number>.json`, each an envelope as it was signed."""

    def __init__(self, *, archive: Archive, tell: Callable[[Sequence[Event]], Awaitable[None]]) -> None:
        self._archive = archive
        self._tell = tell
        self._log = structlog.get_logger()

    async def put(self, tenant: str, entry: StreamEntry, reason: str) -> bool:
        """Keep an envelope and tell of it; False when the tenant has its share already, and it is only told of."""
        folder = f"{FOLDER}/{tenant}"
        name = f"{folder}/{entry.seq}.json"
        kept = {stored.name for stored in await self._archive.names(folder)}
        room = name in kept or len(kept) < MOST_OF_A_TENANT
        if room:
            await self._archive.put(name, entry.body)
        where = name if room else f"{folder} has {MOST_OF_A_TENANT} and takes no more"
        self._log.error("an envelope cannot be delivered", tenant=tenant, seq=entry.seq, reason=reason)
        detail = f"envelope {entry.envelope_id}, number {entry.seq}; {where}"
        told: list[Event] = [PublishFailed(tenant, reason, detail)]
        if entry.family != family_of(DROPPED):
            # A statement about a refused statement would be refused as well, and so on for ever.
            told.append(TelemetryDropped(tenant, entry.events, "queue_refused", 0.0, None))
        try:
            await self._tell(told)
        except SnavioError as error:
            self._log.error("not even told", tenant=tenant, reason=error.reason)
        return room
