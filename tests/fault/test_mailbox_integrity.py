"""Bits that flip on the disk: noticed, quarantined with a reason, and never delivered as if nothing had happened."""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path
from typing import Any

import pytest

from services.mailbox.intake import new_messages
from services.mailbox.settings import MailboxSettings
from snavio.adapters.embedded.checksums import connect
from snavio.adapters.embedded.sqlite_mailbox_store import SqliteMailboxStore
from snavio.adapters.memory.mailbox_store import MemoryMailboxStore
from snavio.admin.queue import QueueClient
from snavio.errors import Code, IntegrityError
from snavio.native import Sending, blake3_digest, read_new_messages, slice_runs
from snavio.ports.mailbox_store import Damaged, NewBatch, Origin, Send
from snavio.sdk import Consumer, Mailer
from snavio.sdk import NewMessage as MessageToSend
from snavio.v1.mailbox_pb2 import NewMessage, SendRequest, SendResponse
from tests.support.mailbox import SECONDS, SERVICE, TOPIC, commands, running_mailbox, send_batch

FLIPS = 200 if os.environ.get("SNAVIO_FULL") == "1" else 60
NOW = 1_700_000_000_000_000_000


def flip(path: Path, bit: int) -> None:
    with path.open("r+b") as file:
        file.seek(bit // 8)
        (byte,) = file.read(1)
        file.seek(bit // 8)
        file.write(bytes([byte ^ 1 << bit % 8]))


def messages(store: SqliteMailboxStore, batch_id: int, count: int) -> list[bytes | None]:
    """Every message of a batch, or None where it was damaged."""
    damaged = 0
    try:
        runs = store.read(TOPIC, batch_id)
    except Damaged as error:
        runs, damaged = error.runs, error.damaged
    except IntegrityError:
        return [None] * count
    return [None if damaged >> at & 1 else slice_runs(runs, at, 1) for at in range(count)]


@pytest.mark.parametrize("inline_bytes", [0, 1 << 20])
def test_G_7_no_flipped_bit_is_delivered_and_most_neighbours_are(tmp_path: Path, inline_bytes: int) -> None:
    dice = random.Random(7)
    path = tmp_path / "mailbox.db"
    store = SqliteMailboxStore(path, digest=blake3_digest, inline_bytes=inline_bytes)
    runs = Sending.open(send_batch(1, (TOPIC, commands(40, size=300)))).topics[0][2]
    send = Send(Origin("fast/0", 1, 1), b"", (NewBatch(TOPIC, 40, runs),))
    ((batch_id,),) = store.commit([send], [], now_unix_ns=NOW)
    whole = messages(store, batch_id, 40)
    assert None not in whole
    size = len(runs) + 40 * 16
    store.close()
    lost = 0
    for _ in range(FLIPS):
        bit = dice.randrange(size * 8)
        if inline_bytes:
            connection = connect(path)
            before: Any = connection.execute("SELECT body FROM bodies").fetchall()[0][0]
            flipped = bytearray(before)
            flipped[bit // 8] ^= 1 << bit % 8
            connection.execute("UPDATE bodies SET body = ?", (bytes(flipped),))
            connection.close()
        else:
            flip(tmp_path / "payload-1.seg", bit)
        store = SqliteMailboxStore(path, digest=blake3_digest, inline_bytes=inline_bytes)
        with pytest.raises(IntegrityError):
            store.read(TOPIC, batch_id)
        after = messages(store, batch_id, 40)
        store.close()
        assert all(one in (None, before) for one, before in zip(after, whole, strict=True))
        lost += after.count(None)
        if inline_bytes:
            connection = connect(path)
            connection.execute("UPDATE bodies SET body = ?", (before,))
            connection.close()
        else:
            flip(tmp_path / "payload-1.seg", bit)
    assert lost < 4 * FLIPS, "a flip costs its message, seldom more"


@pytest.mark.parametrize(
    ("damage", "left"),
    [
        ("UPDATE batches SET stored_unix_ns = stored_unix_ns + 1", 0),
        ("UPDATE batches SET count = 39", 0),
        ("UPDATE batches SET shard = 3", 0),
        ("UPDATE batches SET sealed = 0", 0),
        ("UPDATE topics SET name = 'acme/other'", 0),
        # The bytes are what they were, and each message says so itself.
        ("UPDATE batches SET digest = zeroblob(32)", 40),
    ],
)
def test_G_7_flipped_column_is_noticed(tmp_path: Path, damage: str, left: int) -> None:
    path = tmp_path / "mailbox.db"
    store = SqliteMailboxStore(path, digest=blake3_digest)
    runs = Sending.open(send_batch(1, (TOPIC, commands(40, size=300)))).topics[0][2]
    send = Send(Origin("fast/0", 1, 1), b"", (NewBatch(TOPIC, 40, runs),))
    ((batch_id,),) = store.commit([send], [], now_unix_ns=NOW)
    store.close()
    connection = connect(path)
    connection.execute(damage)
    connection.close()
    store = SqliteMailboxStore(path, digest=blake3_digest)
    topic = store.topics()[0].topic
    with pytest.raises(IntegrityError) as caught:
        store.read(topic, batch_id)
    good = 40 - caught.value.damaged.bit_count() if isinstance(caught.value, Damaged) else 0
    assert good == left
    store.close()


async def test_I_12_damaged_message_goes_to_the_dlq_and_its_neighbours_are_delivered(tmp_path: Path) -> None:
    async with running_mailbox(tmp_path, settings=MailboxSettings(cached_bytes=0)) as office:
        sender = await office.sender()
        await sender.send(send_batch(1, (TOPIC, commands(100, size=300))))
        await office.stop()
        segment = next((tmp_path / "mailbox").glob("payload-*.seg"))
        at = segment.read_bytes().index(b"x50.")
        flip(segment, at * 8)
        await office.start()
        consumer = office.consumer()
        first = await consumer.receive(max_messages=10)
        rest = await consumer.receive(wait_ms=2000)
        assert sorted(first.marks + rest.marks) == sorted(f"x{n}" for n in range(100) if n != 50)
        assert await consumer.ack(first.receipts()) == b"\x01" * 10
        assert await consumer.ack(rest.receipts()) == b"\x01" * 89
        assert office.app is not None
        counts = office.app.parts.settlements._delivery.topics.counts(TOPIC)
        assert counts is not None and (counts.ready, counts.inflight, counts.dead) == (0, 0, 1)


def damage(kept: bytes) -> bytes:
    """One bit of message 50, other than it was."""
    at = kept.index(b"x50.")
    return kept[:at] + bytes([kept[at] ^ 1]) + kept[at + 1 :]


async def test_G_7_bit_that_flips_in_the_memory_of_recent_batches_is_delivered_from_the_disk(
    tmp_path: Path,
) -> None:
    async with running_mailbox(tmp_path) as office:
        sender = await office.sender()
        await sender.send(send_batch(1, (TOPIC, commands(100, size=300))))
        assert office.app is not None
        rows = office.app.parts.settlements._rows._rows
        ((batch_id, (runs, digest)),) = rows.items()
        rows[batch_id] = damage(runs), digest
        got = await office.consumer().receive()
        assert got.marks == [f"x{n}" for n in range(100)]


async def test_G_7_bit_that_flips_in_amnesia_is_delivered_to_nobody(tmp_path: Path) -> None:
    async with running_mailbox(tmp_path, settings=MailboxSettings(amnesia=True)) as office:
        sender = await office.sender()
        await sender.send(send_batch(1, (TOPIC, commands(100, size=300))))
        assert office.app is not None and isinstance(office.app.parts.store, MemoryMailboxStore)
        (row,) = office.app.parts.store._topics[TOPIC].values()
        row.runs[:] = damage(bytes(row.runs))
        assert not (await office.consumer().receive()).messages
        dead = [one async for one in QueueClient.over(office.operator().channel).dlq(TOPIC)]
        assert len(dead) == 100 and all(one.last_error.startswith("E_INTEGRITY") for one in dead)


OWN = "acme/own/mail"


async def test_G_7_payload_that_is_not_what_its_sender_hashed_is_refused_at_receipt(tmp_path: Path) -> None:
    async with running_mailbox(tmp_path) as office:
        peer = office.consumer()
        good = NewMessage(payload=b"as made", payload_hash=blake3_digest(b"as made"))
        flipped = NewMessage(payload=b"as mbde", payload_hash=blake3_digest(b"as made"))
        with pytest.raises(IntegrityError) as refused:
            request = SendRequest(topic=OWN, message=[good, flipped])
            await peer.channel.call(SERVICE + "Send", request, SendResponse, timeout_s=SECONDS)
        assert refused.value.code is Code.E_INTEGRITY and "message 1" in str(refused.value)
        assert not (await peer.receive(OWN)).messages, "nothing of the request was stored"


async def test_G_7_payload_that_changed_behind_its_sender_is_in_the_dlq_and_in_nobodys_hands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bit that flips in the mailbox's memory, before the seals are made: only the sender's hash can tell."""

    def flipping(*args: Any, **named: Any) -> Any:
        rows, fault = read_new_messages(*args, **named)
        return [
            (shard, delay, window, runs.replace(b"second", b"secont"), *rest)
            for shard, delay, window, runs, *rest in rows
        ], fault

    monkeypatch.setattr(new_messages, "read_new_messages", flipping)
    async with running_mailbox(tmp_path) as office:
        mailer = Mailer.over(office.consumer(name="writer").channel, topic=OWN)
        await mailer.send_all([MessageToSend(payload) for payload in (b"first", b"second", b"third")])
        certificates = office.authority.service("acme", "reader").certificate.parent
        async with (
            asyncio.timeout(SECONDS),
            Consumer(
                mailbox=office.address, topic=OWN, certificates=certificates, signer=office.mesh.signer
            ) as consumer,
        ):
            handed = []
            for _ in range(2):
                command = await anext(consumer)
                handed.append(command.payload)
                await command.ack()
            await consumer.flush()
        assert handed == [b"first", b"third"]
        (dead,) = [one async for one in QueueClient.over(office.operator().channel).dlq(OWN)]
        assert dead.last_error.startswith("E_INTEGRITY")
