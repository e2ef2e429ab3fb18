"""The life of messages against a slow, obvious twin: whatever happens in whatever order, both say the same."""

from __future__ import annotations

import os
import random
from dataclasses import dataclass

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from services.mailbox.settle.changes import CHANGES, MessageOperation, Order, change, changeable, stretches
from services.mailbox.state.batch import Batch
from services.mailbox.state.delivery import Delivery, NackTerms
from services.mailbox.state.policy import Policies, Policy
from services.mailbox.state.receipts import DONE, GONE, LATE, Receipt
from services.mailbox.state.settling import Settling
from services.mailbox.state.topics import Leased, Limits
from snavio.adapters.memory.mailbox_store import MemoryMailboxStore
from snavio.clock import ManualClock
from snavio.domain.message import DeadReason, MessageState
from snavio.errors import Saturated
from snavio.ports.mailbox_store import BatchRecord, NewBatch, Origin, Send
from tests.support.checked import CheckedDelivery

TOPIC = "acme/billing"
ME, OTHER = "me", "other"
MAX_ATTEMPTS = 3
CAPACITY = 60
LONG_NS = 1 << 62
FULL = os.environ.get("SNAVIO_FULL") == "1"
ENDED = (MessageState.DELIVERED, MessageState.DEAD, MessageState.CANCELED, MessageState.PURGED)


@dataclass
class Message:
    """One message, as simply as it can be said."""

    state: MessageState = MessageState.READY
    attempt: int = 1
    due: int = 0
    pause: int = 0
    """Until then it is kept back because the disk refused to end it; memory alone knows."""
    holder: str = ""
    deadline: int = 0
    reason: str = ""
    revived: bool = False
    """It came back from an end, and waits anew before it expires."""


class Lives(RuleBasedStateMachine):
    """`self.twin` is the obvious one."""

    limits = Limits(window_batches=3, topic_messages=CAPACITY)
    ordered = True
    retain = True

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.disk = MemoryMailboxStore()
        self.twin: dict[tuple[int, int], Message] = {}
        self.out: list[Receipt] = []
        self.seq = 0
        self.refusing = False
        self.boot()

    def boot(self) -> None:
        policy = Policy(max_attempts=MAX_ATTEMPTS, delivered_s=100 if self.retain else 0)
        self.delivery: Delivery = CheckedDelivery(
            clock=self.clock,
            boot_epoch=1,
            records=self.disk.topics(),
            woken=lambda _: None,
            record=lambda progress: self.store([progress]),
            limits=self.limits,
            policies=Policies(policy),
            commit_ended=self.commit_ended,
            chance=random.Random(7),
        )

    def store(self, progress: object) -> None:
        self.disk.commit([], list(progress), now_unix_ns=self.clock.unix_ns())  # type: ignore[call-overload]

    def decide(self, settling: Settling, *, stored: bool) -> None:
        if stored:
            self.store(settling.progress)
            self.delivery.transitions.confirm(settling)
        else:
            self.delivery.transitions.revert(settling)

    def commit_ended(self, settling: Settling) -> None:
        """Messages end by themselves; a disk that refuses has them a moment later, and never to hand them out again."""
        now = self.clock.mono_ns()
        for moved in settling.moved:
            for index in range(moved.lo, moved.hi):
                message = self.twin[moved.batch.batch_id, index]
                if message.state is not MessageState.READY or message.attempt <= MAX_ATTEMPTS:
                    continue
                if self.refusing:
                    message.pause = now + 1_000_000_000
                elif moved.ending is not None and moved.ending.reason == DeadReason.MAX_ATTEMPTS:
                    message.state, message.reason = MessageState.DEAD, DeadReason.MAX_ATTEMPTS
                    message.attempt -= 1
        self.decide(settling, stored=not self.refusing)

    @rule(refusing=st.booleans())
    def disk_refuses_ends(self, refusing: bool) -> None:
        self.refusing = refusing

    def pass_time(self) -> None:
        """Apply to the twin the transitions that time alone causes."""
        now = self.clock.mono_ns()
        for message in self.twin.values():
            if message.state is MessageState.INFLIGHT and message.deadline <= now:
                if message.attempt >= MAX_ATTEMPTS and not self.refusing:
                    message.state, message.reason = MessageState.DEAD, DeadReason.MAX_ATTEMPTS
                else:
                    # Delivered once too often, and yet not ended: the attempt counts all the same.
                    if message.attempt >= MAX_ATTEMPTS:
                        message.pause = now + 1_000_000_000
                    message.state, message.attempt, message.due = MessageState.READY, message.attempt + 1, 0

    def fill_up(self) -> None:
        while (asked := self.delivery.window.shortage(TOPIC)) is not None:
            records = self.disk.pending(TOPIC, after=asked.after, limit=asked.limit)
            self.delivery.window.refill(asked, records)

    def receive(self, n: int, holder: str, *, visibility_ms: int) -> list[Leased]:
        """As the mailbox does: what it finds out of date makes room for what is on disk."""
        while True:
            self.fill_up()
            leased = self.delivery.lease(
                TOPIC, holder=holder, max_messages=n, max_bytes=1 << 20, visibility_ms=visibility_ms
            )
            if leased or self.delivery.window.shortage(TOPIC) is None:
                return leased

    @rule(count=st.integers(1, 6))
    def append(self, count: int) -> None:
        held = sum(one.state in (MessageState.READY, MessageState.INFLIGHT) for one in self.twin.values())
        try:
            self.delivery.topics.reserve(TOPIC, count)
        except Saturated:
            assert held + count > CAPACITY
            return
        assert held + count <= CAPACITY
        self.seq += 1
        send = Send(Origin("fast/0", 1, self.seq), b"", (NewBatch(TOPIC, count, bytes(100)),))
        ((batch_id,),) = self.disk.commit([send], [], now_unix_ns=self.clock.unix_ns(), age_ns=self.seq)
        self.delivery.window.stored(
            TOPIC, BatchRecord(batch_id, count, 100, self.clock.unix_ns(), stored_age_ns=batch_id)
        )
        self.twin |= {(batch_id, index): Message() for index in range(count)}

    @rule(n=st.integers(1, 9), holder=st.sampled_from([ME, ME, OTHER]))
    def lease(self, n: int, holder: str) -> None:
        self.pass_time()
        self.delivery.tick()
        now = self.clock.mono_ns()
        ready = [
            key
            for key, one in sorted(self.twin.items())
            if one.state is MessageState.READY
            and max(one.due, one.pause) <= now
            and one.attempt <= MAX_ATTEMPTS
        ]
        leased = self.receive(n, holder, visibility_ms=1000)
        got: list[tuple[int, int]] = []
        for one in leased:
            batch_id = one.lease.batch.batch_id
            self.out.append(Receipt(batch_id, one.first, one.first + one.count, one.lease.attempt))
            for index in range(one.first, one.first + one.count):
                message = self.twin[batch_id, index]
                assert (message.state, message.attempt) == (MessageState.READY, one.lease.attempt)
                assert max(message.due, message.pause) <= now
                message.state, message.holder, message.pause = MessageState.INFLIGHT, holder, 0
                message.deadline = now + 1_000_000_000
                got.append((batch_id, index))
        assert len(set(got)) == len(got) <= n
        if self.ordered:
            assert bool(got) == bool(ready)
            assert got == ready[: len(got)]

    @precondition(lambda self: self.out)
    @rule(
        data=st.data(),
        final=st.booleans(),
        delay_ms=st.sampled_from([None, 0, 700]),
        manner=st.sampled_from(["plain", "dead", "unseen"]),
        stored=st.booleans(),
    )
    def settle(
        self, data: st.DataObject, final: bool, delay_ms: int | None, manner: str, stored: bool
    ) -> None:
        self.pass_time()
        whole = data.draw(st.sampled_from(self.out))
        lo = data.draw(st.integers(whole.first, whole.end - 1))
        part = Receipt(whole.batch_id, lo, data.draw(st.integers(lo + 1, whole.end)), whole.attempt)
        nack = NackTerms(delay_ms=delay_ms, dead=manner == "dead", unseen=manner == "unseen", reason="no")
        settling = self.delivery.settle(TOPIC, [part], holder=ME, final=final, nack=nack)
        codes = b"".join(settling.codes)
        named = [self.twin[part.batch_id, index] for index in range(part.first, part.end)]
        assert len(codes) == len(named)
        for code, message in zip(codes, named, strict=True):
            rightful = (message.state, message.holder, message.attempt) == (
                MessageState.INFLIGHT,
                ME,
                part.attempt,
            )
            ended = message.state in ENDED
            assert (bytes([code]) == DONE) == rightful
            assert rightful or bytes([code]) == GONE or not ended or not self.resident(part.batch_id)
            assert rightful or bytes([code]) == LATE or ended or not self.resident(part.batch_id)
        delays = {
            (moved.batch.batch_id, index): moved.delay_ns
            for moved in settling.moved
            for index in range(moved.lo, moved.hi)
        }
        self.decide(settling, stored=stored)
        if not stored:
            return
        now = self.clock.mono_ns()
        for index, code in enumerate(codes, part.first):
            message = self.twin[part.batch_id, index]
            if bytes([code]) != DONE:
                continue
            if final:
                message.state = MessageState.DELIVERED
            elif manner == "unseen":
                message.state, message.due = MessageState.READY, 0
            elif manner == "dead" or message.attempt >= MAX_ATTEMPTS:
                message.state = MessageState.DEAD
                message.reason = DeadReason.NACK if manner == "dead" else DeadReason.MAX_ATTEMPTS
            else:
                delay = delays[part.batch_id, index]
                assert delay == (delay or 0) if delay_ms is None else delay == delay_ms * 1_000_000
                message.state, message.attempt, message.due = (
                    MessageState.READY,
                    message.attempt + 1,
                    now + delay,
                )

    def resident(self, batch_id: int) -> bool:
        topic = self.delivery.topics.topic(TOPIC)
        return topic is not None and batch_id in topic.batches

    @precondition(lambda self: self.twin)
    @rule(
        data=st.data(),
        operation=st.sampled_from(list(MessageOperation)),
        states=st.sets(st.sampled_from((*ENDED[:3], MessageState.READY, MessageState.INFLIGHT)), min_size=1),
        stored=st.booleans(),
        whole=st.booleans(),
    )
    def manage(
        self,
        data: st.DataObject,
        operation: MessageOperation,
        states: set[MessageState],
        stored: bool,
        whole: bool,
    ) -> None:
        self.delivery.tick()
        self.pass_time()
        batch_id = data.draw(st.sampled_from(sorted({key[0] for key in self.twin})))
        bits = (1 << 10) - 1 if whole else data.draw(st.integers(1, (1 << 6) - 1))
        record = self.disk.record(TOPIC, batch_id)
        if record is None:
            return
        order = Order(operation, frozenset(states), "tidy", age_ns=LONG_NS)
        batch = self.delivery.transitions.adopt(TOPIC, record)
        assert batch is not None
        expected = {
            (batch_id, index)
            for index in range(record.count)
            if bits >> index & 1
            and (message := self.twin[batch_id, index]).state in states & CHANGES[operation]
            and not self.untried(batch, index, message, operation)
        }
        if operation in (MessageOperation.RESUME, MessageOperation.REQUEUE):
            held = sum(one.state in (MessageState.READY, MessageState.INFLIGHT) for one in self.twin.values())
            if held + len(expected) > CAPACITY:
                self.delivery.transitions.disown(TOPIC, batch)
                return
        settling = Settling()
        chosen = changeable(batch, order, bits)
        assert {(batch_id, index) for index in range(record.count) if chosen >> index & 1} == expected
        moved = change(settling, batch, order, bits)
        assert moved == len(expected)
        if not moved:
            self.delivery.transitions.disown(TOPIC, batch)
            return
        self.delivery.transitions.begin(settling)
        if data.draw(st.booleans()):
            self.fill_up()  # the disk is read while the change is on its way
        self.decide(settling, stored=stored)
        if stored:
            for key in expected:
                self.change_twin(self.twin[key], operation)
        else:
            now = self.clock.mono_ns()
            for key in expected:
                message = self.twin[key]
                # What the disk refused to end comes a moment later.
                if message.state is MessageState.READY and self.resident(key[0]):
                    message.pause = now + 1_000_000_000

    def untried(self, batch: Batch, index: int, message: Message, operation: MessageOperation) -> bool:
        """A requeue has nothing to change about a message that is ready now, with all attempts before it."""
        if operation is not MessageOperation.REQUEUE or message.state is not MessageState.READY:
            return False
        return all(one.fresh for _, _, one in batch.retrying(index, index + 1))

    @staticmethod
    def change_twin(message: Message, operation: MessageOperation) -> None:
        message.pause = 0
        if operation in (MessageOperation.RESUME, MessageOperation.REQUEUE):
            message.revived |= message.state in ENDED
        if operation is MessageOperation.PURGE:
            message.state = MessageState.PURGED
        elif operation is MessageOperation.CANCEL:
            if message.state is MessageState.INFLIGHT:
                message.attempt += 1
            message.state = MessageState.CANCELED
        elif operation is MessageOperation.RESUME:
            message.state, message.attempt, message.due = MessageState.READY, max(1, message.attempt), 0
        else:
            message.state, message.attempt, message.due = MessageState.READY, 1, 0

    @precondition(lambda self: self.twin)
    @rule(data=st.data())
    def expire(self, data: st.DataObject) -> None:
        self.delivery.tick()
        self.pass_time()
        through = data.draw(st.sampled_from(sorted({key[0] for key in self.twin})))
        # Batches are as old as their number, and what came back did so long after all of them.
        waited_anew = data.draw(st.booleans())
        loaded = [key for key in self.twin if (waited_anew or key[0] <= through) and self.resident(key[0])]
        self.delivery.endings.expire_ready(TOPIC, LONG_NS if waited_anew else through, limit=1000)
        for key in loaded:
            message = self.twin[key]
            if message.state is MessageState.READY and (waited_anew or not message.revived):
                if self.refusing:
                    message.pause = self.clock.mono_ns() + 1_000_000_000
                    continue
                message.state, message.reason = MessageState.DEAD, DeadReason.EXPIRED
                message.attempt -= 1

    @precondition(lambda self: self.twin)
    @rule(data=st.data())
    def damage(self, data: st.DataObject) -> None:
        self.delivery.tick()
        self.pass_time()
        batch_id = data.draw(st.sampled_from(sorted({key[0] for key in self.twin})))
        if not self.resident(batch_id):
            return
        first = data.draw(st.integers(0, 5))
        self.delivery.endings.condemn(TOPIC, batch_id, error="bytes differ", first=first)
        for (found, index), message in self.twin.items():
            if (
                found == batch_id
                and index >= first
                and message.state in (MessageState.READY, MessageState.INFLIGHT)
            ):
                if self.refusing:
                    if message.state is MessageState.READY:
                        message.pause = self.clock.mono_ns() + 1_000_000_000
                    continue
                message.attempt -= message.state is MessageState.READY
                message.state, message.reason = MessageState.DEAD, DeadReason.INTEGRITY

    @rule(seconds=st.sampled_from([0.3, 1.0, 70.0]))
    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds=seconds)
        self.pass_time()
        self.delivery.tick()

    @rule()
    def restart(self) -> None:
        self.pass_time()
        self.delivery.tick()
        self.boot()
        self.out.clear()
        for message in self.twin.values():
            message.pause = 0
            if message.state is MessageState.INFLIGHT:
                message.state, message.due = MessageState.READY, 0

    @invariant()
    def counts_agree(self) -> None:
        counts = self.delivery.topics.counts(TOPIC)
        if counts is None:
            return
        twin = list(self.twin.values())
        unsettled = [one for one in twin if one.state in (MessageState.READY, MessageState.INFLIGHT)]
        assert counts.ready + counts.inflight == len(unsettled)
        assert counts.inflight == self.delivery.inflight.total
        topic = self.delivery.topics.topic(TOPIC)
        assert topic is not None
        assert (
            topic.spans
            == self.delivery.window.spans
            == sum(len(one.retries) for one in topic.batches.values())
        )
        assert counts.dead == sum(one.state is MessageState.DEAD for one in twin)
        assert counts.canceled == sum(one.state is MessageState.CANCELED for one in twin)
        if self.retain:
            gone = {key[0] for key in self.twin if self.disk.record(TOPIC, key[0]) is None}
            kept = [one for key, one in self.twin.items() if key[0] not in gone]
            assert counts.delivered == sum(one.state is MessageState.DELIVERED for one in kept)
            assert not any(
                one.state is MessageState.DELIVERED for key, one in self.twin.items() if key[0] in gone
            )

    def teardown(self) -> None:
        self.refusing = False
        self.restart()
        self.the_disk_agrees()
        self.clock.advance(seconds=100)
        seen: set[tuple[int, int]] = set()
        while leased := self.receive(5, ME, visibility_ms=10_000_000):
            for one in leased:
                messages = {(one.lease.batch.batch_id, one.first + i) for i in range(one.count)}
                assert not messages & seen
                seen |= messages
                receipt = Receipt(
                    one.lease.batch.batch_id, one.first, one.first + one.count, one.lease.attempt
                )
                self.decide(self.delivery.settle(TOPIC, [receipt], holder=ME), stored=True)
        assert seen == {key for key, one in self.twin.items() if one.state is MessageState.READY}

    def the_disk_agrees(self) -> None:
        for batch_id in {key[0] for key in self.twin}:
            record = self.disk.record(TOPIC, batch_id)
            if record is None:
                left = {one.state for key, one in self.twin.items() if key[0] == batch_id}
                assert left <= (
                    {MessageState.PURGED} if self.retain else {MessageState.PURGED, MessageState.DELIVERED}
                )
                continue
            for one in stretches(Batch(TOPIC, record)):
                for index in range(one.lo, one.hi):
                    message = self.twin[batch_id, index]
                    assert one.state is message.state
                    if one.state is MessageState.READY:
                        assert one.retrying.attempt == message.attempt
                    elif one.state is MessageState.DEAD:
                        assert one.ending is not None
                        assert (one.ending.reason, one.ending.attempt) == (message.reason, message.attempt)


class CrowdedLives(Lives):
    """Memory that holds very little: order degrades, nothing else does."""

    limits = Limits(window_batches=1, topic_messages=CAPACITY, resident_batches=2)
    ordered = False
    retain = False


STEPS = settings(
    max_examples=3000 if FULL else 100,
    stateful_step_count=60 if FULL else 30,
    deadline=None,
    # Shrinking a machine of a dozen rules takes minutes; what a failure prints can be run as it is.
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
)


def test_I_1_G_1_every_message_is_where_an_obvious_twin_says() -> None:
    run_state_machine_as_test(Lives, settings=STEPS)


def test_I_5_the_same_holds_when_memory_holds_next_to_nothing() -> None:
    run_state_machine_as_test(CrowdedLives, settings=STEPS)
