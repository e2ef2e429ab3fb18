"""What planning one command costs: with every rule on, with many routes, with many sources; each against its plain
counterpart in the same run.

Batches of 1000 commands of 400 encoded bytes. CPU time of this thread is compared, variants take turns, and the least
of many repeats counts: whatever else runs on the machine only ever adds to it.

Run: `python -m pytest bench/test_dispatch.py -q -s`.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from dataclasses import dataclass

import pytest

from bench.meters import record
from snavio.native import Dispatch
from tests.support.frames import RunOf, batch, command

BATCH = 1000
REPEATS = 25
FRAMES = 16
# Enough that what the many touch fits into no cache while the few always do.
MANY_FRAMES = 200
FOREVER_NS = 2**62
NAMES = 10
# 1 / 0.85 of what a plan cost before there were limits, fairness and lists.
RULES_CEILING = 1 / 0.85
GROWTH_CEILING = 1.2
PAYLOAD = b"p" * 230


@dataclass(frozen=True, slots=True)
class Variant:
    """A dispatch with its traffic."""

    dispatch: Dispatch
    frames: list[bytes]

    def cpu_ns_per_command(self) -> float:
        start = time.thread_time_ns()
        for frame in self.frames:
            self.dispatch.plan(frame, now_mono_ns=5)
        return (time.thread_time_ns() - start) / len(self.frames) / BATCH


def route_of(number: int) -> tuple[str, str]:
    return f"target-{number // NAMES}", f"command-{number % NAMES}"


def source_of(number: int) -> str:
    return f"tenant-{number % 40}/service-{number}"


def known(*, routes: int, lanes: list[tuple[int, int]], rules: bool) -> Dispatch:
    """A dispatch that may send on every lane (source, route), among `routes` routes."""
    dispatch = Dispatch()
    for number in range(routes):
        target, name = route_of(number)
        dispatch.put_route(
            target, name, queue=0, topic=f"acme/{target}", profile=3, strict=False, limited=rules
        )
        if rules:
            dispatch.grant(target, name, permits=2**60, interval=1, ends_mono_ns=FOREVER_NS, now_mono_ns=0)
    for source, route in lanes:
        dispatch.allow(source_of(source), *route_of(route), 1)
    if rules:
        for number in range(1000):
            dispatch.put_ban(1, f"evil/{number}", *route_of(0), until_mono_ns=FOREVER_NS)
            dispatch.put_ban(2, f"evil/{number}", "", "", until_mono_ns=FOREVER_NS)
    dispatch.renewed(0)
    return dispatch


def frame_of(lanes: list[tuple[int, int]]) -> bytes:
    """A batch of so many runs, one per lane."""
    each = BATCH // len(lanes)
    runs = []
    for source, route in lanes:
        target, name = route_of(route)
        runs.append(RunOf([command(target=target, name=name, payload=PAYLOAD)] * each, source_of(source)))
    return batch(*runs)


def variant(*, routes: int, sources: int, lanes: int, rules: bool, frames: int = FRAMES) -> Variant:
    randomness = random.Random(7)
    told = [
        [(randomness.randrange(sources), randomness.randrange(routes)) for _ in range(lanes)]
        for _ in range(frames)
    ]
    dispatch = known(routes=routes, lanes=[lane for batch in told for lane in batch], rules=rules)
    built = Variant(dispatch, [frame_of(lanes) for lanes in told])
    for frame in built.frames:
        plan = dispatch.plan(frame, now_mono_ns=5)
        assert sum(count for _, count, _ in plan.sends) == BATCH
    return built


def compared(variants: Mapping[str, Variant]) -> dict[str, list[float]]:
    """Nanoseconds per command of each, taking turns."""
    figures: dict[str, list[float]] = {name: [] for name in variants}
    for _ in range(REPEATS):
        for name, each in variants.items():
            figures[name].append(each.cpu_ns_per_command())
    return figures


def told(title: str, figures: dict[str, list[float]], *, ceiling: float, note: str) -> float:
    """Record the figures and the ratio of the second to the first, by their least."""
    plain, other = (min(values) for values in figures.values())
    for name, values in figures.items():
        record(
            f"plan, {title}: {name}", values=values, unit="ns", target="-", note=f"CPU per command; {note}"
        )
    ratio = other / plain
    record(f"plan, {title}: ratio", values=[ratio], unit="x", target=f"≤ {ceiling:.2f}", note="of the least")
    return ratio


@pytest.mark.parametrize("lanes", [1, 10])
def test_every_rule_on_costs_little_more_than_a_bare_route(lanes: int) -> None:
    figures = compared(
        {
            "bare": variant(routes=1000, sources=1000, lanes=lanes, rules=False),
            "permits, lists and bans": variant(routes=1000, sources=1000, lanes=lanes, rules=True),
        }
    )
    ratio = told(
        f"{lanes} sources in a batch", figures, ceiling=RULES_CEILING, note="1,000 routes and sources"
    )
    assert ratio <= RULES_CEILING


def test_a_hundred_times_as_many_routes_cost_hardly_more() -> None:
    figures = compared(
        {
            "1,000 routes": variant(routes=1_000, sources=100, lanes=10, rules=True, frames=MANY_FRAMES),
            "100,000 routes": variant(routes=100_000, sources=100, lanes=10, rules=True, frames=MANY_FRAMES),
        }
    )
    ratio = told("routes", figures, ceiling=GROWTH_CEILING, note="every rule on, 10 sources in a batch")
    assert ratio <= GROWTH_CEILING


def test_a_thousand_times_as_many_sources_cost_hardly_more() -> None:
    figures = compared(
        {
            "10 sources": variant(routes=100, sources=10, lanes=10, rules=True, frames=MANY_FRAMES),
            "10,000 sources": variant(routes=100, sources=10_000, lanes=10, rules=True, frames=MANY_FRAMES),
        }
    )
    ratio = told("sources", figures, ceiling=GROWTH_CEILING, note="every rule on, 10 sources in a batch")
    assert ratio <= GROWTH_CEILING
