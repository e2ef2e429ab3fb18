"""Bits that flip in a mailbox's files while it is stopped: every one is noticed, and none is ever delivered."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

from services.mailbox.settings import MailboxSettings
from snavio.domain.message import DeadReason
from snavio.sdk.queue import Queue
from tests.support.mailbox import TOPIC, commands, post_office, send_batch

BATCHES, MESSAGES, SIZE = 40, 25, 600
AIMED, ANYWHERE = 150, 50
ALL = {f"{seq}-{number}" for seq in range(1, BATCHES + 1) for number in range(MESSAGES)}


def damage(segment: Path, dice: random.Random) -> set[str]:
    """Flip a bit in the payloads of some messages, and others wherever; the messages that were hit for sure."""
    content = bytearray(segment.read_bytes())
    hit = set(dice.sample(sorted(ALL), AIMED))
    for mark in sorted(hit):
        at = content.index(f"{mark}..".encode()) + dice.randrange(SIZE)
        content[at] ^= 1 << dice.randrange(8)
    for _ in range(ANYWHERE):
        content[dice.randrange(len(content))] ^= 1 << dice.randrange(8)
    segment.write_bytes(content)
    return hit


async def test_G_7_two_hundred_flipped_bits_are_all_noticed_and_never_delivered(
    tmp_path: Path, figure: Callable[[str], None]
) -> None:
    settings = MailboxSettings(cached_bytes=0)
    async with post_office(tmp_path, settings=settings) as office:
        sender = await office.sender()
        for seq in range(1, BATCHES + 1):
            frame = send_batch(seq, (TOPIC, commands(MESSAGES, size=SIZE, mark=f"{seq}-")))
            assert set(await sender.send(frame)) == {1}
        await office.stop()
        (segment,) = (tmp_path / "mailbox").glob("payload-*.seg")
        hit = damage(segment, random.Random("flips"))
        await office.start()
        consumer = office.consumer()
        delivered: list[str] = []
        # An answer may be empty because all of its messages were damaged, and there are more behind them.
        quiet = 0
        while quiet < 3:
            got = await consumer.receive(wait_ms=300)
            quiet = 0 if got.messages else quiet + 1
            for message in got.messages:
                assert len(message[9]) == SIZE
            delivered += got.marks
            if got.messages:
                await consumer.ack(got.receipts())
        dead = [one async for one in Queue.over(office.operator().channel).dlq(TOPIC)]
    assert len(delivered) == len(set(delivered))
    assert set(delivered) <= ALL, "what comes is what was sent, byte for byte"
    assert not set(delivered) & hit
    assert len(delivered) + len(dead) == len(ALL), "each is delivered, or in the DLQ"
    assert {one.reason for one in dead} == {DeadReason.INTEGRITY}
    assert all("E_INTEGRITY" in one.last_error for one in dead)
    figure(
        f"{AIMED + ANYWHERE} flipped bits: {len(dead)} messages in the DLQ, {len(delivered)} delivered intact"
    )
