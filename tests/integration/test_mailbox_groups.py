"""SENDALL over the wire: groups that are stored whole or not at all, keys that claim, windows of single keys."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from services.mailbox.settings import MailboxSettings
from snavio.clock import ManualClock
from snavio.domain.verdict import Verdict
from snavio.errors import BadRequest, Conflict, FrameTooLarge, NotAllowed, SnavioError
from snavio.sdk.group_mailer import GroupMailer, GroupOutcome, GroupPart, MessageGroup
from snavio.sdk.mailer import Mailer
from snavio.sdk.mailer import NewMessage as Message
from tests.support.mailbox import SECONDS, SERVICE, MailboxFixture, running_mailbox

A, B, C = "acme/own/a", "acme/own/b", "acme/own/c"
NEW, DUPLICATE, CONFLICT = Verdict.DELIVERED, Verdict.DUPLICATE, Verdict.CONFLICT


@pytest.fixture
async def office(tmp_path: Path) -> AsyncIterator[MailboxFixture]:
    async with running_mailbox(tmp_path) as one:
        yield one


def mailer_of(office: MailboxFixture, name: str = "edge") -> GroupMailer:
    return GroupMailer.over(office.consumer(name=name).channel)


def one(
    key: str, *topics: str, payload: bytes = b"x", refuse: bool = False, replay_ms: int = 0
) -> MessageGroup:
    return MessageGroup.of(topics, Message(payload, key, replay_ms=replay_ms), refuse_duplicates=refuse)


def verdicts(outcome: GroupOutcome) -> list[Verdict]:
    return [sent.verdict for sent in outcome.sent]


async def waiting(office: MailboxFixture, topic: str) -> list[bytes]:
    got = await office.consumer().receive(topic)
    return [message.payload for message in got.messages]


async def test_a_group_is_in_each_of_its_topics_under_the_ids_that_were_told(office: MailboxFixture) -> None:
    outcome = await mailer_of(office).send(
        MessageGroup(
            (
                GroupPart((A, B), (Message(b"1"), Message(b"2"))),
                GroupPart((C,), (Message(b"3", attrs={"n": "3"}),)),
            )
        )
    )
    assert outcome.stored and verdicts(outcome) == [NEW] * 5
    told: list[int] = []
    for topic in (A, B, C):
        told += [message.msg_id for message in (await office.consumer().receive(topic)).messages]
    assert told == [sent.msg_id for sent in outcome.sent]


async def test_a_conflict_in_one_topic_keeps_the_group_out_of_all(office: MailboxFixture) -> None:
    mailer = mailer_of(office)
    assert (await mailer.send(one("k", B, payload=b"first"))).stored
    refused = await mailer.send(one("k", A, B, C, payload=b"second"))
    assert (refused.stored, refused.reason) == (False, "conflict")
    assert verdicts(refused) == [Verdict.UNDECIDED, CONFLICT, Verdict.UNDECIDED]
    assert [sent.msg_id for sent in refused.sent] == [0, 0, 0]
    assert [await waiting(office, topic) for topic in (A, B, C)] == [[], [b"first"], []]
    assert (await mailer.send(one("k", A, C, payload=b"third"))).stored, "it left no key behind"


async def test_a_repeat_is_told_the_first_ids_and_a_new_topic_gets_it(office: MailboxFixture) -> None:
    mailer = mailer_of(office)
    first = await mailer.send(one("k", A))
    again = await mailer.send(one("k", A, B))
    assert again.stored and not again.duplicate
    assert verdicts(again) == [DUPLICATE, NEW]
    assert again.sent[0].msg_id == first.sent[0].msg_id
    assert (await mailer.send(one("k", A, B))).duplicate
    assert [await waiting(office, topic) for topic in (A, B)] == [[b"x"], [b"x"]]


async def test_a_key_that_claims_is_refused_the_second_and_the_third_time(office: MailboxFixture) -> None:
    mailer = mailer_of(office)
    first = await mailer.send(one("tag", A, B, refuse=True))
    assert first.stored
    for topics in ((A, B), (B, C)):
        replayed = await mailer.send(one("tag", *topics, refuse=True))
        assert (replayed.stored, replayed.reason) == (False, "duplicate")
    assert replayed.sent[0].msg_id == first.sent[1].msg_id
    assert await waiting(office, C) == []


async def test_a_claim_holds_over_a_restart_and_for_the_time_of_its_own(tmp_path: Path) -> None:
    async with running_mailbox(tmp_path) as office:
        mailer = mailer_of(office)
        assert (await mailer.send(one("short", A, refuse=True, replay_ms=2000))).stored
        assert (await mailer.send(one("long", A, refuse=True, replay_ms=7 * 86_400_000))).stored
    async with running_mailbox(tmp_path) as office:
        mailer = mailer_of(office)
        for key in ("short", "long"):
            assert not (await mailer.send(one(key, A, refuse=True, replay_ms=2000))).stored
        assert isinstance(office.clock, ManualClock)
        office.clock.advance(seconds=400)
        assert (await mailer.send(one("short", A, refuse=True, replay_ms=2000))).stored
        assert not (await mailer.send(one("long", A, refuse=True))).stored, "longer than the topic's window"


async def test_groups_of_one_call_do_not_share_their_fate(office: MailboxFixture) -> None:
    mailer = mailer_of(office)
    await mailer.send(one("old", B, payload=b"old"))
    groups = [
        one("k1", A, payload=b"1"),
        one("old", A, B, payload=b"other"),
        one("k1", A, B, payload=b"1"),
        one("bad key", A),
        MessageGroup.of((A, B), Message(b"5")),
        one("k6", A, payload=b"6", refuse=True),
    ]
    outcomes = await asyncio.gather(*map(mailer.send, groups))
    assert [outcome.reason for outcome in outcomes] == ["", "conflict", "", "idem-key", "", ""]
    assert verdicts(outcomes[2]) == [DUPLICATE, NEW]
    assert outcomes[2].sent[0].msg_id == outcomes[0].sent[0].msg_id
    assert sorted(await waiting(office, A)) == [b"1", b"5", b"6"]
    assert sorted(await waiting(office, B)) == [b"1", b"5", b"old"]


async def test_a_full_topic_refuses_its_groups_alone_and_what_it_refused_may_come_again(
    tmp_path: Path,
) -> None:
    settings = MailboxSettings(topic_rules=f"{B} capacity=2")
    async with running_mailbox(tmp_path, settings=settings) as office:
        mailer = mailer_of(office)
        groups = [one(f"k{n}", A, B, refuse=True) for n in range(4)] + [one("a", A, refuse=True)]
        outcomes = await asyncio.gather(*map(mailer.send, groups))
        assert [outcome.stored for outcome in outcomes] == [True, True, False, False, True]
        assert outcomes[2].retry_after_ms > 0
        assert verdicts(outcomes[2]) == [Verdict.SATURATED] * 2
        got = await office.consumer().receive(B)
        assert len(got.messages) == 2
        assert len(await waiting(office, A)) == 3
        await office.consumer().ack(got.receipts(), topic=B)
        again = await asyncio.gather(*map(mailer.send, groups[2:4]))
        assert all(outcome.stored for outcome in again), "what was refused for want of room claimed nothing"


async def test_content_is_compared_in_place_of_the_payload(office: MailboxFixture) -> None:
    channel = office.consumer(name="edge").channel
    mailer = Mailer.over(channel, A)
    first = await mailer.send(Message(b"at 10:00", "delivery", idem_content=b"body"))
    again = await mailer.send(Message(b"at 10:05", "delivery", idem_content=b"body"))
    assert again.duplicate and again.msg_id == first.msg_id
    with pytest.raises(Conflict):
        await mailer.send(Message(b"at 10:00", "delivery", idem_content=b"another"))
    with pytest.raises(Conflict):
        await mailer.send(Message(b"body", "delivery"))


async def test_a_megabyte_arrives_whole(office: MailboxFixture) -> None:
    payload = random.Random(1).randbytes(1_040_000)
    outcome = await mailer_of(office).send(MessageGroup.of((A,), Message(payload, "large")))
    assert outcome.stored
    assert await waiting(office, A) == [payload]
    with pytest.raises(FrameTooLarge):
        await mailer_of(office).send(MessageGroup.of((A,), Message(bytes(1 << 20))))


async def test_topics_of_others_and_of_routes_are_nobodys_to_send_to(office: MailboxFixture) -> None:
    mailer = mailer_of(office)
    for topic, reason in (("zeta/own/a", "not-owner"), ("acme/billing", "route-topic")):
        with pytest.raises(NotAllowed) as refused:
            await mailer.send(one("k", A, topic))
        assert refused.value.reason == reason
    with pytest.raises(BadRequest):
        await office.consumer(name="edge").channel.call_raw(SERVICE + "SendAll", b"\xff", timeout_s=SECONDS)
    assert (await mailer.send(one("k", A))).stored


@dataclass
class Twin:
    """The messages that should be stored, by the plainest rules."""

    stored: dict[str, list[bytes]] = field(default_factory=dict)
    keys: dict[tuple[str, str], bytes] = field(default_factory=dict)

    def send(self, group: MessageGroup) -> bool:
        keys, added = dict(self.keys), []
        for part in group.parts:
            for topic in part.topics:
                for message in part.messages:
                    held = keys.get((topic, message.idem_key)) if message.idem_key else None
                    if held is not None and (held != message.payload or group.refuse_duplicates):
                        return False
                    if held is None:
                        added.append((topic, message.payload))
                        if message.idem_key:
                            keys[topic, message.idem_key] = message.payload
        self.keys = keys
        for topic, payload in added:
            self.stored.setdefault(topic, []).append(payload)
        return True


async def test_groups_agree_with_a_twin_that_takes_them_one_by_one(office: MailboxFixture) -> None:
    dice, twin, mailer = random.Random(13), Twin(), mailer_of(office)
    seen = {True: 0, False: 0}
    for turn in range(40):
        names = ["", *(f"{turn // 5}{letter}" for letter in "abcdefghijklmnopqrst")]
        groups = []
        for _ in range(dice.randint(1, 8)):
            parts = tuple(
                GroupPart(
                    tuple(dice.sample((A, B, C), dice.randint(1, 3))),
                    tuple(
                        Message(b"%d" % dice.randrange(3), dice.choice(names))
                        for _ in range(dice.randint(1, 3))
                    ),
                )
                for _ in range(dice.randint(1, 2))
            )
            groups.append(MessageGroup(parts, refuse_duplicates=dice.random() < 0.4))
        outcomes = await asyncio.gather(*map(mailer.send, groups))
        for group, outcome in zip(groups, outcomes, strict=True):
            assert outcome.stored is twin.send(group)
            seen[outcome.stored] += 1
    assert min(seen.values()) > 20, seen
    for topic, payloads in twin.stored.items():
        assert await waiting(office, topic) == payloads


async def test_what_is_sent_while_the_mailer_closes_is_answered(office: MailboxFixture) -> None:
    mailer = mailer_of(office)
    sends = [asyncio.create_task(mailer.send(one(f"k{n}", A))) for n in range(50)]
    await asyncio.sleep(0)
    await mailer.close()
    assert all([(await send).stored for send in sends])
    with pytest.raises(SnavioError):
        await mailer.send(one("late", A))
