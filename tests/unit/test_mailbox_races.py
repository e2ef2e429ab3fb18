"""RECV against ACK, lease expiry, operators and retention: concurrently, as a seed chooses, over the real parts."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator, Coroutine, Iterable
from contextlib import asynccontextmanager
from typing import NamedTuple

import pytest

from services.mailbox.oversight.change_requests import RequestedChange
from services.mailbox.retention import batch_rewrite
from services.mailbox.settle.changes import MessageOperation
from services.mailbox.state.delivery import NackTerms
from services.mailbox.state.policy import Policies, Policy
from services.mailbox.state.receipts import DONE, GONE, ID_STRIDE, LATE
from snavio.errors import NotFound, Saturated, Unavailable
from snavio.native import read_leased_batches
from tests.support.bare_mailbox import BareMailbox
from tests.support.checked import CheckedDelivery
from tests.support.mailbox import TOPIC, commands, send_batch

SEEDS = 200 if os.environ.get("SNAVIO_FULL") == "1" else 12
WORKERS, ACTIONS = 8, 60
SIZES = (1, 1, 7, 40, 120)


class Receipt(NamedTuple):
    """A received message, with the latest end of its lease."""

    msg_id: int
    attempt: int
    until_mono_ns: int


class Ledger:
    """Every answer about every message; fails as soon as two of them contradict each other."""

    def __init__(self) -> None:
        self.past: dict[int, list[str]] = {}
        self.attempt: dict[int, int] = {}
        self.acked: set[int] = set()
        self.gone: set[int] = set()
        self.unheard: set[int] = set()
        """Acknowledged by their holder, which got no answer."""

    def tell(self, who: str, msg_id: int, what: str) -> None:
        self.past.setdefault(msg_id, []).append(f"{who}: {what}")

    def story(self, msg_id: int) -> str:
        return f"message {msg_id}: " + "; ".join(self.past.get(msg_id, ["never received"]))

    def received(self, who: str, msg_id: int, attempt: int) -> None:
        self.tell(who, msg_id, f"received at attempt {attempt}")
        assert msg_id not in self.acked, self.story(msg_id)
        # More than one more when a lease ended before its disconnected holder had received anything.
        assert attempt > self.attempt.get(msg_id, 0), self.story(msg_id)
        self.attempt[msg_id] = attempt

    def answered(self, who: str, msg_id: int, attempt: int, code: bytes, *, rightly: bool) -> None:
        self.tell(who, msg_id, f"ack of attempt {attempt} answered {code!r}")
        if code == DONE:
            assert rightly and msg_id not in self.acked, self.story(msg_id)
            assert attempt == self.attempt[msg_id], self.story(msg_id)
            self.acked.add(msg_id)
        elif code == GONE:
            self.gone.add(msg_id)
        else:
            assert code == LATE, self.story(msg_id)


class Holder:
    """One consumer: receives, acknowledges in time or too late, and disconnects in the middle of either."""

    def __init__(self, bare: BareMailbox, ledger: Ledger, name: str, dice: random.Random) -> None:
        self.bare, self.ledger, self.name, self.dice = bare, ledger, name, dice
        self.identity = f"spiffe://snavio.local/tenant/acme/service/{name}"
        self.receipts: list[Receipt] = []
        self.others: list[Holder] = []

    async def live(self) -> None:
        actions = [self.receive, self.ack, self.wait, self.receive, self.ack, self.steal]
        for _ in range(ACTIONS):
            await self.dice.choice(actions)()
            await asyncio.sleep(0)

    async def wait(self) -> None:
        self.bare.clock.advance(seconds=self.dice.choice([0.01, 0.3, 1.1]))
        if self.dice.random() < 0.5:
            self.bare.delivery.tick()

    async def receive(self) -> None:
        await self._perhaps_leave(self._receive())

    async def ack(self) -> None:
        """Some of everything ever received; also messages acknowledged, or taken away, long ago."""
        await self._perhaps_leave(self._settle(self.receipts, own=True))

    async def steal(self) -> None:
        """The same with another consumer's receipts."""
        await self._perhaps_leave(self._settle(self.dice.choice(self.others).receipts, own=False))

    async def _receive(self) -> None:
        wanted = self.bare.wanted(self.dice.choice(SIZES), self.identity)
        response = await self.bare.receiving.receive(wanted)
        until = self.bare.clock.mono_ns() + wanted.visibility_ms * 1_000_000
        for one in read_leased_batches(response)[1]:
            self.ledger.received(self.name, one.msg_id, one.attempt)
            self.receipts.append(Receipt(one.msg_id, one.attempt, until))

    async def _settle(self, receipts: list[Receipt], *, own: bool) -> None:
        chosen = sorted(self.dice.sample(receipts, min(len(receipts), self.dice.choice(SIZES))))
        for msg_id, attempt, _ in chosen:
            self.ledger.tell(self.name, msg_id, f"acks attempt {attempt}")
        now = self.bare.clock.mono_ns()
        ids, attempts = [one.msg_id for one in chosen], [one.attempt for one in chosen]
        try:
            codes = await self.bare.settlements.settle(TOPIC, 1, ids, attempts, holder=self.identity)
        except (Unavailable, asyncio.CancelledError) as error:
            # Refused, or done beside something that was refused; what was decided before a caller left is done.
            for msg_id in ids:
                self.ledger.tell(self.name, msg_id, f"heard no answer ({type(error).__name__})")
            self.ledger.unheard.update(ids if own else ())
            raise
        for code, (msg_id, attempt, until) in zip(codes, chosen, strict=True):
            self.ledger.answered(self.name, msg_id, attempt, bytes([code]), rightly=own and now < until)

    async def _perhaps_leave(self, call: Coroutine[object, object, None]) -> None:
        """One in five is cancelled after a few steps of the loop, whatever it is doing."""
        task = asyncio.create_task(call)
        if self.dice.random() < 0.2:
            for _ in range(self.dice.randrange(4)):
                await asyncio.sleep(0)
            task.cancel()
        await asyncio.wait((task,))
        if not task.cancelled() and not isinstance(task.exception(), Unavailable):
            task.result()


async def bad_weather(bare: BareMailbox, dice: random.Random) -> None:
    """A disk that delays commits, and refuses some."""
    while True:
        bare.disk.open.clear()
        for _ in range(dice.randrange(30)):
            await asyncio.sleep(0)
        bare.disk.fault = Unavailable("broken") if dice.random() < 0.2 else None
        bare.disk.open.set()
        for _ in range(dice.randrange(60)):
            await asyncio.sleep(0)


@asynccontextmanager
async def opened(*, cached_bytes: int, policy: Policy | None = None) -> AsyncIterator[BareMailbox]:
    # So many attempts that none of them ends in the DLQ.
    policy = policy or Policy(max_attempts=1000)
    bare = BareMailbox(cached_bytes=cached_bytes, policies=Policies(default=policy), kind=CheckedDelivery)
    bare.commits.start()
    try:
        yield bare
    finally:
        await bare.close()


async def drain(bare: BareMailbox, ledger: Ledger) -> set[int]:
    """Let every lease end, receive what is left, and acknowledge it."""
    left: set[int] = set()
    while True:
        bare.clock.advance(seconds=3)
        response = await bare.receiving.receive(bare.wanted(5000))
        messages = read_leased_batches(response)[1]
        if not messages:
            return left
        for one in messages:
            ledger.received("last", one.msg_id, one.attempt)
        left |= {one.msg_id for one in messages}
        codes = await bare.settlements.settle(
            TOPIC,
            1,
            [one.msg_id for one in messages],
            [one.attempt for one in messages],
            holder=bare.wanted(1).holder,
        )
        assert set(codes) == set(DONE)


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_G_3_receive_ack_and_the_end_of_a_lease_race_and_every_message_is_acknowledged_once(
    seed: int,
) -> None:
    dice, ledger = random.Random(f"{os.environ.get('SNAVIO_SEED', 'races')} {seed}"), Ledger()
    # With and without the disk between a lease and its response.
    async with asyncio.timeout(120), opened(cached_bytes=dice.choice([0, 4000, 1 << 20])) as bare:
        sent: set[int] = set()
        for seq in range(1, 9):
            count = dice.choice(SIZES)
            assert await (await bare.take(send_batch(seq, (TOPIC, commands(count))))) == DONE * count
            sent |= {seq * ID_STRIDE + index for index in range(count)}
        weather = asyncio.create_task(bad_weather(bare, random.Random(f"{seed} weather")))
        holders = [
            Holder(bare, ledger, f"h{number}", random.Random(f"{seed} {number}")) for number in range(WORKERS)
        ]
        async with asyncio.TaskGroup() as group:
            for holder in holders:
                holder.others = [one for one in holders if one is not holder]
                group.create_task(holder.live())
        weather.cancel()
        bare.disk.fault = None
        bare.disk.open.set()
        acked = set(ledger.acked)
        left = await drain(bare, ledger)
        for msg_id in sent - acked - left:
            assert msg_id in ledger.unheard, ledger.story(msg_id)
        for msg_id in ledger.gone & left:
            pytest.fail(f"said to be gone, and there: {ledger.story(msg_id)}")
        assert left <= sent and not left & acked
        assert_nothing_is_left(bare)


def assert_nothing_is_left(bare: BareMailbox) -> None:
    counts, topic = bare.delivery.topics.counts(TOPIC), bare.delivery.topics.topic(TOPIC)
    assert counts is not None and topic is not None
    assert (counts.ready, counts.inflight, counts.dead, counts.canceled) == (0, 0, 0, 0)
    assert (topic.messages, topic.inflight, topic.settling, topic.spans) == (0, 0, 0, 0)
    assert set(topic.by_shard.values()) == {0} and not topic.batches and not topic.adopted
    assert (bare.delivery.inflight.total, bare.delivery.window.spans) == (0, 0)
    assert not bare.delivery.inflight.by_tenant and not bare.delivery.inflight.starved
    assert not bare.settlements._underway and len(bare.receiving._locks) == 0
    assert bare.disk.records(TOPIC, after=0, limit=10) == [] and bare.disk.gauges()["store_bytes"] == 0


# -- operators and retention beside them ----------------------------------------------------------------

KEPT = Policy(max_attempts=1000, delivered_s=2, delivered_messages=20, dlq_s=4, dlq_messages=10)
"""Short and small, so that retention has something to remove at every check."""


class Fates:
    """The time from which each message may be gone: it was acknowledged, killed, canceled or purged.

    A confirmed requeue takes that back, for everything that came before it was requested.
    """

    def __init__(self) -> None:
        self.moment = 0
        self.ended: dict[int, int] = {}
        self.revived: dict[int, int] = {}

    def end(self, msg_ids: Iterable[int]) -> None:
        self.moment += 1
        self.ended.update(dict.fromkeys(msg_ids, self.moment))

    def may_be_gone(self, msg_id: int) -> bool:
        return self.ended.get(msg_id, -1) > self.revived.get(msg_id, 0)


class Keeper:
    """A consumer and an operator in one, working concurrently with others."""

    def __init__(self, bare: BareMailbox, fates: Fates, sent: list[int], dice: random.Random) -> None:
        self.bare, self.fates, self.sent, self.dice = bare, fates, sent, dice
        self.identity = f"spiffe://snavio.local/tenant/acme/service/{dice.random()}"

    async def live(self) -> None:
        actions = [self.consume, self.consume, self.change, self.change, self.retain]
        for _ in range(ACTIONS):
            action = self.dice.choice(actions)
            task = asyncio.create_task(action())
            if action != self.retain and self.dice.random() < 0.2:
                for _ in range(self.dice.randrange(12)):
                    await asyncio.sleep(0)
                task.cancel()
            await asyncio.wait((task,))
            if not task.cancelled() and not isinstance(task.exception(), Unavailable | Saturated):
                task.result()
            await asyncio.sleep(0)

    async def consume(self) -> None:
        response = await self.bare.receiving.receive(self.bare.wanted(self.dice.choice(SIZES), self.identity))
        messages = read_leased_batches(response)[1]
        dead = self.dice.random() < 0.3
        # Before the answer: a lost answer may have been "done".
        self.fates.end(message.msg_id for message in messages)
        await self.bare.settlements.settle(
            TOPIC,
            1,
            [message.msg_id for message in messages],
            [message.attempt for message in messages],
            holder=self.identity,
            final=not dead,
            nack=NackTerms(dead=True) if dead else None,
        )

    async def change(self) -> None:
        operation = self.dice.choice(
            [
                MessageOperation.REQUEUE,
                MessageOperation.REQUEUE,
                MessageOperation.CANCEL,
                MessageOperation.PURGE,
            ]
        )
        ids = self.dice.sample(self.sent, 1 if self.dice.random() < 0.7 else 5)
        began = self.fates.moment
        if operation is not MessageOperation.REQUEUE:
            self.fates.end(ids)
        try:
            done = await self.bare.oversight.carry_out(RequestedChange(TOPIC, operation, ids=ids))
        except NotFound:
            # Everything of it had ended, and was let go.
            assert self.bare.delivery.topics.topic(TOPIC) is None
            return
        if operation is MessageOperation.REQUEUE and done.changed == len(ids):
            self.fates.revived.update(dict.fromkeys(ids, began))

    async def retain(self) -> None:
        self.bare.clock.advance(seconds=self.dice.choice([0.01, 0.5, 1.1]))
        await self.bare.retention.step()


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_I_14_operators_and_retention_race_with_consumers_and_nothing_goes_without_a_reason(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Batches of any size are made smaller while they wait.
    monkeypatch.setattr(batch_rewrite, "LARGE_BYTES", 0)
    dice, fates = random.Random(f"{os.environ.get('SNAVIO_SEED', 'keepers')} {seed}"), Fates()
    async with asyncio.timeout(120), opened(cached_bytes=dice.choice([0, 1 << 20]), policy=KEPT) as bare:
        sent: list[int] = []
        for seq in range(1, 9):
            count = dice.choice(SIZES)
            assert await (await bare.take(send_batch(seq, (TOPIC, commands(count))))) == DONE * count
            sent += (seq * ID_STRIDE + index for index in range(count))
        weather = asyncio.create_task(bad_weather(bare, random.Random(f"{seed} weather")))
        async with asyncio.TaskGroup() as group:
            for number in range(WORKERS):
                keeper = Keeper(bare, fates, sent, random.Random(f"{seed} {number}"))
                group.create_task(keeper.live())
        weather.cancel()
        bare.disk.fault = None
        bare.disk.open.set()
        while bare.commits._waiting_bytes:
            await asyncio.sleep(0.001)  # what was begun by those who left
        assert_numbers_are_those_of_the_disk(bare)
        bare.clock.advance(seconds=3)
        response = await bare.receiving.receive(bare.wanted(5000))
        left = {message.msg_id for message in read_leased_batches(response)[1]}
        assert [one for one in sent if one not in left and not fates.may_be_gone(one)] == []


def assert_numbers_are_those_of_the_disk(bare: BareMailbox) -> None:
    topic = bare.delivery.topics.topic(TOPIC)
    if topic is None:
        assert bare.disk.topics() == []
        return
    (disk,) = bare.disk.topics()
    assert topic.lost == 0
    told = (topic.messages, topic.delivered, topic.dead, topic.canceled)
    assert told == (disk.messages, disk.delivered, disk.dead, disk.canceled)
