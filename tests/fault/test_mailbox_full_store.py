"""A store that takes no more: sends are refused and told to wait, receives go on, and room is found again."""

from __future__ import annotations

import asyncio
from pathlib import Path

from grpc_health.v1 import health_pb2

from services.mailbox.settings import MailboxSettings
from services.mailbox.upkeep import WRITES
from snavio.domain.verdict import Verdict
from tests.support.mailbox import (
    SECONDS,
    TOPIC,
    UNDIVIDED,
    ReceivingPeer,
    commands,
    running_mailbox,
    send_batch,
)

SERVING, NOT_SERVING = 1, 2


async def health(peer: ReceivingPeer, service: str, wanted: int) -> None:
    """Wait until health says so; it looks at the disk every quarter of a second."""
    request = health_pb2.HealthCheckRequest(service=service)
    async with asyncio.timeout(SECONDS):
        while True:
            answer = await peer.channel.call(
                "/grpc.health.v1.Health/Check", request, health_pb2.HealthCheckResponse, timeout_s=SECONDS
            )
            if answer.status == wanted:
                return
            await asyncio.sleep(0.05)


async def test_P_2_full_disk_degrades_writes_before_reads_and_recovers(tmp_path: Path) -> None:
    settings = MailboxSettings(max_store_bytes=1 << 20)
    async with running_mailbox(tmp_path, settings=settings, mesh_settings=UNDIVIDED) as office:
        sender, consumer = await office.sender(), office.consumer()
        await health(consumer, WRITES, SERVING)
        seq = stored = 0
        while True:
            seq += 1
            codes = await sender.send(send_batch(seq, (TOPIC, commands(40, size=2000, mark=f"{seq}-"))))
            if set(codes) == {Verdict.SATURATED}:
                break
            assert set(codes) == {Verdict.DELIVERED}
            stored += 40
            assert stored < 1000, "the bound is felt"
        await health(consumer, WRITES, NOT_SERVING)
        await health(consumer, "snavio.v1.Mailbox", SERVING)
        drained = 0
        while (got := await consumer.receive()).messages:
            drained += len(got.messages)
            await consumer.ack(got.receipts())
        assert drained == stored, "a full disk keeps nobody from reading"
        async with asyncio.timeout(SECONDS):
            while True:
                seq += 1
                codes = await sender.send(send_batch(seq, (TOPIC, commands(40, size=2000))))
                if set(codes) == {Verdict.DELIVERED}:
                    break
                await asyncio.sleep(0.05)
        await health(consumer, WRITES, SERVING)
