"""Statistics of figures measured by turns: the change between two commits, and its confidence.

Never assumes a distribution: times on a shared machine have none worth a name. Median and interval come from the order
of the values alone.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

CONFIDENCE: Final = 0.95
ENOUGH: Final = 20
"""Pairs needed for a figure; fewer are only an indication."""

Kind = Literal["ratio", "difference"]


def interval(values: Sequence[float], confidence: float = CONFIDENCE) -> tuple[float, float] | None:
    """The two values between which the true median lies with at least `confidence`; None for too few values.

    The median lies below the k-th smallest value only if fewer than k of n fair coins fell on its side.
    """
    ordered, count = sorted(values), len(values)
    outside, rank = 0.0, 0
    while rank < count // 2:
        outside += math.comb(count, rank) / 2**count
        if 2 * outside > 1 - confidence:
            break
        rank += 1
    if rank == 0:
        return None
    return ordered[rank - 1], ordered[count - rank]


@dataclass(frozen=True, slots=True)
class Comparison:
    """One figure of two commits: medians of each, and of the change within the pairs."""

    name: str
    unit: str
    kind: Kind
    limit: float | None
    base: float
    here: float
    change: float
    low: float | None
    high: float | None

    @property
    def holds(self) -> str:
        """The verdict on the limit: `yes` and `no` are certain, `perhaps` needs more pairs."""
        if self.limit is None:
            return "-"
        if self.low is None or self.high is None or self.low <= self.limit < self.high:
            return "perhaps"
        return "yes" if self.high <= self.limit else "no"


def compare(
    name: str, pairs: Sequence[tuple[float, float]], *, unit: str, kind: Kind, limit: float | None = None
) -> Comparison:
    """`pairs` are (base, here), each measured one after the other."""
    if not pairs:
        raise ValueError(f"{name}: no pair was measured.")
    changes = [here / base if kind == "ratio" else here - base for base, here in pairs]
    found = interval(changes)
    return Comparison(
        name,
        unit,
        kind,
        limit,
        statistics.median(base for base, _ in pairs),
        statistics.median(here for _, here in pairs),
        statistics.median(changes),
        found[0] if found else None,
        found[1] if found else None,
    )


def order(pair: int) -> tuple[str, str]:
    """The order alternates, so that a machine that warms up or slows down favours neither side."""
    return ("base", "here") if pair % 2 == 0 else ("here", "base")
