"""Cost of a scrape: a mailbox with 1,000 topics that also decides commands of 10,000 routes, in one process.

No service has both; whichever has one of them costs less.
"""

from __future__ import annotations

import gzip
import time
from pathlib import Path

from bench.targets import SHORT, Targets
from snavio.domain.verdict import Verdict
from snavio.native import Volume
from snavio.observe.command_volume import CommandVolume
from snavio.observe.points import Readings
from snavio.observe.prometheus_text import prometheus_text
from snavio.v1.telemetry_pb2 import TelemetryBlock
from tests.support.mailbox import commands, running_mailbox, send_batch

ROUTES, TOPICS, TENANTS, SCRAPES = 10_000, 1_000, 50, 3 if SHORT else 30


def blocks() -> list[bytes]:
    """Deliveries on every route, and refusals on every tenth, as Fast writes them."""
    told = []
    for start in range(0, ROUTES, 500):
        block = TelemetryBlock(service="fast", dictionary=[""])
        verdicts, lanes = bytearray(), []
        for number in range(start, start + 500):
            tenant = f"tenant-{number % TENANTS}"
            first = len(block.dictionary)
            block.dictionary.extend(
                (
                    f"{tenant}/billing-{number % 20}",
                    f"target-{number:05d}",
                    "notify-user",
                    f"{tenant}/t{number}",
                )
            )
            block.lanes.add(source=first, target=first + 1, name=first + 2, topic=first + 3)
            for verdict in (Verdict.DELIVERED, *([Verdict.RATE_LIMIT_EXCEEDED] if number % 10 == 0 else [])):
                verdicts.append(verdict)
                lanes.append(len(block.lanes) - 1)
        block.verdict = bytes(verdicts)
        block.lane.extend(lanes)
        told.append(block.SerializeToString())
    return told


async def test_a_scrape_of_ten_thousand_routes_and_a_thousand_topics(tmp_path: Path) -> None:
    targets = Targets()
    volume = CommandVolume()
    for block in blocks():
        volume.add(block)
    async with running_mailbox(tmp_path) as office:
        assert office.app is not None
        sender = await office.sender()
        for seq in range(1, TOPICS // 20 + 1):
            names = (
                f"tenant-{number % TENANTS}/queue-{number}" for number in range(20 * (seq - 1), 20 * seq)
            )
            await sender.send(send_batch(seq, *((name, commands(1)) for name in names)))
        shown = office.app.host.introspection
        volume.register(shown)
        readings = Readings(shown)
        cpu, reading, size = [], [], []
        for _ in range(SCRAPES):
            began = time.process_time()
            points = readings.points()
            read = time.process_time()
            text = prometheus_text(points)
            cpu.append((time.process_time() - began) * 1000)
            reading.append((read - began) * 1000)
            size.append(len(text) / 1e6)
        assert text.count(b"snavio_route_commands_total{") >= ROUTES
        assert text.count(b"queue_depth{") >= TOPICS * 0.99
    note = f"{text.count(bytes([10])):,} lines, {len(gzip.compress(text, 1)) / 1e6:.2f} MB compressed"
    targets.at_most("Scrape of 10,000 routes and 1,000 topics: CPU", cpu, ceiling=100, unit="ms", note=note)
    targets.at_most("Scrape: of that on the service's loop", reading, ceiling=100, unit="ms")
    targets.at_most("Scrape: size", size, ceiling=2, unit="MB")
    targets.require()


def test_counting_a_batch_costs_next_to_nothing() -> None:
    targets = Targets()
    volume = Volume(routes=20_000, routes_per_tenant=10_000, sources=10_000, sources_per_tenant=2_500)
    block = TelemetryBlock(service="fast", dictionary=["", "acme/billing", "bot", "notify", "acme/bot"])
    block.lanes.add(source=1, target=2, name=3, topic=4)
    block.verdict = bytes([Verdict.DELIVERED]) * 1000
    block.lane.extend([0] * 1000)
    body, spent = block.SerializeToString(), []
    for _ in range(20):
        began = time.process_time()
        for _ in range(200):
            volume.add(body)
        spent.append((time.process_time() - began) / 200_000 * 1e9)
    targets.at_most("Counting by route and source: CPU per command", spent, ceiling=30, unit="ns")
    targets.require()
