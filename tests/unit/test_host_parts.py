"""Parts start in the order in which they are named and stop in the reverse order, whatever some of them do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from snavio.clock import ManualClock
from snavio.config import MeshSettings
from snavio.errors import StateError, Unavailable
from snavio.host.background import Background, host
from snavio.host.parts import Parts
from snavio.host.service import HostedService
from snavio.rpc.methods import Methods
from tests.support.neighbours import Bench, ScriptedSigner

PATIENCE_S = 30.0


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not true():
            await asyncio.sleep(0.005)


@dataclass
class Part:
    """Writes down what happens to it."""

    name: str
    log: list[str]
    fails: str = ""
    hangs: bool = False
    given: dict[str, object] = field(default_factory=dict)

    async def start(self, **given: object) -> None:
        self.given = given
        self.log.append(f"start {self.name}")
        if self.fails == "start":
            raise StateError(f"{self.name} cannot start.")

    async def stop(self) -> None:
        self.log.append(f"stop {self.name}")
        if self.fails == "stop":
            raise RuntimeError("a bug")
        while self.hangs:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.log.append(f"{self.name} ignores its end")


class Plain:
    """As clients and stores are: a start that is no coroutine, and `close`."""

    def __init__(self, log: list[str]) -> None:
        self.log = log

    def start(self) -> None:
        self.log.append("start plain")

    async def close(self) -> None:
        self.log.append("close plain")


async def test_parts_start_in_order_and_stop_in_reverse() -> None:
    parts, log = Parts(), list[str]()
    first = await parts.run(Part("first", log), within_s=5.0)
    await parts.run(Plain(log))
    parts.hold(Plain(log))
    await parts.run(Part("last", log))
    assert first.given == {"within_s": 5.0}
    await parts.stop()
    assert log == [
        *("start first", "start plain", "start last"),
        *("stop last", "close plain", "close plain", "stop first"),
    ]
    await parts.stop()
    assert len(log) == 7, "a second time there is nothing left to stop"


async def test_a_part_whose_start_fails_is_stopped_too() -> None:
    parts, log = Parts(), list[str]()
    await parts.run(Part("first", log))
    with pytest.raises(StateError):
        await parts.run(Part("second", log, fails="start"))
    await parts.stop()
    assert log[2:] == ["stop second", "stop first"]


async def test_a_part_that_fails_or_hangs_while_it_stops_does_not_keep_the_others() -> None:
    own, log = Background(), list[str]()
    host(own)
    parts = Parts()
    await parts.run(Part("first", log))
    hanging = Part("hanging", log, hangs=True)
    parts.at_stop("hanging", hanging.stop, within_s=0.01)
    await parts.run(Part("failing", log, fails="stop"))
    with capture_logs() as logs:
        async with asyncio.timeout(PATIENCE_S):
            await parts.stop()
        await until(lambda: "hanging ignores its end" in log)
    assert [line for line in log if line.startswith("stop")] == ["stop failing", "stop hanging", "stop first"]
    assert own.counters()['background_faults_total{work="stop Part"}'] == 1
    assert [line["part"] for line in logs if line["event"] == "a part did not stop in time"] == ["hanging"]
    # It would keep the test's own loop from ending.
    hanging.hangs = False
    for task in asyncio.all_tasks():
        if task.get_name() == "stop hanging":
            task.cancel()


async def test_parts_that_hang_one_after_another_leave_time_for_those_behind_them() -> None:
    host(Background())
    parts, log = Parts(), list[str]()
    await parts.run(Part("journal", log))
    ends = [asyncio.Event(), asyncio.Event()]
    for end in ends:
        parts.at_stop("hanging", end.wait, within_s=3600.0)
    async with asyncio.timeout(PATIENCE_S):
        await parts.stop(within_s=0.1)
    assert log[-1] == "stop journal"


async def test_repeated_work_counts_its_turns_backs_off_and_ends_with_the_others() -> None:
    own, tried = Background(jitter=lambda: 1.0), 0
    host(own)
    parts = Parts()

    async def turn() -> None:
        nonlocal tried
        tried += 1
        if tried <= 3:
            raise Unavailable("away")

    loop = asyncio.get_running_loop()
    began = loop.time()
    periodic = parts.every(0.001, "sweep", turn, at_once=True)
    await until(lambda: periodic.turns >= 2)
    # 50, 100 and 200 ms after the first three failures.
    assert loop.time() - began >= 0.35 and tried >= 5
    assert own.counters()['background_failures_total{work="sweep"}'] == 3
    await parts.stop()
    stopped = tried
    await asyncio.sleep(0.02)
    assert tried == stopped


async def test_work_that_must_succeed_once_is_waited_for_and_not_for_ever() -> None:
    parts, tried = Parts(), 0

    async def turn() -> None:
        nonlocal tried
        tried += 1
        if tried == 1:
            raise Unavailable("away")

    periodic = await parts.now_and_every(3600.0, "sweep", turn, within_s=PATIENCE_S)
    assert tried == 2 and periodic.turns == 1

    async def never() -> None:
        raise Unavailable("away")

    with pytest.raises(Unavailable, match="upkeep did not succeed within 0 s: away\\."):
        await parts.now_and_every(3600.0, "upkeep", never, within_s=0.1)
    await parts.stop()


@dataclass(frozen=True)
class Patience:
    """Settings of a service that has no others."""

    start_within_s: float = PATIENCE_S


class Hosted(HostedService[Patience]):
    """A service with two parts, whose composition may fail at its end."""

    service = "slow"

    def __init__(self, mesh: MeshSettings, *, fails: bool = False) -> None:
        super().__init__(mesh, Patience(), ManualClock())
        self.log: list[str] = []
        self._fails = fails

    async def compose(self) -> int:
        await self.host.run(Part("one", self.log))
        await self.host.run(Part("two", self.log))
        if self._fails:
            raise StateError("No.")
        return await self.host.serve(Methods(), leaving=lambda: self.log.append("leaving"))


async def test_a_service_that_cannot_start_stops_what_it_started(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    app = Hosted(bench.mesh("slow"), fails=True)
    with pytest.raises(StateError):
        await app.start()
    assert app.log == ["start one", "start two", "stop two", "stop one"]
    await app.drain()
    assert len(app.log) == 4
    await bench.close()


async def test_a_service_reads_the_denylist_before_it_serves_and_drains_before_its_parts_stop(
    tmp_path: Path,
) -> None:
    bench, signer = Bench(tmp_path), ScriptedSigner()
    await bench.neighbour("signer", signer.methods())
    app = Hosted(bench.mesh("slow"))
    assert app.host.channel("signer") is app.host.channel("signer")
    assert await app.start() > 0
    assert app.host.denylist.age_ns() is not None
    drain = app.host.server.drain

    async def draining(grace_s: float) -> None:
        app.log.append("drain")
        await drain(grace_s)

    app.host.server.drain = draining  # type: ignore[method-assign]
    # Begun after the server, it ends after it all the same.
    await app.host.run(Part("late", app.log))
    await app.drain()
    assert app.log[2:] == ["start late", "leaving", "drain", "stop late", "stop two", "stop one"]
    with pytest.raises(Unavailable):
        app.host.channel("signer").generation()
    await bench.close()


async def test_a_service_that_fails_to_wake_its_calls_stops_all_the_same(tmp_path: Path) -> None:
    bench, signer = Bench(tmp_path), ScriptedSigner()
    await bench.neighbour("signer", signer.methods())
    own = Background()
    host(own)
    app = Hosted(bench.mesh("slow"))
    await app.start()

    def leave() -> None:
        raise RuntimeError("a bug")

    app.host._leaving = leave
    await app.drain()
    assert app.log == ["start one", "start two", "stop two", "stop one"]
    assert own.counters()['background_faults_total{work="stop leaving"}'] == 1
    await bench.close()


async def test_a_service_does_not_serve_without_a_denylist(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    app = Hosted(bench.mesh("slow"))
    app.host.start_within_s = 0.2
    with pytest.raises(Unavailable, match="denylist could not be read"):
        await app.start()
    assert app.log[-1] == "stop one"
    await bench.close()
