"""A read that hangs delays itself and no other."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from snavio.errors import Saturated, Unavailable
from snavio.host.shares import HOLDER
from snavio.host.store_readers import StoreReaders


@pytest.fixture
def stuck() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


@asynccontextmanager
async def readers(**named: Any) -> AsyncIterator[StoreReaders]:
    some = StoreReaders("reads", **{"hang_s": 0.02, "timeout_s": 5.0, **named})
    try:
        yield some
    finally:
        await some.close(lambda: None)


async def until(condition: Any) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.002)


async def test_hanging_read_holds_up_nobody_is_counted_and_comes_to_an_end(stuck: threading.Event) -> None:
    async with readers(readers=1, spares=1) as some:
        hanging = asyncio.create_task(some.run(stuck.wait))
        await asyncio.sleep(0)
        assert await some.run(lambda: 7) == 7
        await until(lambda: some.hanging == 1)
        assert some.gauges() == {"reads_hanging": 1, "read_threads": 2}
        stuck.set()
        assert await hanging is True
        await until(lambda: some.gauges() == {"reads_hanging": 0, "read_threads": 1})
        assert some.counters() == {"reads_hung_total": 1}


async def test_threads_are_bounded_and_then_reads_are_refused_at_once(stuck: threading.Event) -> None:
    async with readers(readers=2, spares=3) as some:
        held = [asyncio.create_task(some.run(stuck.wait)) for _ in range(5)]
        await until(lambda: some.hanging == 5)
        assert some.gauges()["read_threads"] == 5
        with pytest.raises(Unavailable) as refused:
            await some.run(lambda: 1)
        assert refused.value.reason == "reads-hang"
        stuck.set()
        await asyncio.gather(*held)
        await until(lambda: some.hanging == 0)
        assert await some.run(lambda: 1) == 1
        await until(lambda: some.gauges()["read_threads"] <= 2)


async def test_caller_does_not_wait_longer_than_its_time(stuck: threading.Event) -> None:
    async with readers(readers=1, spares=0, timeout_s=0.05) as some:
        ran: list[int] = []
        slow = asyncio.create_task(some.run(stuck.wait))
        behind = asyncio.create_task(some.run(lambda: ran.append(1)))
        for task in (slow, behind):
            with pytest.raises(Unavailable):
                await task
        stuck.set()
        await until(lambda: some.hanging == 0)
        assert ran == [], "what had not begun never runs"


async def test_hang_of_a_read_whose_caller_left_is_noticed_too(stuck: threading.Event) -> None:
    async with readers(readers=1, spares=1) as some:
        left = asyncio.create_task(some.run(stuck.wait))
        await until(lambda: some.gauges()["read_threads"] == 1 and some._free == 0)
        left.cancel()
        await until(lambda: some.hanging == 1)
        assert await some.run(lambda: 2) == 2


async def test_too_much_waiting_work_is_refused(stuck: threading.Event) -> None:
    async with readers(readers=1, spares=0, max_waiting=2, hang_s=5.0) as some:
        held = [asyncio.create_task(some.run(stuck.wait))]
        await until(lambda: some.gauges()["read_threads"] == 1 and some._free == 0)
        held += [asyncio.create_task(some.run(lambda: True)) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(Saturated):
            await some.run(lambda: True)
        stuck.set()
        await asyncio.gather(*held)


async def test_reads_run_beside_each_other_and_an_idle_store_has_no_thread() -> None:
    async with readers() as some:
        assert some.gauges()["read_threads"] == 0
        meeting = threading.Barrier(4, timeout=10)
        assert len(await asyncio.gather(*(some.run(meeting.wait) for _ in range(4)))) == 4
        assert some.gauges()["read_threads"] == 4
        for number in range(100):
            assert await some.run(partial(int, number)) == number
        assert some.gauges()["read_threads"] == 4


async def test_close_runs_its_last_work_behind_the_rest_and_waits_for_no_hanging_read(
    stuck: threading.Event,
) -> None:
    some = StoreReaders("reads", readers=2, spares=2, hang_s=0.02, timeout_s=5.0)
    done: list[str] = []
    hanging = asyncio.create_task(some.run(stuck.wait))
    await until(lambda: some.hanging == 1)
    slow = asyncio.create_task(some.run(lambda: done.append("read")))
    await asyncio.sleep(0)
    async with asyncio.timeout(4):
        await some.close(lambda: done.append("closed"))
    await some.close(lambda: done.append("again"))
    assert done == ["read", "closed"]
    with pytest.raises(Unavailable) as closed:
        await some.run(lambda: True)
    assert closed.value.reason == "closed"
    stuck.set()
    await asyncio.gather(hanging, slow)


@pytest.mark.parametrize("error", [ValueError("no"), TimeoutError("its own")])
async def test_error_of_the_work_is_the_callers(error: Exception) -> None:
    def fail() -> None:
        raise error

    async with readers() as some:
        with pytest.raises(type(error)):
            await some.run(fail)
        assert await some.run(lambda: 1) == 1


async def test_one_tenants_reads_leave_places_to_others() -> None:
    readers, go_on = StoreReaders("store", max_waiting=24, hang_s=5.0), threading.Event()
    try:
        HOLDER.set("rival")
        rivals = [asyncio.create_task(readers.run(go_on.wait)) for _ in range(60)]
        HOLDER.set("acme")
        other = asyncio.create_task(readers.run(go_on.wait))
        await asyncio.sleep(0)
        assert sum(each.done() for each in rivals) == 50
        assert {getattr(each.exception(), "reason", "") for each in rivals if each.done()} == {"tenant-share"}
        go_on.set()
        assert await other
        await asyncio.wait(rivals)
    finally:
        go_on.set()
        await readers.close(lambda: None)
