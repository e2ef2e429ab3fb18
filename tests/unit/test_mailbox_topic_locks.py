"""The lock of a topic: one holder at a time, in any order of arrival."""

from __future__ import annotations

import asyncio
import random

import pytest

from services.mailbox.delivery.topic_locks import TopicLocks


async def test_who_comes_as_one_turn_ends_waits_for_those_who_waited_before() -> None:
    locks, first_may_go, second_may_go = TopicLocks(), asyncio.Event(), asyncio.Event()
    told: list[str] = []

    async def work(name: str, may_go: asyncio.Event | None = None) -> None:
        async with locks.of("acme/billing"):
            told.append(f"{name} begins")
            if may_go is not None:
                await may_go.wait()
            told.append(f"{name} ends")

    async def first_then_third() -> None:
        await work("first", first_may_go)
        # Without a step of the loop in between: the second waiter was woken, and has not begun.
        await work("third")

    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        group.create_task(first_then_third())
        await asyncio.sleep(0)
        group.create_task(work("second", second_may_go))
        await asyncio.sleep(0)
        first_may_go.set()
        for _ in range(5):
            await asyncio.sleep(0)
        assert told == ["first begins", "first ends", "second begins"]
        second_may_go.set()
    assert told[3:] == ["second ends", "third begins", "third ends"]
    assert len(locks) == 0


@pytest.mark.parametrize("seed", range(5))
async def test_many_who_come_fail_and_go_away_are_never_two_at_a_time(seed: int) -> None:
    locks, dice, inside = TopicLocks(), random.Random(seed), 0

    async def work(topic: str) -> None:
        nonlocal inside
        for _ in range(dice.randrange(4)):
            await asyncio.sleep(0)
        async with locks.of(topic):
            assert topic == "other" or inside == 0
            inside += topic != "other"
            try:
                for _ in range(dice.randrange(3)):
                    await asyncio.sleep(0)
                if dice.random() < 0.2:
                    raise KeyError(topic)
            finally:
                inside -= topic != "other"

    tasks = [asyncio.create_task(work(dice.choice(["one", "one", "other"]))) for _ in range(200)]
    for _ in range(20):
        await asyncio.sleep(0)
        dice.choice(tasks).cancel()
    ends = await asyncio.gather(*tasks, return_exceptions=True)
    assert {type(end) for end in ends} <= {type(None), KeyError, asyncio.CancelledError}
    assert len(locks) == 0
