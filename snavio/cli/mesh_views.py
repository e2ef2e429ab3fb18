"""A reading of the mesh for people: as a rich view, and as plain lines that fit sixty columns.

Never computes: what is shown was read.
"""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from snavio.cli.output import ago, count, megabytes, micros
from snavio.launch.readings import LatencyReading, MeshReading, ServiceReading

MOST_TOPICS = 3
MOST_REASONS = 3


def mesh_view(reading: MeshReading, *, phases: Mapping[str, str] | None = None) -> RenderableType:
    """The whole mesh, in fewer rows than a small terminal has; `phases` says more about who does not answer."""
    return Group(_services(reading, phases or {}), Text(), _traffic(reading))


def _services(reading: MeshReading, phases: Mapping[str, str]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in ("service", "state"):
        table.add_column(name)
    for name in ("pid", "up for", "memory", "CPU"):
        table.add_column(name, justify="right")
    for service in reading.services:
        state = _state(service, phases)
        style = "green" if service.serving else "red"
        if not service.serving:
            table.add_row(service.name, Text(state, style), "-", "-", "-", "-")
            continue
        table.add_row(
            service.name,
            Text(state, style),
            str(service.pid),
            ago(service.uptime_s),
            megabytes(service.resident_bytes),
            f"{service.cpu_percent:.1f} %",
        )
    total = sum(service.resident_bytes for service in reading.services)
    used = sum(service.cpu_percent for service in reading.services)
    table.add_row("together", "", "", "", megabytes(total), f"{used:.1f} %", style="dim")
    return table


def _traffic(reading: MeshReading) -> Table:
    grid = Table.grid(padding=(0, 3, 0, 0))
    grid.add_column(style="bold")
    refused = sum(reading.refused.values())
    grid.add_row(
        "commands/s",
        f"in {count(reading.in_per_s)}",
        f"delivered {count(reading.delivered_per_s)}",
        f"refused {count(sum(reading.refused_per_s.values()))}",
    )
    grid.add_row(
        "so far",
        f"in {count(reading.delivered + refused)}",
        f"delivered {count(reading.delivered)}",
        f"refused {count(refused)}",
    )
    reasons = _reasons(reading)
    if reasons:
        grid.add_row("refused as", *reasons)
    verdict, commit = reading.times("shield", "admit_to_verdict"), reading.times("mailbox", "commit")
    grid.add_row("send to verdict", *_percentiles(verdict))
    grid.add_row("disk commit", *_percentiles(commit))
    waiting = [topic for topic in reading.topics if topic.ready or topic.inflight]
    for place, topic in enumerate(waiting[:MOST_TOPICS]):
        grid.add_row(
            "" if place else "backlog",
            topic.topic,
            f"{count(topic.ready)} ready",
            f"{count(topic.inflight)} leased, oldest {ago(topic.oldest_age_ms / 1000)}",
        )
    if not waiting:
        grid.add_row("backlog", "nothing waits")
    elif len(waiting) > MOST_TOPICS:
        grid.add_row("", f"and {len(waiting) - MOST_TOPICS} more topics")
    return grid


def mesh_lines(reading: MeshReading, *, phases: Mapping[str, str] | None = None) -> list[str]:
    """The same without a table."""
    lines = [
        f"{service.name:<9} {_state(service, phases or {})}"
        + (
            f", pid {service.pid}, {ago(service.uptime_s)}, {megabytes(service.resident_bytes)}, "
            f"{service.cpu_percent:.1f} % CPU"
            if service.serving
            else ""
        )
        for service in reading.services
    ]
    refused = sum(reading.refused_per_s.values())
    lines += [
        f"commands/s: in {count(reading.in_per_s)}, delivered {count(reading.delivered_per_s)}, "
        f"refused {count(refused)}",
        f"so far: delivered {count(reading.delivered)}, refused {count(sum(reading.refused.values()))}",
    ]
    lines += [f"  refused as {reason}" for reason in _reasons(reading)]
    for label, times in (
        ("send to verdict", reading.times("shield", "admit_to_verdict")),
        ("disk commit", reading.times("mailbox", "commit")),
    ):
        if times is not None:
            lines.append(f"{label}: {', '.join(_percentiles(times))}")
    lines += [
        f"backlog {topic.topic}: {count(topic.ready)} ready, {count(topic.inflight)} leased"
        for topic in reading.topics[:MOST_TOPICS]
        if topic.ready or topic.inflight
    ]
    return lines


def _state(service: ServiceReading, phases: Mapping[str, str]) -> str:
    return "serving" if service.serving else phases.get(service.name, "away")


def _reasons(reading: MeshReading) -> list[str]:
    worst = sorted(reading.refused.items(), key=lambda item: -item[1])
    return [f"{reason} {count(number)}" for reason, number in worst[:MOST_REASONS] if number]


def _percentiles(times: LatencyReading | None) -> tuple[str, ...]:
    if times is None:
        return ("-",)
    return (f"p50 {micros(times.p50_us)}", f"p99 {micros(times.p99_us)}", f"most {micros(times.max_us)}")
