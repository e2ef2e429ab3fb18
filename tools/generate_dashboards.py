"""Writes Grafana's dashboards in `deploy/observability/dashboards` from the panels named here.

With `--check` it changes nothing, and fails when a dashboard is not what it would write.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "deploy" / "observability" / "dashboards"
WIDTH: Final = 24
HEIGHT: Final = 8
SHARE: Final = "snavio_share_used / snavio_share_limit"
LOST: Final = 'what="dropped_rows"'
OF_TENANT: Final = 'tenant=~"$tenant"'
DATA: Final = {"type": "prometheus", "uid": "${datasource}"}


@dataclass(frozen=True)
class Panel:
    """One graph: expressions by legend."""

    title: str
    series: dict[str, str]
    unit: str = "short"
    text: str = ""


@dataclass(frozen=True)
class Dashboard:
    """One page; `variables` are labels to choose by, with the metric that has them."""

    name: str
    title: str
    panels: tuple[Panel, ...]
    variables: tuple[tuple[str, str], ...] = ()


def rate(metric: str, by: str = "", where: str = "") -> str:
    """The sum of a counter's rate."""
    grouped = f" by ({by})" if by else ""
    return f"sum{grouped} (rate({metric}{{{where}}}[$__rate_interval]))"


def p(share: float, metric: str) -> str:
    """A percentile of a latency."""
    return f"histogram_quantile({share}, sum by (le) (rate({metric}_bucket[$__rate_interval])))"


def percentiles(metric: str) -> dict[str, str]:
    """Three of them."""
    return {f"p{share:g}": p(share / 100, metric) for share in (50, 95, 99)}


DASHBOARDS: Final = (
    Dashboard(
        "mesh",
        "Snavio: the mesh",
        (
            Panel("Commands by outcome", {"{{outcome}}": rate("snavio_commands_total", "outcome")}, "cps"),
            Panel("Time to the verdict", percentiles("snavio_shield_answer_seconds"), "s"),
            Panel(
                "Refused at Shield, by reason",
                {"{{reason}}": rate("snavio_admission_refused_total", "reason")},
                "cps",
            ),
            Panel(
                "Left to Slow, by reason", {"{{reason}}": rate("snavio_dispatch_escalated_total", "reason")}
            ),
            Panel(
                "Cached entries by age",
                {
                    f"{{{{cache}}}} {phase}": rate(f"Snavio_Cache_Usage_{phase}", "cache")
                    for phase in ("Fresh", "Stale", "Expired")
                },
            ),
            Panel("Age of caches", {"{{cache}} {{instance}}": "snavio_cache_age_seconds"}, "s"),
            Panel(
                "Refreshes of caches, p95",
                {
                    cache: p(0.95, f"Snavio_Cache_{cache}_RefreshDuration")
                    for cache in ("ACL", "Routing", "HMAC")
                },
                "s",
            ),
            Panel(
                "Strict commands",
                {
                    "strict": rate("Snavio_Dedup_StrictModeUsage"),
                    "duplicates": rate("Snavio_Dedup_DuplicatesPrevented"),
                    "on Slow, p95 (s)": p(0.95, "Snavio_Dedup_SlowPathLatency"),
                },
            ),
            Panel(
                "Permits",
                {
                    "granted": rate("snavio_grants_permits_total", where='at="fast"'),
                    "unneeded": rate("snavio_grants_permits_unneeded_total"),
                    "returned": rate("snavio_grants_permits_returned_total"),
                    "at Slow: {{fate}}": rate("snavio_limits_permits_total", "fate"),
                },
            ),
            Panel(
                "Ready, and links",
                {
                    "{{instance}} {{part}}": "snavio_ready",
                    "{{instance}} to {{to}}": "snavio_link_connected",
                },
            ),
            Panel(
                "Use of shared bounds",
                {"{{instance}} {{bound}}": "snavio_share_used / snavio_share_limit"},
                "percentunit",
            ),
            Panel(
                "CPU",
                {"{{instance}}": "rate(snavio_process_cpu_seconds_total[$__rate_interval])"},
                "percentunit",
            ),
            Panel("Memory", {"{{instance}}": "snavio_process_resident_bytes"}, "bytes"),
            Panel(
                "Calls refused",
                {
                    "{{reason}}": rate("snavio_calls_refused_total", "reason"),
                    "bounds: {{bound}}": rate("snavio_share_refused_total", "bound"),
                },
            ),
            Panel("Certificates end in", {"{{instance}}": "snavio_certificate_expires_seconds"}, "s"),
            Panel(
                "Snapshots",
                {
                    "written": "increase(Snavio_Snapshot_Generated[$__rate_interval])",
                    "failed {{reason}}": "increase(Snavio_Snapshot_Failed[$__rate_interval])",
                    "not loaded {{reason}}": "increase(Snavio_Cache_SnapshotLoadFailure[$__rate_interval])",
                    "size": "Snavio_Snapshot_SizeBytes",
                },
            ),
        ),
    ),
    Dashboard(
        "route",
        "Snavio: routes",
        (
            Panel(
                "By outcome",
                {
                    "{{target}} {{command}} {{outcome}}": rate(
                        "snavio_route_commands_total",
                        "target, command, outcome",
                        'target=~"$target", command=~"$command"',
                    )
                },
                "cps",
            ),
            Panel(
                "Part refused",
                {
                    "{{target}} {{command}}": (
                        rate(
                            "snavio_route_commands_total",
                            "target, command",
                            'outcome!~"delivered|duplicate", target=~"$target", command=~"$command"',
                        )
                        + " / "
                        + rate(
                            "snavio_route_commands_total",
                            "target, command",
                            'target=~"$target", command=~"$command"',
                        )
                    )
                },
                "percentunit",
            ),
            Panel(
                "Throttled",
                {
                    "{{target}} {{outcome}}": rate(
                        "snavio_route_commands_total",
                        "target, outcome",
                        'outcome=~"rate-limit-exceeded|fairness-violation|saturated", target=~"$target"',
                    )
                },
                "cps",
            ),
            Panel(
                "The busiest routes",
                {
                    "{{target}} {{command}}": "topk(10, "
                    + rate("snavio_route_commands_total", "target, command")
                    + ")"
                },
                "cps",
            ),
            Panel(
                "Commands in the row `other`",
                {"{{table}}": rate("snavio_commands_folded_total", "table")},
                "cps",
            ),
            Panel(
                "Misrouted at Fast",
                {"no route": rate("snavio_dispatch_misrouted_total")},
                "cps",
            ),
        ),
        (("target", "snavio_route_commands_total"), ("command", "snavio_route_commands_total")),
    ),
    Dashboard(
        "tenant",
        "Snavio: tenants",
        (
            Panel(
                "Its sources, by outcome",
                {
                    "{{source}} {{outcome}}": rate(
                        "snavio_source_commands_total", "source, outcome", 'tenant=~"$tenant"'
                    )
                },
                "cps",
            ),
            Panel(
                "What it may not do",
                {
                    "{{source}} {{outcome}}": rate(
                        "snavio_source_commands_total",
                        "source, outcome",
                        'tenant=~"$tenant", outcome=~"acl-deny|route-missing|hmac-mismatch|suspended|replayed"',
                    )
                },
                "cps",
            ),
            Panel(
                "Its part of shared bounds",
                {
                    "{{instance}} {{bound}}": 'snavio_share_tenant_used{tenant=~"$tenant"}'
                    " / on (instance, job, bound) group_left () snavio_share_limit"
                },
                "percentunit",
            ),
            Panel("Its queues", {"{{topic}}": 'sum by (topic) (queue_depth{topic=~"$tenant/.*"})'}),
            Panel("Age of the oldest message", {"{{topic}}": 'oldest_age_seconds{topic=~"$tenant/.*"}'}, "s"),
            Panel("Its dead letters", {"{{topic}}": 'dlq_depth{topic=~"$tenant/.*"}'}),
        ),
        (("tenant", "snavio_source_commands_total"),),
    ),
    Dashboard(
        "mailbox",
        "Snavio: the mailbox",
        (
            Panel("Ready messages", {"{{topic}} {{shard}}": 'queue_depth{topic=~"$topic"}'}),
            Panel("Under a lease", {"{{topic}} {{shard}}": 'inflight{topic=~"$topic"}'}),
            Panel("Saturation", {"{{topic}} {{shard}}": 'saturation{topic=~"$topic"}'}, "percentunit"),
            Panel("Age of the oldest message", {"{{topic}}": 'oldest_age_seconds{topic=~"$topic"}'}, "s"),
            Panel("Dead letters", {"{{topic}}": 'dlq_depth{topic=~"$topic"}'}),
            Panel(
                "Deaths, by reason",
                {"{{topic}} {{reason}}": rate("dlq_total", "topic, reason", 'topic=~"$topic"')},
            ),
            Panel(
                "p95 of enqueue and dequeue",
                {
                    **{
                        name: p(0.95, f"{name}_latency_seconds")
                        for name in ("enqueue", "dequeue", "ack", "commit")
                    },
                    "the line": "vector(0.05)",
                },
                "s",
                "p95 of enqueue and of dequeue belongs below 50 ms.",
            ),
            Panel("Rejected, by reason", {"{{reason}}": rate("rejected_total", "reason")}),
            Panel("Leases of all topics", {"part of the ceiling": "inflight_saturation"}, "percentunit"),
            Panel("Out of order", {"{{topic}} {{shard}}": 'reorder_depth_max{topic=~"$topic"}'}),
            Panel("Store", {"bytes": "store_bytes"}, "bytes"),
            Panel("Lost", {"{{topic}}": "lost_total"}),
        ),
        (("topic", "queue_depth"),),
    ),
    Dashboard(
        "spark",
        "Snavio: Spark and what it reads",
        (
            Panel("Events archived", {"{{what}}": rate("snavio_relay_export_total", "what")}),
            Panel("Events taken from the services", {"{{what}}": rate("snavio_relay_intake_total", "what")}),
            Panel("Waiting in the outbox", {"{{what}}": "snavio_outbox_waiting"}),
            Panel("Journals behind", {"{{instance}}": "snavio_journal_waiting_events"}),
            Panel(
                "Events lost by journals",
                {"{{instance}}": rate("snavio_journal_total", "instance", LOST)},
            ),
            Panel("Files merged", {"{{what}}": rate("snavio_relay_compaction_total", "what")}),
            Panel("Bans from the warm path", {"begun": rate("snavio_fairness_warm_bans_total")}),
            Panel("Bans in force", {"{{instance}}": "snavio_dispatch_bans"}),
            Panel("Events by name", {"{{event}}": rate("snavio_events_total", "event")}),
        ),
    ),
)


def document(dashboard: Dashboard) -> dict[str, Any]:
    """As Grafana imports it."""
    variables: list[dict[str, Any]] = [
        {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"}
    ]
    for label, metric in dashboard.variables:
        variables.append(
            {
                "name": label,
                "type": "query",
                "datasource": DATA,
                "query": {"query": f"label_values({metric}, {label})", "refId": label},
                "refresh": 2,
                "includeAll": True,
                "allValue": ".*",
                "multi": True,
                "current": {"text": "All", "value": "$__all"},
            }
        )
    return {
        "uid": f"snavio-{dashboard.name}",
        "title": dashboard.title,
        "tags": ["snavio"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "templating": {"list": variables},
        "panels": [_panel(number, panel) for number, panel in enumerate(dashboard.panels)],
    }


def _panel(number: int, panel: Panel) -> dict[str, Any]:
    half = WIDTH // 2
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": panel.title,
        "description": panel.text,
        "datasource": DATA,
        "gridPos": {"h": HEIGHT, "w": half, "x": number % 2 * half, "y": number // 2 * HEIGHT},
        "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
        "targets": [
            {"refId": f"Q{place}", "datasource": DATA, "expr": expression, "legendFormat": legend}
            for place, (legend, expression) in enumerate(panel.series.items())
        ],
    }


def main() -> None:
    """Write them, or compare."""
    for dashboard in DASHBOARDS:
        path = FOLDER / f"{dashboard.name}.json"
        text = json.dumps(document(dashboard), indent=2, ensure_ascii=False) + "\n"
        if "--check" not in sys.argv[1:]:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
        elif not path.exists() or path.read_text("utf-8") != text:
            sys.exit(f"{path.relative_to(ROOT)} is not up to date; run `make metrics-docs`.")


if __name__ == "__main__":
    main()
