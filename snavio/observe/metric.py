"""One metric as a value: its names, unit and labels, and the reading that it is made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

OTHER: Final = "other"
"""The value of a label for everything beyond the bound of its table."""


class Kind(StrEnum):
    """How a metric behaves."""

    COUNTER = "counter"
    """Only grows, within one life of a process."""
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    """Durations since the start, in buckets."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A row of the table.

    `reads` names the reading of `Introspection` that it tells: exactly, or with one `*`, whose text becomes the value
    of the label `star`. Labels in braces of the reading's name, such as `{topic="acme/bot"}`, are kept. A metric
    without `reads` gets its values from `Introspection.series` under its own name.
    """

    name: str
    """As in OTLP, and as the documents have it where they give one."""
    kind: Kind
    unit: str
    """As UCUM has it: `s`, `By`, `1`, or what is counted in braces."""
    help: str
    labels: tuple[str, ...] = ()
    reads: str = ""
    star: str = ""
    fixed: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Label and value that the readings of a service get, so that a sum over services counts nothing twice."""
    scale: float = 1.0
    """The reading times this is the value, for readings in another unit."""
    known: tuple[str, ...] = ()
    """Values of its first label that are told as 0 until they happen; an empty one for a metric without labels."""
    by: tuple[str, ...] = ()
    """The services that have it; every one if empty."""

    @property
    def prometheus(self) -> str:
        """The name in Prometheus, which allows no dots."""
        return self.name.replace(".", "_")
