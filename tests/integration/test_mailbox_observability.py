"""I-10: what the mailbox tells about itself, under the names of the document."""

from __future__ import annotations

import asyncio
import re
import time
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.metrics.export import ConsoleMetricExporter, HistogramDataPoint, NumberDataPoint

from services.mailbox.settings import MailboxSettings
from snavio.clock import SystemClock
from snavio.errors import Saturated
from snavio.observe.otlp_metrics import MetricsExport
from snavio.observe.points import Readings
from snavio.v1.introspection_pb2 import StatusRequest, StatusResponse
from tests.support.killable import killable
from tests.support.mailbox import SECONDS, TOPIC, MailboxFixture, commands, running_mailbox, send_batch


async def reading(office: MailboxFixture) -> Any:
    channel = office.operator().channel
    return await channel.call(
        "/snavio.v1.Introspection/Status", StatusRequest(), StatusResponse, timeout_s=SECONDS
    )


async def test_I_10_depth_inflight_saturation_dlq_rejections_and_latencies_are_told(tmp_path: Path) -> None:
    settings = MailboxSettings(max_topic_messages=20, max_inflight=6, max_attempts=1)
    async with running_mailbox(tmp_path, settings=settings) as office:
        sender, consumer = await office.sender(), office.consumer()
        await sender.send(send_batch(1, (TOPIC, commands(10))))
        await sender.send(send_batch(2, (TOPIC, commands(15))))
        got = await consumer.receive()
        with pytest.raises(Saturated):
            await consumer.receive()
        await consumer.ack(got.receipts(0, 1))
        await consumer.nack(got.receipts(1, 3), dead=True)
        await consumer.nack(got.receipts(3, 4))
        told = await reading(office)
        gauges = {one.name: one.value for one in told.gauge}
        where = f'{{topic="{TOPIC}",shard="0"}}'
        assert gauges["queue_depth" + where] == 4
        assert gauges["inflight" + where] == 2
        assert gauges["saturation" + where] == pytest.approx(6 / 20)
        assert gauges["reorder_depth_max" + where] == 0
        assert gauges[f'dlq_depth{{topic="{TOPIC}"}}'] == 3
        assert gauges["inflight_saturation"] == pytest.approx(2 / 6)
        assert gauges["dlq_ephemeral"] == 0
        counters = {one.name: one.value for one in told.counter}
        assert counters[f'dlq_total{{topic="{TOPIC}",reason="nack-dead"}}'] == 2
        assert counters[f'dlq_total{{topic="{TOPIC}",reason="max-attempts"}}'] == 1
        assert counters['rejected_total{reason="shard-full"}'] == 15
        assert counters['rejected_total{reason="inflight-ceiling"}'] == 1
        latencies = {one.name: one.count for one in told.latency}
        assert latencies["enqueue"] == 2 and latencies["dequeue"] == 1 and latencies["ack"] == 1


async def test_P_9_retention_windows_are_told_and_those_of_topics_where_they_differ(tmp_path: Path) -> None:
    settings = MailboxSettings(
        retention_ready_s=3600,
        retention_delivered_s=60,
        retention_delivered_messages=500,
        retention_dlq_s=7200,
        retention_dlq_messages=900,
        retention_inflight_visibilities=4,
        max_visibility_ms=10_000,
        topic_rules=f"{TOPIC} ready_s=30 dlq_messages=7; acme/bot max_attempts=2",
    )
    async with running_mailbox(tmp_path, settings=settings) as office:
        told = {one.name: one.value for one in (await reading(office)).gauge if "retention_" in one.name}
    assert told == {
        'retention_seconds{state="ready"}': 3600,
        'retention_seconds{state="inflight"}': 40,
        'retention_seconds{state="delivered"}': 60,
        'retention_seconds{state="dlq"}': 7200,
        'retention_messages{state="ready"}': settings.max_topic_messages,
        'retention_messages{state="inflight"}': settings.max_inflight,
        'retention_messages{state="delivered"}': 500,
        'retention_messages{state="dlq"}': 900,
        "retention_visibilities": 4,
        f'retention_seconds{{topic="{TOPIC}",state="ready"}}': 30,
        'retention_seconds{topic="*/snavio.telemetry",state="ready"}': 14 * 86_400,
        f'retention_messages{{topic="{TOPIC}",state="dlq"}}': 7,
    }


async def test_I_10_a_reading_does_not_grow_with_the_number_of_topics(tmp_path: Path) -> None:
    async with running_mailbox(tmp_path) as office:
        sender = await office.sender()
        for seq in range(1, 9):
            topics = [(f"acme/t{seq}-{n}", commands(1)) for n in range(20)]
            await sender.send(send_batch(seq, *topics))
        told = await reading(office)
        assert sum(one.name.startswith("queue_depth") for one in told.gauge) == 50


class Watch:
    """Collects what a mailbox in this process exports."""

    def __init__(self, office: MailboxFixture) -> None:
        assert office.app is not None
        self._readings = Readings(office.app.host.introspection)
        self.export = MetricsExport(
            office.app.host.introspection, exporter=ConsoleMetricExporter(), clock=SystemClock()
        )

    async def collect(self) -> dict[str, dict[frozenset[tuple[str, str]], float]]:
        """By name and labels; of a histogram the number of durations."""
        (resource,) = self.export.data(self._readings.points(), 1).resource_metrics
        assert resource.resource.attributes["service.name"] == "mailbox"
        return {
            metric.name: {
                frozenset((key, str(value)) for key, value in (point.attributes or {}).items()): (
                    point.value if isinstance(point, NumberDataPoint) else float(point.count)
                )
                for point in metric.data.data_points
                if isinstance(point, NumberDataPoint | HistogramDataPoint)
            }
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }

    def histogram(self, name: str) -> HistogramDataPoint:
        (resource,) = self.export.data(self._readings.points(), 1).resource_metrics
        (scope,) = resource.scope_metrics
        ((point,),) = (metric.data.data_points for metric in scope.metrics if metric.name == name)
        assert isinstance(point, HistogramDataPoint)
        return point


def labels(**given: str) -> frozenset[tuple[str, str]]:
    return frozenset(given.items())


async def test_I_10_numbers_are_told_to_opentelemetry_under_their_names(tmp_path: Path) -> None:
    settings = MailboxSettings(max_topic_messages=20, max_inflight=6, max_attempts=1)
    async with running_mailbox(tmp_path, settings=settings) as office:
        sender, consumer = await office.sender(), office.consumer()
        watch = Watch(office)
        await sender.send(send_batch(1, (TOPIC, commands(10))))
        where = labels(topic=TOPIC, shard="0")
        told = await watch.collect()
        assert told["queue_depth"] == {where: 10} and told["inflight"] == {where: 0}
        await sender.send(send_batch(2, (TOPIC, commands(15))))
        got = await consumer.receive()
        with pytest.raises(Saturated):
            await consumer.receive()
        await consumer.ack(got.receipts(0, 1))
        await consumer.nack(got.receipts(1, 3), dead=True)
        await consumer.nack(got.receipts(3, 4))
        told = await watch.collect()
        assert told["queue_depth"] == {where: 4} and told["inflight"] == {where: 2}
        assert told["saturation"] == {where: pytest.approx(6 / 20)}
        assert told["reorder_depth_max"] == {where: 0}
        assert told["dlq_total"] == {
            labels(topic=TOPIC, reason="nack-dead"): 2,
            labels(topic=TOPIC, reason="max-attempts"): 1,
        }
        assert told["rejected_total"] == {
            labels(reason="shard-full"): 15,
            labels(reason="inflight-ceiling"): 1,
        }
        assert told["dlq_ephemeral"] == {labels(): 0}
        for name, times in (("enqueue", 2), ("dequeue", 1), ("ack", 1)):
            point = watch.histogram(f"{name}_latency_seconds")
            assert sum(point.bucket_counts) == point.count == times
            assert len(point.bucket_counts) == len(point.explicit_bounds) + 1
            assert point.explicit_bounds[-1] == 33.554432 and point.bucket_counts[-1] == 0
            assert 0 <= point.sum < 33 * times
        assert not any(name.startswith("topic.") for name in told), "no family is named by callers"


async def test_G_5_latencies_of_enqueue_and_dequeue_are_told_and_leave_room_below_50_ms(
    tmp_path: Path,
) -> None:
    times = 60
    # A real clock: one that is moved by hand stands still while the mailbox works, and every latency would be nothing.
    async with running_mailbox(tmp_path, clock=SystemClock()) as office:
        sender, consumer = await office.sender(), office.consumer()
        watch = Watch(office)
        began_s = time.process_time()
        for seq in range(1, times + 1):
            await sender.send(send_batch(seq, (TOPIC, commands(10))))
            await consumer.ack((await consumer.receive()).receipts())
        used_ms = (time.process_time() - began_s) / times * 1000
        told = await reading(office)
        found = {name: watch.histogram(f"{name}_latency_seconds") for name in ("enqueue", "dequeue", "ack")}
    recent = {one.name: one for one in told.latency}
    for name in ("enqueue", "dequeue", "ack"):
        one, ever = recent[name], found[name]
        assert one.count == ever.count == times
        assert 0 < one.p50_us <= one.p95_us <= one.p99_us and one.max_us > 0
        assert ever.sum > 0
        # An edge on either side of 50 ms: a dashboard can draw the document's line.
        assert {0.032768, 0.065536} <= set(ever.explicit_bounds)
    # The document's p95 of 50 ms is time on a machine that has nothing else to do, and bench/test_mailbox.py holds it.
    # Here others may be at work, who stretch a time and hardly the CPU that a send, a receive and an ack take: all of
    # them together, on both sides of the wire, must fit.
    assert used_ms < 50


async def test_I_10_mailbox_process_tells_the_exporter_that_it_is_given(tmp_path: Path) -> None:
    async with killable(tmp_path) as office:
        office.environment = {
            "SNAVIO_MESH__METRICS_EXPORTER": "console",
            "OTEL_METRIC_EXPORT_INTERVAL": "100",
        }
        await office.start()
        await (await office.sender()).send(send_batch(1, (TOPIC, commands(7))))
        log, seen = tmp_path / "mailbox.log", ""
        async with asyncio.timeout(SECONDS):
            while not re.search(r'"queue_depth".*?"value": 7', seen, re.DOTALL):
                await asyncio.sleep(0.05)
                seen = log.read_text()
        assert TOPIC in seen


async def test_exporter_that_is_not_installed_is_named_at_the_start(tmp_path: Path) -> None:
    async with killable(tmp_path) as office:
        office.environment = {"SNAVIO_MESH__METRICS_EXPORTER": "nowhere"}
        with pytest.raises(AssertionError, match="'nowhere', and no such exporter"):
            await office.start()
