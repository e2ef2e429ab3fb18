"""Counts events that a full journal dropped, per tenant, until they can be reported.

Never grows with the losses, and never counts an event without a tenant: the gap in the numbers shows those.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import orjson

from snavio.native import format_timestamp
from snavio.telemetry.events import TelemetryDropped
from snavio.telemetry.schema import DROPPED
from snavio.v1.telemetry_pb2 import TelemetryBlock

MAX_TENANTS: Final = 1000
OVERFLOW: Final = "journal_overflow"


@dataclass(slots=True)
class _Loss:
    events: int = 0
    oldest_unix_ns: int = 0


class DroppedEvents:
    """Dropped events that are not reported yet."""

    def __init__(self) -> None:
        self._of: dict[str, _Loss] = {}

    def __bool__(self) -> bool:
        return bool(self._of)

    def add(self, columns: bytes) -> None:
        """Count the events of a dropped block."""
        block = TelemetryBlock.FromString(columns)
        for lane, rows in Counter(block.lane).items():
            source = block.dictionary[block.lanes[lane].source]
            self._lost(source.partition("/")[0], rows, block.settled_unix_ns)
        for event in block.event:
            fields: dict[str, Any] = orjson.loads(event.fields)
            tenant = str(fields.get("tenant") or fields.get("source") or "").partition("/")[0]
            # An event about losses can be lost, too; its count must not be.
            number = int(fields["dropped_events"]) if event.name == DROPPED else 1
            self._lost(tenant, number, event.at_unix_ns)

    def told(self, *, now_unix_ns: int, received_unix_ns: int) -> Iterator[TelemetryDropped]:
        """One event per tenant, and the counts are reset. `received_unix_ns` is 0 when Relay never accepted a page."""
        lost, self._of = self._of, {}
        received = format_timestamp(received_unix_ns) if received_unix_ns else None
        for tenant, loss in lost.items():
            age_seconds = max(now_unix_ns - loss.oldest_unix_ns, 0) / 1e9
            yield TelemetryDropped(tenant, loss.events, OVERFLOW, age_seconds, received)

    def _lost(self, tenant: str, events: int, at_unix_ns: int) -> None:
        if not tenant or (tenant not in self._of and len(self._of) >= MAX_TENANTS):
            return
        loss = self._of.setdefault(tenant, _Loss(oldest_unix_ns=at_unix_ns))
        loss.events += events
        loss.oldest_unix_ns = min(loss.oldest_unix_ns, at_unix_ns)
