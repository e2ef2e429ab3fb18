"""I-10: what the mailbox tells about itself, under the names of the document."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from services.mailbox.settings import MailboxSettings
from snavio.errors import Saturated
from snavio.v1.introspection_pb2 import StatusRequest, StatusResponse
from tests.support.mailbox import SECONDS, TOPIC, PostOffice, commands, post_office, send_batch


async def reading(office: PostOffice) -> Any:
    channel = office.operator().channel
    return await channel.call(
        "/snavio.v1.Introspection/Status", StatusRequest(), StatusResponse, timeout_s=SECONDS
    )


async def test_I_10_depth_inflight_saturation_dlq_rejections_and_latencies_are_told(tmp_path: Path) -> None:
    settings = MailboxSettings(max_topic_messages=20, max_inflight=6, max_attempts=1)
    async with post_office(tmp_path, settings=settings) as office:
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


async def test_I_10_a_reading_does_not_grow_with_the_number_of_topics(tmp_path: Path) -> None:
    async with post_office(tmp_path) as office:
        sender = await office.sender()
        for seq in range(1, 9):
            topics = [(f"acme/t{seq}-{n}", commands(1)) for n in range(20)]
            await sender.send(send_batch(seq, *topics))
        told = await reading(office)
        assert sum(one.name.startswith("queue_depth") for one in told.gauge) == 50
