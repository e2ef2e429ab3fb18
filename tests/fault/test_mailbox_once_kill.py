"""kill -9 of a real mailbox while its senders die too: a message stored once stays stored once, and in its order."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from bisect import bisect, insort
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

import grpc
import pytest

from snavio.domain.verdict import Verdict
from snavio.errors import SnavioError
from snavio.native import uuid7
from snavio.v1.introspection_pb2 import StatusRequest, StatusResponse
from tests.support.killable import Killable, killable
from tests.support.mailbox import SECONDS, TOPIC, ReceivingPeer, SendingPeer, commands, send_batch

ROUNDS = 60 if os.environ.get("SNAVIO_FULL") == "1" else 2
GAUGE = f'reorder_depth_max{{topic="{TOPIC}",shard="0"}}'
GOOD = {Verdict.DELIVERED, Verdict.DUPLICATE}


class Strict:
    """A Fast without its past: every life has another epoch, and sends unanswered batches again."""

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self.epoch = 0
        self.open: dict[str, str] = {}
        self.answered: dict[str, str] = {}

    async def live(self, office: Killable) -> None:
        """Send batches until the mailbox is gone."""
        self.epoch += 1
        sender = await office.sender(epoch=self.epoch)
        for seq in range(1, 100_000):
            fresh = {uuid7(): f"m{self.dice.randrange(10**9)}" for _ in range(self.dice.choice([1, 20, 200]))}
            again = self.dice.sample(sorted(self.answered), min(len(self.answered), 5))
            chosen = {
                **dict(list(self.open.items())[:300]),
                **fresh,
                **{one: self.answered[one] for one in again},
            }
            self.open.update(fresh)
            batch = [commands(1, mark=mark, ids=[own])[0] for own, mark in chosen.items()]
            # One of them twice: within a batch, too, it is stored once.
            codes = await sender.send(send_batch(seq, (TOPIC, [*batch, batch[0]]), once=True))
            assert set(codes) <= GOOD and codes[-1] == Verdict.DUPLICATE
            known = [code for own, code in zip(chosen, codes, strict=False) if own in self.answered]
            assert set(known) <= {Verdict.DUPLICATE}, "it was answered before, so it is on disk"
            for own in chosen:
                self.open.pop(own, None)
            self.answered.update(chosen)


@pytest.mark.timeout(600)
async def test_I_13_killed_and_resending_senders_double_nothing(
    tmp_path: Path, figure: Callable[[str], None]
) -> None:
    dice = random.Random(os.environ.get("SNAVIO_SEED", "once"))
    strict = Strict(dice)
    async with killable(tmp_path) as office:
        for _ in range(ROUNDS):
            await office.start()
            living = asyncio.create_task(strict.live(office))
            await asyncio.wait((living,), timeout=dice.uniform(0.3, 1.0))
            await office.end(signal.SIGKILL)
            living.cancel()
            with suppress(asyncio.CancelledError, SnavioError, grpc.RpcError, TimeoutError, AssertionError):
                await living
            if not living.cancelled() and isinstance(living.exception(), AssertionError):
                # That of a stream that ended under a read has no text; those of this file do.
                assert not str(living.exception()), living.exception()
        await office.start()
        sender = await office.sender(epoch=strict.epoch + 1)
        rest = [commands(1, mark=mark, ids=[own])[0] for own, mark in strict.open.items()]
        for seq, first in enumerate(range(0, len(rest), 500), 1):
            codes = await sender.send(send_batch(seq, (TOPIC, rest[first : first + 500]), once=True))
            assert set(codes) <= GOOD
        seen: list[str] = []
        consumer = office.consumer()
        while (got := await consumer.receive()).messages:
            seen += [message.id for message in got.messages]
            # As it goes: a full run has more of them than may be leased at a time.
            assert set(await consumer.ack(got.receipts())) == {1}
        assert len(seen) == len(set(seen)), "nothing is there twice"
        assert set(seen) == set(strict.answered) | set(strict.open)
    figure(f"{ROUNDS} kills of mailbox and sender: {len(seen)} strict commands, each stored once")


class Line:
    """Messages with their place in the order, and the first consumer and time of each."""

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self.sent = 0
        self.life = 0
        self.sights: list[tuple[int, str, int]] = []
        """Life of the mailbox, consumer, message."""
        self.known: set[int] = set()
        self.told = 0
        """The largest value of the mailbox's own gauge."""

    async def send(self, sender: SendingPeer, messages: int) -> None:
        end, seq = self.sent + messages, 0
        while self.sent < end:
            seq += 1
            count = min(end - self.sent, self.dice.choice([1, 40, 300]))
            batch = [commands(1, mark=f"{number}-")[0] for number in range(self.sent, self.sent + count)]
            assert set(await sender.send(send_batch(seq, (TOPIC, batch)))) == {Verdict.DELIVERED}
            self.sent += count

    async def consume(self, consumer: ReceivingPeer, name: str, most: int) -> None:
        """Receive much or little, acknowledge most of it, until everything was seen or the mailbox is gone."""
        while len(self.known) < self.sent:
            asked = self.dice.choice([1, most // 8 or 1, most])
            # Leases end with the mailbox and not before: a slow machine must not look like disorder.
            got = await consumer.receive(wait_ms=500, max_messages=asked, visibility_ms=600_000)
            numbers = [int(mark.partition("-")[0]) for mark in got.marks]
            self.sights += [(self.life, name, one) for one in numbers if one not in self.known]
            self.known.update(numbers)
            if numbers:
                await consumer.ack(got.receipts(0, self.dice.randint(len(numbers) // 2, len(numbers))))

    async def read_gauge(self, office: Killable) -> None:
        told = await office.operator().channel.call(
            "/snavio.v1.Introspection/Status", StatusRequest(), StatusResponse, timeout_s=SECONDS
        )
        (depth,) = [one.value for one in told.gauge if one.name == GAUGE]
        assert depth >= self.told, "it survives every failover"
        self.told = int(depth)


def reorder_depth(numbers: Iterable[int]) -> int:
    """The most messages that came before an older one."""
    deepest, before = 0, list[int]()
    for number in numbers:
        deepest = max(deepest, len(before) - bisect(before, number))
        insort(before, number)
    return deepest


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("consumers", "most"), [(1, 1000), (2, 16), (2, 1000)])
async def test_G_9_failover_loses_nothing_and_reorders_at_most_32(
    tmp_path: Path, consumers: int, most: int, figure: Callable[[str], None]
) -> None:
    line = Line(random.Random(os.environ.get("SNAVIO_SEED", "order") + f"{consumers} {most}"))
    names = [f"worker-{number}" for number in range(consumers)]
    async with killable(tmp_path) as office:
        for line.life in range(ROUNDS + 1):
            await office.start()
            await line.send(await office.sender(epoch=line.life + 1), max(300, 3 * most))
            peers = {name: office.consumer(name=name) for name in names}
            living = [asyncio.create_task(line.consume(peer, name, most)) for name, peer in peers.items()]
            within_s = 120 if line.life == ROUNDS else line.dice.uniform(0.0, 0.12)
            await asyncio.wait(living, timeout=within_s)
            await line.read_gauge(office)
            assert office.process is not None
            office.process.kill()
            # Each goes on until its connection ends: everything that had arrived by then is seen.
            for one in living:
                with suppress(SnavioError, grpc.RpcError):
                    await one
            await office.end(signal.SIGKILL)
    seen = [number for _, _, number in line.sights]
    assert sorted(seen) == list(range(line.sent)), "nothing is lost"
    for life, name in {sight[:2] for sight in line.sights}:
        assert reorder_depth(number for *where, number in line.sights if where == [life, name]) == 0
    depth = reorder_depth(seen)
    calm = max(reorder_depth(n for life, _, n in line.sights if life == each) for each in range(ROUNDS + 1))
    figure(
        f"{ROUNDS} kills, {consumers} consumers that ask for up to {most}: {line.sent} messages, handed out with "
        f"{line.told} before an older one and first seen with {depth} ({calm} between two kills)"
    )
    # Two large responses race each other over two connections, failover or not: docs/mailbox.md, "Shards and order".
    if (consumers - 1) * most <= 32:
        assert line.told <= 32, "as the mailbox hands them out"
        assert depth <= 32, "as the consumers see them"


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("consumers", "expected"), [(1, 0), (2, 1000)])
async def test_G_9_C_5_gauge_survives_the_failover_and_tells_what_it_did(
    tmp_path: Path, consumers: int, expected: int, figure: Callable[[str], None]
) -> None:
    """Why 32 cannot hold for two consumers of 1000, step by step: docs/mailbox.md, "Shards and order"."""
    line = Line(random.Random(1))
    async with killable(tmp_path) as office:
        await office.start()
        await line.send(await office.sender(), 3000)
        first = office.consumer(name="worker-0")
        # The mailbox cannot know whether this response arrives. Its consumer says nothing, unless it is alone.
        cut_off = await first.receive(max_messages=1000, visibility_ms=600_000)
        if consumers == 1:
            await first.ack(cut_off.receipts(0, 1))
        other = first if consumers == 1 else office.consumer(name="worker-1")
        newer = await other.receive(max_messages=1000, visibility_ms=600_000)
        assert set(await other.ack(newer.receipts())) == {1}
        await line.read_gauge(office)
        assert line.told == 0, "handed out in order"
        for life in range(2):
            await office.end(signal.SIGKILL)
            await office.start()
            if life == 0:
                again = await office.consumer(name="worker-0").receive(max_messages=1000)
                assert min(one.msg_id for one in again.messages) <= min(one.msg_id for one in newer.messages)
            await line.read_gauge(office)
            assert line.told == expected
    figure(f"kill -9 between two responses of 1000, {consumers} consumers: reorder_depth_max {line.told}")
