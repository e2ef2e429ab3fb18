"""Examinations of queues: one look for all who ask, and a bound for each tenant."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from services.slow.queue_states import QueueStates
from snavio.domain.directory import QueueKind
from snavio.errors import Saturated, Unavailable
from snavio.ports.queue import TargetQueue
from snavio.ports.queue_driver import QueueState
from snavio.rpc.channel import MeshChannel


class Slowly:
    """A queue whose looks end when the test says so."""

    def __init__(self) -> None:
        self.looks: list[str] = []
        self.go_on = asyncio.Event()
        self.away = False

    async def examine(self, topic: str, *, timeout_s: float) -> QueueState:
        self.looks.append(topic)
        async with asyncio.timeout(max(timeout_s, 30)):
            await self.go_on.wait()
        if self.away:
            raise Unavailable("It is away.", reason="queue-away")
        return QueueState(waiting=7)


def opened(queue: Slowly) -> QueueStates:
    unused = cast(TargetQueue, object())
    return QueueStates(mailbox=cast(MeshChannel, object()), queues=[unused, cast(TargetQueue, queue), unused])


async def test_many_who_ask_about_one_queue_share_one_look() -> None:
    queue = Slowly()
    states = opened(queue)
    asked = [asyncio.create_task(states.of(QueueKind.REDIS, "acme/bot")) for _ in range(50)]
    await asyncio.sleep(0)
    asked[0].cancel()
    queue.go_on.set()
    told = await asyncio.gather(*asked[1:])
    assert {answer.waiting for answer, _ in told} == {7}
    assert queue.looks == ["acme/bot"]
    await states.of(QueueKind.REDIS, "acme/bot")
    assert queue.looks == ["acme/bot"] * 2, "what was seen before is not told again"


async def test_one_tenants_looks_leave_room_for_anothers() -> None:
    queue = Slowly()
    states = opened(queue)
    asked = [asyncio.create_task(states.of(QueueKind.REDIS, f"greedy/bot-{number}")) for number in range(30)]
    await asyncio.sleep(0)
    other = asyncio.create_task(states.of(QueueKind.REDIS, "acme/bot"))
    await asyncio.sleep(0)
    queue.go_on.set()
    assert (await other)[0].reached
    told = await asyncio.gather(*asked, return_exceptions=True)
    assert sum(isinstance(one, Saturated) for one in told) == 30 - MOST_PER_TENANT
    assert shares.used == 0


async def test_a_queue_that_is_away_is_told_to_all_who_asked() -> None:
    queue = Slowly()
    queue.away = True
    states = opened(queue)
    asked = [asyncio.create_task(states.of(QueueKind.REDIS, "acme/bot")) for _ in range(3)]
    await asyncio.sleep(0)
    queue.go_on.set()
    told = await asyncio.gather(*asked, return_exceptions=True)
    assert all(isinstance(one, Unavailable) for one in told)
    with pytest.raises(Unavailable):
        await states.of(QueueKind.REDIS, "acme/bot")
