"""Counts what workers did, by route.

Never a label that a request chooses: routes come from the file.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from services.gateway.pull.app import PullRecord
from snavio.observe.prometheus_text import label_value

_SETTLED: Final = {"ack": "ack", "nack": "nack"}


class PullMetrics:
    """Give `finished` to the application."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def finished(self, record: PullRecord) -> None:
        """Count one request."""
        if not record.route:
            self._counts["snavio_gateway_pull_refused_total"] += 1
            return
        route = label_value(record.route)
        if record.operation == "dequeue":
            self._counts[f'hookaido_pull_dequeue_total{{route="{route}",status="{record.status}"}}'] += 1
        elif (word := _SETTLED.get(record.operation)) is not None:
            self._counts[f'hookaido_pull_{word}ed_total{{route="{route}"}}'] += record.messages
            self._counts[f'hookaido_pull_{word}_conflict_total{{route="{route}"}}'] += record.conflicts
        if record.operation in ("dequeue", "stream"):
            self._counts[f'snavio_gateway_pulled_total{{route="{route}"}}'] += record.messages

    def read(self) -> dict[str, float]:
        """Every counter by its whole name."""
        return dict(self._counts)
