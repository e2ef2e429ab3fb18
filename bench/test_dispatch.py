"""Cost and bounds of dispatch: plans with every rule, many routes and many sources; Fast with every rule in a whole
mesh; a limit over several instances; revocation.

Batches of 1000 commands of 400 encoded bytes. For plans, CPU time of this thread is compared, variants take turns, and
the least of many repeats counts: whatever else runs on the machine only ever adds to it.

Run: `python -m pytest bench/test_dispatch.py -q -s`; with SNAVIO_BENCH_SHORT=1 only to see that it runs through.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass

import pytest

from bench.meters import Sample, Stopwatch, record
from bench.targets import SHORT, Targets
from snavio.admin.directory import DirectoryClient
from snavio.clock import SystemClock
from snavio.domain.directory import AclEntry, Limit, Profile, Route
from snavio.launch.processes import SERVICES
from snavio.launch.revocation_meter import RevocationMeter
from snavio.native import Dispatch
from snavio.sdk import Producer
from snavio.v1 import registry_pb2 as wire
from tests.support.frames import RunOf, batch, command
from tests.support.mesh import SOURCE, TARGET, TENANT, DemoMesh

BATCH = 1000
REPEATS = 5 if SHORT else 25
FRAMES = 16
# Enough that what the many touch fits into no cache while the few always do.
MANY_FRAMES = 200
FOREVER_NS = 2**62
NAMES = 10
# 1 / 0.85 of what a plan cost before there were limits, fairness and lists.
RULES_FLOOR = 0.85
RULES_CEILING = 1 / RULES_FLOOR
GROWTH_CEILING = 1.2
PAYLOAD = b"p" * 230
# With what a producer adds, a command of 400 encoded bytes.
MESH_PAYLOAD = b"x" * 210
BARE, RULED, LIMITED = "bench-bare", "bench-ruled", "bench-limited"
WAYS = 3
MAXIMUM, INTERVAL_S = 6000, 2
DEMAND = 1.5


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
        assert sum(send.count for send in plan.sends) == BATCH
    return built


def compared(variants: Mapping[str, Variant]) -> dict[str, list[float]]:
    """Nanoseconds per command of each variant, by turns."""
    figures: dict[str, list[float]] = {name: [] for name in variants}
    for _ in range(REPEATS):
        for name, each in variants.items():
            figures[name].append(each.cpu_ns_per_command())
    return figures


def told(title: str, figures: dict[str, list[float]], *, ceiling: float, note: str) -> None:
    """Record the figures and the ratio of the second to the first, by their least; fail when it exceeds the target."""
    targets = Targets()
    plain, other = (min(values) for values in figures.values())
    for name, values in figures.items():
        record(
            f"plan, {title}: {name}", values=values, unit="ns", target="-", note=f"CPU per command; {note}"
        )
    targets.at_most(f"plan, {title}: ratio", [other / plain], ceiling=ceiling, unit="x", note="of the least")
    targets.require()


@pytest.mark.parametrize("lanes", [1, 10])
def test_every_rule_on_costs_little_more_than_a_bare_route(lanes: int) -> None:
    figures = compared(
        {
            "bare": variant(routes=1000, sources=1000, lanes=lanes, rules=False),
            "permits, lists and bans": variant(routes=1000, sources=1000, lanes=lanes, rules=True),
        }
    )
    told(f"{lanes} sources in a batch", figures, ceiling=RULES_CEILING, note="1,000 routes and sources")


def test_a_hundred_times_as_many_routes_cost_hardly_more() -> None:
    figures = compared(
        {
            "1,000 routes": variant(routes=1_000, sources=100, lanes=10, rules=True, frames=MANY_FRAMES),
            "100,000 routes": variant(routes=100_000, sources=100, lanes=10, rules=True, frames=MANY_FRAMES),
        }
    )
    told("routes", figures, ceiling=GROWTH_CEILING, note="every rule on, 10 sources in a batch")


def test_a_thousand_times_as_many_sources_cost_hardly_more() -> None:
    figures = compared(
        {
            "10 sources": variant(routes=100, sources=10, lanes=10, rules=True, frames=MANY_FRAMES),
            "10,000 sources": variant(routes=100, sources=10_000, lanes=10, rules=True, frames=MANY_FRAMES),
        }
    )
    told("sources", figures, ceiling=GROWTH_CEILING, note="every rule on, 10 sources in a batch")


# -- in the mesh -------------------------------------------------------------------------------------------


def test_fast_with_every_rule_on_beside_a_route_without_any(runner: asyncio.Runner, mesh: DemoMesh) -> None:
    """Streams of 1000, producer to disk, by turns on two routes of one mesh.

    The bare one has a route and a right, as the first step had, and the fairness window that no route is without;
    the other one a limit, whose permits come from Slow, and fifty bans of others.
    """
    runner.run(register_rules(mesh))
    producer = runner.run(mesh.producer().__aenter__())
    pids = {"client": os.getpid(), **{name: mesh.processes.pid(name) for name in SERVICES}}
    samples: dict[str, list[Sample]] = {BARE: [], RULED: []}
    for turn in range(5 if SHORT else 7):
        for name in samples if turn % 2 else reversed(samples):
            watch = Stopwatch(pids)
            watch.start()
            samples[name].append(watch.stop(runner.run(pour(producer, name))))
    runner.run(producer.__aexit__(None, None, None))
    warm = runner.run(mesh.counters("fast"))
    targets = Targets()
    # The first turn warms up.
    bare, ruled = samples[BARE][1:], samples[RULED][1:]
    note = "streams of 1000, by turns in one run"
    for title, some in (("bare", bare), ("every rule on", ruled)):
        record(
            f"Fast, {title}: rate",
            values=[sample.rate for sample in some],
            unit="commands/s",
            target="-",
            note=note,
        )
        record(
            f"Fast, {title}: CPU per command, Fast and Slow",
            values=[sample.cpu_us_of("fast") + sample.cpu_us_of("slow") for sample in some],
            unit="µs",
            target="-",
            note=note,
        )
    ratios = [after.rate / before.rate for before, after in zip(bare, ruled, strict=True)]
    targets.at_least("Fast, every rule on ÷ bare: rate", ratios, floor=RULES_FLOOR, unit="x", note=note)
    by_memory = 1 - warm["dispatch.escalated.token_required"] / sum(sample.count for sample in samples[RULED])
    targets.at_least(
        "Fast, every rule on: share with a permit from memory", [by_memory], floor=0.9, unit="x", note=note
    )
    targets.require()


def test_a_limit_over_several_instances(runner: asyncio.Runner, mesh: DemoMesh) -> None:
    """Three Fasts, each behind a Shield of its own, share a limit through one Slow, all real processes.

    A command that was sent and answered within one interval was dispatched in it. One that was under way between
    two counts for neither of them, but for all together.
    """
    counts = runner.run(demand(mesh))
    targets = Targets()
    note = f"{WAYS} Fasts, {MAXIMUM} in {INTERVAL_S} s, {DEMAND}x as many offered"
    targets.at_most(
        "limit: dispatched in one interval ÷ its limit",
        [count / MAXIMUM for count in counts.certain],
        ceiling=1.0,
        unit="x",
        note=note,
        by=max,
    )
    whole = counts.delivered / MAXIMUM / len(counts.certain)
    targets.at_most("limit: dispatched in all ÷ the limits of all", [whole], ceiling=1.0, unit="x", note=note)
    targets.at_least("limit: used under steady demand", [whole], floor=0.9, unit="x", note=note)
    targets.require()


def test_revocation_of_each_profile(runner: asyncio.Runner, mesh: DemoMesh) -> None:
    """The measurement of `snavio meter revocation`, with the default pull interval of one second."""
    meter = RevocationMeter(
        mesh.processes.mesh,
        operator_certificates=mesh.certificates("operator-admin"),
        clock=SystemClock(),
    )
    targets = Targets()
    for times in runner.run(meter.measure(list(Profile), rounds=2 if SHORT else 20)):
        name = f"revocation, {times.profile.name.lower()}: last accepted after"
        for what, value in (("p50", times.p50), ("p99", times.p99)):
            record(f"{name}, {what}", values=[value], unit="s", target="-", note=f"of {len(times.seconds)}")
        targets.at_most(
            name, times.seconds, ceiling=times.bound_s, unit="s", note="Registry is there", by=max
        )
    targets.require()


async def register_rules(mesh: DemoMesh) -> None:
    limit = Limit(max=1_000_000_000, interval_seconds=3600)
    async with directory_of(mesh) as client:
        for route in (Route(TARGET, BARE), Route(TARGET, RULED, limit=limit)):
            await client.apply([route, AclEntry(SOURCE, TARGET, route.name)])
    until = time.time_ns() + 3_600_000_000_000
    async with mesh.operator() as operator:
        for number in range(50):
            await operator.register_service(TENANT, f"other-{number}")
            source = f"{TENANT}/other-{number}"
            ban = wire.Ban(
                list=wire.BAN_LIST_WARM_BAN, source=source, target=TARGET, name=RULED, until_unix_ns=until
            )
            await operator._write("SetBan", wire.SetBanRequest(ban=ban))
    await asyncio.sleep(2)  # the next pull


async def pour(producer: Producer, name: str) -> int:
    """Send batches of 1000, several at a time; the number delivered."""
    commands = [(TARGET, name, MESH_PAYLOAD)] * BATCH
    end = time.perf_counter() + (1.0 if SHORT else 4.0)

    async def lane() -> int:
        delivered = 0
        while time.perf_counter() < end:
            delivered += (await producer.send_batch(commands)).delivered
        return delivered

    return sum(await asyncio.gather(*(lane() for _ in range(8))))


@dataclass
class Counts:
    """Deliveries of whole intervals: those certainly dispatched in each, and the total."""

    certain: list[int]
    delivered: int


async def demand(mesh: DemoMesh) -> Counts:
    """Steady demand from all instances, for several whole intervals."""
    async with directory_of(mesh) as client:
        limit = Limit(max=MAXIMUM, interval_seconds=INTERVAL_S)
        await client.apply([Route(TARGET, LIMITED, limit=limit), AclEntry(SOURCE, TARGET, LIMITED)])
    shields = [mesh.addresses["shield"]]
    for number in range(1, WAYS):
        fast = await mesh.another("fast", f"fast-{number}")
        shields.append(await mesh.another("shield", f"shield-{number}", fast=fast))
    told: list[tuple[int, int, int]] = []
    async with AsyncExitStack() as stack:
        producers = [
            await stack.enter_async_context(
                Producer(
                    shield=shield,
                    signer=mesh.addresses["signer"],
                    certificates=mesh.certificates("acme-billing"),
                    max_attempts=1,
                )
            )
            for shield in shields
        ]
        # An interval of warming up, then whole ones.
        first = int(time.time()) // INTERVAL_S + 2
        last = first + (4 if SHORT else 15)
        await asyncio.gather(*(offer(producer, told, until_s=last * INTERVAL_S) for producer in producers))
    for number in range(1, WAYS):
        for service in ("shield", "fast"):
            mesh.processes.kill(f"{service}-{number}")
    # Commands in flight when the first interval began or the last one ended are in neither count.
    within = [(began, ended, count) for began, ended, count in told if first <= began and ended < last]
    certain = [
        sum(count for began, ended, count in within if began == ended == interval)
        for interval in range(first, last)
    ]
    return Counts(certain, sum(count for _, _, count in within))


async def offer(producer: Producer, told: list[tuple[int, int, int]], *, until_s: float) -> None:
    """Send small batches at a steady rate, whatever their result; the interval in which each began and ended."""
    size, sending = 50, set()
    pause_s = size * WAYS * INTERVAL_S / (DEMAND * MAXIMUM)
    commands = [(TARGET, LIMITED, b"x")] * size

    async def send() -> None:
        began = int(time.time() / INTERVAL_S)
        outcomes = await producer.send_batch(commands)
        told.append((began, int(time.time() / INTERVAL_S), outcomes.delivered))

    due = time.time()
    while due < until_s:
        task = asyncio.create_task(send())
        sending.add(task)
        task.add_done_callback(sending.discard)
        due += pause_s
        await asyncio.sleep(max(0.0, due - time.time()))
    await asyncio.gather(*sending)


def directory_of(mesh: DemoMesh) -> DirectoryClient:
    return DirectoryClient(mesh.addresses["registry"], certificates=mesh.certificates("operator-admin"))
