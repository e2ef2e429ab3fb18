"""docs/metrics.md, made of the table of metrics."""

from __future__ import annotations

from collections.abc import Iterator

from snavio.observe.edge_metric_names import EDGE
from snavio.observe.metric import Metric, MetricKind
from snavio.observe.metric_names import (
    ALERTS,
    CATALOGUE,
    COMMANDS,
    DISPATCH,
    MAILBOX,
    METRICS,
    PROCESS,
    RELAY,
    SHIELD,
)

_SECTIONS = (
    ("Commands", COMMANDS),
    ("Shield", SHIELD),
    ("Caches, dedupe and snapshots", CATALOGUE),
    ("Fast and Slow", DISPATCH),
    ("The mailbox", MAILBOX),
    ("Relay, the gateway, Registry and Signer", RELAY),
    ("Health of routes, alerts, egress", ALERTS),
    ("Every service", PROCESS),
)

_HEAD = """# Metrics

<!-- Written by `make metrics-docs` from snavio/observe/metric_names.py; `make check` compares. -->

Every service tells these metrics as Prometheus text, and by OTLP where `[mesh] metrics_exporter` names an exporter:
see [observability](observability.md).

- In OTLP a metric has the name of the first column, in Prometheus the same with `_` for `.`.
- A command is counted once in the whole fleet, by the one service that decided it: sums over
  instances count none twice. Whatever is counted per batch has another unit.
- A counter neither falls nor vanishes while its process lives; a new process begins at 0.
- Labels are bounded: targets, sources and topics beyond the size of their tables are one row, `other`. Names that no
  route has never make a row.
- Latencies are histograms with buckets that double, from 64 µs to 33 s.
"""

_OF_EDGES = """An edge (`snavio edge run`) tells these, as Prometheus text, where `metrics` in `observability` listens.
"""


def page() -> str:
    """The whole page."""
    return "\n".join([_HEAD, *_rows()])


def _rows() -> Iterator[str]:
    assert sum(len(metrics) for _, metrics in _SECTIONS) == len(METRICS)
    for title, metrics in _SECTIONS:
        yield from _section(title, metrics)
    yield from _section("The edge", EDGE, _OF_EDGES)


def _section(title: str, metrics: tuple[Metric, ...], about: str = "") -> Iterator[str]:
    yield f"## {title}\n"
    if about:
        yield about
    yield "| OTLP | Prometheus | kind | unit | labels | told by | meaning |"
    yield "|---|---|---|---|---|---|---|"
    for metric in metrics:
        yield _row(metric)
    yield ""


def _row(metric: Metric) -> str:
    name = f"{metric.prometheus}_bucket" if metric.kind is MetricKind.HISTOGRAM else metric.prometheus
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    by = ", ".join(metric.by) or "all"
    return f"| `{metric.name}` | `{name}` | {metric.kind.value} | {metric.unit} | {labels} | {by} | {metric.help} |"
