"""One message in a hundred always fails: those end in the DLQ with their reason, and the others are not delayed."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from snavio.admin.queue import QueueClient
from snavio.domain.message import DeadReason
from tests.support.killable import killable
from tests.support.mailbox import TOPIC, commands, send_batch

MESSAGES = 20_000 if os.environ.get("SNAVIO_FULL") == "1" else 2000
BATCH, ATTEMPTS = 500, 4
SETTINGS = f"max_attempts = {ATTEMPTS}\nbackoff_base_ms = 20\nbackoff_max_ms = 100\n"


def poisonous(number: int) -> bool:
    return number % 100 == 17


@pytest.mark.timeout(600)
async def test_I_4_one_percent_poison_is_in_the_dlq_with_its_reason_and_holds_nobody_up(
    tmp_path: Path, figure: Callable[[str], None]
) -> None:
    poison = {number for number in range(MESSAGES) if poisonous(number)}
    stored_s: dict[int, float] = {}
    good: list[int] = []
    waited_ms: list[float] = []
    tries: dict[int, list[int]] = {number: [] for number in poison}
    async with killable(tmp_path, mailbox_lines=SETTINGS) as office:
        await office.start()
        sender, consumer = await office.sender(), office.consumer()
        client = QueueClient.over(office.operator().channel)

        async def consume() -> None:
            got = await consumer.receive(wait_ms=200, max_messages=100)
            bad = [index for index, mark in enumerate(got.marks) if poisonous(int(mark[:-2]))]
            start = 0
            for index in [*bad, len(got.messages)]:
                if start < index:
                    assert set(await consumer.ack(got.receipts(start, index))) == {1}
                if index < len(got.messages):
                    receipt = got.receipts(index, index + 1)
                    assert await consumer.nack(receipt, delay_ms=None, reason="cannot be parsed") == b"\x01"
                start = index + 1
            for index, message in enumerate(got.messages):
                number = int(got.marks[index][:-2])
                if index in bad:
                    tries[number].append(message.attempt)
                else:
                    good.append(number)
                    waited_ms.append((time.perf_counter() - stored_s[number]) * 1000)

        for seq, first in enumerate(range(0, MESSAGES, BATCH), 1):
            numbers = range(first, first + BATCH)
            batch = [commands(1, mark=f"{number}x")[0] for number in numbers]
            assert set(await sender.send(send_batch(seq, (TOPIC, batch)))) == {1}
            stored_s |= dict.fromkeys(numbers, time.perf_counter())
            # Keeps up, so that what a message waits for is what stands before it, and not how much was sent.
            while len(good) < (first + BATCH) * 99 // 100:
                await consume()
        while len(good) < MESSAGES - len(poison) or (await client.stats(TOPIC))[0].dead < len(poison):
            await consume()
        dead = [one async for one in client.dlq(TOPIC, payload=True)]
        (left,) = await client.stats(TOPIC)
    assert good == sorted(set(range(MESSAGES)) - poison), (
        "each once, in order: none stood behind a poisonous one"
    )
    assert {int(one.payload.rstrip(b".")[:-2]) for one in dead} == poison and len(dead) == len(poison)
    assert {(one.reason, one.attempt, one.last_error) for one in dead} == {
        (DeadReason.MAX_ATTEMPTS, ATTEMPTS, "cannot be parsed")
    }
    assert all(seen == list(range(1, ATTEMPTS + 1)) for seen in tries.values())
    assert (left.ready, left.inflight) == (0, 0)
    p99 = sorted(waited_ms)[int(len(waited_ms) * 0.99)]
    figure(
        f"{len(poison)} of {MESSAGES} poisonous, all in the DLQ; the others: p99 {p99:.0f} ms from stored to acked"
    )
