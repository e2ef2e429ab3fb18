"""The table of metrics, and what is made of it."""

from __future__ import annotations

import re
from collections.abc import Iterable

import pytest

from snavio.clock import ManualClock
from snavio.config import SERVICES
from snavio.domain.verdict import Verdict
from snavio.host.introspection import Introspection, Sample
from snavio.observe.command_volume import CommandVolume
from snavio.observe.metric import Kind
from snavio.observe.metric_names import METRICS
from snavio.observe.points import Points, Readings
from snavio.observe.prometheus_text import prometheus_text
from snavio.telemetry.latency import LatencyWindow
from snavio.v1.telemetry_pb2 import TelemetryBlock


def introspection(service: str = "fast") -> Introspection:
    return Introspection(service, clock=ManualClock())


def samples(points: Iterable[Points], name: str) -> dict[tuple[str, ...], float]:
    (found,) = (each for each in points if each.metric.name == name)
    return dict(found.samples)


def test_every_name_is_there_once_in_both_spellings() -> None:
    assert len({metric.name for metric in METRICS}) == len({metric.prometheus for metric in METRICS})
    assert len(METRICS) == len({metric.name for metric in METRICS})
    for metric in METRICS:
        assert re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_]*", metric.prometheus), metric.name
        assert set(metric.by) <= set(SERVICES)
        assert metric.help.endswith("."), metric.name


def test_no_two_rows_tell_the_same_reading() -> None:
    reads = [(metric.kind, metric.reads) for metric in METRICS if metric.reads]
    assert len(reads) == len(set(reads))


@pytest.mark.parametrize(
    "name",
    [
        *("Snavio.Cache.Usage.Fresh", "Snavio.Cache.Usage.Stale", "Snavio.Cache.Usage.Expired"),
        *(
            f"Snavio.Cache.{cache}.{what}"
            for cache in ("ACL", "Routing", "HMAC")
            for what in ("Usage.Stale", "RefreshDuration", "StaleWindowSeconds")
        ),
        *("Snavio.Cache.SnapshotLoadFailure", "Snavio.Snapshot.Generated", "Snavio.Snapshot.SizeBytes"),
        *("Snavio.Snapshot.WriteDuration", "Snavio.Dedup.StrictModeUsage"),
        *("Snavio.Dedup.DuplicatesPrevented", "Snavio.Dedup.Escalations", "Snavio.Dedup.SlowPathLatency"),
        *("queue_depth", "inflight", "saturation", "rejected_total", "dlq_total", "reorder_depth_max"),
        *("sse_active_streams", "sse_relay_skip_total", "sse_publisher_sign_failures_total"),
        "sse_envelope_verification_failures_total",
    ],
)
def test_the_names_that_were_promised_are_exactly_those(name: str) -> None:
    assert name in {metric.name for metric in METRICS}


def test_a_star_becomes_a_label_and_the_longest_pattern_wins() -> None:
    shown = introspection()
    shown.counts(
        lambda: {"escalated.cache_miss": 3, "escalated.sync": 1, "dispatched": 7}, prefix="dispatch."
    )
    shown.counts(lambda: {"state.issued": 4, "permits": 9, "failed": 2}, prefix="grants.")
    points = Readings(shown).points()
    assert samples(points, "snavio.dispatch.escalated_total") == {("cache_miss",): 3, ("sync",): 1}
    assert samples(points, "snavio.dispatch.sent_total") == {(): 7}
    assert samples(points, "snavio.grants.answers_total") == {("issued",): 4}
    assert samples(points, "snavio.grants.permits_total") == {("fast",): 9}
    assert samples(points, "snavio.grants.calls_total") == {("calls",): 0, ("failed",): 2}


def test_two_services_that_count_the_same_command_have_different_labels() -> None:
    told = {}
    for service in ("shield", "fast"):
        shown = introspection(service)
        shown.counts(lambda: {"Snavio.Cache.Usage.Fresh": 5})
        told[service] = samples(Readings(shown).points(), "Snavio.Cache.Usage.Fresh")
    assert told == {"shield": {("keys",): 5}, "fast": {("directory",): 5}}


def test_a_reading_that_has_no_row_is_named_and_not_told() -> None:
    shown = introspection()
    shown.counts(lambda: {"nobody.knows.this": 1})
    readings = Readings(shown)
    assert b"nobody" not in prometheus_text(readings.points())
    assert readings.unnamed == {"nobody.knows.this"}


def test_what_is_known_is_told_as_nothing_until_it_happens() -> None:
    points = Readings(introspection("shield")).points()
    assert samples(points, "snavio.shield.answers_total")["hmac-mismatch",] == 0
    assert not any(each.metric.name == "snavio.limits.permits_total" for each in points)


def test_a_counter_whose_source_forgets_neither_falls_nor_vanishes() -> None:
    shown, rows = introspection("mailbox"), dict[tuple[str, ...], float]()
    shown.tables(lambda: {"dlq_total": list(rows.items())}, forgets=frozenset({"dlq_total"}))
    readings, told = Readings(shown), []
    for now in (3.0, 5.0, None, 2.0, 4.0, None, None, 1.0):
        rows.clear()
        if now is not None:
            rows["acme/bot", "nack-dead"] = now
        told.append(samples(readings.points(), "dlq_total")["acme/bot", "nack-dead"])
    assert told == [3, 5, 5, 7, 9, 9, 9, 10]


def text_of(*values: Sample) -> list[str]:
    shown = introspection("mailbox")
    shown.series("dlq_depth", lambda: values)
    return [
        line for line in prometheus_text(Readings(shown).points()).decode().split("\n") if "dlq_depth" in line
    ]


def test_text_has_help_type_and_escaped_labels() -> None:
    assert text_of((('a"b\\c\nd',), 3.0), (("plain",), 0.5), (("off",), float("inf"))) == [
        "# HELP dlq_depth Messages in the dead-letter queue.",
        "# TYPE dlq_depth gauge",
        r'dlq_depth{topic="a\"b\\c\nd"} 3',
        'dlq_depth{topic="plain"} 0.5',
        'dlq_depth{topic="off"} +Inf',
    ]


def test_a_latency_is_a_histogram_whose_buckets_add_up() -> None:
    clock = ManualClock()
    window = LatencyWindow(clock=clock)
    for us in (10, 100, 1000, 10_000, 40_000_000_000):
        window.add(us * 1000, count=2)
    shown = Introspection("shield", clock=clock)
    shown.times("admit_to_verdict", window.read, ever=window.ever)
    lines = prometheus_text(Readings(shown).points()).decode().split("\n")
    name = "snavio_shield_answer_seconds"
    counts = [float(line.split()[1]) for line in lines if line.startswith(f"{name}_bucket")]
    assert counts == sorted(counts) and counts[-1] == 10 and counts[-2] == 8
    assert f"{name}_count 10" in lines
    kinds = {metric.kind for metric in METRICS if metric.prometheus == name}
    assert kinds == {Kind.HISTOGRAM} and f"# TYPE {name} histogram" in lines


def block_of(targets: Iterable[str], *, topic: str = "", verdict: Verdict = Verdict.ROUTE_MISSING) -> bytes:
    """Telemetry of one command to each target."""
    block = TelemetryBlock(service="fast", dictionary=["", "evil/one", "go", topic])
    for target in targets:
        block.dictionary.append(target)
        block.lanes.add(source=1, target=len(block.dictionary) - 1, name=2, topic=3 if topic else 0)
    block.verdict = bytes([verdict]) * len(block.lanes)
    block.lane.extend(range(len(block.lanes)))
    return block.SerializeToString()


def test_a_hundred_thousand_names_of_targets_are_one_row() -> None:
    volume, shown = CommandVolume(), introspection()
    volume.register(shown)
    volume.add(block_of(["bot"], topic="acme/bot", verdict=Verdict.DELIVERED))
    for start in range(0, 100_000, 1000):
        volume.add(block_of(f"t{number}" for number in range(start, start + 1000)))
    points = Readings(shown).points()
    assert samples(points, "snavio.route.commands_total") == {
        ("bot", "go", "delivered"): 1,
        ("other", "other", "route-missing"): 100_000,
    }
    assert samples(points, "snavio.source.commands_total")["evil", "evil/one", "route-missing"] == 100_000
    assert samples(points, "snavio.commands.folded_total") == {("routes",): 100_000, ("sources",): 0}
    assert len(prometheus_text(points)) < 100_000


def test_a_tenant_with_a_hundred_thousand_routes_leaves_half_of_the_rows_to_others() -> None:
    volume, shown = CommandVolume(), introspection()
    volume.register(shown)
    for start in range(0, 100_000, 1000):
        names = (f"t{number}" for number in range(start, start + 1000))
        volume.add(block_of(names, topic="evil/t", verdict=Verdict.DELIVERED))
    volume.add(block_of(["bot"], topic="acme/bot", verdict=Verdict.DELIVERED))
    told = samples(Readings(shown).points(), "snavio.route.commands_total")
    assert told["bot", "go", "delivered"] == 1 and told["other", "other", "delivered"] == 90_000
    assert len(told) == 10_002


def test_a_block_that_cannot_be_read_counts_nothing_and_harms_nothing() -> None:
    volume = CommandVolume()
    volume.add(b"\xff\xff")
    assert list(volume.read()["snavio.commands_total"]) == []
