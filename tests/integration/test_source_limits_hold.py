"""Three Fasts and two Slows share the limits of a route and of one source on it: neither is ever exceeded.

Time is simulated, as in test_limits_hold. SNAVIO_FULL=1 runs longer and with more seeds.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from services.fast.grants import GrantKeeper
from services.slow.grants import Grants
from services.slow.lane_rules import rule_of, source_rule_of
from snavio.adapters.embedded.sqlite_coordination import SqliteCoordination
from snavio.clock import ManualClock
from snavio.domain.claim import Terms
from snavio.errors import Unavailable
from snavio.native import Dispatch
from snavio.ports.coordination import PermitAsk, PermitReturn
from snavio.rpc.channel import MeshChannel
from snavio.v1 import registry_pb2 as reg
from tests.support.frames import RunOf, batch, command
from tests.support.limited_world import STEP_MS, Drifting, Wire, World

FULL = os.environ.get("SNAVIO_FULL") == "1"
SEEDS = range(12 if FULL else 3)
SECONDS = 24 if FULL else 8
INTERVAL_MS = 2000
BOUNDED, FREE, TARGET, NAME = "acme/billing", "acme/shop", "bot", "say"
COMMAND = command(target=TARGET, name=NAME)
OF_ROUTE, OF_SOURCE = 2000, 600


@dataclass
class Registry:
    """Registry as Slow sees it: one route, and one source with a limit of its own."""

    route: reg.Route

    async def resolve(self, keys: Any, *, timeout_ms: int) -> dict[Any, reg.Resolution]:
        del timeout_ms
        return {key: self.of(key[0]) for key in keys}

    def of(self, source: str) -> reg.Resolution:
        if source != BOUNDED:
            return reg.Resolution(route=self.route, allowed=True)
        quota = reg.SourceQuota(
            source=source, target=TARGET, name=NAME, max=OF_SOURCE, interval_seconds=2, always=True
        )
        return reg.Resolution(route=self.route, allowed=True, source_quota=quota)


class Fast:
    """One instance: its tables, its clock, its permits."""

    def __init__(self, number: int, wire: Wire, clock: Drifting, *, limited: bool) -> None:
        self.clock = clock
        self.dispatch = Dispatch()
        self.dispatch.put_route(
            TARGET, NAME, queue=0, topic="acme/bot", profile=3, strict=False, limited=limited
        )
        for source in (BOUNDED, FREE):
            self.dispatch.allow(source, TARGET, NAME, 1)
        self.dispatch.limit_source(BOUNDED, TARGET, NAME, limited=True)
        self.keeper = GrantKeeper(
            dispatch=self.dispatch,
            slow=cast("MeshChannel", wire),
            clock=clock,
            instance=f"fast-{number}",
            pause_s=0.05,
        )
        self.fetching: asyncio.Task[None] | None = None

    def send(self, source: str, count: int) -> tuple[int, int]:
        """(sent from memory, escalated)."""
        now = self.clock.mono_ns()
        self.dispatch.renewed(now)
        plan = self.dispatch.plan(batch(RunOf([COMMAND] * count, source)), now_mono_ns=now)
        return sum(send.count for send in plan.sends), plan.escalated

    def fetch(self) -> None:
        if self.fetching is None or self.fetching.done():
            if self.fetching is not None and not isinstance(self.fetching.exception(), Unavailable | None):
                self.fetching.result()
            self.fetching = asyncio.create_task(self.keeper.fetch())


async def decide(store: SqliteCoordination, found: reg.Resolution, source: str, count: int) -> int:
    """Commands that Slow lets through: with a permit of the source, then one of the route."""
    of_source, of_route = source_rule_of(found), rule_of(found.route)
    back = []
    if of_source is not None:
        [permits] = await store.take([PermitAsk((source, TARGET, NAME), of_source, count)])
        key = (source, TARGET, NAME)
        back = [PermitReturn(key, of_source.interval_ms, permits.interval, permits.count)]
        count = permits.count
    if of_route is not None and count:
        [permits] = await store.take([PermitAsk((TARGET, NAME), of_route, count)])
        spare = [
            PermitReturn(each.key, each.interval_ms, each.interval, each.count - permits.count)
            for each in back
        ]
        if spare and spare[0].count:
            await store.give_back(spare)
        count = permits.count
    return count


async def run(folder: Path, route: reg.Route, *, seed: int) -> tuple[dict[str, Counter[int]], Counter[str]]:
    """Dispatches by source and interval, of all instances together, and the keepers' counters."""
    randomness = random.Random(seed)
    clock = ManualClock(1_700_000_000_000_000_000)
    world = World(clock)
    store = await SqliteCoordination.open(
        folder / "coordination.db",
        clock=clock,
        known_epoch=None,
        fresh_epoch="one",
        boot="boot-1",
        terms=Terms(lease_ms=2000, keep_ms=300_000),
        max_claims=10,
        max_claims_per_source=10,
    )
    registry = Registry(route)
    slows = [Grants(lane_rules=registry, store=store, leases=5, timeout_ms=1000) for _ in range(2)]  # type: ignore[arg-type]
    fasts = [
        Fast(
            number,
            Wire(world, slows[number % 2], randomness, 0.05),
            Drifting(clock, randomness.randrange(10**15), 1 + randomness.uniform(-1e-3, 1e-3)),
            limited=route.HasField("limit"),
        )
        for number in range(3)
    ]
    counted: dict[str, Counter[int]] = {BOUNDED: Counter(), FREE: Counter()}
    escalated: Counter[str] = Counter()
    for step in range(SECONDS * 1000 // STEP_MS):
        await world.step()
        interval = clock.unix_ns() // 1_000_000 // INTERVAL_MS
        for fast in fasts:
            for source in (BOUNDED, FREE):
                warm, cold = fast.send(source, randomness.randint(0, 3))
                counted[source][interval] += warm
                escalated[source] += cold
            if step % 10 == 0:
                fast.fetch()
        if step % 8 == 0:
            for source in (BOUNDED, FREE):
                waiting = escalated.pop(source, 0)
                if waiting:
                    counted[source][interval] += await decide(store, registry.of(source), source, waiting)
    tasks = [fast.fetching for fast in fasts if fast.fetching is not None]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await store.close()
    return counted, sum((Counter(fast.keeper.counters()) for fast in fasts), Counter())


@pytest.mark.parametrize("seed", SEEDS)
async def test_neither_limit_is_exceeded_and_the_source_gets_most_of_its_own(
    tmp_path: Path, seed: int
) -> None:
    limit = reg.Limit(max=OF_ROUTE, interval_seconds=2)
    counted, kept = await run(tmp_path, reg.Route(target=TARGET, name=NAME, limit=limit), seed=seed)
    together = counted[BOUNDED] + counted[FREE]
    assert max(together.values()) <= OF_ROUTE
    assert max(counted[BOUNDED].values()) <= OF_SOURCE
    # The first interval had begun before the store remembered anything, the last one is cut off.
    whole = sorted(together)[1:-1]
    assert min(counted[BOUNDED][number] for number in whole) >= 0.8 * OF_SOURCE
    assert kept["permits"] > 0


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_source_is_limited_on_a_route_that_has_no_limit(tmp_path: Path, seed: int) -> None:
    counted, kept = await run(tmp_path, reg.Route(target=TARGET, name=NAME), seed=seed)
    assert max(counted[BOUNDED].values()) <= OF_SOURCE
    whole = sorted(counted[BOUNDED])[1:-1]
    assert min(counted[BOUNDED][number] for number in whole) >= 0.8 * OF_SOURCE
    # Who has no limit is not held up by that of another.
    assert min(counted[FREE][number] for number in whole) > OF_SOURCE
    assert kept["permits"] > 0
