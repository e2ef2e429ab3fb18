"""No interval gives more than its maximum, for random runs compared with an obvious twin.

SNAVIO_FULL=1 runs more of them.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from snavio.adapters.coordination_records import Step, granting, returning, taking
from snavio.clock import ManualClock
from snavio.domain.quota import LimitRule, LimitUsage, Permits
from snavio.ports.coordination import Coordination, PermitAsk, PermitReturn
from tests.support.coordination import Servers, Shop
from tests.support.moto import MotoServer
from tests.support.redis import RedisServer

FULL = os.environ.get("SNAVIO_FULL") == "1"
SEEDS = range(20 if FULL else 2)
STEPS = 1500 if FULL else 250
RULES = (
    LimitRule(max=7, interval_ms=1000),
    LimitRule(max=200, interval_ms=2000),
    LimitRule(max=400, interval_ms=5000, burst=60),
    LimitRule(max=150, interval_ms=3000, cooldown_ms=2500),
    LimitRule(max=100, interval_ms=1000, burst=100, cooldown_ms=700),
)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    redis = RedisServer(tmp_path_factory.mktemp("redis"), fsync=None)
    asyncio.run(redis.start())
    try:
        yield Servers(redis, MotoServer())
    finally:
        redis.kill()


@dataclass
class Twin:
    """Every use of a permit with its time; counted by looking at all of them."""

    uses: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))

    def used(self, number: int, at_ms: int, count: int) -> None:
        self.uses[number] += [at_ms] * count

    def check(self) -> None:
        for number, rule in enumerate(RULES):
            times = sorted(self.uses[number])
            by_interval: dict[int, int] = defaultdict(int)
            for time in times:
                by_interval[time // rule.interval_ms] += 1
            assert max(by_interval.values(), default=0) <= rule.max, rule
            if rule.burst:
                for first, time in enumerate(times):
                    within = sum(1 for other in times[first:] if other < time + 1000)
                    assert within <= rule.burst, rule


@dataclass
class Grant:
    """Permits held by an instance."""

    number: int
    permits: Permits
    left: int
    expires_mono_ms: int


class Instance:
    """A Fast that prefetches, uses and returns permits, and a Slow that takes them. Its own clock measures durations
    only.
    """

    def __init__(
        self, name: str, store: Coordination, true: ManualClock, twin: Twin, *, numbers: tuple[int, ...]
    ) -> None:
        self.name = name
        self.numbers = numbers
        self.store = store
        self.true = true
        self.twin = twin
        self.grants: list[Grant] = []
        self.got = 0

    def now_ms(self) -> int:
        return self.true.unix_ns() // 1_000_000

    async def act(self, chance: random.Random) -> None:
        number = chance.choice(self.numbers)
        rule, key = RULES[number], (f"target-{number}", "name")
        match chance.randrange(7):
            case 0 | 5:
                asked_ms = self.now_ms()
                [permits] = await self.store.grant(
                    [PermitAsk(key, rule, chance.randint(1, 50))], instance=self.name, leases=5
                )
                # The answer travels for a while.
                self.true.advance(ns=chance.randint(0, 40) * 1_000_000)
                if permits.count:
                    self.grants.append(Grant(number, permits, permits.count, asked_ms + permits.life_ms))
            case 1 | 2:
                asked_ms = self.now_ms()
                [permits] = await self.store.take([PermitAsk(key, rule, chance.choice([1, 7, 20, 500]))])
                if permits.count:
                    self.got += permits.count
                    self.twin.used(number, asked_ms, permits.count)
            case 3:
                for grant in self.grants:
                    if grant.left and self.now_ms() < grant.expires_mono_ms:
                        count = chance.randint(1, grant.left)
                        grant.left -= count
                        self.got += count
                        self.twin.used(grant.number, self.now_ms(), count)
            case 4:
                # To the last moment of a grant, where a life that is a little too long shows.
                living = [
                    grant for grant in self.grants if grant.left and self.now_ms() < grant.expires_mono_ms
                ]
                if living:
                    grant = chance.choice(living)
                    self.true.advance(ns=(grant.expires_mono_ms - self.now_ms() - 1) * 1_000_000)
                    self.got += grant.left
                    self.twin.used(grant.number, self.now_ms(), grant.left)
                    grant.left = 0
            case _:
                if self.grants:
                    grant = self.grants.pop(chance.randrange(len(self.grants)))
                    owner = RULES[grant.number]
                    await self.store.give_back(
                        [
                            PermitReturn(
                                (f"target-{grant.number}", "name"),
                                owner.interval_ms,
                                grant.permits.interval,
                                grant.left,
                                granted=True,
                            )
                        ]
                    )


class Rules:
    """The rules in Python on records that are never dropped: expiry is the store's own affair."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._usage: dict[tuple[str, ...], LimitUsage] = {}

    def ask(self, steps: Sequence[Step], asks: Sequence[PermitAsk | PermitReturn]) -> list[Permits]:
        answers = []
        for step, ask in zip(steps, asks, strict=True):
            before = self._usage.get(ask.key, LimitUsage())
            self._usage[ask.key], answer = step(before, self._clock.unix_ns() // 1_000_000, 0)
            answers += [answer] if answer is not None else []
        return answers


# All limits at a leisurely pace; then the ones with bursts, and a short one, so densely that every slot is contended.
PACES = {
    "all": ((0, 1, 2, 3, 4), (0, 1, 7, 30, 250)),
    "dense": ((2, 4), (0, 0, 1, 5, 20)),
    "short": ((4,), (0, 3, 40)),
}


@pytest.mark.parametrize("pace", PACES)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", ["sqlite", "redis"])
async def test_no_interval_and_no_second_ever_exceeds_its_limit(
    kind: str, seed: int, pace: str, tmp_path: Path, servers: Servers
) -> None:
    chance, twin, shop = random.Random(f"{pace}{seed}"), Twin(), Shop(kind, tmp_path, servers)
    numbers, pauses_ms = PACES[pace]
    async with shop.open() as store:
        instances = [
            Instance(f"fast-{number}", store, shop.clock, twin, numbers=numbers) for number in range(7)
        ]
        for _ in range(STEPS):
            await chance.choice(instances).act(chance)
            shop.clock.advance(ns=chance.choice(pauses_ms) * 1_000_000)
        twin.check()
        assert sum(instance.got for instance in instances) > STEPS


@pytest.mark.parametrize("seed", SEEDS)
async def test_lua_and_python_answer_every_question_alike(
    seed: int, tmp_path: Path, servers: Servers
) -> None:
    chance, clock = random.Random(1000 + seed), ManualClock(1_700_000_000_000_000_000 + seed * 77_000_000)
    shop, python = Shop("redis", tmp_path, servers, clock=clock), Rules(clock)
    rules = (*RULES, LimitRule(max=120, interval_ms=2000, burst=30, cooldown_ms=500, shadow=True))
    async with shop.open() as lua:
        intervals: dict[int, int] = {}
        for _ in range(STEPS):
            numbers = [chance.randrange(len(rules)) for _ in range(chance.randint(1, 4))]
            wants = [chance.choice([1, 3, 10, 50, 500]) for _ in numbers]
            asks = [PermitAsk((f"t{n}", "x"), rules[n], want) for n, want in zip(numbers, wants, strict=True)]
            match chance.randrange(3):
                case 0:
                    ours, theirs = python.ask([taking(ask) for ask in asks], asks), await lua.take(asks)
                case 1:
                    name = f"fast-{chance.randrange(8)}"
                    ours = python.ask([granting(ask, instance=name, leases=5) for ask in asks], asks)
                    theirs = await lua.grant(asks, instance=name, leases=5)
                case _:
                    backs = [
                        PermitReturn(
                            (f"t{n}", "x"),
                            rules[n].interval_ms,
                            intervals.get(n, 0) - chance.randrange(2),
                            want,
                            granted=chance.random() < 0.5,
                        )
                        for n, want in zip(numbers, wants, strict=True)
                    ]
                    python.ask([returning(back) for back in backs], backs)
                    await lua.give_back(backs)
                    continue
            assert ours == theirs
            intervals.update({n: permits.interval for n, permits in zip(numbers, ours, strict=True)})
            # Back by a minute or a moment at times: a store's clock may be set.
            clock.advance(ns=chance.choice([0, 1, 30, 90, 400, 2500]) * 1_000_000)
            if chance.random() < 0.05:
                clock.advance(seconds=chance.choice([-60, -3, -0.4, -0.005]))


async def test_instances_that_ask_at_once_share_exactly_one_limit(tmp_path: Path, servers: Servers) -> None:
    shop, rule = Shop("redis", tmp_path, servers), LimitRule(max=1000, interval_ms=60_000)
    chance = random.Random(5)

    async def run(store: Coordination, name: str, wants: list[int]) -> int:
        got = 0
        for want in wants:
            ask = [PermitAsk(("t", "n"), rule, want)]
            if want % 3:
                got += (await store.take(ask))[0].count
            else:
                got += (await store.grant(ask, instance=name, leases=5))[0].count
            await asyncio.sleep(0)
        return got

    async with shop.open() as one, shop.open() as two, shop.open() as three:
        wants = [[chance.randint(1, 30) for _ in range(15)] for _ in range(9)]
        runs = [run((one, two, three)[n % 3], f"fast-{n}", mine) for n, mine in enumerate(wants)]
        assert sum(await asyncio.gather(*runs)) == 1000
