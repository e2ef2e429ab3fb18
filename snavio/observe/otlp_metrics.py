"""Sends the metrics of a process by an exporter of OpenTelemetry, such as OTLP's.

Points are handed to the exporter as they are, and not through instruments: those fold series beyond 2,000 into one, and
know no histogram that is counted elsewhere. Never reads a counter from another thread than its own.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from snavio.clock import Clock
from snavio.errors import BadRequest, Unavailable
from snavio.host.introspection import Introspection, LatencyTotals, program_version
from snavio.host.periodic import Periodic
from snavio.observe.metric import Kind
from snavio.observe.otlp_exporters import find_exporter, resource_of
from snavio.observe.points import Points, Readings

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import Metric, MetricsData

INTERVAL: Final = "OTEL_METRIC_EXPORT_INTERVAL"
INTERVAL_MS: Final = 60_000
EXPORT_MS: Final = 10_000
STOP_MS: Final = 2_000


class MetricsExport:
    """Exports every interval until `stop`. Made and started on the loop whose counters are read."""

    def __init__(
        self, introspection: Introspection, *, exporter: Any, clock: Clock, interval_s: float | None = None
    ) -> None:
        self._readings = Readings(introspection)
        self._resource = resource_of(introspection)
        self._exporter = exporter
        self._clock = clock
        self._started_unix_ns = clock.unix_ns()
        interval_s = _interval_s() if interval_s is None else interval_s
        self._turns = Periodic("metrics export", self.export, every_s=interval_s, longest_s=interval_s)

    def start(self) -> None:
        """Begin."""
        self._turns.start()

    async def stop(self) -> None:
        """Export a last time, if the collector answers, and end."""
        await self._turns.stop()
        try:
            async with asyncio.timeout(STOP_MS / 1000):
                await self.export(within_ms=STOP_MS)
        except (TimeoutError, Unavailable):
            pass
        await asyncio.to_thread(self._exporter.shutdown, STOP_MS)

    async def export(self, *, within_ms: int = EXPORT_MS) -> None:
        """Export once; Unavailable when the collector does not take it."""
        points, now = self._readings.points(), self._clock.unix_ns()
        # Exporters wait, and write their messages in Python.
        await asyncio.to_thread(self._send, points, now, within_ms)

    def _send(self, points: list[Points], now_unix_ns: int, within_ms: int) -> None:
        from opentelemetry.sdk.metrics.export import MetricExportResult

        result = self._exporter.export(self.data(points, now_unix_ns), timeout_millis=within_ms)
        if result is not MetricExportResult.SUCCESS:
            raise Unavailable("The collector of metrics did not take them.")

    def data(self, points: Iterable[Points], now_unix_ns: int) -> MetricsData:
        """The points as OpenTelemetry has them."""
        from opentelemetry.sdk.metrics.export import MetricsData, ResourceMetrics, ScopeMetrics
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope

        metrics = list(self._metrics(points, now_unix_ns))
        scope = ScopeMetrics(InstrumentationScope("snavio", program_version()), metrics, "")
        return MetricsData([ResourceMetrics(self._resource, [scope], "")])

    def _metrics(self, points: Iterable[Points], now: int) -> Iterator[Metric]:
        from opentelemetry.sdk.metrics.export import (
            AggregationTemporality,
            Gauge,
            Histogram,
            HistogramDataPoint,
            Metric,
            NumberDataPoint,
            Sum,
        )

        since, cumulative = self._started_unix_ns, AggregationTemporality.CUMULATIVE
        for each in points:
            metric = each.metric
            data: Sum | Gauge | Histogram
            if metric.kind is Kind.HISTOGRAM:
                if each.totals is None:
                    continue
                bounds, counts = _buckets(each.totals)
                point = HistogramDataPoint(
                    {}, since, now, each.totals.count, each.totals.sum_s, counts, bounds, 0.0, 0.0
                )
                data = Histogram([point], cumulative)
            else:
                numbers = [
                    NumberDataPoint(dict(zip(metric.labels, labels, strict=True)), since, now, _number(value))
                    for labels, value in each.samples
                ]
                data = Sum(numbers, cumulative, True) if metric.kind is Kind.COUNTER else Gauge(numbers)
            yield Metric(metric.name, metric.help, metric.unit, data)


def _buckets(totals: LatencyTotals) -> tuple[list[float], list[int]]:
    """Edges, and counts that do not include each other: one more of them than edges."""
    passed = [0, *totals.up_to.values(), totals.count]
    return list(totals.up_to), [after - before for before, after in pairwise(passed)]


def _number(value: float) -> int | float:
    return int(value) if value == value // 1 else value


def export_metrics(
    introspection: Introspection, *, exporter: str | None, clock: Clock
) -> MetricsExport | None:
    """Export through the exporter of that name; nothing without one. StateError if it is not installed."""
    if exporter is None:
        return None
    found = find_exporter("metrics_exporter", exporter, kind="metrics")
    return MetricsExport(introspection, exporter=found, clock=clock)


def _interval_s() -> float:
    text = os.environ.get(INTERVAL, str(INTERVAL_MS))
    try:
        interval_ms = float(text)
    except ValueError:
        interval_ms = 0.0
    if not 1 <= interval_ms <= 86_400_000:
        raise BadRequest(
            f"{INTERVAL} is {text!r}: it has to be a number of milliseconds.", reason="bad-interval"
        )
    return interval_ms / 1000
