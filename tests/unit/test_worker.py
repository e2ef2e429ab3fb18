from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from functools import partial

import pytest

from snavio.errors import Saturated, Unavailable
from snavio.host.shares import HOLDER, MESH
from snavio.host.store_worker import StoreWorker


async def test_work_runs_in_order_on_one_other_thread() -> None:
    worker = StoreWorker("store")
    seen: list[int] = []

    def note(number: int) -> int:
        seen.append(number)
        return threading.get_ident()

    threads = await asyncio.gather(*(worker.run(partial(note, number)) for number in range(20)))
    assert seen == list(range(20))
    assert len(set(threads)) == 1
    assert threads[0] != threading.get_ident()
    await worker.close(lambda: None)


async def test_too_much_waiting_work_is_refused_and_closing_still_works() -> None:
    worker, gate = StoreWorker("store", max_waiting=2), threading.Event()
    held = [asyncio.create_task(worker.run(gate.wait)) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(Saturated):
        await worker.run(lambda: None)
    closed: list[bool] = []
    closing = asyncio.create_task(worker.close(lambda: closed.append(True)))
    await asyncio.sleep(0)
    gate.set()
    await asyncio.gather(*held, closing)
    assert closed == [True]


async def test_slow_work_is_given_up_in_time_and_what_had_not_begun_never_runs() -> None:
    worker, gate, ran = StoreWorker("store", timeout_s=0.05), threading.Event(), []
    slow = asyncio.create_task(worker.run(gate.wait))
    behind = asyncio.create_task(worker.run(lambda: ran.append(True)))
    for task in (slow, behind):
        with pytest.raises(Unavailable):
            await task
    gate.set()
    await worker.close(lambda: None)
    assert ran == []


async def test_closed_worker_says_so() -> None:
    worker = StoreWorker("store")
    await worker.close(lambda: None)
    await worker.close(lambda: None)
    with pytest.raises(Unavailable) as refusal:
        await worker.run(lambda: None)
    assert refusal.value.reason == "closed"


async def test_store_that_cannot_be_opened_leaves_no_thread_behind() -> None:
    worker = StoreWorker("test")

    def fail() -> None:
        raise ValueError("no such store")

    with pytest.raises(ValueError, match="no such store"):
        await worker.begin(fail)
    with pytest.raises(Unavailable) as closed:
        await worker.run(lambda: None)
    assert closed.value.reason == "closed"


async def waiting(
    worker: StoreWorker, tenant: str, work: Callable[[], object], times: int
) -> list[asyncio.Task[object]]:
    """That much queued work of one tenant."""
    HOLDER.set(tenant)
    tasks = [asyncio.create_task(worker.run(work)) for _ in range(times)]
    HOLDER.set(MESH)
    await asyncio.sleep(0)
    return tasks


async def test_one_tenants_work_leaves_places_to_others_and_to_operators() -> None:
    worker, go_on = StoreWorker("store", max_waiting=40), threading.Event()
    try:
        rivals = await waiting(worker, "rival", go_on.wait, 60)
        refused = [each.exception() for each in rivals if each.done()]
        assert len(refused) == 50 and all(isinstance(each, Saturated) for each in refused)
        assert {getattr(each, "reason", "") for each in refused} == {"tenant-share"}
        others = await waiting(worker, "acme", go_on.wait, 1) + await waiting(worker, MESH, go_on.wait, 1)
        go_on.set()
        assert await asyncio.gather(*others) == [True, True]
        await asyncio.wait(rivals)
    finally:
        go_on.set()
        await worker.close(lambda: None)


async def test_an_operators_work_does_not_wait_for_all_that_a_tenant_has_in_line() -> None:
    worker, go_on = StoreWorker("store"), threading.Event()
    done: list[str] = []

    def of(who: str) -> Callable[[], None]:
        def work() -> None:
            go_on.wait()
            done.append(who)

        return work

    try:
        tasks = await waiting(worker, "rival", of("rival"), 200)
        tasks += await waiting(worker, MESH, of("operator"), 2)
        go_on.set()
        await asyncio.gather(*tasks)
        assert (
            done.count("rival") == 200 and [at for at, who in enumerate(done) if who == "operator"][-1] <= 4
        )
    finally:
        go_on.set()
        await worker.close(lambda: None)
