"""Promises of the mailbox without a module of their own: frames, hashes, neutrality, profiles, timers, defaults."""

from __future__ import annotations

import ast
import asyncio
import re
import time
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from services.mailbox.settings import MailboxSettings
from services.mailbox.wire import servicer
from snavio.admin.queue import QueueClient, TopicStats
from snavio.clock import ManualClock
from snavio.domain.message import DeadReason
from snavio.domain.verdict import Verdict
from snavio.errors import FrameTooLarge
from snavio.native import Sending, blake3_hex, uuid7
from snavio.sdk.envelope import envelope_of
from snavio.v1 import mailbox_pb2 as mail
from snavio.v1.mailbox_pb2 import NewMessage, SendRequest, SendResponse
from tests.support.killable import killable
from tests.support.mailbox import (
    SECONDS,
    SERVICE,
    TOPIC,
    MailboxFixture,
    ReceivingPeer,
    commands,
    running_mailbox,
    send_batch,
)

ROOT = Path(__file__).resolve().parents[2]
OWN = "acme/own/mail"
MIB, CHUNK = 1 << 20, 64 << 10


@pytest.fixture
async def office(tmp_path: Path) -> AsyncIterator[MailboxFixture]:
    async with running_mailbox(tmp_path) as one:
        yield one


async def send(peer: ReceivingPeer, *messages: NewMessage, topic: str = OWN) -> Any:
    request = SendRequest(topic=topic, message=messages)
    return await peer.channel.call(SERVICE + "Send", request, SendResponse, timeout_s=SECONDS)


async def stats(office: MailboxFixture, topic: str = TOPIC) -> TopicStats:
    (one,) = await QueueClient.over(office.operator().channel).stats(topic)
    return one


def moved(office: MailboxFixture, seconds: float) -> None:
    assert isinstance(office.clock, ManualClock)
    office.clock.advance(seconds=seconds)


async def test_I_6_frame_is_at_most_a_mebibyte_and_a_chunk_is_something_else(office: MailboxFixture) -> None:
    peer = office.consumer()
    payload = bytes(200 << 10)
    with pytest.raises(FrameTooLarge):
        await send(peer, *[NewMessage(payload=payload)] * 6)
    await send(peer, *[NewMessage(payload=payload)] * 4)
    await send(peer, *[NewMessage(payload=bytes(10_000))] * 90)
    first = await peer.receive(OWN, max_bytes=MIB)
    assert CHUNK < len(first.raw) <= MIB, "a frame is no chunk"
    seen = len(first.messages)
    while (got := await peer.receive(OWN, max_bytes=CHUNK)).messages:
        # One message always comes, however large; several stay within what was asked for.
        assert len(got.raw) <= CHUNK or len(got.messages) == 1
        seen += len(got.messages)
    assert seen == 94


@pytest.mark.parametrize("payload", [b"", b"x", bytes(range(256)) * 100])
async def test_I_7_payload_hash_is_blake3_and_shown_as_b3(office: MailboxFixture, payload: bytes) -> None:
    peer = office.consumer()
    await send(peer, NewMessage(payload=payload))
    (message,) = (await peer.receive(OWN)).messages
    assert envelope_of(OWN, message).payload_hash == "b3:" + blake3_hex(payload)
    assert re.fullmatch(r"b3:[0-9a-f]{64}", envelope_of(OWN, message).payload_hash)


async def test_I_11_mailbox_is_a_pipe_that_copies_and_ranks_nothing(office: MailboxFixture) -> None:
    await (await office.sender()).send(send_batch(1, (TOPIC, commands(40))))
    one, two = office.consumer(name="one"), office.consumer(name="two")
    first, second = await one.receive(max_messages=20), await two.receive()
    assert first.marks + second.marks == [f"x{number}" for number in range(40)], (
        "each to one of them, in order"
    )
    pipe = {"Send", "SendAll", "SendStream", "Receive", "RecvStream", "Ack", "Nack", "Extend"}
    oversight = {"Stats", "Peek", "List", "Change"}
    methods = {method.name for method in mail.DESCRIPTOR.services_by_name["Mailbox"].methods}
    assert methods == pipe | oversight


async def test_P_1_shard_that_is_stuck_holds_up_no_other(tmp_path: Path) -> None:
    async with running_mailbox(tmp_path, settings=MailboxSettings(shards=4)) as office:
        stuck, other = office.consumer(name="stuck"), office.consumer()
        for number in range(40):
            await send(other, NewMessage(payload=b"%d" % number, partition_key=f"user-{number % 8}"))
        shards: dict[int, set[int]] = {}
        got = await stuck.receive(OWN)
        for index, message in enumerate(got.messages):
            shards.setdefault(envelope_of(OWN, message).shard, set()).add(index)
        assert len(shards) > 1
        held = max(shards)
        for index in sorted(set(range(40)) - shards[held]):
            request = mail.NackRequest(topic=OWN, receipts=got.receipts(index, index + 1), delay_ms=0)
            await stuck.channel.call(SERVICE + "Nack", request, mail.SettleResponse, timeout_s=SECONDS)
        free = await other.receive(OWN)
        assert {envelope_of(OWN, message).shard for message in free.messages} == shards.keys() - {held}
        assert len(free.messages) == 40 - len(shards[held])


async def test_P_3_stored_bytes_are_handed_out_as_they_are(office: MailboxFixture) -> None:
    frame = send_batch(1, (TOPIC, commands(200, size=400)))
    await (await office.sender()).send(frame)
    runs = Sending.open(frame).topics[0][2]
    assert runs in (await office.consumer().receive()).raw, "not taken apart and put together again"


def test_P_4_nothing_on_the_wire_is_about_money() -> None:
    money = re.compile(r"price|fee|cost|balance|ledger|reward|credit_amount|invoice|account|billing|currency")
    fields = {
        f"{message.name}.{field.name}"
        for message in mail.DESCRIPTOR.message_types_by_name.values()
        for field in message.fields
    }
    assert len(fields) > 50 and not {name for name in fields if money.search(name.lower())}


async def test_P_5_reasons_are_stable_words_that_the_manual_explains_and_reprocessing_is_a_command(
    office: MailboxFixture,
) -> None:
    manual = (ROOT / "docs" / "mailbox.md").read_text("utf-8")
    reasons = {word for name, word in vars(DeadReason).items() if name.isupper()}
    assert len(reasons) == 5 and all(f"| `{reason}` |" in manual for reason in reasons)
    assert "snavio queue dlq ls" in manual and "reprocess" in manual
    await (await office.sender()).send(send_batch(1, (TOPIC, commands(1))))
    consumer = office.consumer()
    await consumer.nack((await consumer.receive()).receipts(), dead=True, reason="no such user")
    queue = QueueClient.over(office.operator().channel)
    (dead,) = [one async for one in queue.dlq(TOPIC)]
    assert (dead.reason, dead.attempt, dead.last_error) == (DeadReason.NACK, 1, "no such user")
    assert await (await queue.preview_reprocess(TOPIC)).apply() == 1
    assert len((await consumer.receive()).messages) == 1


async def test_P_8_correlation_id_is_a_uuid7_the_senders_or_ours_and_stays(office: MailboxFixture) -> None:
    peer, own = office.consumer(), uuid7()
    await send(peer, NewMessage(payload=b"a", corr_id=own), NewMessage(payload=b"b"))
    told = []
    for _ in range(2):
        got = await peer.receive(OWN, visibility_ms=1000)
        told.append([envelope_of(OWN, message).corr_id for message in got.messages])
        moved(office, 2)
    assert told[0] == told[1] and told[0][0] == own
    assert [uuid.UUID(one).version for one in told[0]] == [7, 7]


async def test_C_2_table_of_keys_is_bounded_and_a_key_lives_for_its_window(tmp_path: Path) -> None:
    async with running_mailbox(tmp_path, settings=MailboxSettings(max_replay_keys=1000)) as office:
        peer = office.consumer()
        messages = [NewMessage(payload=b"x", idem_key=str(number)) for number in range(600)]
        codes = (await send(peer, *messages)).codes
        assert codes == bytes([Verdict.DELIVERED]) * 500 + bytes([Verdict.SATURATED]) * 100, (
            "half for one tenant"
        )
        moved(office, 299)
        assert set((await send(peer, *messages[:500])).codes) == {Verdict.DUPLICATE}
        moved(office, 2)
        again = (await send(peer, *messages[:500])).codes
        assert set(again) == {Verdict.DELIVERED}, "T_replay is over"


async def test_C_3_scanner_brings_overdue_messages_back_though_nobody_asks(office: MailboxFixture) -> None:
    await (await office.sender()).send(send_batch(1, (TOPIC, commands(3))))
    await office.consumer().receive(visibility_ms=5000)
    moved(office, 4.9)
    assert (await stats(office)).inflight == 3
    moved(office, 0.2)
    async with asyncio.timeout(SECONDS):
        while (await stats(office)).ready != 3:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("settings", "profile", "left"),
    [
        (MailboxSettings(amnesia=True, i_accept_losing_messages=True), "ephemeral", 0),
        (MailboxSettings(shards=8), "durable", 1),
    ],
)
async def test_C_7_profiles_say_what_they_keep_and_keep_what_they_say(
    tmp_path: Path, settings: MailboxSettings, profile: str, left: int
) -> None:
    async with running_mailbox(tmp_path, settings=settings) as office:
        await (await office.sender()).send(send_batch(1, (TOPIC, commands(1))))
        consumer = office.consumer()
        await consumer.nack((await consumer.receive()).receipts(), dead=True)
        assert ((await stats(office)).dlq_profile, (await stats(office)).dead) == (profile, 1)
        await office.stop()
        await office.start()
        found = await QueueClient.over(office.operator().channel).stats(TOPIC)
        assert sum(one.dead for one in found) == left


@pytest.mark.parametrize("seconds", ["4", "121"])
async def test_I_15_cache_time_outside_of_5_to_120_s_is_refused_at_start_in_a_sentence(
    tmp_path: Path, seconds: str
) -> None:
    async with killable(tmp_path, mailbox_lines=f"capability_cache_s = {seconds}\n") as office:
        with pytest.raises(AssertionError) as refused:  # with what the process said instead of "ready"
            await office.start()
    sentence = f"[mailbox] capability_cache_s must be a number from 5 to 120, and is {seconds}.\n"
    assert str(refused.value).endswith(sentence)


@pytest.mark.parametrize("seconds", [5, 120])
def test_I_15_cache_time_of_5_and_of_120_s_is_taken(seconds: int) -> None:
    assert MailboxSettings(capability_cache_s=seconds).capability_cache_s == seconds


class SetByHand(ManualClock):
    """A clock whose wall somebody sets while the monotonic one stands still."""

    def set_wall(self, seconds: float) -> None:
        self._unix_ns += round(seconds * 1e9)


async def test_C_11_deadlines_go_by_the_monotonic_clock(tmp_path: Path) -> None:
    clock = SetByHand(time.time_ns())
    async with running_mailbox(tmp_path, clock=clock) as office:
        await (await office.sender()).send(send_batch(1, (TOPIC, commands(2))))
        holder, other = office.consumer(name="holder"), office.consumer()
        await holder.receive(max_messages=1, visibility_ms=30_000)
        second = await holder.receive(visibility_ms=30_000)
        assert await holder.extend(second.receipts(), visibility_ms=60_000) == b"\x01"
        clock.set_wall(120)
        assert (await other.receive(wait_ms=200)).messages == []
        clock.set_wall(-240)
        clock.advance(seconds=61)
        back = 0
        while back < 2:
            back += len((await other.receive(wait_ms=5000)).messages)


def test_C_11_no_part_of_the_mailbox_reads_a_clock_of_its_own() -> None:
    for path in sorted((ROOT / "services" / "mailbox").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not {"time", "datetime"} & set(names), path.name


def test_C_12_defaults_are_those_of_the_document_and_the_manual_shows_them() -> None:
    settings = MailboxSettings()
    assert servicer.MIN_VISIBILITY_MS == 250
    expected = {
        "replay_window_ms": 300_000,
        "capability_cache_s": 30,
        "backoff_max_ms": 60_000,
        "retention_ready_s": 7 * 86_400,
        "retention_inflight_visibilities": 10,
        "retention_dlq_s": 14 * 86_400,
    }
    assert {name: getattr(settings, name) for name in expected} == expected
    manual = (ROOT / "docs" / "configuration.md").read_text("utf-8")
    for name in expected:
        assert re.search(rf"^\| `{name}` \|", manual, re.MULTILINE), name
