"""Flipped bits in a mailbox's files while it is stopped: every one is detected, and none is delivered."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

from services.mailbox.settings import MailboxSettings
from snavio.adapters.embedded.sqlite_mailbox_store import SqliteMailboxStore
from snavio.admin.queue import QueueClient
from snavio.domain.message import DeadReason, MessageEnding, MessageState
from snavio.errors import IntegrityError, StateError
from snavio.native import blake3_digest
from snavio.ports.mailbox_store import EndedMessages, NewBatch, Origin, Progress, Retry, Send
from tests.support.mailbox import TOPIC, commands, running_mailbox, send_batch

FULL = os.environ.get("SNAVIO_FULL") == "1"
BATCHES, MESSAGES, SIZE = 40, 25, 600
AIMED, ANYWHERE = 150, 50
ALL = {f"{seq}-{number}" for seq in range(1, BATCHES + 1) for number in range(MESSAGES)}


def damage(segment: Path, dice: random.Random) -> set[str]:
    """Flip a bit in the payloads of some messages, and others anywhere; the messages that were certainly hit."""
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
    async with running_mailbox(tmp_path, settings=settings) as office:
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
                assert len(message.payload) == SIZE
            delivered += got.marks
            if got.messages:
                await consumer.ack(got.receipts())
        dead = [one async for one in QueueClient.over(office.operator().channel).dlq(TOPIC)]
    assert len(delivered) == len(set(delivered))
    assert set(delivered) <= ALL, "what comes is what was sent, byte for byte"
    assert not set(delivered) & hit
    assert len(delivered) + len(dead) == len(ALL), "each is delivered, or in the DLQ"
    assert {one.reason for one in dead} == {DeadReason.INTEGRITY}
    assert all("E_INTEGRITY" in one.last_error for one in dead)
    figure(
        f"{AIMED + ANYWHERE} flipped bits: {len(dead)} messages in the DLQ, {len(delivered)} delivered intact"
    )


# -- the database ---------------------------------------------------------------------------------------

ROWS = 120
DATABASE_FLIPS = 600 if FULL else 120


def runs(batch_id: int) -> bytes:
    """Runs of which some are stored in the database and some in a segment."""
    return f"{batch_id}.".encode() * (100 if batch_id % 3 else 4000)


def filled(path: Path) -> dict[int, int]:
    """A store that was closed in order; the settled ranges of each of its batches."""
    store = SqliteMailboxStore(path, digest=blake3_digest)
    settled: dict[int, int] = {}
    for seq in range(1, ROWS + 1):
        batch = NewBatch(TOPIC, 4, runs(seq))
        store.commit([Send(Origin("fast/0", 1, seq), b"", (batch,))], [], now_unix_ns=seq)
        settled[seq] = 0
    dead = MessageEnding(MessageState.DEAD, 1, "nack-dead", "poison", at_unix_ns=5)
    for batch_id in range(1, ROWS, 4):
        settled[batch_id] = 0b0011
        state = Progress(TOPIC, batch_id, 4, 0b0011, (Retry(2, 3, 2),), (EndedMessages(0, 1, dead),))
        store.commit([], [state], now_unix_ns=9)
    store.close()
    return settled


def look(path: Path, settled: dict[int, int]) -> int:
    """Check that everything in the store is as it was written; the number of batches reported damaged."""
    store = SqliteMailboxStore(path, digest=blake3_digest)
    try:
        (topic,) = store.topics()
        assert topic.messages == sum(4 - bits.bit_count() for bits in settled.values())
        pending = store.pending(TOPIC, after=0, limit=ROWS + 1)
        assert {one.batch_id: one.settled for one in pending} == settled, "none is hidden, none comes back"
        assert sum(len(one.ends) for one in pending) == topic.dead == ROWS // 4
        damaged = 0
        for batch_id in settled:
            try:
                assert store.read(TOPIC, batch_id) == runs(batch_id)
            except IntegrityError:
                damaged += 1
        return damaged
    finally:
        store.close()


def test_G_7_flipped_bits_of_the_database_hide_and_change_no_message(
    tmp_path: Path, figure: Callable[[str], None]
) -> None:
    path, dice = tmp_path / "mailbox.db", random.Random("database flips")
    settled = filled(path)
    assert look(path, settled) == 0
    whole = path.read_bytes()
    closed = some = harmless = 0
    for _ in range(DATABASE_FLIPS):
        flipped = bytearray(whole)
        flipped[dice.randrange(len(whole))] ^= 1 << dice.randrange(8)
        path.write_bytes(flipped)
        try:
            damaged = look(path, settled)
        except (IntegrityError, StateError):
            closed += 1
        else:
            some += damaged > 0
            harmless += damaged == 0
    assert closed and some, "pages of rows and pages of bytes were hit"
    figure(
        f"{DATABASE_FLIPS} flipped bits of mailbox.db: {closed} keep the store closed, "
        f"{some} cost the batches of a page, {harmless} hit what is not in use"
    )


async def test_G_7_damaged_page_of_bytes_costs_its_messages_and_nobody_elses(tmp_path: Path) -> None:
    async with running_mailbox(tmp_path, settings=MailboxSettings(cached_bytes=0)) as office:
        sender = await office.sender()
        for seq in range(1, 61):
            assert (
                await sender.send(send_batch(seq, (TOPIC, commands(1, size=SIZE, mark=f"{seq}-")))) == b"\x01"
            )
        await office.stop()
        database = tmp_path / "mailbox" / "mailbox.db"
        content = bytearray(database.read_bytes())
        content[content.index(b"30-0..") + 50] ^= 4
        database.write_bytes(content)
        await office.start()
        consumer = office.consumer()
        got = await consumer.receive()
        dead = [one async for one in QueueClient.over(office.operator().channel).dlq(TOPIC)]
        assert "30-0" not in got.marks and len(got.marks) + len(dead) == 60
        assert 1 <= len(dead) <= 8 and all("E_INTEGRITY" in one.last_error for one in dead)
        for index in range(len(got.messages)):
            assert await consumer.ack(got.receipts(index, index + 1)) == b"\x01"
