"""kill -9 of a real mailbox while its senders die too: what is stored once stays stored once, and in its order."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import grpc
import pytest

from snavio.domain.verdict import Verdict
from snavio.errors import SnavioError
from snavio.native import uuid7
from tests.support.killable import Killable, killable
from tests.support.mailbox import TOPIC, ReceivingPeer, commands, send_batch

ROUNDS = 60 if os.environ.get("SNAVIO_FULL") == "1" else 2
GOOD = {Verdict.DELIVERED, Verdict.DUPLICATE}


class Strict:
    """A Fast that never learns its own past: every life has another epoch, and sends again what was not answered."""

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
            seen += [message[4] for message in got.messages]
            # As it goes: a full run has more of them than may be leased at a time.
            assert set(await consumer.ack(got.receipts())) == {1}
        assert len(seen) == len(set(seen)), "nothing is there twice"
        assert set(seen) == set(strict.answered) | set(strict.open)
    figure(f"{ROUNDS} kills of mailbox and sender: {len(seen)} strict commands, each stored once")


async def first_deliveries(consumer: ReceivingPeer, seen: list[int], until: int, dice: random.Random) -> None:
    """Receive little by little, acknowledge most, until everything was seen."""
    known = set(seen)
    while len(known) < until:
        got = await consumer.receive(wait_ms=500, max_messages=dice.randint(1, 32), visibility_ms=1000)
        for mark in got.marks:
            number = int(mark.partition("-")[0])
            if number not in known:
                known.add(number)
                seen.append(number)
        if got.messages:
            await consumer.ack(got.receipts(0, dice.randint(len(got.messages) // 2, len(got.messages))))


@pytest.mark.timeout(600)
async def test_G_9_failover_loses_nothing_and_reorders_at_most_32(
    tmp_path: Path, figure: Callable[[str], None]
) -> None:
    dice = random.Random(os.environ.get("SNAVIO_SEED", "order"))
    messages = 4000 if os.environ.get("SNAVIO_FULL") == "1" else 800
    seen: list[int] = []
    async with killable(tmp_path) as office:
        await office.start()
        sender = await office.sender()
        for seq, first in enumerate(range(0, messages, 40), 1):
            batch = [commands(1, mark=f"{number}-")[0] for number in range(first, first + 40)]
            await sender.send(send_batch(seq, (TOPIC, batch)))
        for _ in range(ROUNDS):
            living = asyncio.create_task(first_deliveries(office.consumer(), seen, messages, dice))
            await asyncio.wait((living,), timeout=dice.uniform(0.1, 0.4))
            await office.end(signal.SIGKILL)
            living.cancel()
            with suppress(asyncio.CancelledError, SnavioError, grpc.RpcError):
                await living
            await office.start()
        async with asyncio.timeout(120):
            await first_deliveries(office.consumer(), seen, messages, dice)
    assert sorted(seen) == sorted(set(seen)) and len(seen) == messages
    depth = max(sum(1 for earlier in seen[:at] if earlier > number) for at, number in enumerate(seen))
    assert depth <= 32
    figure(f"{ROUNDS} kills: {messages} messages delivered, reordered by at most {depth}")
