"""Relay remembers its writers for a month: its memory grows with writers, and not with every start of one."""

from __future__ import annotations

from pathlib import Path

from services.relay.page_intake import KEEP_LIVES_NS
from tests.support.telemetry import arrival, block, inside

DAY_NS = 86_400 * 1_000_000_000


async def test_lives_of_processes_that_never_came_back_are_forgotten_after_a_month(tmp_path: Path) -> None:
    async with inside(tmp_path) as relay:
        for pod in range(50):
            await relay.intake.take(arrival(instance=f"fast-pod-{pod}"))
        assert len(relay.intake._lives) == len(await relay.outbox.lives()) == 50
        relay.clock.advance(ns=KEEP_LIVES_NS // 2)
        # Idle, and alive: it comes back every hour, with nothing to say.
        await relay.intake.take(arrival(instance="fast-pod-7"))
        relay.clock.advance(ns=KEEP_LIVES_NS // 2 + DAY_NS)
        await relay.intake.take(arrival(block([1] * 5), instance="fast-0"))
        # The sweep follows the commit that it comes after.
        await relay.intake.take(arrival(instance="fast-0"))
        kept = {life.instance for life in await relay.outbox.lives()}
        assert kept == {"fast-pod-7", "fast-0"}
        assert {instance for instance, _ in relay.intake._lives} == kept
        assert relay.intake.counters()["lives_forgotten"] == 49
