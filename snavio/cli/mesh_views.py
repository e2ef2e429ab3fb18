"""A reading of the mesh for people: a table of its services, and its traffic.

Never computes: what is shown was read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from snavio.cli.output import ago, count, megabytes, micros
from snavio.cli.render import AGE, BLANK, Block, Kind, Record, Row, Table, TableColumn, picked
from snavio.domain.queue_address import TELEMETRY_NAME
from snavio.launch.readings import LatencyReading, MeshReading, ServiceReading

MOST_TOPICS = 3
MOST_REASONS = 3
COLUMNS = (
    "service",
    "state",
    TableColumn("pid", kind=Kind(str, right=True)),
    TableColumn("up for", "uptime_s", AGE),
    TableColumn("memory", "resident_bytes", Kind(megabytes, right=True)),
    TableColumn("CPU", "cpu_percent", Kind("{:.1f} %".format, right=True)),
)


def mesh_blocks(reading: MeshReading, *, phases: Mapping[str, str] | None = None) -> Iterator[Block]:
    """The whole mesh, in fewer rows than a small terminal has; `phases` says more about who does not answer."""
    rows = [_service(service, phases or {}) for service in reading.services]
    together = dict.fromkeys(rows[0]) | {"service": "together", "state": ""}
    for name in ("resident_bytes", "cpu_percent"):
        together[name] = sum(row[name] or 0 for row in rows)
    yield Table(COLUMNS, [*rows, together], style=_style)
    yield BLANK
    yield Record(tuple(_traffic(reading)))


def _service(service: ServiceReading, phases: Mapping[str, str]) -> dict[str, Any]:
    state = "serving" if service.serving else phases.get(service.name, "away")
    numbers = picked(service, "pid", "uptime_s", "resident_bytes", "cpu_percent")
    return {"service": service.name, "state": state} | (
        numbers if service.serving else dict.fromkeys(numbers)
    )


def _style(row: Row) -> str:
    return {"serving": "green", "": "dim"}.get(row["state"], "red")


def _traffic(reading: MeshReading) -> Iterator[tuple[str, str]]:
    refused, refused_per_s = sum(reading.refused.values()), sum(reading.refused_per_s.values())
    per_s = f"in {count(reading.in_per_s)}, delivered {count(reading.delivered_per_s)}"
    yield "commands/s", f"{per_s}, refused {count(refused_per_s)}"
    so_far = f"in {count(reading.delivered + refused)}, delivered {count(reading.delivered)}"
    yield "so far", f"{so_far}, refused {count(refused)}"
    worst = sorted(reading.refused.items(), key=lambda item: -item[1])[:MOST_REASONS]
    if reasons := [f"{reason} {count(number)}" for reason, number in worst if number]:
        yield "refused as", ", ".join(reasons)
    yield "send to verdict", _percentiles(reading.times("shield", "admit_to_verdict"))
    yield "disk commit", _percentiles(reading.times("mailbox", "commit"))
    # A tenant that reads its events as a stream leaves those in its queue alone: they are no backlog of commands.
    waiting = [
        topic
        for topic in reading.topics
        if (topic.ready or topic.inflight) and not topic.topic.endswith(f"/{TELEMETRY_NAME}")
    ]
    for topic in waiting[:MOST_TOPICS]:
        held = f"{count(topic.ready)} ready, {count(topic.inflight)} leased"
        yield "backlog", f"{topic.topic}: {held}, {ago(topic.oldest_age_ms / 1000)} old"
    if not waiting:
        yield "backlog", "nothing waits"
    elif len(waiting) > MOST_TOPICS:
        yield "", f"and {len(waiting) - MOST_TOPICS} more topics"


def _percentiles(times: LatencyReading | None) -> str:
    if times is None:
        return "-"
    return f"p50 {micros(times.p50_us)}, p99 {micros(times.p99_us)}, most {micros(times.max_us)}"
