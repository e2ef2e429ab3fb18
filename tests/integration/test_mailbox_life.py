"""The mailbox's promises about stored messages, item by item, with real mTLS, a real store and a moved clock."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import apsw
import pytest

from services.mailbox.retention import pruning as retention
from services.mailbox.settings import MailboxSettings
from snavio.admin.queue import QueueClient, TopicStats
from snavio.clock import ManualClock
from snavio.domain.message import AttemptOutcome, MessageState
from snavio.errors import BadRequest, Conflict, NotAllowed, NotFound, Saturated
from snavio.sdk.mailer import Mailer
from snavio.sdk.mailer import NewMessage as Message
from snavio.v1 import mailbox_pb2 as mail
from tests.support.docs import example
from tests.support.mailbox import (
    SECONDS,
    SERVICE,
    TOPIC,
    MailboxFixture,
    commands,
    running_mailbox,
    send_batch,
)

S = 1_000_000_000
DONE, LATE, GONE = b"\x01", b"\x02", b"\x03"


@pytest.fixture
async def office(tmp_path: Path) -> AsyncIterator[MailboxFixture]:
    async with running_mailbox(tmp_path) as one:
        yield one


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retention looks often: the clock that decides is the one that tests move."""
    monkeypatch.setattr(retention, "TICK_SECONDS", 0.01)


def moved(office: MailboxFixture, seconds: float) -> None:
    assert isinstance(office.clock, ManualClock)
    office.clock.advance(seconds=seconds)


def queue(office: MailboxFixture) -> QueueClient:
    return QueueClient.over(office.operator().channel)


NOTHING = TopicStats(TOPIC, 0, 0, 0, 0, 0, 0, 0, "durable")


async def stats(office: MailboxFixture) -> TopicStats:
    """Of the topic; nothing, once it was empty for so long that it was let go."""
    return next(iter(await queue(office).stats(TOPIC)), NOTHING)


async def until(office: MailboxFixture, **expected: int) -> None:
    """Wait until the topic's numbers are these."""
    async with asyncio.timeout(SECONDS):
        while {name: getattr(await stats(office), name) for name in expected} != expected:
            await asyncio.sleep(0.005)


async def sent(office: MailboxFixture, count: int, *, seq: int = 1, mark: str = "x", **more: Any) -> None:
    sender = await office.sender()
    assert await sender.send(send_batch(seq, (TOPIC, commands(count, mark=mark)), **more)) == DONE * count


async def looked(office: MailboxFixture) -> None:
    """Let retention look at everything once more."""
    assert office.app is not None
    for _ in range(2):
        await office.app.parts.retention.step()


# -- DLQ ------------------------------------------------------------------------------------------------


async def test_I_4_C_4_message_that_fails_too_often_is_dead_with_reason_attempt_and_last_error(
    tmp_path: Path,
) -> None:
    async with running_mailbox(tmp_path, settings=MailboxSettings(max_attempts=3)) as office:
        await sent(office, 3)
        consumer = office.consumer()
        for attempt in (1, 2, 3):
            got = await consumer.receive()
            assert [one.attempt for one in got.messages] == [attempt] * (3 if attempt == 1 else 1)
            await consumer.ack(got.receipts(1))
            assert await consumer.nack(got.receipts(0, 1), reason=f"failure {attempt}") == DONE
        assert (await consumer.receive()).messages == []
        (dead,) = [one async for one in queue(office).dlq(TOPIC, payload=True)]
        assert (dead.state, dead.reason, dead.attempt, dead.last_error) == (
            MessageState.DEAD,
            "max-attempts",
            3,
            "failure 3",
        )
        assert [(one.attempt, one.outcome, one.reason) for one in dead.attempts] == [
            (n, AttemptOutcome.NACKED, f"failure {n}") for n in (1, 2, 3)
        ]
        assert dead.payload.startswith(b"x0") and dead.source == "acme/shop" and dead.name == "charge"
        numbers = await stats(office)
        assert (numbers.dead, numbers.ready, numbers.inflight) == (1, 0, 0)
        assert numbers.died == {"max-attempts": 1} and numbers.dlq_profile == "durable"


async def test_I_4_lease_that_expires_too_often_ends_in_the_dlq_as_well(tmp_path: Path) -> None:
    async with running_mailbox(tmp_path, settings=MailboxSettings(max_attempts=2)) as office:
        await sent(office, 4)
        for _ in range(2):
            assert len((await office.consumer().receive(visibility_ms=1000)).messages) == 4
            moved(office, 1)
        assert (await office.consumer().receive()).messages == []
        await until(office, dead=4)
        dead = [one async for one in queue(office).dlq(TOPIC)]
        assert {(one.reason, one.attempt, one.last_error) for one in dead} == {
            ("max-attempts", 2, "The lease expired.")
        }


async def test_I_4_nack_dead_goes_straight_to_the_dlq_and_only_that_message(office: MailboxFixture) -> None:
    await sent(office, 5)
    consumer = office.consumer()
    got = await consumer.receive()
    assert await consumer.nack(got.receipts(2, 3), dead=True, reason="no such account") == DONE
    assert await consumer.ack(got.receipts()) == DONE * 2 + GONE + DONE * 2
    (dead,) = [one async for one in queue(office).dlq(TOPIC)]
    assert (dead.msg_id, dead.reason, dead.last_error) == (
        got.messages[2].msg_id,
        "nack-dead",
        "no such account",
    )


async def test_I_16_G_6_dlq_is_durable_across_a_restart(tmp_path: Path) -> None:
    async with running_mailbox(tmp_path) as office:
        await sent(office, 3)
        consumer = office.consumer()
        await consumer.nack((await consumer.receive()).receipts(), dead=True, reason="poison")
        before = [one async for one in queue(office).dlq(TOPIC, payload=True)]
        await office.stop()
        await office.start()
        assert [one async for one in queue(office).dlq(TOPIC, payload=True)] == before
        assert len(before) == 3 and (await stats(office)).dead == 3


async def test_I_16_dlq_is_ephemeral_in_amnesia_and_says_so(tmp_path: Path) -> None:
    async with running_mailbox(tmp_path, settings=MailboxSettings(amnesia=True)) as office:
        await sent(office, 2)
        consumer = office.consumer()
        await consumer.nack((await consumer.receive()).receipts(), dead=True)
        numbers = await stats(office)
        assert (numbers.dead, numbers.dlq_profile) == (2, "ephemeral")
        await office.stop()
        await office.start()
        assert await queue(office).stats() == []


async def test_C_4_reprocessing_is_explicit_needs_a_preview_and_resets_the_attempts(tmp_path: Path) -> None:
    async with running_mailbox(tmp_path, settings=MailboxSettings(max_attempts=1)) as office:
        await sent(office, 6)
        consumer = office.consumer()
        await consumer.nack((await consumer.receive()).receipts(), reason="away")
        assert (await consumer.receive()).messages == []
        client = queue(office)
        seen = await client.preview_reprocess(TOPIC, dead_reason="max-attempts")
        assert seen.matched == 6 and [one.state for one in seen.samples] == [MessageState.DEAD] * 6
        assert (await stats(office)).dead == 6, "a preview changes nothing"
        assert await seen.apply() == 6
        again = await consumer.receive()
        assert [one.attempt for one in again.messages] == [1] * 6
        assert await consumer.ack(again.receipts()) == DONE * 6
        assert (await stats(office)).dead == 0


async def test_C_4_deleting_dead_messages_removes_them_and_nothing_else(office: MailboxFixture) -> None:
    await sent(office, 4)
    consumer = office.consumer()
    got = await consumer.receive()
    await consumer.nack(got.receipts(0, 2), dead=True)
    client = queue(office)
    assert await client.purge(TOPIC, [got.messages[0].msg_id]) == 1
    assert await (await client.preview_delete_dead(TOPIC)).apply() == 1
    assert [one async for one in client.dlq(TOPIC)] == []
    assert await consumer.ack(got.receipts(2)) == DONE * 2
    assert (await stats(office)).dead == 0


async def test_I_4_poison_does_not_hold_up_the_others(tmp_path: Path) -> None:
    async with running_mailbox(tmp_path, settings=MailboxSettings(max_attempts=3)) as office:
        await sent(office, 300)
        consumer = office.consumer()
        delivered: set[int] = set()
        poison = set(range(0, 300, 100))
        while len(delivered) < 297 or (await stats(office)).dead < 3:
            got = await consumer.receive()
            for index, message in enumerate(got.messages):
                one = got.receipts(index, index + 1)
                if message.msg_id % 1024 in poison:
                    assert await consumer.nack(one, reason="poison") == DONE
                else:
                    assert await consumer.ack(one) == DONE
                    delivered.add(message.msg_id)
        dead = [one async for one in queue(office).dlq(TOPIC)]
        assert {one.msg_id % 1024 for one in dead} == poison
        assert {(one.reason, one.last_error) for one in dead} == {("max-attempts", "poison")}


# -- back-off -------------------------------------------------------------------------------------------


async def test_P_7_nack_without_a_delay_comes_back_within_the_bound_and_not_at_once(tmp_path: Path) -> None:
    settings = MailboxSettings(backoff_base_ms=1000, backoff_max_ms=4000, max_attempts=100)
    async with running_mailbox(tmp_path, settings=settings) as office:
        await sent(office, 1)
        consumer = office.consumer()
        waits: list[float] = []
        for _ in range(12):
            got = await consumer.receive()
            assert await consumer.nack(got.receipts(), delay_ms=None) == DONE
            (shown,) = [one async for one in queue(office).messages(TOPIC)]
            now = office.clock.unix_ns()
            waits.append(max(0, shown.next_run_at_unix_ns - now) / 1e9)
            moved(office, waits[-1] + 0.001)
        assert all(0 <= wait <= 4 for wait in waits)
        assert waits[0] <= 2 and max(waits) > 0.1 and len(set(waits)) > 6, "full jitter"


# -- visibility -----------------------------------------------------------------------------------------


async def test_P_9_lease_cannot_be_extended_beyond_ten_times_its_visibility(office: MailboxFixture) -> None:
    await sent(office, 1)
    consumer = office.consumer()
    got = await consumer.receive(visibility_ms=1000)
    for _ in range(19):
        assert await consumer.extend(got.receipts(), visibility_ms=1000) == DONE
        moved(office, 0.5)
    assert await consumer.extend(got.receipts(), visibility_ms=1000) == DONE
    moved(office, 0.5)
    assert await consumer.extend(got.receipts(), visibility_ms=1000) == LATE
    assert [one.attempt for one in (await consumer.receive()).messages] == [2]


async def test_unseen_messages_that_are_given_back_count_no_attempt(office: MailboxFixture) -> None:
    await sent(office, 2)
    consumer = office.consumer()
    for _ in range(15):
        got = await consumer.receive()
        assert [one.attempt for one in got.messages] == [1, 1]
        assert await consumer.nack(got.receipts(), unseen=True) == DONE * 2
    with pytest.raises(BadRequest):
        await consumer.nack(got.receipts(), unseen=True, dead=True)


# -- retention ------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("quick")
async def test_P_9_ready_message_that_nobody_takes_expires_into_the_dlq(tmp_path: Path) -> None:
    settings = MailboxSettings(retention_ready_s=100, window_batches=16)
    async with running_mailbox(tmp_path, settings=settings) as office:
        for seq in range(1, 41):
            await sent(office, 2, seq=seq)
        held = await office.consumer().receive(max_messages=2, visibility_ms=1_000_000)
        moved(office, 5)
        await looked(office)
        moved(office, 58)
        await sent(office, 1, seq=99, mark="young")
        moved(office, 45)
        await until(office, dead=78, ready=1)
        dead = [one async for one in queue(office).dlq(TOPIC)]
        assert {(one.reason, one.attempt) for one in dead} == {("expired", 0)}
        assert await office.consumer().ack(held.receipts()) == DONE * 2
        assert (await office.consumer().receive()).marks == ["young0"]


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("way", ["reprocess", "resume", "delivered"])
async def test_P_9_message_that_comes_back_waits_as_long_as_a_new_one(
    tmp_path: Path, way: str, restarts: bool
) -> None:
    settings = MailboxSettings(retention_ready_s=100, retention_dlq_s=1000, retention_delivered_s=1000)
    async with running_mailbox(tmp_path, settings=settings) as office:
        await sent(office, 2)
        consumer, client = office.consumer(), queue(office)
        got = await consumer.receive()
        ids = [message.msg_id for message in got.messages]
        if way == "reprocess":
            await consumer.nack(got.receipts(), dead=True, reason="bad")
        elif way == "resume":
            await client.cancel(TOPIC, ids)
        else:
            await consumer.ack(got.receipts())
        moved(office, 5)
        await looked(office)
        moved(office, 150)
        await looked(office)
        revive = client.resume if way == "resume" else client.requeue
        assert await revive(TOPIC, ids) == 2
        moved(office, 90)
        await looked(office)
        if restarts:
            await office.stop()
            await office.start()
            await looked(office)
        numbers = await stats(office)
        assert (numbers.ready, numbers.dead) == (2, 0)
        moved(office, 20)
        await until(office, ready=0, dead=2)


@pytest.mark.usefixtures("quick")
async def test_I_17_clock_that_jumps_between_two_lives_expires_nothing_early(tmp_path: Path) -> None:
    settings = MailboxSettings(retention_ready_s=600, retention_dlq_s=600)
    async with running_mailbox(tmp_path, settings=settings) as office:
        await sent(office, 2)
        consumer = office.consumer()
        await consumer.nack((await consumer.receive(max_messages=1)).receipts(), dead=True)
        moved(office, 5)
        await looked(office)
        moved(office, 300)
        await looked(office)
        await office.stop()
        assert isinstance(office.clock, ManualClock)
        office.clock = office.mint.clock = ManualClock(office.clock.unix_ns() + 2000 * 10**9)
        await office.start()
        for seconds in (0, 250):
            moved(office, seconds)
            await looked(office)
            numbers = await stats(office)
            assert (numbers.ready, numbers.dead) == (1, 1), "time that only the wall clock saw does not count"
        moved(office, 200)
        await until(office, ready=0, dead=1)


@pytest.mark.usefixtures("quick")
async def test_P_9_delivered_messages_are_retained_for_their_time_and_can_be_requeued(tmp_path: Path) -> None:
    settings = MailboxSettings(retention_delivered_s=100)
    async with running_mailbox(tmp_path, settings=settings) as office:
        await sent(office, 4)
        consumer = office.consumer()
        got = await consumer.receive()
        await consumer.ack(got.receipts())
        client = queue(office)
        shown = [one async for one in client.messages(TOPIC, MessageState.DELIVERED, payload=True)]
        assert [one.msg_id for one in shown] == [one.msg_id for one in got.messages]
        assert await client.requeue(TOPIC, [shown[1].msg_id]) == 1
        again = await consumer.receive()
        assert again.marks == ["x1"] and (again.messages[0].msg_id, again.messages[0].attempt) == (
            shown[1].msg_id,
            1,
        )
        await consumer.ack(again.receipts())
        assert (await stats(office)).delivered == 4
        moved(office, 99)
        await looked(office)
        assert (await stats(office)).delivered == 4
        moved(office, 2)
        await until(office, delivered=0)
        with suppress(NotFound):  # a topic that holds nothing may be let go
            assert [one async for one in client.messages(TOPIC)] == []


@pytest.mark.usefixtures("quick")
async def test_P_9_delivered_messages_are_bounded_in_number(tmp_path: Path) -> None:
    settings = MailboxSettings(retention_delivered_s=1000, retention_delivered_messages=6)
    async with running_mailbox(tmp_path, settings=settings) as office:
        consumer = office.consumer()
        for seq in range(1, 8):
            await sent(office, 2, seq=seq, mark=f"{seq}-")
            await consumer.ack((await consumer.receive()).receipts())
        await until(office, delivered=6)
        kept = [one async for one in queue(office).messages(TOPIC, MessageState.DELIVERED, payload=True)]
        assert {one.payload[:1] for one in kept} == {b"5", b"6", b"7"}


@pytest.mark.usefixtures("quick")
async def test_P_9_dlq_is_pruned_by_age_and_by_depth_and_never_in_silence(tmp_path: Path) -> None:
    settings = MailboxSettings(retention_dlq_s=100, retention_dlq_messages=5)
    async with running_mailbox(tmp_path, settings=settings) as office:
        await sent(office, 8)
        consumer = office.consumer()
        got = await consumer.receive()
        await consumer.nack(got.receipts(), dead=True, reason="poison")
        await until(office, dead=5)
        kept = [one.msg_id % 1024 async for one in queue(office).dlq(TOPIC)]
        assert kept == [3, 4, 5, 6, 7], "the oldest go first"
        moved(office, 101)
        await until(office, dead=0)
        assert office.app is not None
        told = office.app.parts.events.after(0, limit=10)
        assert [one.event.fields() for one in told] == [
            {"topic": TOPIC, "state": "dead", "cause": "depth", "messages": 3},
            {"topic": TOPIC, "state": "dead", "cause": "age", "messages": 5},
        ]


@pytest.mark.usefixtures("quick")
async def test_I_5_one_straggler_does_not_pin_its_whole_batch(tmp_path: Path) -> None:
    async with running_mailbox(tmp_path, settings=MailboxSettings(cached_bytes=0)) as office:
        sender, consumer = await office.sender(), office.consumer()
        await sender.send(send_batch(1, (TOPIC, commands(500, size=400))))
        got = await consumer.receive()
        await consumer.nack(got.receipts(7, 8), delay_ms=1000)
        await consumer.nack(got.receipts(8, 9), dead=True)
        assert (await consumer.ack(got.receipts())).count(DONE) == 498

        def stored() -> Any:
            database = apsw.Connection(str(tmp_path / "mailbox" / "mailbox.db"))
            ((size,),) = database.execute("SELECT sum(size) FROM batches").fetchall()
            database.close()
            return size

        async with asyncio.timeout(SECONDS):
            while stored() > 16_000:
                await asyncio.sleep(0.01)
        moved(office, 1)
        again = await consumer.receive()
        assert again.marks == ["x7"] and again.messages[0].id == got.messages[7].id
        (dead,) = [one async for one in queue(office).dlq(TOPIC, payload=True)]
        assert dead.payload.startswith(b"x8") and not dead.unreadable
        await consumer.ack(again.receipts())
        await office.stop()
        await office.start()
        (dead,) = [one async for one in queue(office).dlq(TOPIC, payload=True)]
        assert dead.payload.startswith(b"x8")


# -- looking and changing -------------------------------------------------------------------------------


async def test_peek_shows_the_oldest_and_leases_none(office: MailboxFixture) -> None:
    await sent(office, 30)
    shown = await queue(office).peek(TOPIC, limit=3)
    assert [one.payload[:2] for one in shown] == [b"x0", b"x1", b"x2"]
    assert {one.state for one in shown} == {MessageState.READY}
    got = await office.consumer().receive()
    assert len(got.messages) == 30 and {one.attempt for one in got.messages} == {1}


async def test_list_goes_by_state_content_and_time_and_in_pages(office: MailboxFixture) -> None:
    for seq in range(1, 6):
        await sent(office, 50, seq=seq, source="acme/shop" if seq % 2 else "acme/web")
        moved(office, 10)
    consumer = office.consumer()
    got = await consumer.receive(max_messages=60)
    await consumer.nack(got.receipts(0, 5), dead=True, reason="bad")
    client = queue(office)
    assert len([one async for one in client.messages(TOPIC)]) == 250
    assert len([one async for one in client.messages(TOPIC, MessageState.INFLIGHT)]) == 55
    assert len([one async for one in client.messages(TOPIC, MessageState.READY, source="acme/web")]) == 90
    assert len([one async for one in client.messages(TOPIC, MessageState.DEAD, dead_reason="nack-dead")]) == 5
    assert [one async for one in client.messages(TOPIC, name="no-such")] == []
    one = (await client.peek(TOPIC, limit=1))[0]
    found = [two.msg_id async for two in client.messages(TOPIC, command_id=one.command_id)]
    assert found == [one.msg_id]
    early = [two async for two in client.messages(TOPIC, stored_before_unix_ns=one.stored_unix_ns)]
    assert len(early) == 50
    ids: list[int] = []
    after = 0
    while True:
        page, after = await client.page(TOPIC, after=after, limit=7)
        ids += [two.msg_id for two in page]
        if not after:
            break
    assert ids == sorted(set(ids)) and len(ids) == 250


async def test_list_shows_attributes_and_goes_by_them(office: MailboxFixture) -> None:
    own = "acme/own/mail"
    messages = [
        mail.NewMessage(
            payload=b"p", idem_key=f"k{n}", attrs={"kind": "odd" if n % 2 else "even", "n": str(n)}
        )
        for n in range(6)
    ]
    await office.consumer().channel.call(
        SERVICE + "Send", mail.SendRequest(topic=own, message=messages), mail.SendResponse, timeout_s=SECONDS
    )
    client = queue(office)
    shown = [one async for one in client.messages(own, attribute={"kind": "odd"})]
    assert [(one.idem_key, one.attributes["n"]) for one in shown] == [("k1", "1"), ("k3", "3"), ("k5", "5")]
    seen = await client.preview_cancel(own, attribute={"kind": "odd", "n": "3"})
    assert seen.matched == 1 and await seen.apply() == 1
    assert len((await office.consumer().receive(own)).messages) == 5


async def test_cancel_ends_leases_and_resume_goes_on_where_it_was(office: MailboxFixture) -> None:
    await sent(office, 4)
    consumer = office.consumer()
    got = await consumer.receive(max_messages=2)
    await consumer.nack(got.receipts(1, 2))
    client = queue(office)
    ids = [one.msg_id async for one in client.messages(TOPIC)]
    assert await client.cancel(TOPIC, ids, reason="wrong month") == 4
    assert await consumer.ack(got.receipts(0, 1)) == GONE
    assert (await consumer.receive()).messages == []
    shown = [one async for one in client.messages(TOPIC, MessageState.CANCELED)]
    assert {one.reason for one in shown} == {"wrong month"}
    await office.stop()
    await office.start()
    client, consumer = queue(office), office.consumer()
    assert (await stats(office)).canceled == 4
    assert await (await client.preview_resume(TOPIC)).apply() == 4
    again = await consumer.receive()
    assert [one.attempt for one in again.messages] == [2, 2, 1, 1]
    assert await consumer.ack(again.receipts()) == DONE * 4


async def test_change_by_filter_needs_the_token_of_its_own_preview(office: MailboxFixture) -> None:
    await sent(office, 4)
    client = queue(office)
    seen = await client.preview_cancel(TOPIC, MessageState.READY)
    other = await client.preview_cancel(TOPIC, MessageState.READY, source="acme/shop")
    for token, error in ((b"", BadRequest), (b"x" * 56, Conflict), (other._request.token, Conflict)):
        forged = type(seen._request)()
        forged.CopyFrom(seen._request)
        forged.token = token
        with pytest.raises(error):
            await client.change(forged)
    moved(office, 601)
    with pytest.raises(Conflict) as refused:
        await seen.apply()
    assert refused.value.reason == "preview-outdated"
    assert (await stats(office)).ready == 4


async def test_change_by_filter_touches_nothing_that_came_after_its_preview(office: MailboxFixture) -> None:
    await sent(office, 3)
    client = queue(office)
    seen = await client.preview_purge(TOPIC, MessageState.READY)
    await sent(office, 2, seq=2, mark="new")
    assert seen.matched == 3 and await seen.apply() == 3
    assert (await office.consumer().receive()).marks == ["new0", "new1"]


async def test_change_by_filter_is_refused_when_more_match_than_were_shown(office: MailboxFixture) -> None:
    await sent(office, 4)
    consumer = office.consumer()
    got = await consumer.receive()
    await consumer.nack(got.receipts(0, 1), dead=True)
    seen = await queue(office).preview_delete_dead(TOPIC)
    await consumer.nack(got.receipts(1, 2), dead=True)
    with pytest.raises(Conflict):
        await seen.apply()
    assert (await stats(office)).dead == 2


async def test_purge_by_filter_must_name_what(office: MailboxFixture) -> None:
    await sent(office, 1)
    with pytest.raises(BadRequest) as refused:
        await queue(office).preview_purge(TOPIC)
    assert refused.value.reason == "purge-all"


async def test_I_5_messages_are_not_brought_back_into_a_full_topic(tmp_path: Path) -> None:
    async with running_mailbox(tmp_path, settings=MailboxSettings(max_topic_messages=4)) as office:
        await sent(office, 4)
        consumer = office.consumer()
        await consumer.nack((await consumer.receive()).receipts(), dead=True)
        await sent(office, 3, seq=2)
        with pytest.raises(Saturated):
            await (await queue(office).preview_reprocess(TOPIC)).apply()
        assert (await stats(office)).dead == 4, "dead messages do not count against the capacity"
        await consumer.ack((await consumer.receive()).receipts())
        assert await (await queue(office).preview_reprocess(TOPIC)).apply() == 4


async def test_management_is_for_the_owner_and_for_operators(office: MailboxFixture) -> None:
    await sent(office, 2)
    ids = [one.msg_id async for one in queue(office).messages(TOPIC)]
    own = QueueClient.over(office.channel(office.authority.principal("acme", "ada")))
    assert len(await own.peek(TOPIC)) == 2
    assert await own.cancel(TOPIC, ids[:1]) == 1
    thief = QueueClient.over(office.channel(office.authority.principal("evil", "eve")))
    for ask in (thief.peek(TOPIC), thief.page(TOPIC), thief.purge(TOPIC, ids), thief.stats(TOPIC)):
        with pytest.raises(NotAllowed):
            await ask
    worker = QueueClient.over(office.consumer().channel)
    assert len(await worker.peek(TOPIC)) == 1
    with pytest.raises(NotAllowed):
        await worker.purge(TOPIC, ids)
    with pytest.raises(NotFound):
        await queue(office).peek("acme/none")


async def test_I_12_damaged_message_is_listed_as_unreadable_with_its_reason(tmp_path: Path) -> None:
    async with running_mailbox(tmp_path) as office:
        await sent(office, 100)
        await office.stop()
        with (tmp_path / "mailbox" / "payload-1.seg").open("r+b") as segment:
            segment.seek(2000)
            segment.write(b"\xff\xff")
        await office.start()
        got = await office.consumer().receive()
        assert 0 < len(got.messages) < 100 or not got.messages
        await until(office, dead=100 - len(got.messages))
        dead = [one async for one in queue(office).dlq(TOPIC)]
        assert dead and {one.reason for one in dead} == {"integrity"}
        assert all(one.unreadable and one.last_error.startswith("E_INTEGRITY") for one in dead)


async def test_the_example_in_the_docs_reprocesses_what_is_dead(tmp_path: Path) -> None:
    async with running_mailbox(tmp_path, settings=MailboxSettings(max_attempts=1)) as office:
        await sent(office, 3)
        consumer = office.consumer()
        await consumer.nack((await consumer.receive()).receipts(), reason="away")
        folder = office.authority.principal("acme", "ada").certificate.parent
        assert await example("reprocess").names()["reprocess"](office.address, folder, TOPIC) == 3
        assert len((await consumer.receive()).messages) == 3


async def test_the_newest_come_first_where_they_are_asked_for_so(office: MailboxFixture) -> None:
    own = "acme/own/mail"
    mailer = Mailer.over(office.consumer().channel, own)
    for part in range(5):
        await mailer.send_all([Message(b"%d-%d" % (part, n), f"k{part}-{n}") for n in range(4)])
    client = queue(office)
    forward = [one.msg_id async for one in client.messages(own)]
    ids: list[int] = []
    after = 0
    while True:
        page, after = await client.page(own, after=after, limit=3, newest_first=True)
        ids += [one.msg_id for one in page]
        if not after:
            break
    assert ids == forward[::-1] and len(ids) == 20
    (found,) = [one async for one in client.messages(own, newest_first=True, idem_key="k3-1", payload=True)]
    assert found.payload == b"3-1"
    consumer = office.consumer()
    got = await consumer.receive(own, max_messages=2)
    await consumer.ack(got.receipts(0, 1), topic=own)
    both = (MessageState.READY, MessageState.INFLIGHT)
    assert [one.msg_id async for one in client.messages(own, *both, newest_first=True)] == forward[:0:-1]


async def test_numbers_say_how_long_the_oldest_has_waited(office: MailboxFixture) -> None:
    own = "acme/own/mail"
    mailer, client = Mailer.over(office.consumer().channel, own), queue(office)
    began = office.clock.unix_ns()
    await mailer.send(Message(b"late", delay_ms=60_000))
    (stats,) = await client.stats(own)
    assert (stats.oldest_ready_unix_ns, stats.earliest_run_unix_ns) == (0, began + 60 * S)
    moved(office, 10)
    await mailer.send(Message(b"now"))
    (stats,) = await client.stats(own)
    assert stats.oldest_ready_unix_ns == stats.earliest_run_unix_ns == began + 10 * S
    consumer = office.consumer()
    await consumer.ack((await consumer.receive(own)).receipts(), topic=own)
    moved(office, 51)
    async with asyncio.timeout(SECONDS):
        while not (stats := (await client.stats(own))[0]).oldest_ready_unix_ns:
            await asyncio.sleep(0.02)
    assert (stats.oldest_ready_unix_ns, stats.earliest_run_unix_ns) == (began, began + 60 * S)


async def test_what_is_added_to_a_lease_ends_it_no_later_than_its_longest(office: MailboxFixture) -> None:
    await sent(office, 1)
    consumer = office.consumer()
    got = await consumer.receive(visibility_ms=1000)

    async def added(visibility_ms: int) -> bytes:
        asked = mail.ExtendRequest(
            topic=TOPIC, receipts=got.receipts(), visibility_ms=visibility_ms, add=True
        )
        answer = await consumer.channel.call(
            SERVICE + "Extend", asked, mail.SettleResponse, timeout_s=SECONDS
        )
        codes: bytes = answer.codes
        return codes

    moved(office, 0.5)
    assert await added(2000) == DONE
    moved(office, 2.4)
    assert await added(60_000) == DONE, "it ended at 3 s, not at 2.5 s"
    moved(office, 7.0)
    assert await added(1000) == DONE, "at 9.9 s"
    moved(office, 0.2)
    assert await consumer.ack(got.receipts()) == LATE, "ten times what was asked for at first"
