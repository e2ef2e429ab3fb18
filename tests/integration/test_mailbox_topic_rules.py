"""Rules that a tenant writes for its own topics, when they hold, and a topic that buries its oldest."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from services.mailbox.retention.topic_rules import FILE, TopicRules
from services.mailbox.settings import MailboxSettings
from services.mailbox.state.policy import Policies, Policy, topic_rules
from snavio.admin.queue import QueueClient
from snavio.clock import ManualClock
from snavio.domain.directory import TopicRule, WhenFull
from snavio.domain.message import DeadReason
from snavio.domain.verdict import Verdict
from snavio.errors import BadRequest, Saturated
from snavio.replication.directory_wire import value_to_wire
from snavio.sdk.mailer import Mailer
from snavio.sdk.mailer import NewMessage as Message
from snavio.v1.registry_pb2 import Change
from tests.support.mailbox import TOPIC, MailboxFixture, commands, running_mailbox, send_batch

OWN = "acme/own/mail"
BURY = f"{OWN} capacity=5 when_full=bury-oldest; {TOPIC} capacity=5 when_full=bury-oldest"


def mailer_of(office: MailboxFixture) -> Mailer:
    return Mailer.over(office.consumer(name="edge").channel, OWN)


def queue_of(office: MailboxFixture) -> QueueClient:
    return QueueClient.over(office.operator().channel)


async def dead(office: MailboxFixture, topic: str = OWN) -> list[tuple[bytes, str]]:
    queue = queue_of(office)
    return [(one.payload, one.reason) async for one in queue.dlq(topic, payload=True)]


async def test_the_oldest_goes_to_the_dlq_when_a_new_one_finds_its_topic_full(tmp_path: Path) -> None:
    async with running_mailbox(tmp_path, settings=MailboxSettings(topic_rules=BURY)) as office:
        mailer = mailer_of(office)
        for number in range(9):
            assert (await mailer.send(Message(b"%d" % number))).verdict is Verdict.DELIVERED
        assert await dead(office) == [(b"%d" % number, DeadReason.OVERFLOW) for number in range(4)]
        got = await office.consumer().receive(OWN)
        assert [one.payload for one in got.messages] == [b"%d" % number for number in range(4, 9)]
        (stats,) = await queue_of(office).stats(OWN)
        assert (stats.capacity, stats.when_full, stats.died) == (5, "bury-oldest", {DeadReason.OVERFLOW: 4})
        with pytest.raises(Saturated):
            await mailer.send(Message(b"what is leased is not buried"))
        await office.consumer().ack(got.receipts(0, 1), topic=OWN)
        await mailer.send(Message(b"9"))


async def test_commands_bury_as_well(tmp_path: Path) -> None:
    async with running_mailbox(tmp_path, settings=MailboxSettings(topic_rules=BURY)) as office:
        sender = await office.sender()
        for seq, count in ((1, 3), (2, 2), (3, 4)):
            codes = await sender.send(send_batch(seq, (TOPIC, commands(count, mark=f"{seq}-"))))
            assert set(codes) == {Verdict.DELIVERED}
        got = await office.consumer().receive()
        assert got.marks == ["2-1", "3-0", "3-1", "3-2", "3-3"]
        (stats,) = await queue_of(office).stats(TOPIC)
        assert stats.died == {DeadReason.OVERFLOW: 4}


async def test_a_duplicate_buries_nothing(tmp_path: Path) -> None:
    async with running_mailbox(tmp_path, settings=MailboxSettings(topic_rules=BURY)) as office:
        mailer = mailer_of(office)
        for number in range(5):
            await mailer.send(Message(b"%d" % number, f"k{number}"))
        for _ in range(3):
            assert (await mailer.send(Message(b"3", "k3"))).duplicate
        assert await dead(office) == []
        (stats,) = await queue_of(office).stats(OWN)
        assert (stats.ready, stats.inflight, stats.dead) == (5, 0, 0)


async def test_after_a_restart_the_oldest_on_disk_are_the_first_to_go(tmp_path: Path) -> None:
    async with running_mailbox(tmp_path, settings=MailboxSettings(topic_rules=BURY)) as office:
        for number in range(5):
            await mailer_of(office).send(Message(b"%d" % number))
    async with running_mailbox(tmp_path, settings=MailboxSettings(topic_rules=BURY)) as office:
        await mailer_of(office).send(Message(b"5"))
        assert await dead(office) == [(b"0", DeadReason.OVERFLOW)]


async def test_a_lowered_capacity_buries_what_is_too_much_by_and_by(tmp_path: Path) -> None:
    async with running_mailbox(tmp_path) as office:
        await mailer_of(office).send_all([Message(b"%d" % number) for number in range(50)])
        assert office.app is not None
        office.app.parts.delivery.policies.follow(
            [TopicRule("acme", OWN, capacity=10, when_full=WhenFull.BURY_OLDEST)]
        )
        async with asyncio.timeout(30.0):
            while True:
                (stats,) = await queue_of(office).stats(OWN)
                if stats.ready == 10:
                    break
                await asyncio.sleep(0.05)
        assert stats.died == {DeadReason.OVERFLOW: 40}


@dataclass
class Twin:
    """Waiting and leased messages, in order of arrival."""

    capacity: int
    ready: list[int] = field(default_factory=list)
    leased: list[int] = field(default_factory=list)
    dead: list[int] = field(default_factory=list)

    def send(self, numbers: list[int]) -> bool:
        surplus = len(self.ready) + len(self.leased) + len(numbers) - self.capacity
        if surplus > min(len(self.ready), len(numbers)):
            return False
        buried = self.ready[: max(0, surplus)]
        self.dead += buried
        self.ready = self.ready[len(buried) :] + numbers
        return True


async def test_burying_agrees_with_a_twin(tmp_path: Path) -> None:
    dice, sent, seen = random.Random(5), 0, {True: 0, False: 0}
    settings = MailboxSettings(topic_rules=f"{OWN} capacity=12 when_full=bury-oldest")
    async with running_mailbox(tmp_path, settings=settings) as office:
        mailer, consumer, twin = mailer_of(office), office.consumer(), Twin(12)
        epoch, held = 0, dict[int, tuple[int, int]]()
        for _ in range(150):
            step = dice.random()
            if step < 0.5:
                numbers = list(range(sent, sent + dice.randint(1, 5)))
                sent += len(numbers)
                try:
                    await mailer.send_all([Message(b"%d" % number) for number in numbers])
                    stored = True
                except Saturated:
                    stored = False
                assert stored is twin.send(numbers)
                seen[stored] += 1
            elif step < 0.75:
                got = await consumer.receive(OWN, max_messages=dice.randint(1, 6), visibility_ms=600_000)
                numbers = [int(one.payload) for one in got.messages]
                assert numbers == twin.ready[: len(numbers)]
                twin.ready = twin.ready[len(numbers) :]
                twin.leased += numbers
                epoch = got.boot_epoch
                held |= {int(one.payload): (one.msg_id, one.attempt) for one in got.messages}
            elif twin.leased:
                done = dice.sample(twin.leased, dice.randint(1, len(twin.leased)))
                twin.leased = [number for number in twin.leased if number not in done]
                receipts = got.receipts(0, 0)
                receipts.boot_epoch = epoch
                receipts.msg_id.extend(held[number][0] for number in done)
                receipts.attempt.extend(held[number][1] for number in done)
                assert set(await consumer.ack(receipts, topic=OWN)) == {1}
        assert min(seen.values()) > 5, seen
        buried = [int(payload) for payload, reason in await dead(office) if reason == DeadReason.OVERFLOW]
        assert sorted(buried) == sorted(twin.dead)
        (stats,) = await queue_of(office).stats(OWN)
        assert (stats.ready, stats.inflight) == (len(twin.ready), len(twin.leased))


def test_rules_of_settings_say_when_full_in_words() -> None:
    rules = topic_rules(f"{OWN} capacity=7 when_full=bury-oldest", Policy())
    assert (rules[OWN].capacity, rules[OWN].when_full) == (7, WhenFull.BURY_OLDEST)
    for wrong in ("when_full=drop", "when_full=", "capacity=0"):
        with pytest.raises(ValueError, match=r"when_full|capacity"):
            topic_rules(f"{OWN} {wrong}", Policy())


def test_what_a_tenant_wrote_comes_before_the_settings_and_leaves_the_rest() -> None:
    policies = Policies(Policy(max_attempts=3), {OWN: Policy(max_attempts=4, replay_ms=2000)})
    policies.follow([TopicRule("acme", OWN, max_attempts=1000), TopicRule("acme", "acme/bot", delivered_s=0)])
    assert (policies.of(OWN).max_attempts, policies.of(OWN).replay_ms) == (1000, 2000)
    assert policies.of("acme/bot").max_attempts == 3
    policies.follow([])
    assert policies.of(OWN).max_attempts == 4


@pytest.mark.parametrize(
    ("topic", "field_name", "number"),
    [
        ("zeta/own/mail", "capacity", 1),
        ("acme/snavio.telemetry", "capacity", 1),
        ("acme/own/", "capacity", 1),
        (OWN, "capacity", 0),
        (OWN, "replay_ms", 999),
        (OWN, "max_attempts", 1001),
    ],
)
def test_a_rule_out_of_bounds_or_for_anothers_topic_is_refused(
    topic: str, field_name: str, number: int
) -> None:
    with pytest.raises(BadRequest):
        TopicRule("acme", topic, **{field_name: number})  # type: ignore[arg-type]


def follower(folder: Path, policies: Policies) -> TopicRules:
    return TopicRules(None, policies, clock=ManualClock(), interval_s=1.0, folder=folder)  # type: ignore[arg-type]


async def test_rules_that_were_read_last_hold_before_registry_answers(tmp_path: Path) -> None:
    rule = TopicRule("acme", OWN, ready_s=315_360_000)
    first = follower(tmp_path, Policies())

    async def answers() -> int:
        first._take(Change(version=7, topic_rule=value_to_wire(rule)))
        first._feed.version, first._feed.epoch = 7, 3
        return 0

    first._feed.catch_up = answers  # type: ignore[method-assign]
    await first._catch_up()
    policies = Policies()
    again = follower(tmp_path, policies)
    again.load()
    assert policies.of(OWN).ready_s == 315_360_000
    assert (again._feed.version, again._feed.epoch) == (7, 3)
    kept = (tmp_path / FILE).read_bytes()
    (tmp_path / FILE).write_bytes(kept.replace(b"315360000", b"315360001"))
    damaged = Policies()
    follower(tmp_path, damaged).load()
    assert damaged.of(OWN) == Policy()


async def test_a_damaged_copy_of_the_rules_ends_nothing_before_registry_answers(tmp_path: Path) -> None:
    settings, clock = MailboxSettings(retention_ready_s=100), ManualClock()
    async with running_mailbox(tmp_path, settings=settings, clock=clock) as office:
        await mailer_of(office).send(Message(b"keep me"))
    (tmp_path / "mailbox" / FILE).write_bytes(b"no rules")
    async with running_mailbox(tmp_path, settings=settings, clock=clock) as office:
        assert office.app is not None
        parts = office.app.parts
        clock.advance(seconds=1000)
        for _ in range(3):
            await parts.retention.step()
        assert (await queue_of(office).stats(OWN))[0].ready == 1
        parts.delivery.policies.follow([])
        async with asyncio.timeout(30):
            while not await dead(office):
                await parts.retention.step()
