"""The one runner of background work: failures are logged, counted and retried, or end the process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest
from structlog.testing import capture_logs

from snavio import _native
from snavio.clock import ManualClock
from snavio.errors import Unavailable
from snavio.host.background import Background, background, host
from snavio.host.periodic import Periodic

PATIENCE_S = 30.0


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not true():
            await asyncio.sleep(0.005)


def counted(own: Background, work: str, *, faults: bool = True) -> int:
    name = "background_faults_total" if faults else "background_failures_total"
    return own.counters().get(f'{name}{{work="{work}"}}', 0)


@pytest.mark.parametrize(
    "fault", [RuntimeError("a bug"), _native.panic_for_test, asyncio.CancelledError(), MemoryError()]
)
async def test_a_task_goes_on_after_whatever_ended_it(fault: object) -> None:
    own, begun = Background(), 0
    running = asyncio.Event()

    async def body() -> None:
        nonlocal begun
        begun += 1
        if begun <= 3:
            if isinstance(fault, BaseException):
                raise fault
            _native.panic_for_test(True)
        running.set()
        await asyncio.Event().wait()

    with capture_logs() as logs:
        task = own.keep("chore", body)
        await until(running.is_set)
    assert begun == 4 and counted(own, "chore") == 3
    assert {line["work"] for line in logs} == {"chore"} and "stack" in logs[0]
    task.cancel()
    await asyncio.wait({task})
    assert task.cancelled(), "told to end, it ends"


async def test_a_thread_goes_on_after_a_panic_and_ends_when_its_work_is_over() -> None:
    own, begun = Background(), 0

    def body() -> None:
        nonlocal begun
        begun += 1
        if begun <= 2:
            _native.panic_for_test(begun == 1)

    thread = own.thread("thread", body)
    await asyncio.to_thread(thread.join, PATIENCE_S)
    assert not thread.is_alive() and begun == 3 and counted(own, "thread") == 2
    assert own.lost_work is None


async def test_a_thread_that_exits_ends_the_process() -> None:
    own, ending = Background(), asyncio.Event()
    own.on_lost(ending.set)

    def body() -> None:
        raise SystemExit

    own.thread("thread", body)
    await until(ending.is_set)
    assert own.lost_work == "thread"
    late = asyncio.Event()
    own.on_lost(late.set)
    assert late.is_set(), "who asks later hears of it too"


async def test_nothing_but_faults_for_too_long_ends_the_process_and_what_others_cause_does_not() -> None:
    clock = ManualClock()
    own = Background(clock=clock, patience_s=300.0)
    away, faulty = own.trial("away"), own.trial("faulty")
    for _ in range(10):
        away.failed(Unavailable("Registry is away."))
        clock.advance(seconds=100)
    assert own.lost_work is None
    for _ in range(3):
        faulty.failed(RuntimeError("a bug"))
        clock.advance(seconds=99)
    faulty.succeeded()
    for _ in range(4):
        faulty.failed(RuntimeError("a bug"))
        assert own.lost_work is None
        clock.advance(seconds=99)
    faulty.failed(RuntimeError("a bug"))
    lost = own.lost_work
    assert str(lost) == "faulty"
    assert counted(own, "away") == 0 and counted(own, "away", faults=False) == 10


def test_pauses_grow_to_their_bound_and_are_spread_over_half_of_it() -> None:
    jitter = iter([1.0, 0.0, 1.0, 1.0, 1.0])
    trial = Background(jitter=lambda: next(jitter)).trial("work", first_s=1.0, longest_s=3.0)
    assert [trial.failed(Unavailable("")) for _ in range(4)] == [1.0, 1.0, 3.0, 3.0]
    trial.succeeded()
    assert trial.failed(Unavailable("")) == 1.0


async def test_periodic_work_goes_on_after_faults_and_panics_and_stops_when_told() -> None:
    own, turns = Background(), 0

    async def turn() -> None:
        nonlocal turns
        turns += 1
        if turns == 1:
            raise Unavailable("away")
        if turns == 2:
            await asyncio.to_thread(_native.panic_for_test, True)
        if turns == 3:
            raise asyncio.CancelledError

    periodic = Periodic("sweep", turn, every_s=0.001, of=own)
    periodic.start()
    await until(lambda: periodic.turns >= 2)
    await periodic.stop()
    stopped = turns
    await asyncio.sleep(0.02)
    assert turns == stopped and counted(own, "sweep") == 2 and counted(own, "sweep", faults=False) == 3


async def test_turns_that_are_cancelled_from_within_wait_no_longer_than_other_failures() -> None:
    own, turns = Background(jitter=lambda: 1.0), 0

    async def turn() -> None:
        nonlocal turns
        turns += 1
        raise asyncio.CancelledError

    periodic = Periodic("pull", turn, every_s=0.01, first_s=0.01, longest_s=0.01, of=own)
    periodic.start()
    # With the back-off of a task it would take minutes.
    await until(lambda: turns >= 12)
    await periodic.stop()
    assert counted(own, "pull") == turns


async def test_periodic_work_can_be_had_at_once() -> None:
    turned = asyncio.Event()

    async def turn() -> None:
        turned.set()

    periodic = Periodic("sweep", turn, every_s=3600.0, of=Background())
    periodic.start(at_once=True)
    await until(turned.is_set)
    turned.clear()
    periodic.nudge()
    await until(turned.is_set)
    await periodic.stop()


async def test_work_without_a_period_waits_for_a_nudge_and_keeps_the_quiet_between_two() -> None:
    loop = asyncio.get_running_loop()
    turned: list[float] = []

    async def turn() -> None:
        turned.append(loop.time())

    periodic = Periodic("reports", turn, every_s=None, quiet_s=0.1, jitter=0.0, of=Background())
    periodic.start()
    await asyncio.sleep(0.15)
    assert turned == [], "without a nudge there is nothing to do"
    periodic.nudge()
    await until(lambda: len(turned) == 1)
    for _ in range(3):
        periodic.nudge()
    await until(lambda: len(turned) == 2)
    assert turned[1] - turned[0] >= 0.09
    await asyncio.sleep(0.15)
    assert len(turned) == 2, "many nudges are one"
    await periodic.stop()


async def test_a_first_turn_is_waited_for_and_repeated_until_the_time_is_over() -> None:
    own, tried = Background(), 0

    async def turn() -> None:
        nonlocal tried
        tried += 1
        if tried < 3:
            raise Unavailable("away")

    periodic = Periodic("pull", turn, every_s=3600.0, of=own)
    await periodic.start_within(PATIENCE_S)
    assert tried == 3 and periodic.turns == 1 and counted(own, "pull", faults=False) == 2
    await periodic.stop()

    async def hang() -> None:
        await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        await Periodic("pull", hang, every_s=3600.0, of=own).start_within(0.05)


async def test_something_done_once_is_held_and_its_fault_is_counted() -> None:
    own = Background()

    async def fail() -> None:
        await asyncio.sleep(0)
        raise RuntimeError("a bug")

    await asyncio.wait({own.once("farewell", fail())})
    await asyncio.sleep(0)
    assert counted(own, "farewell") == 1


async def test_traces_of_one_fault_come_ever_more_rarely() -> None:
    own = Background()
    with capture_logs() as logs:
        for _ in range(100):
            own.failed("chore", RuntimeError("a bug"))
    assert len(logs) == 100 and sum(line["stack"] is not None for line in logs) == 7


async def test_whatever_a_host_begins_belongs_to_it_on_its_threads_too() -> None:
    own = Background()
    seen: list[Background] = []

    async def hosted() -> None:
        host(own)
        assert background() is own
        done = threading.Event()

        def note() -> None:
            seen.append(background())
            done.set()

        background().thread("thread", note)
        await until(done.is_set)

    await asyncio.create_task(hosted())
    assert seen == [own] and background() is not own
