"""SEND as tenants use it, over the wire: ids, duplicates, attributes, delays, shards, and who may send where."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from services.mailbox.settings import MailboxSettings
from snavio.clock import ManualClock
from snavio.domain.verdict import Verdict
from snavio.errors import BadRequest, Code, Conflict, NotAllowed, Saturated, SnavioError
from snavio.native import blake3_hex
from snavio.sdk.envelope import envelope_of
from snavio.sdk.mailer import Mailer
from snavio.sdk.mailer import NewMessage as MessageToSend
from snavio.v1 import mailbox_pb2 as mail
from snavio.v1.mailbox_pb2 import NewMessage, SendRequest, SendResponse
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

OWN = "acme/own/mail"
NEW, DUPLICATE, CONFLICT = (bytes([one]) for one in (Verdict.DELIVERED, Verdict.DUPLICATE, Verdict.CONFLICT))


@pytest.fixture
async def office(tmp_path: Path) -> AsyncIterator[MailboxFixture]:
    async with running_mailbox(tmp_path) as one:
        yield one


async def send(peer: ReceivingPeer, *messages: NewMessage, topic: str = OWN) -> Any:
    request = SendRequest(topic=topic, message=messages)
    return await peer.channel.call(SERVICE + "Send", request, SendResponse, timeout_s=SECONDS)


def moved(office: MailboxFixture, seconds: float) -> None:
    assert isinstance(office.clock, ManualClock)
    office.clock.advance(seconds=seconds)


async def test_C_1_sent_messages_are_received_under_the_ids_that_send_told(office: MailboxFixture) -> None:
    peer = office.consumer()
    told = await send(peer, *(NewMessage(payload=f"p{n}".encode(), attrs={"n": str(n)}) for n in range(3)))
    assert told.codes == NEW * 3
    got = await peer.receive(OWN)
    assert [message.msg_id for message in got.messages] == list(told.msg_id)
    assert [(message.payload, message.attrs) for message in got.messages] == [
        (f"p{n}".encode(), (("n", str(n)),)) for n in range(3)
    ]
    assert {message.source for message in got.messages} == {"acme/worker"}
    assert await peer.ack(got.receipts(), topic=OWN) == b"\x01" * 3


async def test_I_2_repeated_key_returns_the_first_id_and_says_duplicate(office: MailboxFixture) -> None:
    peer, other = office.consumer(), office.consumer(name="second")
    first = await send(peer, NewMessage(payload=b"x", idem_key="k"))
    for sender in (peer, other, peer):
        again = await send(sender, NewMessage(payload=b"x", idem_key="k", attrs={"try": "2"}))
        assert (again.codes, list(again.msg_id)) == (DUPLICATE, list(first.msg_id))
    with pytest.raises(Conflict) as caught:
        await send(peer, NewMessage(payload=b"other", idem_key="k"))
    assert (caught.value.reason, caught.value.code) == ("duplicate", Code.E_DUPLICATE)
    several = await send(
        peer,
        NewMessage(payload=b"y", idem_key="k2"),
        NewMessage(payload=b"other", idem_key="k"),
        NewMessage(payload=b"y", idem_key="k2"),
        NewMessage(payload=b"no key"),
        NewMessage(payload=b"x", idem_key="k"),
    )
    assert several.codes == NEW + CONFLICT + DUPLICATE + NEW + DUPLICATE
    ids = list(several.msg_id)
    assert ids[0] == ids[2] != 0 and ids[1] == 0 and ids[4] == first.msg_id[0]
    assert len((await peer.receive(OWN)).messages) == 3


async def test_G_8_window_is_the_topics_own(tmp_path: Path) -> None:
    settings = MailboxSettings(topic_rules=f"{OWN} replay_ms=10000")
    async with running_mailbox(tmp_path, settings=settings) as office:
        peer = office.consumer()
        for topic in (OWN, "acme/own/other"):
            assert (await send(peer, NewMessage(payload=b"x", idem_key="k"), topic=topic)).codes == NEW
        moved(office, 10)
        assert (await send(peer, NewMessage(payload=b"x", idem_key="k"))).codes == DUPLICATE
        moved(office, 1)
        assert (await send(peer, NewMessage(payload=b"x", idem_key="k"))).codes == NEW
        other = await send(peer, NewMessage(payload=b"x", idem_key="k"), topic="acme/own/other")
        assert other.codes == DUPLICATE


async def test_C_9_envelope_is_the_same_at_every_delivery_and_after_a_restart(tmp_path: Path) -> None:
    async with running_mailbox(tmp_path) as office:
        peer = office.consumer()
        message = NewMessage(
            payload=b"hello", idem_key="k1", attrs={"b": "2", "a": "1"}, content_type="text/plain"
        )
        await send(peer, message)
        seen = []
        for _ in range(2):
            got = await peer.receive(OWN, visibility_ms=1000)
            (received,) = got.messages
            seen.append(envelope_of(OWN, received))
            assert seen[-1].attempt == len(seen)
            moved(office, 2)
        await office.stop()
        await office.start()
        again = envelope_of(OWN, (await office.consumer().receive(OWN)).messages[0])
        assert replace(seen[0], attempt=2) == seen[1]
        assert replace(again, attempt=2) == seen[1]
        assert again.payload_hash == "b3:" + blake3_hex(b"hello") and len(again.hash_chain) == 67
        assert again.attrs == (
            ("a", "1"),
            ("b", "2"),
            ("content-type", "text/plain"),
            ("snavio.source", "acme/worker"),
        )
        assert again.corr_id[14] == "7" and again.idem_key == "k1" and again.topic == OWN


async def test_C_9_command_has_an_envelope_too(office: MailboxFixture) -> None:
    sender, peer = await office.sender(), office.consumer()
    await sender.send(send_batch(1, (TOPIC, commands(2))))
    first, second = (envelope_of(TOPIC, message) for message in (await peer.receive()).messages)
    assert first.idem_key.startswith("acme/shop#") and dict(first.attrs)["snavio.name"] == "charge"
    assert first.hash_chain != second.hash_chain and first.corr_id != second.corr_id


async def test_delayed_message_waits_and_others_do_not_wait_for_it(office: MailboxFixture) -> None:
    peer = office.consumer()
    await send(peer, NewMessage(payload=b"late", delay_ms=60_000), NewMessage(payload=b"now"))
    got = await peer.receive(OWN)
    assert [message.payload for message in got.messages] == [b"now"]
    await peer.ack(got.receipts(), topic=OWN)
    moved(office, 59)
    assert not (await peer.receive(OWN)).messages
    moved(office, 2)
    (late,) = (await peer.receive(OWN, wait_ms=2000)).messages
    assert (late.payload, late.attempt) == (b"late", 1)


async def test_delay_survives_a_restart(tmp_path: Path) -> None:
    async with running_mailbox(tmp_path) as office:
        await send(office.consumer(), NewMessage(payload=b"late", delay_ms=60_000))
        await office.stop()
        await office.start()
        peer = office.consumer()
        assert not (await peer.receive(OWN)).messages
        moved(office, 61)
        assert len((await peer.receive(OWN, wait_ms=2000)).messages) == 1


async def test_P_6_messages_of_one_key_share_a_shard_and_keep_their_order(tmp_path: Path) -> None:
    settings = MailboxSettings(topic_rules=f"{OWN} shards=8")
    async with running_mailbox(tmp_path, settings=settings) as office:
        peer = office.consumer()
        for batch in range(5):
            await send(
                peer,
                *(
                    NewMessage(payload=f"{key}:{batch}:{n}".encode(), partition_key=f"user-{key}")
                    for n in range(4)
                    for key in range(12)
                ),
            )
        got = (await peer.receive(OWN)).messages
        assert len(got) == 240
        shards: dict[bytes, set[int]] = {}
        order: dict[bytes, list[bytes]] = {}
        for message in got:
            key, _, rest = message.payload.partition(b":")
            shards.setdefault(key, set()).add(message.shard)
            order.setdefault(key, []).append(rest)
        assert all(len(one) == 1 for one in shards.values()) and len(set.union(*shards.values())) > 3
        expected = [f"{batch}:{n}".encode() for batch in range(5) for n in range(4)]
        assert all(one == expected for one in order.values())


async def test_I_5_capacity_is_per_shard_and_a_full_one_refuses_alone(tmp_path: Path) -> None:
    settings = MailboxSettings(topic_rules=f"{OWN} shards=2", max_topic_messages=10)
    async with running_mailbox(tmp_path, settings=settings) as office:
        peer = office.consumer()
        keys = ["a", "b", "c", "d", "e", "f"]
        told = {
            key: (await send(peer, NewMessage(payload=b"x", partition_key=key))).msg_id[0] for key in keys
        }
        shard = {m.msg_id: m.shard for m in (await peer.receive(OWN)).messages}
        first, second = (next(key for key in keys if shard[told[key]] == n) for n in (0, 1))
        with pytest.raises(Saturated) as caught:
            await send(peer, *(NewMessage(payload=b"x", partition_key=first) for _ in range(10)))
        assert caught.value.retry_after_ms > 0 and caught.value.code is Code.E_SATURATED
        await send(peer, *(NewMessage(payload=b"x", partition_key=second) for _ in range(3)))


@pytest.mark.parametrize(
    ("topic", "tenant", "kind"),
    [
        ("acme/billing", "acme", NotAllowed),
        ("acme/own/mail", "rival", NotAllowed),
        ("acme/own/", "acme", BadRequest),
        ("acme/own/Mail", "acme", BadRequest),
        ("acme/own/a/b", "acme", BadRequest),
        ("mail", "acme", BadRequest),
        ("", "acme", BadRequest),
    ],
)
async def test_topic_of_a_route_or_of_another_tenant_takes_nothing(
    office: MailboxFixture, topic: str, tenant: str, kind: type[SnavioError]
) -> None:
    with pytest.raises(kind):
        await send(office.consumer(tenant), NewMessage(payload=b"x"), topic=topic)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (NewMessage(payload=b"x", idem_key="a b"), "idem-key"),
        (NewMessage(payload=b"x", idem_key="k" * 129), "idem-key"),
        (NewMessage(payload=b"x", attrs={"snavio.source": "rival/x"}), "attrs"),
        (NewMessage(payload=b"x", attrs={"Upper": "x"}), "attrs"),
        (NewMessage(payload=b"x", attrs={f"a{n}": "" for n in range(33)}), "attrs"),
        (NewMessage(payload=b"x", delay_ms=1 << 31), "delay"),
        (NewMessage(payload=b"x", traceparent="zero"), "traceparent"),
        (NewMessage(payload=b"x", corr_id="0193a1b2-c3d4-4e5f-8a9b-0c1d2e3f4a5b"), "corr-id"),
        (NewMessage(payload=bytes(1_044_481)), "oversized"),
    ],
)
async def test_C_8_message_that_breaks_a_rule_is_refused_with_the_rule(
    office: MailboxFixture, message: NewMessage, reason: str
) -> None:
    with pytest.raises(BadRequest) as caught:
        await send(office.consumer(), NewMessage(payload=b"good"), message)
    assert caught.value.reason == reason
    assert not (await office.consumer().receive(OWN)).messages, "nothing of the request is stored"


async def test_G_4_large_frames_and_unknown_fields_are_refused(office: MailboxFixture) -> None:
    peer = office.consumer()
    request = SendRequest(topic=OWN, message=[NewMessage(payload=b"x")]).SerializeToString()
    for tail, reason in (
        (b"\x1a\x01x", "malformed"),
        (b"\x0a\x01x", "malformed"),
        (b"\x12\x02\x52\x00", "malformed"),
    ):
        with pytest.raises(BadRequest) as caught:
            await peer.channel.call_raw(SERVICE + "Send", request + tail, timeout_s=SECONDS)
        assert caught.value.reason == reason and caught.value.code is Code.E_SCHEMA
    large = SendRequest(topic=OWN, message=[NewMessage(payload=bytes(250 << 10)) for _ in range(5)])
    with pytest.raises(BadRequest) as caught:
        await peer.channel.call(SERVICE + "Send", large, SendResponse, timeout_s=SECONDS)
    assert caught.value.code is Code.E_FRAME_TOO_LARGE
    many = SendRequest(topic=OWN, message=[NewMessage()] * 1001)
    with pytest.raises(BadRequest):
        await peer.channel.call(SERVICE + "Send", many, SendResponse, timeout_s=SECONDS)


@pytest.mark.parametrize(
    ("method", "request_"),
    [
        ("Receive", mail.ReceiveRequest(topic=OWN, visibility_ms=1000)),
        ("Ack", mail.AckRequest(topic=OWN, receipts=mail.Receipts(boot_epoch=1, msg_id=[1], attempt=[1]))),
        ("Nack", mail.NackRequest(topic=OWN)),
        ("Extend", mail.ExtendRequest(topic=OWN, visibility_ms=1000)),
        ("Stats", mail.StatsRequest(topic=OWN)),
        ("Peek", mail.PeekRequest(topic=OWN)),
    ],
)
async def test_C_8_field_that_nobody_knows_is_refused_everywhere(
    office: MailboxFixture, method: str, request_: Any
) -> None:
    peer = office.consumer()
    await send(peer, NewMessage(payload=b"x"))
    good = request_.SerializeToString()
    with pytest.raises(BadRequest) as caught:
        await peer.channel.call_raw(SERVICE + method, good + b"\xf8\x3f\x01", timeout_s=SECONDS)
    assert caught.value.reason == "unknown-field"
    # Not because it is written in another order than ours.
    await peer.channel.call_raw(SERVICE + method, good + b"\x0a\x0d" + OWN.encode(), timeout_s=SECONDS)


async def test_mailer_sends_and_says_what_was_there_before(office: MailboxFixture) -> None:
    peer = office.consumer()
    mailer = Mailer.over(peer.channel, OWN)
    first = await mailer.send(MessageToSend(b"x", idem_key="k", attrs={"a": "b"}))
    again, other, fresh = await mailer.send_all(
        [MessageToSend(b"x", idem_key="k"), MessageToSend(b"y", idem_key="k"), MessageToSend(b"z")]
    )
    assert not first.duplicate and again.duplicate and again.msg_id == first.msg_id
    assert (other.verdict, other.msg_id) == (Verdict.CONFLICT, 0) and fresh.msg_id > first.msg_id
    with pytest.raises(Conflict):
        await mailer.send(MessageToSend(b"y", idem_key="k"))


async def test_G_2_many_copies_of_one_send_are_one_message(office: MailboxFixture) -> None:
    peer = office.consumer()
    told = [await send(peer, *[NewMessage(payload=b"x", idem_key="k")] * 50) for _ in range(4)]
    assert {msg_id for one in told for msg_id in one.msg_id} == {told[0].msg_id[0]}
    assert b"".join(one.codes for one in told) == NEW + DUPLICATE * 199
    assert len((await peer.receive(OWN)).messages) == 1
