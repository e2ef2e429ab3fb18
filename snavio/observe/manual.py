"""docs/metrics.md, made of the table of metrics."""

from __future__ import annotations

from collections.abc import Iterator

from snavio.observe.metric import Kind, Metric
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
    ("Alerts and routes", ALERTS),
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


def page() -> str:
    """The whole page."""
    return "\n".join([_HEAD, *_rows()])


def _rows() -> Iterator[str]:
    assert sum(len(metrics) for _, metrics in _SECTIONS) == len(METRICS)
    for title, metrics in _SECTIONS:
        yield f"## {title}\n"
        yield "| OTLP | Prometheus | kind | unit | labels | told by | meaning |"
        yield "|---|---|---|---|---|---|---|"
        for metric in metrics:
            yield _row(metric)
        yield ""


def _row(metric: Metric) -> str:
    name = f"{metric.prometheus}_bucket" if metric.kind is Kind.HISTOGRAM else metric.prometheus
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    by = ", ".join(metric.by) or "all"
    return f"| `{metric.name}` | `{name}` | {metric.kind.value} | {metric.unit} | {labels} | {by} | {metric.help} |"
