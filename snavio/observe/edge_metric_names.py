"""The metrics of an edge, which its `metrics` listener tells; docs/metrics.md is made of them, too.

`hookaido_*` are named as the public program names them; a reading without a row fails a test.
"""

from __future__ import annotations

from typing import Final

from snavio.observe.metric import Metric, MetricKind


def _counter(name: str, unit: str, text: str, *labels: str) -> Metric:
    return Metric(name, MetricKind.COUNTER, unit, text, labels=labels, by=("edge",))


def _gauge(name: str, unit: str, text: str, *labels: str) -> Metric:
    return Metric(name, MetricKind.GAUGE, unit, text, labels=labels, by=("edge",))


EDGE: Final = (
    _counter("hookaido_ingress_accepted_total", "{request}", "Requests that were answered 202."),
    _counter("hookaido_ingress_rejected_total", "{request}", "Requests that were refused."),
    _counter(
        "hookaido_ingress_enqueued_total", "{message}", "Messages that were stored, one for each target."
    ),
    _counter(
        "hookaido_ingress_rejected_by_reason_total",
        "{request}",
        "Refused requests; those that no route took have an empty route.",
        "route",
        "reason",
        "status",
    ),
    _counter(
        "hookaido_pull_dequeue_total", "{request}", "Requests of workers for messages.", "route", "status"
    ),
    _counter("hookaido_pull_acked_total", "{message}", "Messages that workers acknowledged.", "route"),
    _counter("hookaido_pull_nacked_total", "{message}", "Messages that workers gave back.", "route"),
    _counter(
        "hookaido_pull_ack_conflict_total", "{message}", "Acks of leases that are unknown or ended.", "route"
    ),
    _counter(
        "hookaido_pull_nack_conflict_total",
        "{message}",
        "Nacks of leases that are unknown or ended.",
        "route",
    ),
    _gauge("hookaido_tracing_enabled", "1", "1 when traces are exported."),
    _counter("snavio_gateway_duplicates_total", "{request}", "Requests that were stored before."),
    _counter("snavio_gateway_replays_total", "{request}", "Requests whose signature was used before."),
    _counter(
        "snavio_gateway_turned_away_total",
        "{request}",
        "Requests that ended before they were whole or could be read.",
        "reason",
        "status",
    ),
    Metric(
        "snavio_gateway_request_seconds",
        MetricKind.HISTOGRAM,
        "s",
        "Time from the head of a request to its answer.",
        by=("edge",),
    ),
    _counter("snavio_gateway_pulled_total", "{message}", "Messages that were given to workers.", "route"),
    _counter(
        "snavio_gateway_pull_refused_total", "{request}", "Requests at the Pull API that no route took."
    ),
    _counter(
        "snavio_gateway_reloads_total", "{reload}", "Reloads of the file, the first included.", "outcome"
    ),
    _gauge("snavio_gateway_config_generation", "1", "Number of the plan in force."),
    _counter("snavio_gateway_secret_read_failures_total", "{read}", "Secrets that could not be read again."),
    _counter(
        "snavio_gateway_access_log_dropped_total",
        "{line}",
        "Lines that the access log could not write in time.",
    ),
    _gauge("snavio_gateway_posting_waiting", "{request}", "Requests that wait for the mailbox."),
    _gauge("snavio_gateway_posting_waiting_bytes", "By", "Bytes of requests that wait for the mailbox."),
    _gauge("snavio_gateway_body_bytes", "By", "Bytes of bodies that are on their way in."),
    _gauge("snavio_gateway_connections", "{connection}", "Open connections.", "listener"),
)
