"""Waiting receives: one is woken per range of ready messages, and no wake-up is lost, however a receive ends."""

from __future__ import annotations

import asyncio
import os
import random
import time
from dataclasses import replace
from typing import Any

import pytest

from services.mailbox.delivery.receiving import Wanted
from snavio.errors import NotAllowed, Saturated, Unavailable
from snavio.host.shares import ShareLimit, Shares
from snavio.native import read_leased_batches
from tests.support.bare_mailbox import ME, BareMailbox, bare_mailbox
from tests.support.mailbox import TOPIC, commands, send_batch

FULL = os.environ.get("SNAVIO_FULL") == "1"
SEEDS = 300 if FULL else 25
PATIENCE_S = 20.0
LONG_S = 60.0
"""Longer than any of these tests: a receive that ends by its timeout was not woken."""


class Sends:
    """Stores messages, and returns when they may be received."""

    def __init__(self, bare: BareMailbox) -> None:
        self._mailbox = bare
        self._seq = 0

    async def __call__(self, count: int, topic: str = TOPIC) -> None:
        self._seq += 1
        answer = await self._mailbox.take(send_batch(self._seq, (topic, commands(count))))
        assert set(await asyncio.wait_for(answer, 10)) == {1}


def waiting(
    bare: BareMailbox, most: int = 5000, *, seconds: float = LONG_S, **changes: Any
) -> asyncio.Task[list[int]]:
    """A receive with a wait."""
    wanted: Wanted = replace(bare.wanted(most), wait_s=seconds, **changes)

    async def receive() -> list[int]:
        return [message.msg_id for message in read_leased_batches(await bare.receiving.receive(wanted))[1]]

    return asyncio.create_task(receive())


async def settle_down(steps: int = 50) -> None:
    """Run everything that does not wait for a disk or a clock."""
    for _ in range(steps):
        await asyncio.sleep(0)


async def until_idle(bare: BareMailbox) -> None:
    """The same, with the disk's threads."""
    for _ in range(3):
        await settle_down()
        await bare.worker.run(lambda: None)
    await settle_down()


async def ended(*tasks: asyncio.Task[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


async def test_A8_a_stored_message_costs_one_look_however_many_wait() -> None:
    async with bare_mailbox() as bare:
        looks = 0
        lease = bare.delivery.lease

        def counted(*args: Any, **named: Any) -> Any:
            nonlocal looks
            looks += 1
            return lease(*args, **named)

        tasks = [waiting(bare) for _ in range(200)]
        await until_idle(bare)
        bare.delivery.lease = counted  # type: ignore[method-assign]
        await Sends(bare)(1)
        await until_idle(bare)
        assert sum(task.done() for task in tasks) == 1
        assert looks <= 3
        await ended(*tasks)


async def test_the_longest_waiting_is_served_first() -> None:
    async with bare_mailbox() as bare:
        send = Sends(bare)
        tasks = [waiting(bare, 1) for _ in range(5)]
        await until_idle(bare)
        for number in range(5):
            await send(1)
            await until_idle(bare)
            assert [task.done() for task in tasks] == [True] * (number + 1) + [False] * (4 - number)


async def test_one_stretch_for_several_wakes_one_after_the_other() -> None:
    async with bare_mailbox() as bare:
        tasks = [waiting(bare, 2) for _ in range(4)]
        await until_idle(bare)
        await Sends(bare)(6)
        await until_idle(bare)
        assert [len(task.result()) for task in tasks if task.done()] == [2, 2, 2]
        await ended(*tasks)


async def test_a_receive_that_is_cancelled_as_it_is_woken_passes_it_on() -> None:
    async with bare_mailbox() as bare:
        first, second = waiting(bare), waiting(bare)
        await until_idle(bare)
        # In one step: the message is ready, and the caller that it woke has gone.
        woken = bare.waiters.wake

        def wake(topic: str) -> None:
            woken(topic)
            first.cancel()

        bare.delivery.topics.woken = wake
        await Sends(bare)(1)
        await until_idle(bare)
        assert first.cancelled() and second.done() and len(second.result()) == 1


async def test_a_receive_that_lost_its_right_passes_the_wake_up_on() -> None:
    async with bare_mailbox() as bare:
        trusted = True

        def require_trust() -> None:
            if not trusted:
                raise NotAllowed("revoked")

        first, second = waiting(bare, require_trust=require_trust), waiting(bare)
        await until_idle(bare)
        trusted = False
        await Sends(bare)(1)
        await until_idle(bare)
        assert isinstance(first.exception(), NotAllowed) and len(second.result()) == 1


@pytest.mark.parametrize("cached", [True, False])
async def test_a_receive_cancelled_after_any_number_of_steps_loses_nothing(cached: bool) -> None:
    """One of two waiting receives is cancelled after n steps of the loop, for every n until it has its messages."""
    for steps in range(200):
        async with bare_mailbox(cached_bytes=(32 << 20) if cached else 0) as bare:
            first = waiting(bare)
            await until_idle(bare)
            second = waiting(bare)
            await until_idle(bare)
            bare.disk.open.clear()
            answer = await bare.take(send_batch(1, (TOPIC, commands(3))))
            bare.disk.open.set()
            while not first._fut_waiter.done():  # type: ignore[attr-defined]
                await asyncio.sleep(0)
            for _ in range(steps):
                await asyncio.sleep(0)
            served = first.done()
            first.cancel()
            await asyncio.wait_for(answer, 10)
            await until_idle(bare)
            if served:
                assert len(first.result()) == 3
                await ended(second)
                return
            assert second.done() and len(second.result()) == 3, f"lost after {steps} steps"
    pytest.fail("The first was never served.")


async def test_messages_that_come_back_wake_one_too() -> None:
    async with bare_mailbox() as bare:
        await Sends(bare)(1)
        taken = await bare.receiving.take(bare.wanted(10))
        other = waiting(bare)
        await until_idle(bare)
        assert not other.done()
        bare.receiving.give_back(taken)
        await until_idle(bare)
        assert len(other.result()) == 1


class AllAtOnce:
    """The slow twin of the rule "wake one": every transition wakes everybody."""

    def __init__(self, bare: BareMailbox) -> None:
        self._waiters = bare.waiters
        self._wake = bare.waiters.wake
        bare.waiters.wake = self.wake  # type: ignore[method-assign]
        bare.delivery.topics.woken = self.wake

    def wake(self, topic: str) -> None:
        for _ in range(self._waiters.waiting(topic)):
            self._wake(topic)


def _in_vain(bare: BareMailbox, tasks: list[asyncio.Task[list[int]]]) -> int:
    """Receives that wait although something is ready."""
    topic = bare.delivery.topics.by_name.get(TOPIC)
    return sum(not task.done() for task in tasks) if topic is not None and topic.ready else 0


async def _live(seed: int, *, slowly: bool) -> tuple[int, int]:
    """Waits, disconnections, sends, returns and a failing disk in an order that the seed chooses; no receive waits for
    a ready message. The number of messages stored, and of wake-ups.
    """
    dice = random.Random(seed)
    async with bare_mailbox(cached_bytes=dice.choice([0, 32 << 20])) as bare:
        if slowly:
            AllAtOnce(bare)
        send = Sends(bare)
        tasks: list[asyncio.Task[list[int]]] = []
        stored = 0

        async def store() -> None:
            nonlocal stored
            count = dice.choice([1, 1, 3, 20])
            stored += count
            await send(count)

        async def come() -> None:
            for _ in range(dice.choice([1, 4])):
                tasks.append(waiting(bare, dice.choice([1, 2, 10])))

        async def go() -> None:
            for task in dice.sample(tasks, min(len(tasks), dice.choice([1, 3]))):
                task.cancel()

        async def steps() -> None:
            for _ in range(dice.randrange(8)):
                await asyncio.sleep(0)

        async def leases_end() -> None:
            bare.clock.advance(seconds=1.1)
            bare.delivery.tick()

        async def unreadable() -> None:
            read = bare.rows.read

            async def fails(*_: Any) -> bytes:
                bare.rows.read = read  # type: ignore[method-assign]
                await asyncio.sleep(0)
                raise Unavailable("away")

            bare.rows.read = fails  # type: ignore[method-assign, assignment]

        actions = [store, come, go, steps, leases_end, store, come, steps, unreadable]
        for _ in range(60):
            await dice.choice(actions)()
        # Until it is so, not for a number of steps: commits have a thread of their own, which may not have run yet.
        end = time.monotonic() + PATIENCE_S
        while _in_vain(bare, tasks) and time.monotonic() < end:
            await until_idle(bare)
            await asyncio.sleep(0.001)
        assert not (left := _in_vain(bare, tasks)), f"seed {seed}: {left} wait in vain"
        if tasks:
            await ended(*tasks)
        assert bare.waiters.shares.used == 0 and bare.waiters.waiting(TOPIC) == 0
        return stored, bare.waiters.woken


@pytest.mark.parametrize("slowly", [False, True])
async def test_nobody_waits_for_what_is_ready_in_any_order_of_things(slowly: bool) -> None:
    for seed in range(SEEDS if not slowly else SEEDS // 5):
        await _live(seed, slowly=slowly)


async def test_A8_waiting_receives_of_one_tenant_leave_the_others_theirs() -> None:
    async with bare_mailbox() as bare:
        bare.waiters.shares = Shares("waiters", ShareLimit(total=10, per_tenant=4, reserve=1))
        tasks = [waiting(bare, topic=f"acme/{n % 2}") for n in range(5)]
        await until_idle(bare)
        (refused,) = [task for task in tasks if task.done()]
        error = refused.exception()
        assert isinstance(error, Saturated) and error.reason == "tenant-share" and error.retry_after_ms > 0
        other = waiting(bare, topic="globex/1")
        await until_idle(bare)
        assert not other.done()
        await ended(*tasks, other)
        assert bare.waiters.shares.used == 0


async def test_time_over_is_an_empty_answer_and_frees_the_place() -> None:
    async with bare_mailbox() as bare:
        assert await waiting(bare, seconds=0.01) == []
        assert bare.waiters.shares.used == 0 and not bare.waiters.waiting(TOPIC)


async def test_stopping_wakes_everybody() -> None:
    async with bare_mailbox() as bare:
        stopping = False
        bare.receiving._stopping = lambda: stopping
        tasks = [waiting(bare, topic=f"acme/{n % 3}", holder=ME) for n in range(20)]
        await until_idle(bare)
        stopping = True
        bare.waiters.wake_all()
        await until_idle(bare)
        assert [task.result() for task in tasks] == [[]] * 20
