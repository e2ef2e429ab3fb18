"""A life of Relay from a stored page to an alert's receiver, which kills itself at a chosen step.

`<folder> <step, 0 for none> <life> <port> <CA>`; prints the steps that it took.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from services.relay.cutting import Cutting
from snavio.clock import ManualClock
from snavio.domain.directory import ChannelKind
from snavio.domain.verdict import Verdict
from snavio.ports.outbox import JournalLife, NewPage
from snavio.v1.relay_pb2 import JournalPage
from snavio.wiring import open_outbox, open_tenant_streams
from tests.support.alert_desk import alert_desk
from tests.support.stream_process import Steps
from tests.support.telemetry import NOW, SOURCE, block
from tests.support.webhook_server import HOST

TENANT = SOURCE.partition("/")[0]
PAGES, EVENTS = 2, 3
HOUR_NS = 3600 * 10**9


async def run(folder: Path, kill_at: int, life: int, port: int, ca_file: Path) -> int:
    clock, steps = ManualClock(NOW + life * HOUR_NS), Steps(kill_at)
    outbox = await open_outbox(folder / "outbox.db", max_bytes=1 << 30)
    streams = await open_tenant_streams(folder / "streams.db", clock=clock)
    async with alert_desk(folder, ca_file=ca_file, clock=clock) as desk:
        desk.channel(ChannelKind.WEBHOOK, f"https://{HOST}:{port}/", tenant=TENANT)
        desk.alerting._store = steps.before(desk.store)
        cutting = Cutting(
            outbox=steps.before(outbox),
            streams=steps.before(streams),
            owner=lambda _target: "",
            clock=clock,
            told_per_s=10_000,
            alerts=desk.alerting,
        )
        await cutting.load()
        lives = await outbox.lives()
        last = lives[0].durable_seq if lives else 0
        if kill_at >= 0:
            for _ in range(PAGES):
                first, last = last + 1, last + EVENTS
                rows = JournalPage(block=[block([int(Verdict.MALFORMED)] * EVENTS)]).SerializeToString()
                page = NewPage("fast-0", 7, first, last, NOW, rows)
                await outbox.store([page], [JournalLife("fast-0", 7, "fast", last)])
                await cutting.cut_once()
                await desk.turn()
        else:
            await cutting.cut_once()
            for _ in range(3):
                await desk.turn(seconds=3600)
    await outbox.close()
    await streams.close()
    return steps.taken


if __name__ == "__main__":
    place, moment, number, receiver, ca = sys.argv[1:]
    print(asyncio.run(run(Path(place), int(moment), int(number), int(receiver), Path(ca))))
