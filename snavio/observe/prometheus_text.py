"""Points as Prometheus text, version 0.0.4.

Never needs a lock or the thread that counts: points are values.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Final

from snavio.host.introspection import Sample
from snavio.observe.metric import MetricKind
from snavio.observe.points import Points

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_SPECIAL: Final = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


def prometheus_text(points: Iterable[Points]) -> bytes:
    """The whole answer to a scrape."""
    lines: list[str] = []
    for each in points:
        metric = each.metric
        name = metric.prometheus
        lines.append(f"# HELP {name} {_escaped_help(metric.help)}")
        lines.append(f"# TYPE {name} {metric.kind.value}")
        if metric.kind is MetricKind.HISTOGRAM:
            lines += _histogram(name, each)
        else:
            lines += _samples(name, metric.labels, each.samples)
    lines.append("")
    return "\n".join(lines).encode()


def label_value(text: str) -> str:
    """The value of a label, as it stands between its quotes."""
    return text.translate(_SPECIAL)


def _samples(name: str, labels: tuple[str, ...], samples: Iterable[Sample]) -> Iterator[str]:
    if not labels:
        for _, value in samples:
            yield f"{name} {_number(value)}"
        return
    form = name + "{" + ",".join(f'{label}="%s"' for label in labels) + "} %s"
    for values, value in samples:
        yield form % (*map(label_value, values), _number(value))


def _histogram(name: str, points: Points) -> Iterator[str]:
    totals = points.totals
    if totals is None:
        return
    for edge_s, count in totals.up_to.items():
        yield f'{name}_bucket{{le="{edge_s}"}} {count}'
    yield f'{name}_bucket{{le="+Inf"}} {totals.count}'
    yield f"{name}_sum {_number(totals.sum_s)}"
    yield f"{name}_count {totals.count}"


def _number(value: float) -> str:
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) else repr(float(value))


def _escaped_help(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")
