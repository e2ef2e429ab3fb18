"""Figures with a target: recorded and printed first, judged afterwards, so that a missed one is in the report, too.

Never stops at the first missed target: a run reports all of them.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from bench import meters
from bench.meters import record

SHORT = meters.SHORT

Middle = Callable[[Sequence[float]], float]


@dataclass
class Targets:
    """The measured figures of one benchmark. `by` says which of the values is judged."""

    missed: list[str] = field(default_factory=list)

    def at_least(
        self,
        name: str,
        values: Sequence[float],
        *,
        floor: float,
        unit: str,
        note: str = "",
        by: Middle = statistics.median,
    ) -> None:
        """Record, and note a value below the target."""
        record(name, values=values, unit=unit, target=f"≥ {floor:,g}", note=note)
        if by(values) < floor:
            self.missed.append(f"{name}: {by(values):,.4g} {unit}, and at least {floor:,g} is wanted")

    def at_most(
        self,
        name: str,
        values: Sequence[float],
        *,
        ceiling: float,
        unit: str,
        note: str = "",
        by: Middle = statistics.median,
    ) -> None:
        """Record, and note a value above the target."""
        record(name, values=values, unit=unit, target=f"≤ {ceiling:,g}", note=note)
        if by(values) > ceiling:
            self.missed.append(f"{name}: {by(values):,.4g} {unit}, and at most {ceiling:,g} is wanted")

    def require(self) -> None:
        """Fail with every missed target."""
        assert not self.missed, "; ".join(self.missed)
