"""The time at which a route's demand reaches its capacity: a straight line through its windows, with an interval.

Pure: no Spark, no clock. Never tells a time where the windows do not show growth beyond chance, nor one much further
ahead than what was seen. Takes windows for independent: a rhythm of days in a range of hours looks like growth.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

LEAST_WINDOWS: Final = 12
FARTHEST_HOURS: Final = 168.0
FARTHEST_SPANS: Final = 10.0
"""As many times the range that was seen; beyond it a line says nothing."""


@dataclass(frozen=True, slots=True)
class Line:
    """Sums over the windows of a route: x in hours, y in commands per window."""

    windows: int
    first: float
    last: float
    mean_x: float
    mean_y: float
    sxx: float
    sxy: float
    syy: float

    @property
    def slope(self) -> float:
        """Commands per window, more in each hour."""
        return self.sxy / self.sxx if self.sxx > 0 else 0.0

    @property
    def now(self) -> float:
        """The line's value for the last window."""
        return self.mean_y + self.slope * (self.last - self.mean_x)


@dataclass(frozen=True, slots=True)
class Saturation:
    """Hours from the last window until demand reaches capacity; `latest` is None beyond what can be told."""

    hours: float
    earliest: float
    latest: float | None


def saturation(line: Line, capacity: float) -> Saturation | None:
    """With the times between which it lies in 95 of 100 cases; None where demand does not grow towards it."""
    if line.now >= capacity:
        return Saturation(0.0, 0.0, 0.0)
    if line.windows < LEAST_WINDOWS or line.slope <= 0:
        return None
    freedom = line.windows - 2
    rest = max(0.0, line.syy - line.sxy**2 / line.sxx) / freedom
    spread = _student(freedom) ** 2 * rest
    # Where a line of the band around the fitted one meets the capacity: Fieller's interval, not that of a fixed slope.
    short = line.mean_y - capacity
    a, b, c = line.slope**2 - spread / line.sxx, line.slope * short, short**2 - spread / line.windows
    if a <= 0:
        return None  # A line that falls would be as good.
    root = math.sqrt(max(0.0, b * b - a * c))
    passed = line.last - line.mean_x
    earliest, latest = ((-b + sign * root) / a - passed for sign in (-1, 1))
    hours = -short / line.slope - passed
    most = min(FARTHEST_HOURS, FARTHEST_SPANS * (line.last - line.first))
    if hours > most:
        return None
    return Saturation(hours, max(0.0, earliest), latest if latest <= most else None)


def _student(freedom: int) -> float:
    """The two-sided 95 % quantile, to two digits from ten degrees of freedom on."""
    return 1.96 + 2.37 / freedom + 2.8 / freedom**2
