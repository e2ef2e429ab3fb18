"""Several instances of Fast share one limit through a real store: no interval and no second ever gets more.

Time is simulated: every instance has its own monotonic clock, which runs a little too fast or too slow, and every
request for permits takes its time on both ways. SNAVIO_FULL=1 runs longer and with more seeds.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from services.fast.grants import GrantKeeper
from services.slow.grants import Grants
from services.slow.lane_rules import rule_of
from snavio.adapters.embedded.sqlite_coordination import SqliteCoordination
from snavio.clock import ManualClock
from snavio.domain.claim import Terms
from snavio.errors import Unavailable
from snavio.native import Dispatch
from snavio.ports.coordination import PermitAsk
from snavio.rpc.channel import MeshChannel
from snavio.v1 import registry_pb2 as reg
from tests.support.frames import RunOf, batch, command
from tests.support.limited_world import STEP_MS, Drifting, Wire, World

FULL = os.environ.get("SNAVIO_FULL") == "1"
SEEDS = range(12 if FULL else 3)
INTERVALS = 12 if FULL else 3
INSTANCES = 7
SOURCE, TARGET, NAME = "acme/billing", "bot", "say"
COMMAND = command(target=TARGET, name=NAME)


@dataclass
class OneRoute:
    """Registry as Slow sees it: one route."""

    route: reg.Route

    async def resolve(self, keys: Any, *, timeout_ms: int) -> dict[Any, reg.Resolution]:
        del timeout_ms
        return {key: reg.Resolution(route=self.route, allowed=True) for key in keys}


class Instance:
    """One Fast: its cache, its clock, its permits."""

    def __init__(self, number: int, wire: Wire, clock: Drifting) -> None:
        self.clock = clock
        self.dispatch = Dispatch()
        self.dispatch.put_route(
            TARGET, NAME, queue=0, topic="acme/bot", profile=3, strict=False, limited=True, fairness=None
        )
        self.dispatch.allow(SOURCE, TARGET, NAME, 1)
        self.keeper = GrantKeeper(
            dispatch=self.dispatch,
            slow=cast("MeshChannel", wire),
            clock=clock,
            instance=f"fast-{number}",
            pause_s=0.05,
        )
        self.fetching: asyncio.Task[None] | None = None

    def send(self, count: int) -> tuple[int, int]:
        """(sent from the cache, escalated)."""
        now = self.clock.mono_ns()
        self.dispatch.renewed(now)
        plan = self.dispatch.plan(batch(RunOf([COMMAND] * count, SOURCE)), now_mono_ns=now)
        return sum(send.count for send in plan.sends), plan.escalated

    async def fetch(self) -> None:
        if self.fetching is None or self.fetching.done():
            if self.fetching is not None and not isinstance(self.fetching.exception(), Unavailable | None):
                self.fetching.result()
            self.fetching = asyncio.create_task(self.keeper.fetch())


async def run(
    folder: Path,
    route: reg.Route,
    *,
    seed: int,
    demand: Callable[[int], int],
    seconds: int,
    loses: float = 0.0,
) -> list[tuple[int, int]]:
    """(millisecond, dispatches) of all instances together, warm and cold."""
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
    slow = Grants(lane_rules=OneRoute(route), store=store, leases=5, timeout_ms=1000)  # type: ignore[arg-type]
    instances = [
        Instance(
            number,
            Wire(world, slow, randomness, loses),
            Drifting(clock, randomness.randrange(10**15), 1 + randomness.uniform(-1e-3, 1e-3)),
        )
        for number in range(INSTANCES)
    ]
    rule = rule_of(route)
    assert rule is not None
    dispatched: list[tuple[int, int]] = []
    escalated = 0
    for step in range(seconds * 1000 // STEP_MS):
        await world.step()
        now_ms = clock.unix_ns() // 1_000_000
        for instance in instances:
            warm, cold = instance.send(randomness.randint(0, demand(now_ms)))
            dispatched.append((now_ms, warm))
            escalated += cold
            if step % 10 == 0:
                await instance.fetch()
        if step % 8 == 0:
            # Slow gathers what is escalated and asks for all of it at once.
            [permits] = await store.take([PermitAsk((TARGET, NAME), rule, escalated)])
            dispatched.append((now_ms, permits.count))
            escalated = 0
    for instance in instances:
        if instance.fetching is not None:
            instance.fetching.cancel()
    await asyncio.gather(*(each.fetching for each in instances if each.fetching), return_exceptions=True)
    assert sum(each.keeper.counters().get("permits", 0) for each in instances) > 0
    await store.close()
    return dispatched


def route(maximum: int, seconds: int, *, burst: int = 0) -> reg.Route:
    limit = reg.Limit(max=maximum, interval_seconds=seconds, burst=burst)
    return reg.Route(target=TARGET, name=NAME, topic="acme/bot", limit=limit)


def steady(most: int) -> Callable[[int], int]:
    return lambda _ms: most


def lying_in_wait(ms: int) -> int:
    """Every other interval leaves permits unused, and the next one begins with more demand than its limit."""
    heavy = (ms // 2000) % 2 == 1
    return 60 if heavy and ms % 2000 < 200 else 0 if heavy else 1


def by_interval(dispatched: list[tuple[int, int]]) -> list[int]:
    counted: Counter[int] = Counter()
    for ms, count in dispatched:
        counted[ms // 2000] += count
    return [counted[number] for number in sorted(counted)]


@pytest.mark.parametrize("seed", SEEDS)
async def test_steady_demand_gets_nearly_all_of_each_interval_and_never_more(
    tmp_path: Path, seed: int
) -> None:
    maximum = 2000
    counted = by_interval(
        await run(tmp_path, route(maximum, 2), seed=seed, demand=steady(6), seconds=2 * INTERVALS)
    )
    assert max(counted) <= maximum
    # The first interval had begun before the store remembered anything, the last one is cut off.
    assert min(counted[1:-1]) >= 0.9 * maximum


@pytest.mark.parametrize("seed", SEEDS)
async def test_what_is_left_of_one_interval_is_not_spent_in_the_next(tmp_path: Path, seed: int) -> None:
    maximum = 2000
    counted = by_interval(
        await run(tmp_path, route(maximum, 2), seed=seed, demand=lying_in_wait, seconds=2 * INTERVALS + 2)
    )
    assert max(counted) <= maximum


@pytest.mark.parametrize("seed", SEEDS)
async def test_no_second_exceeds_the_burst_wherever_it_begins(tmp_path: Path, seed: int) -> None:
    burst = 400
    limited = route(4000, 4, burst=burst)
    dispatched = await run(tmp_path, limited, seed=seed, demand=steady(4), seconds=2 * INTERVALS, loses=0.05)
    by_ms: Counter[int] = Counter()
    for ms, count in dispatched:
        by_ms[ms] += count
    moments = sorted(by_ms)
    for start in moments:
        assert sum(by_ms[ms] for ms in moments if start <= ms < start + 1000) <= burst
