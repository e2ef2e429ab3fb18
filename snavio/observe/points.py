"""The values of every metric of one process at one moment, under the names of the table.

Never reads a counter from another thread than its own, and never lets a counter fall or vanish: what forgets its
counts, such as a topic that was removed, is told on with the last of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

from snavio.host.introspection import Introspection, LatencyTotals, Sample
from snavio.observe.metric import Kind, Metric
from snavio.observe.metric_names import ALIASES, METRICS, REPEATED

MOST_REMEMBERED: Final = 50_000
"""Series of counters that forget, whose last value is kept here."""
_LABEL: Final = re.compile(r'(\w+)="([^"]*)"')
_BY_NAME: Final = {metric.name: metric for metric in METRICS}


@dataclass(frozen=True, slots=True)
class Points:
    """One metric with its samples; a histogram with its totals instead."""

    metric: Metric
    samples: Sequence[Sample] = ()
    totals: LatencyTotals | None = None


class Readings:
    """Turns the readings of one process into points. Used on the thread that counts."""

    def __init__(self, introspection: Introspection) -> None:
        self._introspection = introspection
        self._last: dict[str, dict[tuple[str, ...], tuple[float, float]]] = {}
        """By metric and labels: the last reading, and what earlier lives of the counted thing had reached."""
        self._remembered = 0
        self.unnamed: set[str] = set()
        """Readings that no row of the table tells."""

    def points(self) -> list[Points]:
        """Every metric that this process has now, in the order of the table."""
        introspection = self._introspection
        reading, service = introspection.reading(), introspection.service
        found: dict[str, dict[tuple[str, ...], float]] = {}
        for metric in METRICS:
            if metric.known and (not metric.by or service in metric.by):
                found[metric.name] = {
                    _labels(metric, service, {metric.labels[0]: value} if metric.labels else {}): 0.0
                    for value in metric.known
                }
        for kind, values in ((Kind.COUNTER, reading.counters), (Kind.GAUGE, reading.gauges)):
            for name, value in values.items():
                self._place(name, value, kind, service, found)
        totals: dict[str, LatencyTotals] = {}
        for name, ever in reading.ever.items():
            placed = _row(name, Kind.HISTOGRAM)
            if placed is None:
                self.unnamed.add(name)
            else:
                totals[placed[0].name] = ever
        for name, samples, forgets in introspection.every_series():
            found.setdefault(name, {}).update(self._lasting(name, samples) if forgets else samples)
        return [
            Points(metric, list(found.get(metric.name, {}).items()), totals.get(metric.name))
            for metric in METRICS
            if found.get(metric.name) or metric.name in totals
        ]

    def _place(
        self,
        reading: str,
        value: float,
        kind: Kind,
        service: str,
        found: dict[str, dict[tuple[str, ...], float]],
    ) -> None:
        base, brace, inside = reading.partition("{")
        placed = _row(base, kind)
        if placed is None:
            if base not in REPEATED and base not in _BY_NAME:
                self.unnamed.add(base)
            return
        metric, star = placed
        given = dict(_LABEL.findall(inside)) if brace else {}
        if metric.star:
            given[metric.star] = star
        samples = found.setdefault(metric.name, {})
        key = _labels(metric, service, given)
        samples[key] = samples.get(key, 0.0) + value * metric.scale

    def _lasting(self, name: str, read: Iterable[Sample]) -> Iterable[Sample]:
        """Samples of a counter that forgets: those that are gone stay, and those that begin again go on."""
        last, told = self._last.setdefault(name, {}), {}
        for labels, value in read:
            before = last.get(labels)
            if before is None and self._remembered >= MOST_REMEMBERED:
                told[labels] = value
                continue
            self._remembered += before is None
            reached, behind = before or (0.0, 0.0)
            if value < reached:
                behind += reached
            last[labels] = (value, behind)
            told[labels] = value + behind
        for labels, (reached, behind) in last.items():
            if labels not in told:
                # From 0 again if it comes back.
                last[labels] = (0.0, reached + behind)
                told[labels] = reached + behind
        return told.items()


def _labels(metric: Metric, service: str, given: Mapping[str, str]) -> tuple[str, ...]:
    """The values of a metric's labels, with what is fixed for the service."""
    if service in metric.fixed:
        given = {**given, **dict((metric.fixed[service],))}
    return tuple(given.get(label, "") for label in metric.labels)


@cache  # Names of readings come from the program.
def _row(reading: str, kind: Kind) -> tuple[Metric, str] | None:
    """The row that tells a reading, and what its star stands for."""
    for alias, name in ALIASES.items():
        if reading.startswith(alias):
            reading = name + reading.removeprefix(alias)
    best: tuple[int, Metric, str] | None = None
    for metric in METRICS:
        if metric.kind is not kind or not metric.reads:
            continue
        if metric.reads == reading:
            return metric, ""
        before, star, after = metric.reads.partition("*")
        if (
            star
            and len(reading) > len(before) + len(after)
            and reading.startswith(before)
            and reading.endswith(after)
            and (best is None or len(before) > best[0])
        ):
            best = (len(before), metric, reading[len(before) : len(reading) - len(after)])
    return None if best is None or reading in REPEATED else best[1:]
