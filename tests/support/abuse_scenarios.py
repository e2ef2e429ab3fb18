"""Traffic with a known truth, on routes with limits, so that harm arises by itself and is not written down.

Every seed of a scenario is a tenant with four routes and sources of its own, for an hour. In each step of five seconds
sources offer, the route gives what permits it has to whoever offers, by what they offer, and refuses the rest. Steady
senders offer every new command once, whatever was refused. Batches slow down when they are refused, as `retry_after`
asks, and what was refused waits. Abusers do neither.

The judge sees windows of thirty seconds made of that, as `rows` here and as events in `as_table`; a test holds the two
together. Seeds are a stream of random numbers per scenario: which one, whoever measures chooses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from snavio.telemetry.schema import DELIVERED, FAILED, arrow_schema
from spark.judging import MILLI, MOST_VICTIMS, Crowding, WindowRows, by_window
from spark.policy import DetectionPolicy
from tests.support.telemetry_rows import DELIVERED_CODE, RATE_CODE, T0

WINDOW_S, STEP_S, MINUTES = 30, 5, 60
STEPS = MINUTES * 60 // STEP_S
PER_WINDOW = WINDOW_S // STEP_S
WINDOWS = STEPS // PER_WINDOW
ROUTES = 4
HONEST = 6
"""Steady senders of a route."""
START = int(T0.timestamp())
MINIMUM_VOLUME, ROUTE_SHARE = 50, 0.8
"""Defaults of a route, which all routes here have."""

Array = np.ndarray[Any, Any]


@dataclass(slots=True)
class World:
    """The demand of all, before anybody gets anything. Arrays are [seed, route, slot, step] unless said otherwise."""

    seeds: int
    slots: int
    rng: np.random.Generator
    names: list[list[str]] = field(default_factory=list)
    """By route and slot."""
    rate: Array = field(init=False)
    """Commands a step that are offered whatever happens."""
    batch: Array = field(init=False)
    """Commands a step that a batch would like to send; what waits is sent later."""
    capacity: Array = field(init=False)
    """[seed, route]: permits a step."""
    abusers: set[str] = field(default_factory=set)
    began: Array = field(init=False)
    """[seed]: the step of the first abuse."""
    fast_bans: bool = False
    skew_steps: Array = field(init=False)
    """[seed]: the second instance's clock is so much ahead."""

    def __post_init__(self) -> None:
        shape = (self.seeds, ROUTES, self.slots, STEPS)
        self.rate, self.batch = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
        self.capacity = np.full((self.seeds, ROUTES), 1e9)
        self.began = np.zeros(self.seeds, int)
        self.skew_steps = np.zeros(self.seeds, int)
        self.names = [[f"s{route}-{slot}" for slot in range(self.slots)] for route in range(ROUTES)]

    def steady(self, *, mean: float = 20.0, slots: int = HONEST) -> None:
        """Senders with rates that differ by a factor of some three and wander; `mean` commands a window."""
        shape = (self.seeds, ROUTES, slots)
        level = mean / PER_WINDOW * self.rng.lognormal(0, 0.5, shape)
        wander = np.cumsum(self.rng.normal(0, 0.02, (*shape, STEPS)), axis=-1)
        self.rate[:, :, :slots] = level[..., None] * np.exp(wander)

    def limited(self, low: float = 1.3, high: float = 3.0) -> None:
        """A limit with some headroom over what steady senders offer on the average."""
        offered = self.rate[:, :, :HONEST].sum(axis=2).mean(axis=-1)
        self.capacity = offered * self.rng.uniform(low, high, offered.shape)

    def others(self, route: int | slice = slice(None)) -> Array:
        """The offer of all steady senders together: [seed, (route,) step]."""
        return np.asarray(self.rate[:, route, :HONEST].sum(axis=-2))

    def abuse(self, route: int, slot: int, share: Any, on: Array, *, name: str = "abuser") -> None:
        """A source that offers such a share of a route in these steps: [seed, step]."""
        wanted = self.others(route) * share / (1 - share) * on
        self.rate[:, route, slot] += wanted.astype(np.float32)
        self.names[route][slot] = name
        self.abusers.add(name)

    def from_start(self, most: int = 120) -> Array:
        """On from a random step on: [seed, step]; remembers it."""
        self.began = self.rng.integers(0, most, self.seeds)
        return np.asarray(np.arange(STEPS)[None, :] >= self.began[:, None])

    def between(self, start: Array, length: Array) -> Array:
        """On for so long: the shape of `start`, with steps as last axis."""
        steps = np.arange(STEPS)
        return np.asarray((steps >= start[..., None]) & (steps < (start + length)[..., None]))


def _pulses(world: World, on_s: tuple[int, int], off_s: tuple[int, int]) -> Array:
    """On and off, again and again, at each seed's own rhythm: [seed, step]."""
    rng = world.rng
    on = rng.integers(on_s[0] // STEP_S, on_s[1] // STEP_S + 1, world.seeds)
    off = rng.integers(off_s[0] // STEP_S, off_s[1] // STEP_S + 1, world.seeds)
    world.began = rng.integers(0, 120, world.seeds)
    since = np.arange(STEPS)[None, :] - world.began[:, None]
    return np.asarray((since >= 0) & (since % (on + off)[:, None] < on[:, None]))


# -- honest ----------------------------------------------------------------------------------------------


def quiet(world: World) -> None:
    """A handful of commands per window; somebody always has most of them."""
    world.steady(mean=1.5)
    world.limited()


def single_sender(world: World) -> None:
    """One service sends nearly everything, at times more than the limit; another asks once in a while."""
    level = world.rng.uniform(100, 2000, (world.seeds, ROUTES)) / PER_WINDOW
    wander = np.cumsum(world.rng.normal(0, 0.03, (world.seeds, ROUTES, STEPS)), axis=-1)
    world.rate[:, :, 0] = level[..., None] * np.exp(wander)
    world.rate[:, :, 1] = 0.1 / PER_WINDOW
    world.capacity = level * world.rng.uniform(0.9, 2.0, level.shape)


def main_and_probes(world: World) -> None:
    """A main producer that is limited most of the time, beside two probes of a command or so in each window."""
    single_sender(world)
    world.rate[:, :, 1:3] = world.rng.uniform(0.7, 1.5, (world.seeds, ROUTES, 2, 1)) / PER_WINDOW
    world.capacity = world.rate[:, :, 0].mean(axis=-1) * world.rng.uniform(0.6, 1.2, world.capacity.shape)


def large_and_small(world: World) -> None:
    """A large producer with 90 to 99 % of a route that has room for all, beside senders of six and more a window."""
    world.steady(mean=12)
    share = world.rng.uniform(0.9, 0.99, (world.seeds, ROUTES, 1))
    world.rate[:, :, HONEST] = world.others() * share / (1 - share)
    total = world.rate.sum(axis=2).max(axis=-1)
    world.capacity = total * world.rng.uniform(1.1, 2.0, total.shape)


def _bursts(world: World, seconds: tuple[int, int], times: tuple[int, int], *, yields: bool) -> None:
    rng, rate = world.rng, world.rate
    for _ in range(int(rng.integers(*times))):
        shape = (world.seeds, ROUTES)
        length = np.exp(rng.uniform(np.log(seconds[0]), np.log(seconds[1]), shape)) / STEP_S
        start = rng.integers(0, STEPS - 12, shape)
        who = rng.integers(0, HONEST, shape)
        on = world.between(start, np.maximum(1, np.rint(length)).astype(int))
        factor = rng.uniform(5, 20, shape)[..., None]
        each, route = np.indices(shape)
        more = rate[each, route, who] * (factor - 1) * on
        (world.batch if yields else rate)[each, route, who] += more


def honest_bursts_short(world: World) -> None:
    """Steady senders, and now and then one sends 5 to 20 times as much for 30 to 60 s, and slows down for nobody."""
    world.steady()
    world.limited()
    _bursts(world, (30, 60), (2, 6), yields=False)


def honest_bursts_long(world: World) -> None:
    """The same for 60 s to 20 min, by batches that slow down when they are refused."""
    world.steady()
    world.limited()
    _bursts(world, (60, 1200), (1, 4), yields=True)


def flash_crowd(world: World) -> None:
    """Everybody sends 3 to 8 times as much for 2 to 10 min, and slows down for nobody."""
    world.steady()
    world.limited()
    shape = (world.seeds, ROUTES)
    on = world.between(world.rng.integers(0, STEPS - 120, shape), world.rng.integers(24, 121, shape))
    world.rate *= 1 + (world.rng.uniform(3, 8, (*shape, world.slots, 1)) - 1) * on[:, :, None]


def batch_at_the_hour(world: World) -> None:
    """Two sources of each route begin a batch of 5 to 20 min at the hour and at half past, and yield."""
    world.steady()
    world.limited()
    for begin in (0, STEPS // 2):
        for slot in (0, 1):
            shape = (world.seeds, ROUTES)
            length = world.rng.integers(60, 241, shape)
            on = world.between(np.full(shape, begin) + world.rng.integers(0, 3, shape), length)
            factor = world.rng.uniform(5, 20, shape)[..., None]
            world.batch[:, :, slot] += world.rate[:, :, slot] * factor * on


def clock_skew(world: World) -> None:
    """Short and long bursts, counted by two instances whose clocks are 5 to 45 s apart."""
    world.steady()
    world.limited()
    _bursts(world, (30, 60), (1, 4), yields=False)
    _bursts(world, (60, 1200), (1, 3), yields=True)
    world.skew_steps = world.rng.integers(1, 10, world.seeds)


def reconnect_storm(world: World) -> None:
    """A deploy cuts everybody off for one to three minutes; then all send at once what has waited."""
    world.steady()
    world.limited()
    rng, shape = world.rng, (world.seeds, ROUTES)
    start, length = rng.integers(60, STEPS - 120, shape), rng.integers(12, 37, shape)
    out = world.between(start, length)[:, :, None]
    waited = (world.rate * out).sum(axis=-1)
    world.rate *= ~out
    # Some send all of it within seconds and do not slow down, the others as a batch.
    after = world.between(start + length, np.full(shape, 2))[:, :, None]
    hasty = (rng.random((*shape, world.slots)) < 0.5)[..., None]
    world.rate += np.where(hasty, waited[..., None] / 2 * after, 0).astype(np.float32)
    world.batch += np.where(hasty, 0, waited[..., None] / 2 * after).astype(np.float32)


def stubborn_batches(world: World) -> None:
    """Batches of 3 to 20 min, 5 to 20 times as much, that are refused and do not slow down: meant well, and harmful."""
    world.steady()
    world.limited()
    _bursts(world, (180, 1200), (1, 3), yields=False)


# -- abusive ---------------------------------------------------------------------------------------------


def slow_burn(world: World) -> None:
    """An abuser that grows from a fifth of a route to 85 to 97 % of what is offered within the hour."""
    world.steady()
    world.limited()
    peak = world.rng.uniform(0.85, 0.97, (world.seeds, 1))
    share = 0.2 + (peak - 0.2) * np.arange(STEPS)[None, :] / STEPS
    world.abuse(0, HONEST, share, np.ones((world.seeds, STEPS), bool))


def ninety_percent(world: World) -> None:
    """An abuser that offers 90 % of a route from some moment on."""
    world.steady()
    world.limited()
    world.abuse(0, HONEST, 0.9, world.from_start())


def on_off(world: World) -> None:
    """An abuser that offers 88 to 97 % of a route for one to two minutes and rests for one and a half to four."""
    world.steady()
    world.limited()
    world.abuse(
        0, HONEST, world.rng.uniform(0.88, 0.97, (world.seeds, 1)), _pulses(world, (60, 120), (90, 240))
    )


def trickle(world: World) -> None:
    """The same, and a trickle of a command or two a step while it rests."""
    on_off(world)
    world.rate[:, 0, HONEST] += world.rng.uniform(0.2, 2, (world.seeds, 1))


def alternating_routes(world: World) -> None:
    """An abuser that offers 85 to 97 % of one of four routes, and moves on every one to two minutes."""
    world.steady()
    world.limited()
    share = world.rng.uniform(0.85, 0.97, (world.seeds, 1))
    on = world.from_start()
    turn = world.rng.integers(12, 25, world.seeds)
    at = (np.arange(STEPS)[None, :] - world.began[:, None]) // turn[:, None] % ROUTES
    for route in range(ROUTES):
        world.abuse(route, HONEST, share, on & (at == route))


def alternating_identities(world: World) -> None:
    """Three services of one tenant that offer 85 to 97 % of a route by turns of one minute."""
    world.steady()
    world.limited()
    share = world.rng.uniform(0.85, 0.97, (world.seeds, 1))
    on = world.from_start()
    at = (np.arange(STEPS)[None, :] - world.began[:, None]) // 12 % 3
    for number in range(3):
        world.abuse(0, HONEST + number, share, on & (at == number), name=f"abuser-{number}")


def overwhelming(world: World) -> None:
    """An abuser that offers 91.5 to 99.5 % of a route: hardly anybody is left to compare it with."""
    world.steady()
    world.limited()
    world.abuse(0, HONEST, world.rng.uniform(0.915, 0.995, (world.seeds, 1)), world.from_start())


def several_targets(world: World) -> None:
    """An abuser that offers 70 to 95 % of four routes at once."""
    world.steady()
    world.limited()
    on = world.from_start()
    for route in range(ROUTES):
        world.abuse(route, HONEST, world.rng.uniform(0.7, 0.95, (world.seeds, 1)), on)


def low_and_slow(world: World) -> None:
    """An abuser that never offers more than 40 to 60 % of a route, for the whole hour."""
    world.steady()
    world.limited(1.1, 1.6)
    world.abuse(0, HONEST, world.rng.uniform(0.4, 0.6, (world.seeds, 1)), world.from_start())


def many_small(world: World) -> None:
    """Ten abusers that offer 75 to 90 % of a route together, and none of them much."""
    world.steady()
    world.limited()
    share = world.rng.uniform(0.75, 0.9, (world.seeds, 1))
    on = world.from_start()
    others = world.others(0)
    for number in range(10):
        name = f"abuser-{number}"
        world.rate[:, 0, HONEST + number] = others * share / (1 - share) / 10 * on
        world.names[0][HONEST + number] = name
        world.abusers.add(name)


def fast_bans(world: World) -> None:
    """An abuser that offers 85 to 97 % of a route, and that Fast bans for 30 s whenever it dominated."""
    world.steady()
    world.limited()
    world.abuse(0, HONEST, world.rng.uniform(0.85, 0.97, (world.seeds, 1)), world.from_start())
    world.fast_bans = True


Fill = Callable[[World], None]
HONEST_SCENARIOS: dict[str, Fill] = {
    "quiet": quiet,
    "single-sender": single_sender,
    "main-and-probes": main_and_probes,
    "large-and-small": large_and_small,
    "honest-bursts-short": honest_bursts_short,
    "honest-bursts-long": honest_bursts_long,
    "flash-crowd": flash_crowd,
    "batch-at-the-hour": batch_at_the_hour,
    "clock-skew": clock_skew,
    "reconnect-storm": reconnect_storm,
}
STUBBORN = "stubborn-batches"
ABUSIVE_SCENARIOS: dict[str, Fill] = {
    "slow-burn": slow_burn,
    "ninety-percent": ninety_percent,
    "on-off": on_off,
    "trickle": trickle,
    "alternating-routes": alternating_routes,
    "alternating-identities": alternating_identities,
    "overwhelming": overwhelming,
    "several-targets": several_targets,
    "low-and-slow": low_and_slow,
    "many-small": many_small,
    "fast-bans": fast_bans,
}
SCENARIOS: dict[str, Fill] = {**HONEST_SCENARIOS, STUBBORN: stubborn_batches, **ABUSIVE_SCENARIOS}


# -- what becomes of it ----------------------------------------------------------------------------------


@dataclass(slots=True)
class Traffic:
    """An hour of a scenario as the archive has it: counts [seed, route, slot, window]."""

    name: str
    world: World
    offered: Array
    competing: Array
    taken: Array
    hurt: Array

    def tenant(self, seed: int) -> str:
        return f"{self.name}-{seed}"

    def source(self, seed: int, route: int, slot: int) -> str:
        return f"{self.tenant(seed)}/{self.world.names[route][slot]}"

    def sources(self) -> set[str]:
        """Everybody who sent anything."""
        some = self.offered.sum(axis=-1) > 0
        return {self.source(*map(int, at)) for at in np.argwhere(some)}

    def abusers(self) -> set[str]:
        return {
            f"{self.tenant(seed)}/{name}" for seed in range(self.world.seeds) for name in self.world.abusers
        }

    def began(self, source: str) -> int:
        """When the abuse of a source's tenant began, seconds since the epoch."""
        seed = int(source.partition("/")[0].rpartition("-")[2])
        return START + int(self.world.began[seed]) * STEP_S


def simulated(name: str, seeds: int, entropy: int) -> Traffic:
    """A scenario with so many seeds; the same numbers for the same entropy."""
    rng = np.random.default_rng([entropy, *name.encode()])
    slots = HONEST + {"many-small": 10, "alternating-identities": 3}.get(name, 1)
    world = World(seeds, slots, rng)
    SCENARIOS[name](world)
    return Traffic(name, world, *_run(world))


def _run(world: World) -> tuple[Array, Array, Array, Array]:
    """Step by step; by windows, what was offered, what competed, and of that what got a permit and what was refused."""
    rng, shape = world.rng, (world.seeds, ROUTES, world.slots)
    counts = np.zeros((4, *shape, STEPS), np.int32)
    offered, competing, taken, hurt = counts
    backlog = np.zeros(shape)
    pace = np.full(shape, np.inf)
    banned = np.zeros(shape, int)
    recent = np.zeros((3, *shape))
    for step in range(STEPS):
        fresh = rng.poisson(world.rate[..., step])
        backlog += world.batch[..., step]
        batch = np.floor(np.minimum(backlog, pace))
        wants = fresh + batch
        kept = banned > step
        compete = np.where(kept, 0, wants)
        total = compete.sum(axis=2, keepdims=True)
        granted = np.minimum(1.0, world.capacity[..., None] / np.maximum(total, 1))
        got = np.minimum(compete, np.floor(compete * granted + rng.random(shape)))
        got = np.where(granted >= 1, compete, got)
        refused = compete - got
        # Of what was refused, the batch's part waits; the rest is told to whoever sent it.
        again = np.rint(refused * np.divide(batch, wants, out=np.zeros(shape), where=wants > 0))
        backlog -= np.where(kept, 0, batch - again)
        slower = np.maximum(1.0, batch / 2)
        pace = np.where(again > 0, slower, np.minimum(1e9, pace * 1.05 + 0.2))
        offered[..., step], competing[..., step] = wants, compete
        taken[..., step], hurt[..., step] = got, refused
        if world.fast_bans:
            banned = _local_bans(recent, banned, step, got, compete)
    return _windows(world, offered), _windows(world, competing), _windows(world, taken), _windows(world, hurt)


def _local_bans(recent: Array, banned: Array, step: int, got: Array, compete: Array) -> Array:
    """Fast's own rule on its window of thirty seconds."""
    if step % PER_WINDOW == 0:
        recent[:] = 0
    recent[0] += got
    recent[1] += compete
    volume, offers = (recent[at].sum(axis=2, keepdims=True) for at in (0, 1))
    rivals = (recent[1] >= 5).sum(axis=2, keepdims=True) - (recent[1] >= 5)
    contended = (offers - recent[1] >= 0.1 * offers) | (rivals >= 2)
    dominant = (recent[0] > 0.8 * volume) & contended & (volume >= MINIMUM_VOLUME)
    return np.where(dominant, step + 1 + PER_WINDOW, banned)


def _windows(world: World, steps: Array) -> Array:
    """By windows, as two instances count them, the second by its own clock."""
    if world.skew_steps.any():
        half = world.rng.binomial(steps, 0.5).astype(np.int32)
        later = np.zeros_like(half)
        for seed, skew in enumerate(world.skew_steps):
            later[seed, ..., skew:] = half[seed, ..., : STEPS - skew]
        steps = steps - half + later
    return np.asarray(steps.reshape(*steps.shape[:3], WINDOWS, PER_WINDOW).sum(axis=-1))


# -- the judge's rows ------------------------------------------------------------------------------------


def rows(traffic: Traffic, policy: DetectionPolicy) -> dict[int, WindowRows]:
    """The rows that Spark makes of the events, made of the counts: the same rows, for the same judge."""
    found = list(_crowding(traffic, policy))
    kept = (traffic.competing * 2 < traffic.offered) & (traffic.offered > 0)
    off = (
        (
            START + int(window) * WINDOW_S,
            traffic.source(int(seed), int(route), int(slot)),
            f"{traffic.tenant(int(seed))}-{int(route)}",
        )
        for seed, route, slot, window in np.argwhere(kept)
    )
    return by_window(found, off, ())


def _crowding(traffic: Traffic, policy: DetectionPolicy) -> Iterator[Crowding]:
    offered, competing = traffic.offered.astype(np.int64), traffic.competing.astype(np.int64)
    taken, hurt = traffic.taken.astype(np.int64), traffic.hurt.astype(np.int64)
    slots = traffic.world.slots
    order = np.zeros((ROUTES, slots), np.int64)
    for route, names in enumerate(traffic.world.names):
        for place, slot in enumerate(sorted(range(slots), key=names.__getitem__)):
            order[route, slot] = place
    top = np.where(offered > 0, taken * slots + order[None, :, :, None], -1).argmax(axis=2)

    def of_top(counts: Array) -> Array:
        return np.asarray(np.take_along_axis(counts, top[:, :, None], axis=2)[:, :, 0])

    counts_itself = competing >= policy.rival_minimum

    def of_others(counts: Array) -> Array:
        counted = np.where(counts_itself, counts, 0)
        return np.asarray(counted.sum(axis=2) - of_top(counted))

    mine, all_taken, own_offers = of_top(taken), taken.sum(axis=2), np.maximum(of_top(offered), 1)
    volume = mine + (all_taken - mine) * of_top(competing) // own_offers
    rivals = counts_itself.sum(axis=2) - of_top(counts_itself)
    rivals_offered, rivals_hurt = of_others(competing), of_others(hurt)
    single, several = (
        round(share * MILLI) for share in (policy.single_target_share, policy.several_targets_share)
    )
    is_row = (
        (rivals >= 1)
        & (rivals_hurt >= policy.harm_minimum)
        & (rivals_hurt * MILLI >= rivals_offered * round(policy.harm_share * MILLI))
        & (volume >= MINIMUM_VOLUME)
        & (mine * MILLI > min(single, several) * volume)
    )
    for seed, route, window in np.argwhere(is_row):
        at = (seed, route, window)
        first = int(top[at])
        suffered = sorted(
            (
                (int(hurt[seed, route, slot, window]), traffic.source(int(seed), int(route), slot))
                for slot in range(slots)
                if counts_itself[seed, route, slot, window] and hurt[seed, route, slot, window] > 0
            ),
            reverse=True,
        )[: MOST_VICTIMS + 1]
        source = traffic.source(int(seed), int(route), first)
        yield Crowding(
            window=START + int(window) * WINDOW_S,
            source=source,
            target=f"{traffic.tenant(int(seed))}-{int(route)}",
            command_name="say",
            taken=int(mine[at]),
            volume=int(volume[at]),
            rivals=int(rivals[at]),
            rivals_offered=int(rivals_offered[at]),
            rivals_hurt=int(rivals_hurt[at]),
            rivals_waited=0,
            least_milli=single,
            victims=tuple((name, number) for number, name in suffered if name != source)[:MOST_VICTIMS],
        )


# -- as the archive has it -------------------------------------------------------------------------------


def as_table(found: list[Traffic], *, windows: range = range(WINDOWS)) -> pa.Table:
    """One row per window, source and outcome, standing for many commands."""
    picked: list[tuple[int, str, str, int, str]] = []
    for traffic in found:
        for how, counts in (
            ("warm", traffic.taken),
            ("refused", traffic.hurt),
            ("banned", traffic.offered - traffic.competing),
        ):
            for seed, route, slot, window in np.argwhere(counts):
                if window in windows:
                    picked.append(
                        (
                            int(window),
                            f"{traffic.tenant(int(seed))}-{int(route)}",
                            traffic.source(int(seed), int(route), int(slot)),
                            int(counts[seed, route, slot, window]),
                            how,
                        )
                    )
    picked.sort()
    rows = len(picked)
    times = pa.array([(START + window * WINDOW_S) * 1_000_000 for window, *_ in picked]).cast(
        pa.timestamp("us", "UTC")
    )
    columns: dict[str, Any] = {
        "event": pa.array([FAILED if how == "refused" else DELIVERED for *_, how in picked], pa.string()),
        "instance": pa.repeat(pa.scalar("fast-0"), rows),
        "epoch": pa.repeat(pa.scalar(1, pa.int64()), rows),
        "seq": pa.array(np.arange(1, rows + 1)),
        "service": pa.repeat(pa.scalar("fast"), rows),
        "at": times,
        "count": pa.array([count for _, _, _, count, _ in picked], pa.int64()),
        "source": pa.array([source for _, _, source, _, _ in picked], pa.string()),
        "target": pa.array([target for _, target, _, _, _ in picked], pa.string()),
        "command_name": pa.repeat(pa.scalar("say"), rows),
        "path": pa.array(["slow" if how == "banned" else "fast" for *_, how in picked], pa.string()),
        "escalation": pa.array(
            ["warm_banned" if how == "banned" else None for *_, how in picked], pa.string()
        ),
        "verdict": pa.array(
            [RATE_CODE if how == "refused" else DELIVERED_CODE for *_, how in picked], pa.int32()
        ),
        "dispatch_latency_ms": pa.repeat(pa.scalar(2.0), rows),
        "key_version": pa.repeat(pa.scalar("hmac-v1"), rows),
    }
    schema = pa.schema([pa.field(name, _plain(arrow_schema().field(name).type)) for name in columns])
    return pa.Table.from_arrays(
        [columns[name].cast(schema.field(name).type) for name in columns], schema=schema
    )


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind
