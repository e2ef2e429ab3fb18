"""kill -9 of Relay at every step between cut and append: a reader sees every event once, in order, without a gap."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import uuid
from collections.abc import Callable
from pathlib import Path

from snavio.clock import ManualClock
from snavio.wiring import open_outbox, open_tenant_streams
from tests.support.sealing import verified_events
from tests.support.stream_process import TENANT, signer
from tests.support.telemetry import NOW

FULL = os.environ.get("SNAVIO_FULL") == "1"
KILLS = 50 if FULL else 5
PATIENCE_S = 120.0


async def life(folder: Path, kill_at: int = 0) -> int:
    """The steps that a life took; 0 if it killed itself."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.support.stream_process",
        str(folder),
        str(kill_at),
        stdout=asyncio.subprocess.PIPE,
        env=os.environ,
    )
    async with asyncio.timeout(PATIENCE_S):
        told, _ = await process.communicate()
    assert process.returncode in (0, -signal.SIGKILL)
    return int(told) if process.returncode == 0 else 0


async def test_a_verifying_reader_sees_every_event_once_through_kills_at_any_step(
    tmp_path: Path, figure: Callable[[str], None]
) -> None:
    steps = await life(tmp_path)
    assert steps > 50, "each call is a step before and one after it"
    dice = random.Random(os.environ.get("SNAVIO_SEED", "streams"))
    # Spread over all steps: each part of a life is hit, and what the kill before it left is there to be mended.
    moments = [1 + (steps * number + dice.randrange(steps)) // KILLS for number in range(KILLS)]
    dice.shuffle(moments)
    killed = sum([await life(tmp_path, moment) == 0 for moment in moments])
    assert killed >= KILLS - 1
    assert await life(tmp_path) > 0
    outbox = await open_outbox(tmp_path / "outbox.db", max_bytes=1 << 30)
    (known,) = await outbox.lives()
    await outbox.close()
    streams = await open_tenant_streams(tmp_path / "streams.db", clock=ManualClock(NOW))
    events = await verified_events(streams, signer(), TENANT)
    await streams.close()
    seen = [uuid.UUID(event["command_id"]).int for event in events]
    assert seen == list(range(1, known.durable_seq + 1))
    figure(f"{killed} kills between cut and append: {len(seen)} events, each once and in order")
