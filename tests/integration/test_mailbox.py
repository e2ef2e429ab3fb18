"""The mailbox from outside: real mTLS, a real store, the wire."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from services.mailbox.settings import MailboxSettings
from snavio.clock import ManualClock
from snavio.domain.verdict import Verdict
from snavio.errors import BadRequest, NotAllowed
from snavio.v1 import mailbox_pb2 as mail
from snavio.v1.mailbox_pb2 import ReceiveResponse
from tests.support.mailbox import (
    SECONDS,
    TOPIC,
    UNDIVIDED,
    MailboxFixture,
    commands,
    running_mailbox,
    send_batch,
)

DELIVERED = bytes([Verdict.DELIVERED])
DONE, LATE, GONE = b"\x01", b"\x02", b"\x03"


@pytest.fixture
async def office(tmp_path: Path) -> AsyncIterator[MailboxFixture]:
    async with running_mailbox(tmp_path) as one:
        yield one


def moved(office: MailboxFixture, seconds: float) -> None:
    assert isinstance(office.clock, ManualClock)
    office.clock.advance(seconds=seconds)


async def test_sent_commands_are_received_byte_for_byte_and_acknowledged(office: MailboxFixture) -> None:
    sender, consumer = await office.sender(), office.consumer()
    sent = commands(1000, size=300)
    assert await sender.send(send_batch(1, (TOPIC, sent))) == DELIVERED * 1000
    got = await consumer.receive()
    response = ReceiveResponse.FromString(got.raw)
    (leased,) = response.batch
    (run,) = leased.run
    assert list(run.command) == sent
    assert (run.source, run.key_version, run.cert_serial, run.admitted_unix_ns) == (
        "acme/shop",
        "hmac-v1",
        "ab",
        5,
    )
    assert (leased.attempt, leased.first, response.integrity_failures) == (1, 0, 0)
    assert await consumer.stats() == {TOPIC: (0, 1000)}
    assert await consumer.ack(got.receipts()) == DONE * 1000
    assert await consumer.ack(got.receipts()) == GONE * 1000
    assert await consumer.stats() == {TOPIC: (0, 0)}


async def test_batch_for_several_topics_is_split_and_each_keeps_its_order(office: MailboxFixture) -> None:
    sender, consumer = await office.sender(), office.consumer()
    frame = send_batch(1, (TOPIC, commands(3, mark="a")), ("acme/mail", commands(2, mark="b")))
    assert await sender.send(frame) == DELIVERED * 5
    assert (await consumer.receive()).marks == ["a0", "a1", "a2"]
    assert (await consumer.receive("acme/mail")).marks == ["b0", "b1"]


async def test_more_commands_than_a_row_holds_are_stored_in_several(office: MailboxFixture) -> None:
    sender, consumer = await office.sender(), office.consumer()
    assert await sender.send(send_batch(1, (TOPIC, commands(2500)))) == DELIVERED * 2500
    got = await consumer.receive()
    assert got.marks == [f"x{number}" for number in range(2500)]
    assert len({one.msg_id for one in got.messages}) == 2500
    assert await consumer.ack(got.receipts()) == DONE * 2500


async def test_I_3_unacked_message_reappears_after_visibility_and_wakes_a_waiting_consumer(
    office: MailboxFixture,
) -> None:
    sender, consumer = await office.sender(), office.consumer()
    await sender.send(send_batch(1, (TOPIC, commands(2))))
    first = await consumer.receive(visibility_ms=250)
    waiting = asyncio.create_task(consumer.receive(wait_ms=9000))
    # The scanner looks at the clock that we move: no time has to pass for the deadline itself.
    while (await office.operator().stats())[TOPIC] != (0, 2):
        await asyncio.sleep(0)
    moved(office, 0.25)
    again = await waiting
    assert [(one.msg_id, one.attempt) for one in again.messages] == [
        (one.msg_id, 2) for one in first.messages
    ]
    assert await consumer.ack(first.receipts()) == LATE * 2
    assert await consumer.ack(again.receipts()) == DONE * 2


async def test_send_wakes_a_waiting_consumer(office: MailboxFixture) -> None:
    sender, consumer = await office.sender(), office.consumer()
    waiting = asyncio.create_task(consumer.receive(wait_ms=9000))
    await consumer.stats()
    await sender.send(send_batch(1, (TOPIC, commands(1))))
    assert (await waiting).marks == ["x0"]


async def test_nack_gives_back_part_of_a_batch_and_ack_keeps_the_rest(office: MailboxFixture) -> None:
    sender, consumer = await office.sender(), office.consumer()
    await sender.send(send_batch(1, (TOPIC, commands(10))))
    got = await consumer.receive()
    assert await consumer.nack(got.receipts(3, 5)) == DONE * 2
    assert await consumer.ack(got.receipts(0, 4)) == DONE * 3 + LATE
    again = await consumer.receive()
    assert again.marks == ["x3", "x4"] and [one.attempt for one in again.messages] == [2, 2]
    assert await consumer.extend(again.receipts(), visibility_ms=60_000) == DONE * 2
    moved(office, 31)
    assert (await consumer.receive()).marks == ["x5", "x6", "x7", "x8", "x9"]


async def test_lease_belongs_to_one_service_even_within_its_tenant(office: MailboxFixture) -> None:
    sender, consumer, other = await office.sender(), office.consumer(), office.consumer(name="other")
    await sender.send(send_batch(1, (TOPIC, commands(1))))
    got = await consumer.receive()
    assert await other.ack(got.receipts()) == LATE
    assert await consumer.ack(got.receipts()) == DONE


async def test_topic_of_another_tenant_is_neither_readable_nor_visible(office: MailboxFixture) -> None:
    sender, thief = await office.sender(), office.consumer("evil")
    await sender.send(send_batch(1, (TOPIC, commands(1))))
    for ask in (
        thief.receive(),
        thief.ack(mail.Receipts()),
        thief.stats(TOPIC),
        thief.receive("evilx/billing"),
    ):
        with pytest.raises(NotAllowed):
            await ask
    assert await thief.stats() == {}
    assert await office.operator().stats() == {TOPIC: (1, 0)}


@pytest.mark.parametrize(
    "asked", [{"visibility_ms": 249}, {"visibility_ms": 43_200_001}, {"max_messages": 5001}]
)
async def test_requests_outside_the_bounds_are_refused(office: MailboxFixture, asked: dict[str, int]) -> None:
    with pytest.raises(BadRequest):
        await office.consumer().receive(TOPIC, **asked)


async def test_receipts_that_do_not_pair_up_are_refused(office: MailboxFixture) -> None:
    with pytest.raises(BadRequest):
        await office.consumer().ack(mail.Receipts(msg_id=[1, 2], attempt=[1]))


async def test_response_stays_within_its_bytes_but_one_large_message_comes(office: MailboxFixture) -> None:
    sender, consumer = await office.sender(), office.consumer()
    # The average hides the large ones: what was leased by it must be cut down.
    sent = commands(40, size=10) + commands(3, size=250_000, mark="big")
    await sender.send(send_batch(1, (TOPIC, sent)))
    seen: list[str] = []
    while got := (await consumer.receive(max_bytes=100_000)):
        if not got.messages:
            break
        assert len(got.raw) < 110_000 or len(got.messages) == 1
        seen += got.marks
    assert seen == [f"x{n}" for n in range(40)] + ["big0", "big1", "big2"]
    assert {one.attempt for one in got.messages} <= {1}


async def test_I_5_full_topic_is_refused_alone_with_a_hint_and_its_resend_is_answered_the_same(
    tmp_path: Path,
) -> None:
    async with running_mailbox(tmp_path, settings=MailboxSettings(max_topic_messages=3)) as office:
        sender, consumer = await office.sender(), office.consumer()
        frame = send_batch(1, (TOPIC, commands(4)), ("acme/mail", commands(2)))
        await sender.write(frame)
        refusal = await sender.read()
        assert refusal.refusal[0].retry_after_ms > 0
        final = refusal if refusal.final else await sender.read()
        assert final.final
        got = await consumer.receive("acme/mail")
        await consumer.ack(got.receipts(), "acme/mail")
        expected = bytes([Verdict.SATURATED]) * 4 + DELIVERED * 2
        assert await sender.send(frame) == expected
        again = await office.sender()
        assert await again.send(frame) == expected
        assert await consumer.stats() == {"acme/mail": (0, 0)}, "a topic that never held a message is none"


async def test_full_store_refuses_sends_and_still_takes_acknowledgements(tmp_path: Path) -> None:
    async with running_mailbox(
        tmp_path, settings=MailboxSettings(max_store_bytes=4 << 20), mesh_settings=UNDIVIDED
    ) as office:
        sender, consumer = await office.sender(), office.consumer()
        seq, stored = 1, 0
        while (codes := await sender.send(send_batch(seq, (TOPIC, commands(4, size=200_000)))))[0] == 1:
            seq, stored = seq + 1, stored + 4
        assert codes == bytes([Verdict.SATURATED]) * 4 and stored
        got = await consumer.receive()
        assert await consumer.ack(got.receipts()) == DONE * len(got.messages)
        while len(got.messages):
            got = await consumer.receive()
            await consumer.ack(got.receipts())
        # Space is freed beside the commits: a sender that comes again, as it is told to, soon gets in.
        async with asyncio.timeout(SECONDS):
            while codes != DELIVERED * 4:
                seq += 1
                codes = await sender.send(send_batch(seq, (TOPIC, commands(4, size=200_000))))


async def test_resend_after_a_restart_is_answered_and_not_stored_twice(tmp_path: Path) -> None:
    async with running_mailbox(tmp_path) as office:
        frame = send_batch(7, (TOPIC, commands(5)))
        sender = await office.sender(epoch=3)
        assert await sender.send(frame) == DELIVERED * 5
        await office.stop()
        await office.start()
        for _ in range(3):
            sender = await office.sender(epoch=3)
            assert await sender.send(frame) == DELIVERED * 5
        assert await office.consumer().stats() == {TOPIC: (5, 0)}
        # The same number of another process is another batch.
        assert await (await office.sender(epoch=4)).send(frame) == DELIVERED * 5
        assert await (await office.sender(service="slow", epoch=3)).send(frame) == DELIVERED * 5
        assert await office.consumer().stats() == {TOPIC: (15, 0)}


async def test_resend_that_overtakes_the_first_copy_is_stored_once(office: MailboxFixture) -> None:
    frame = send_batch(1, (TOPIC, commands(500, size=400)))
    senders = [await office.sender() for _ in range(4)]
    answers = await asyncio.gather(*(sender.send(frame) for sender in senders))
    assert answers == [DELIVERED * 500] * 4
    assert await office.consumer().stats() == {TOPIC: (500, 0)}


async def test_I_1_restart_brings_back_what_was_not_acknowledged_and_ends_all_leases(tmp_path: Path) -> None:
    async with running_mailbox(tmp_path) as office:
        sender, consumer = await office.sender(), office.consumer()
        await sender.send(send_batch(1, (TOPIC, commands(6))))
        got = await consumer.receive()
        await consumer.ack(got.receipts(0, 2))
        await consumer.nack(got.receipts(2, 3))
        await office.stop()
        await office.start()
        consumer = office.consumer()
        # The boot epoch is part of the receipt, so the old ones settle nothing although attempts agree.
        assert await consumer.ack(got.receipts(2)) == LATE * 4
        again = await consumer.receive()
        assert again.marks == ["x2", "x3", "x4", "x5"]
        assert [one.attempt for one in again.messages] == [2, 1, 1, 1]
        assert again.boot_epoch > got.boot_epoch
        assert await consumer.ack(got.receipts(3)) == LATE * 3
        assert await consumer.ack(again.receipts()) == DONE * 4


async def test_I_12_damaged_batch_is_counted_and_not_delivered(tmp_path: Path) -> None:
    async with running_mailbox(tmp_path) as office:
        sender = await office.sender()
        await sender.send(send_batch(1, (TOPIC, commands(3, mark="bad", size=4000))))
        await sender.send(send_batch(2, (TOPIC, commands(2, mark="good"))))
        await office.stop()
        segment = tmp_path / "mailbox" / "payload-1.seg"
        segment.write_bytes(segment.read_bytes().replace(b"bad", b"bat"))
        await office.start()
        got = await office.consumer().receive()
        assert got.marks == ["good0", "good1"]
        assert ReceiveResponse.FromString(got.raw).integrity_failures == 3
        assert await office.consumer().stats() == {TOPIC: (0, 2)}


async def test_I_9_amnesia_leaves_nothing_on_disk(tmp_path: Path) -> None:
    async with running_mailbox(tmp_path, settings=MailboxSettings(amnesia=True)) as office:
        sender, consumer = await office.sender(), office.consumer()
        await sender.send(send_batch(1, (TOPIC, commands(3))))
        got = await consumer.receive()
        assert await consumer.ack(got.receipts()) == DONE * 3
        assert not (tmp_path / "mailbox").exists()


async def test_backlog_larger_than_memory_is_delivered_in_order(tmp_path: Path) -> None:
    small = MailboxSettings(window_batches=16, cached_bytes=0)
    async with running_mailbox(tmp_path, settings=small) as office:
        sender, consumer = await office.sender(), office.consumer()
        for seq in range(1, 81):
            await sender.send(send_batch(seq, (TOPIC, commands(2, mark=f"{seq}-"))))
        seen: list[str] = []
        while len(seen) < 160:
            got = await consumer.receive(max_messages=7)
            seen += got.marks
            await consumer.ack(got.receipts())
        assert seen == [f"{seq}-{n}" for seq in range(1, 81) for n in range(2)]


async def test_consumer_that_goes_away_while_waiting_leases_nothing(office: MailboxFixture) -> None:
    sender, consumer = await office.sender(), office.consumer()
    waiting = asyncio.create_task(consumer.receive(wait_ms=9000))
    await consumer.stats()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await office.operator().stats()
    await sender.send(send_batch(1, (TOPIC, commands(1))))
    assert (await office.consumer(name="second").receive(wait_ms=5000)).marks == ["x0"]


@pytest.mark.parametrize("frame", [b"\xff\xff\xff", b"", send_batch(0, (TOPIC, [b"x"])), send_batch(1)])
async def test_frame_that_is_no_batch_is_refused_and_stores_nothing(
    office: MailboxFixture, frame: bytes
) -> None:
    sender = await office.sender()
    await sender.write(frame)
    told = await sender.read()
    assert told.final and Verdict.DELIVERED not in told.codes
    assert await office.operator().stats() == {}


async def test_drain_answers_what_is_under_way_and_ends_waiting_receives(tmp_path: Path) -> None:
    async with running_mailbox(tmp_path) as office:
        sender, consumer = await office.sender(), office.consumer()
        waiting = asyncio.create_task(consumer.receive("acme/quiet", wait_ms=9000))
        await consumer.stats()
        sending = asyncio.create_task(sender.send(send_batch(1, (TOPIC, commands(900, size=400)))))
        await asyncio.sleep(0)
        assert office.app is not None
        await office.app.drain()
        assert (await waiting).messages == []
        outcome = (await asyncio.gather(sending, return_exceptions=True))[0]
        office.app = None
        await office.hang_up()
        await office.start()
        stored = await office.consumer().stats()
        # Answered means stored; a stream that ended without an answer promises neither.
        assert isinstance(outcome, BaseException) or stored == {TOPIC: (900, 0)}
