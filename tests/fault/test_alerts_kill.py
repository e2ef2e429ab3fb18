"""kill -9 of Relay at every step between event and alert: told once or twice, never not, and never miscounted."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from snavio.wiring import open_outbox
from tests.support.alert_desk import data_of
from tests.support.webhook_server import WebAuthority, WebhookServer

FULL = os.environ.get("SNAVIO_FULL") == "1"
KILLS = 50 if FULL else 5
PATIENCE_S = 120.0


async def life(folder: Path, kill_at: int, number: int, port: int, ca_file: Path) -> int:
    """The steps that a life took; 0 if it killed itself."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.support.alert_process",
        *map(str, (folder, kill_at, number, port, ca_file)),
        stdout=asyncio.subprocess.PIPE,
        env=os.environ,
    )
    async with asyncio.timeout(PATIENCE_S):
        told, _ = await process.communicate()
    assert process.returncode in (0, -signal.SIGKILL)
    return int(told.split()[-1]) if process.returncode == 0 else 0


async def test_a_tenant_is_told_of_every_refusal_through_kills_at_any_step(
    tmp_path: Path, figure: Callable[[str], None]
) -> None:
    web = WebAuthority.make(tmp_path / "web")
    folder = tmp_path / "relay"
    folder.mkdir()
    async with WebhookServer.running(web) as server:

        async def living(kill_at: int, number: int) -> int:
            return await life(folder, kill_at, number, server.port, web.ca_file)

        steps = await living(0, 0)
        assert steps > 30, "each call is a step before and one after it"
        dice = random.Random(os.environ.get("SNAVIO_SEED", "alerts"))
        moments = [1 + (steps * number + dice.randrange(steps)) // KILLS for number in range(KILLS)]
        dice.shuffle(moments)
        killed = sum([await living(moment, number + 1) == 0 for number, moment in enumerate(moments)])
        assert killed >= KILLS - 1
        assert await living(-1, KILLS + 2) >= 0
        received = [data_of(request.body) for request in server.received]
    outbox = await open_outbox(folder / "outbox.db", max_bytes=1 << 30)
    (known,) = await outbox.lives()
    await outbox.close()
    times = Counter(alert["alert_id"] for alert in received)
    assert set(times.values()) <= {1, 2}
    counts = {alert["alert_id"]: alert["count"] for alert in received}
    assert sum(counts.values()) == known.durable_seq
    twice = sum(many == 2 for many in times.values())
    figure(
        f"{killed} kills between event and alert: {known.durable_seq} refusals in {len(times)} alerts,"
        f" {twice} of them twice"
    )
