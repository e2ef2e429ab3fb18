"""Traffic with a known truth: honest bursts, quiet systems, single senders, slow-burn and on-off abusers.

Made from seeds. The numbers below were chosen before the policy was run on them, by somebody who knew its rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from snavio.telemetry.schema import DELIVERED, FAILED, arrow_schema
from tests.support.telemetry_rows import DELIVERED_CODE, RATE_CODE, T0

WINDOW_S = 30
MINUTES = 60
WINDOWS = MINUTES * 60 // WINDOW_S
WINDOWS_OF_A_PERIOD = 20
HONEST_PER_ROUTE = 6
ROUTES = 4


@dataclass(slots=True)
class Scenario:
    """Commands per (window, route, source), and who the abusers are."""

    name: str
    seed: int
    rows: list[tuple[int, str, str, int, int, int]] = field(default_factory=list)
    """window, target, source, delivered warm, refused by the limit, delivered by Slow because of a warm ban."""
    abusers: set[str] = field(default_factory=set)

    @property
    def tenant(self) -> str:
        return f"{self.name}-{self.seed}"

    def add(
        self, window: int, route: int, source: str, delivered: float, refused: float = 0, banned: float = 0
    ) -> None:
        counts = int(delivered), int(refused), int(banned)
        if any(counts):
            self.rows.append((window, f"{self.tenant}-{route}", f"{self.tenant}/{source}", *counts))


def honest(made: Scenario, rng: np.random.Generator, *, mean: float, routes: int = ROUTES) -> None:
    """Several senders per route, with rates that differ by a factor of some three and wander."""
    for route in range(routes):
        for number in range(HONEST_PER_ROUTE):
            rate = mean * rng.lognormal(0, 0.5)
            for window in range(WINDOWS):
                rate *= rng.lognormal(0, 0.05)
                made.add(window, route, f"honest-{route}-{number}", rng.poisson(rate))


def quiet(made: Scenario, rng: np.random.Generator) -> None:
    """Hardly anything happens: a handful of commands per window, most of them from one source."""
    honest(made, rng, mean=1.5)


def single_sender(made: Scenario, rng: np.random.Generator) -> None:
    """One service sends nearly everything because the others have little to send; now and then another asks once."""
    for route in range(ROUTES):
        rate = rng.uniform(100, 2000)
        for window in range(WINDOWS):
            made.add(window, route, f"sender-{route}", rng.poisson(rate))
            if rng.random() < 0.1:
                made.add(window, route, f"probe-{route}", 1)


def honest_bursts(made: Scenario, rng: np.random.Generator) -> None:
    """Everybody sends steadily, and once in a while one source sends a day's worth of mail within a minute."""
    honest(made, rng, mean=20)
    for route in range(ROUTES):
        for _ in range(int(rng.integers(2, 6))):
            start, length = int(rng.integers(0, WINDOWS - 2)), int(rng.integers(1, 3))
            source = f"honest-{route}-{rng.integers(0, HONEST_PER_ROUTE)}"
            for window in range(start, start + length):
                made.add(window, route, source, rng.poisson(20 * rng.uniform(20, 60)))


def slow_burn(made: Scenario, rng: np.random.Generator) -> None:
    """An abuser that grows from a normal share to nearly all of a route within the hour."""
    honest(made, rng, mean=20)
    peak = rng.uniform(0.85, 0.97)
    made.abusers.add(f"{made.tenant}/abuser")
    for window in range(WINDOWS):
        share = 0.2 + (peak - 0.2) * window / WINDOWS
        others = HONEST_PER_ROUTE * 20
        made.add(window, 0, "abuser", rng.poisson(others * share / (1 - share)), rng.poisson(5))


def on_off(made: Scenario, rng: np.random.Generator) -> None:
    """An abuser that takes nearly all of a route for a minute or two, rests, and comes again."""
    honest(made, rng, mean=20)
    share = rng.uniform(0.88, 0.97)
    on, off = int(rng.integers(2, 5)), int(rng.integers(3, 8))
    made.abusers.add(f"{made.tenant}/abuser")
    for window in range(WINDOWS):
        if window % (on + off) < on:
            others = HONEST_PER_ROUTE * 20
            made.add(window, 0, "abuser", rng.poisson(others * share / (1 - share)), rng.poisson(20))


def several_targets(made: Scenario, rng: np.random.Generator) -> None:
    """An abuser that spreads over all routes, with less of each."""
    honest(made, rng, mean=20)
    made.abusers.add(f"{made.tenant}/abuser")
    for window in range(WINDOWS):
        for route in range(ROUTES):
            share = rng.uniform(0.7, 0.95)
            others = HONEST_PER_ROUTE * 20
            made.add(window, route, "abuser", rng.poisson(others * share / (1 - share)))


def bans_alternate(made: Scenario, rng: np.random.Generator) -> None:
    """An abuser that Fast bans for 30 s whenever it was dominant; then its only victim has the warm path alone."""
    made.abusers.add(f"{made.tenant}/abuser")
    for route in range(ROUTES):
        victim = rng.uniform(60, 300)
        share = rng.uniform(0.85, 0.97)
        phase = int(rng.integers(0, 2))
        for window in range(WINDOWS):
            made.add(window, route, f"victim-{route}", rng.poisson(victim))
            sent = rng.poisson(victim * share / (1 - share))
            if window % 2 == phase:
                made.add(window, route, "abuser", sent)
            else:
                # The ban begins within a window: some of it was warm before.
                early = sent * rng.uniform(0, 0.1)
                made.add(window, route, "abuser", early, banned=sent - early)


def one_target_bans(made: Scenario, rng: np.random.Generator) -> None:
    """An abuser of one route that Fast bans for 30 s whenever it was dominant; bans begin and end within windows."""
    honest(made, rng, mean=20)
    made.abusers.add(f"{made.tenant}/abuser")
    share = rng.uniform(0.85, 0.97)
    into = rng.uniform(0, 0.2)
    others = HONEST_PER_ROUTE * 20
    for window in range(WINDOWS):
        sent = rng.poisson(others * share / (1 - share))
        warm = sent * (into if window % 2 else 1 - into)
        made.add(window, 0, "abuser", warm, banned=sent - warm)


def banned_at_last(made: Scenario, rng: np.random.Generator) -> None:
    """An abuser of one route that is banned for the rest of every period after two minutes, and sends on."""
    honest(made, rng, mean=20)
    made.abusers.add(f"{made.tenant}/abuser")
    share = rng.uniform(0.85, 0.97)
    others = HONEST_PER_ROUTE * 20
    for window in range(WINDOWS):
        sent = rng.poisson(others * share / (1 - share))
        warm = sent if window % WINDOWS_OF_A_PERIOD < 4 else 0
        made.add(window, 0, "abuser", warm, banned=sent - warm)


SCENARIOS: dict[str, Callable[[Scenario, np.random.Generator], None]] = {
    "quiet": quiet,
    "single-sender": single_sender,
    "honest-bursts": honest_bursts,
    "slow-burn": slow_burn,
    "on-off": on_off,
    "several-targets": several_targets,
    "bans-alternate": bans_alternate,
    "one-target-bans": one_target_bans,
    "banned-at-last": banned_at_last,
}
WITHOUT_ABUSERS = ("quiet", "single-sender", "honest-bursts")


def scenarios(seeds: range) -> Iterator[Scenario]:
    """Every scenario with every seed."""
    for name, fill in SCENARIOS.items():
        for seed in seeds:
            made = Scenario(name, seed)
            fill(made, np.random.default_rng([seed, *name.encode()]))
            yield made


def as_table(found: list[Scenario]) -> pa.Table:
    """As the archive would hold them: one row per window, source and outcome, standing for many commands."""
    start = int(T0.timestamp() * 1e6)
    picked: list[tuple[int, str, str, int, str]] = []
    for made in found:
        for window, target, source, delivered, refused, banned in made.rows:
            outcomes = {"warm": delivered, "refused": refused, "banned": banned}
            picked += [(window, target, source, count, how) for how, count in outcomes.items() if count]
    rows = len(picked)
    times = pa.array([start + window * WINDOW_S * 1_000_000 for window, *_ in picked]).cast(
        pa.timestamp("us", "UTC")
    )
    columns: dict[str, Any] = {
        "event": pa.array([FAILED if how == "refused" else DELIVERED for *_, how in picked]),
        "instance": pa.repeat(pa.scalar("fast-0"), rows),
        "epoch": pa.repeat(pa.scalar(1, pa.int64()), rows),
        "seq": pa.array(np.arange(1, rows + 1)),
        "service": pa.repeat(pa.scalar("fast"), rows),
        "at": times,
        "count": pa.array([count for _, _, _, count, _ in picked], pa.int64()),
        "source": pa.array([source for _, _, source, _, _ in picked]),
        "target": pa.array([target for _, target, _, _, _ in picked]),
        "command_name": pa.repeat(pa.scalar("say"), rows),
        "path": pa.array(["slow" if how == "banned" else "fast" for *_, how in picked]),
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


@dataclass(frozen=True, slots=True)
class Score:
    """Quality of the judgements on one scenario, over all seeds."""

    found: int
    missed: int
    wrong: int
    """Honest sources that were proposed."""
    honest: int

    @property
    def precision(self) -> float | None:
        told = self.found + self.wrong
        return self.found / told if told else None

    @property
    def recall(self) -> float | None:
        there = self.found + self.missed
        return self.found / there if there else None


def scores(found: list[Scenario], proposed: set[str]) -> dict[str, Score]:
    """By scenario."""
    told: dict[str, Score] = {}
    for name in SCENARIOS:
        of = [made for made in found if made.name == name]
        sources = {source for made in of for _, _, source, *_ in made.rows}
        abusers = {abuser for made in of for abuser in made.abusers}
        told[name] = Score(
            len(abusers & proposed),
            len(abusers - proposed),
            len((sources - abusers) & proposed),
            len(sources - abusers),
        )
    return told
