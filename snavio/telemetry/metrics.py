"""Metrics as OpenTelemetry instruments, for every service alike: the readings of `Status`, for any exporter.

All instruments are observable: they are read when a collection happens, and cost nothing between two collections. Never
loads OpenTelemetry's SDK in a process that exports nothing, and never reads a counter from another thread than its own.
"""

from __future__ import annotations

import asyncio
import re
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import structlog

from snavio.errors import StateError
from snavio.host.introspection import Introspection, ServiceReport, program_version

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Observation
    from opentelemetry.sdk.metrics.export import MetricReader

CONSOLE: Final = "console"
GROUP: Final = "opentelemetry_metrics_exporter"
READ_SECONDS: Final = 5.0
STOP_MS: Final = 2000
MOST_FAMILIES: Final = 1000
"""Names come from the program and not from callers; this bounds them even if that changes."""
_SERIES: Final = re.compile(r"([A-Za-z][-_./A-Za-z0-9]{0,254})(?:\{(.*)\})?")
_LABEL: Final = re.compile(r'(\w+)="([^"]*)"')

Points = Mapping[str, Sequence[tuple[Mapping[str, str], float]]]
"""By name of the family: labels and values."""


class Metrics:
    """Instruments for one process's `Introspection`. Made, started and stopped on the loop whose counters are read."""

    def __init__(self, introspection: Introspection, *, readers: Iterable[MetricReader]) -> None:
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.resources import Resource

        self._introspection = introspection
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._log = structlog.get_logger()
        self._families: dict[str, int] = {}
        """The last reading of each family."""
        self._number = 0
        self._points: Points = {}
        self._provider = MeterProvider(
            metric_readers=tuple(readers),
            resource=Resource.create(
                {
                    "service.namespace": "snavio",
                    "service.name": introspection.service,
                    "service.instance.id": introspection.instance,
                    "service.version": program_version(),
                }
            ),
            shutdown_on_exit=False,
        )
        self._meter = self._provider.get_meter("snavio", program_version())
        self._adopt(introspection.reading())

    async def stop(self) -> None:
        """Export a last time and shut down. Not on the loop: the last collection needs it to read."""
        # A collector that does not answer must not delay the end of a service.
        await asyncio.to_thread(self._provider.shutdown, timeout_millis=STOP_MS)

    def _adopt(self, reading: ServiceReport) -> None:
        """Create an instrument for each family that has none yet."""
        for names, make in (
            (_points(reading.counters, reading.histograms()), self._meter.create_observable_counter),
            (_points(reading.gauges, reading.quantiles()), self._meter.create_observable_gauge),
        ):
            for name in names:
                if name not in self._families and len(self._families) < MOST_FAMILIES:
                    self._families[name] = self._number
                    make(name, callbacks=[self._told(name)])

    def _told(self, name: str) -> Callable[[CallbackOptions], Iterator[Observation]]:
        from opentelemetry.metrics import Observation

        def observe(_options: CallbackOptions) -> Iterator[Observation]:
            # A collection reads every instrument once: a second read begins the next collection.
            if self._families[name] == self._number:
                self._read()
            self._families[name] = self._number
            for labels, value in self._points.get(name, ()):
                yield Observation(value, labels)

        return observe

    def _read(self) -> None:
        reading = self._reading()
        self._number += 1
        told = (
            *_points(reading.counters, reading.histograms()).items(),
            *_points(reading.gauges, reading.quantiles()).items(),
        )
        self._points = dict(told)
        if not self._points.keys() <= self._families.keys():
            # Not here: the collection holds the lock that a new instrument needs.
            self._loop.call_soon_threadsafe(self._adopt, reading)

    def _reading(self) -> ServiceReport:
        """The current readings. The counters belong to the loop, and exporters have their own threads."""
        if threading.get_ident() == self._thread:
            return self._introspection.reading()

        async def read() -> ServiceReport:
            return self._introspection.reading()

        asking = asyncio.run_coroutine_threadsafe(read(), self._loop)
        try:
            return asking.result(READ_SECONDS)
        except TimeoutError:
            asking.cancel()
            self._log.warning("metrics not read: the service is too busy")
            return ServiceReport()


def export_metrics(introspection: Introspection, *, exporter: str | None) -> Metrics | None:
    """Export the readings of `introspection` through an exporter; nothing without one. StateError if it is not
    installed.
    """
    return Metrics(introspection, readers=(_reader(exporter),)) if exporter is not None else None


def _reader(name: str) -> MetricReader:
    """A reader that exports through the installed exporter `name`, configured by OpenTelemetry's variables."""
    from importlib.metadata import entry_points

    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

    found = entry_points(group=GROUP, name=name)
    if not found:
        known = ", ".join(sorted({one.name for one in entry_points(group=GROUP)}))
        raise StateError(
            f"[mesh] metrics_exporter is {name!r}, and no such exporter of OpenTelemetry is installed; there are: "
            f"{known}. For otlp: pip install opentelemetry-exporter-otlp.",
            reason="exporter-missing",
        )
    exporter: Any = next(iter(found)).load()
    # Standard output is a launcher's, which reads one line of it and then no more: a pipe that fills up would block.
    return PeriodicExportingMetricReader(exporter(out=sys.stderr) if name == CONSOLE else exporter())


def _points(*sources: Mapping[str, float]) -> Points:
    """`queue_depth{topic="a/b",shard="0"}` by its family; names that OpenTelemetry does not allow are left out."""
    families: defaultdict[str, list[tuple[Mapping[str, str], float]]] = defaultdict(list)
    for source in sources:
        for series, value in source.items():
            matched = _SERIES.fullmatch(series)
            if matched is not None:
                families[matched[1]].append((dict(_LABEL.findall(matched[2] or "")), value))
    return families
