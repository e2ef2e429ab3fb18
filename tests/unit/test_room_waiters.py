"""Waiters for a full queue go on as there is room for them, and by turns between holders."""

from __future__ import annotations

import asyncio

import pytest

from snavio.hop import room_waiters
from snavio.hop.room_waiters import RoomWaiters

SIZE = 10


class Queue:
    """A bound of 100 bytes, half of which may be taken before its readers wait."""

    def __init__(self) -> None:
        self.size = 100
        self.let_on: list[str] = []
        self.gate = RoomWaiters(open_for=lambda _holder: self.size <= 50, free=lambda: 100 - self.size)

    async def read(self, holder: str, *, brings: int = SIZE) -> None:
        await self.gate.wait(holder, SIZE)
        self.let_on.append(holder)
        self.size += brings


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def started(queue: Queue, *holders: str, brings: int = SIZE) -> list[asyncio.Task[None]]:
    tasks = [asyncio.create_task(queue.read(holder, brings=brings)) for holder in holders]
    await settled()
    return tasks


@pytest.fixture
def kept_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room_waiters, "KEPT_S", 3600.0)


@pytest.mark.usefixtures("kept_long")
async def test_as_many_go_on_as_fit_and_not_all() -> None:
    queue = Queue()
    tasks = await started(queue, *["acme"] * 500)
    queue.size = 40
    # Whatever leaves the queue in this turn: none of those let on has brought anything yet.
    for _ in range(50):
        queue.gate.turn()
    await settled()
    assert len(queue.let_on) == 6 and queue.size == 100
    for task in tasks:
        task.cancel()


@pytest.mark.usefixtures("kept_long")
async def test_holders_take_turns() -> None:
    queue = Queue()
    tasks = await started(queue, *["acme"] * 300, "globex", "initech")
    queue.size = 50
    queue.gate.turn()
    await settled()
    assert len(queue.let_on) == 5 and {"globex", "initech"} <= set(queue.let_on)
    for task in tasks:
        task.cancel()


async def test_those_who_bring_nothing_keep_nobody_out() -> None:
    queue = Queue()
    tasks = await started(queue, *["acme"] * 200, brings=0)
    queue.size = 40
    async with asyncio.timeout(30):
        await asyncio.gather(*tasks)
    assert len(queue.let_on) == 200


async def test_one_who_gives_up_leaves_its_turn_to_the_next() -> None:
    queue = Queue()
    first, second = await started(queue, "acme", "acme")
    first.cancel()
    queue.size = 0
    queue.gate.turn()
    async with asyncio.timeout(10):
        await second
    assert queue.let_on == ["acme"]
    async with asyncio.timeout(10):
        await queue.gate.wait("acme", SIZE)
