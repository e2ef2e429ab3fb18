"""Shares of a saturated route, to find a source that lost the warm path and goes on taking the route from others.

Counted on the commands that came to Slow and those that it let through, in the interval of the limit; that others
compete is known from Fast's report of the ban or from their commands here. Never counts commands that the directory
refused: no source can frame a rival.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from snavio.clock import Clock
from snavio.domain.directory import Fairness

RIVAL_MINIMUM = 5
"""Commands in an interval from which on another source is a competitor, as in Fast: a probe is none."""
MAX_ROUTES = 10_000
MAX_SOURCES = 256
MAX_REPORTS = 10_000
# As long as a ban may be the reason for what is escalated now.
REPORT_NS = 120 * 1_000_000_000

Route = tuple[str, str]


@dataclass(frozen=True, slots=True)
class TrafficShares:
    """The shares that a refusal names."""

    source: float
    competing: float
    volume: int


@dataclass(slots=True)
class _Interval:
    number: int
    offered: dict[str, int] = field(default_factory=dict)
    taken: dict[str, int] = field(default_factory=dict)
    """By source; when there are too many, the rest is counted under no name."""


class Dominance:
    """One table of routes, one of reports; when full, the entry used longest ago makes room."""

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._routes: OrderedDict[Route, _Interval] = OrderedDict()
        self._reports: OrderedDict[tuple[str, str, str], tuple[int, float]] = OrderedDict()

    def reported(self, source: str, route: Route, competing_share: float) -> None:
        """Note that Fast has banned a source while others offered this share."""
        key = (source, *route)
        self._reports[key] = (self._clock.mono_ns(), competing_share)
        self._reports.move_to_end(key)
        if len(self._reports) > MAX_REPORTS:
            self._reports.popitem(last=False)

    def count(self, source: str, route: Route, interval: int, *, offered: int, taken: int) -> None:
        """Count the commands of a source that wanted a limited route, and those that got it."""
        counted = self._routes.get(route)
        if counted is None or counted.number != interval:
            counted = self._routes[route] = _Interval(interval)
            if len(self._routes) > MAX_ROUTES:
                self._routes.popitem(last=False)
        self._routes.move_to_end(route)
        name = source if source in counted.offered or len(counted.offered) < MAX_SOURCES else ""
        counted.offered[name] = counted.offered.get(name, 0) + offered
        counted.taken[name] = counted.taken.get(name, 0) + taken

    def shares(
        self, source: str, route: Route, interval: int, *, used: int, fairness: Fairness
    ) -> TrafficShares | None:
        """The shares if the source is dominant in the interval, in which `used` permits are gone; None otherwise."""
        counted = self._routes.get(route)
        if counted is None or counted.number != interval or used < fairness.minimum_volume:
            return None
        source_share = min(1.0, counted.taken.get(source, 0) / used)
        if source_share <= fairness.dominant_share:
            return None
        offered = sum(counted.offered.values())
        competing = (offered - counted.offered.get(source, 0)) / offered if offered else 0.0
        at, reported = self._reports.get((source, *route), (0, 0.0))
        if at and self._clock.mono_ns() - at < REPORT_NS:
            competing = max(competing, reported)
        competitors = sum(
            number >= RIVAL_MINIMUM for other, number in counted.offered.items() if other != source
        )
        if competing < fairness.competing_share and competitors < fairness.competitors:
            return None
        return TrafficShares(source_share, min(1.0, competing), used)
