"""The counters of the edge, and the page that Prometheus reads.

Never a label that a request chooses: routes come from the file, reasons from the program.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final

from services.gateway.edge.answers import QUEUED, EdgeAnswer, RequestNotes
from snavio.observe.edge_metric_names import EDGE
from snavio.observe.prometheus_text import CONTENT_TYPE, label_value

BUCKETS_MS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 5000)
Gauges = Callable[[], Mapping[str, float]]

_ROWS: Final = {each.name: each for each in EDGE}


class EdgeMetrics:
    """Counts on one event loop; the page is made when it is asked for."""

    def __init__(self) -> None:
        self.accepted = 0
        self.rejected = 0
        self.enqueued = 0
        self.duplicates = 0
        self.replays = 0
        self._refused: Counter[tuple[str, str, int]] = Counter()
        self._turned_away: Counter[tuple[str, int]] = Counter()
        self._seconds = [0] * (len(BUCKETS_MS) + 1)
        self._seconds_sum = 0.0

    def finished(self, notes: RequestNotes, answer: EdgeAnswer, duration_ns: int) -> None:
        """Count one answer."""
        if answer.accepted:
            self.accepted += 1
            if answer.reason == QUEUED:
                self.enqueued += max(1, len(answer.event_ids))
            else:
                self.duplicates += 1
        else:
            self.rejected += 1
            self.replays += answer.reason == "replayed"
            self._refused[(notes.route, answer.reason, answer.status)] += 1
        duration_ms = duration_ns / 1e6
        self._seconds_sum += duration_ms / 1e3
        place = next((place for place, most in enumerate(BUCKETS_MS) if duration_ms <= most), len(BUCKETS_MS))
        self._seconds[place] += 1

    def turned_away(self, status: int, reason: str) -> None:
        """Count a request that no application saw."""
        self.rejected += 1
        self._turned_away[(reason, status)] += 1

    def page(self, more: Mapping[str, float]) -> bytes:
        """Everything in Prometheus' text form; `more` are values by their whole name."""
        values: dict[str, float] = {
            "hookaido_ingress_accepted_total": self.accepted,
            "hookaido_ingress_rejected_total": self.rejected,
            "hookaido_ingress_enqueued_total": self.enqueued,
            "snavio_gateway_duplicates_total": self.duplicates,
            "snavio_gateway_replays_total": self.replays,
        }
        for (route, reason, status), count in self._refused.items():
            labels = f'{{route="{label_value(route)}",reason="{reason}",status="{status}"}}'
            values[f"hookaido_ingress_rejected_by_reason_total{labels}"] = count
        for (reason, status), count in self._turned_away.items():
            values[f'snavio_gateway_turned_away_total{{reason="{reason}",status="{status}"}}'] = count
        total = 0
        for place, most in enumerate(BUCKETS_MS):
            total += self._seconds[place]
            values[f'snavio_gateway_request_seconds_bucket{{le="{most / 1000:g}"}}'] = total
        total += self._seconds[-1]
        values['snavio_gateway_request_seconds_bucket{le="+Inf"}'] = total
        values["snavio_gateway_request_seconds_sum"] = self._seconds_sum
        values["snavio_gateway_request_seconds_count"] = total
        values.update(more)
        lines, told = [], ""
        for name, value in sorted(values.items(), key=lambda each: each[0].partition("{")[0]):
            family = name.partition("{")[0]
            for end in ("_bucket", "_sum", "_count"):
                if family.removesuffix(end) in _ROWS:
                    family = family.removesuffix(end)
            if family != told:
                told = family
                if (row := _ROWS.get(family)) is not None:
                    lines += [f"# HELP {family} {row.help}", f"# TYPE {family} {row.kind.value}"]
            lines.append(f"{name} {value:g}" if value < 1e6 else f"{name} {value:.0f}")
        return ("\n".join(lines) + "\n").encode()


class MetricsApp:
    """The ASGI application of the metrics listener."""

    def __init__(self, metrics: EdgeMetrics, gauges: Gauges, path: str) -> None:
        self._metrics = metrics
        self._gauges = gauges
        self._path = (path or "/metrics").encode()

    async def __call__(self, scope: Any, _receive: Any, send: Any) -> None:
        right = scope["raw_path"].rstrip(b"/") == self._path.rstrip(b"/") and scope["method"] in (
            "GET",
            "HEAD",
        )
        body = self._metrics.page(self._gauges()) if right else b""
        headers = [(b"content-type", CONTENT_TYPE.encode()), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200 if right else 404, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})
