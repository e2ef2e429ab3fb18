"""The mailbox's delivery rules, with a clock that tests move and a disk that is a list."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from services.mailbox.settle.changes import MessageOperation, Order, change
from services.mailbox.state.delivery import Delivery, NackTerms
from services.mailbox.state.policy import Policies, Policy
from services.mailbox.state.ranges import RangeMap, ones, zeros
from services.mailbox.state.receipts import DONE, GONE, LATE, Receipt, receipts
from services.mailbox.state.settling import Settling
from services.mailbox.state.states import Verb
from services.mailbox.state.topics import Leased, Limits
from snavio.adapters.memory.mailbox_store import MemoryMailboxStore
from snavio.clock import ManualClock
from snavio.domain.message import Attempt, AttemptOutcome, MessageEnding, MessageState
from snavio.errors import Saturated
from snavio.ports.mailbox_store import BatchRecord, NewBatch, Origin, Progress, Retry, Send

TOPIC = "acme/billing"
ME, OTHER = "spiffe://x/tenant/acme/service/me", "spiffe://x/tenant/acme/service/other"


@dataclass
class BareDelivery:
    """A delivery with its surroundings."""

    limits: Limits = field(default_factory=Limits)
    clock: ManualClock = field(default_factory=ManualClock)
    disk: MemoryMailboxStore = field(default_factory=MemoryMailboxStore)
    woken: list[str] = field(default_factory=list)
    recorded: list[Progress] = field(default_factory=list)
    seq: int = 0

    def __post_init__(self) -> None:
        self.delivery = self.boot()

    def boot(self) -> Delivery:
        self.delivery = Delivery(
            clock=self.clock,
            boot_epoch=1,
            records=self.disk.topics(),
            woken=self.woken.append,
            record=self.recorded.append,
            limits=self.limits,
            policies=Policies(Policy(max_attempts=1000)),
        )
        return self.delivery

    def write(self, progress: Iterable[Progress]) -> None:
        self.disk.commit([], list(progress), now_unix_ns=self.clock.unix_ns())

    def append(self, count: int = 10, *, size: int = 100, notify: bool = True) -> int:
        self.delivery.topics.reserve(TOPIC, count)
        self.seq += 1
        send = Send(Origin("fast/0", 1, self.seq), b"", (NewBatch(TOPIC, count, bytes(size)),))
        ((batch_id,),) = self.disk.commit([send], [], now_unix_ns=self.clock.unix_ns())
        if notify:
            self.hear(batch_id, count, size)
        return batch_id

    def has_room(self, topic: str, count: int) -> bool:
        """True if that many could be reserved; they are reserved then."""
        try:
            self.delivery.topics.reserve(topic, count)
        except Saturated:
            return False
        return True

    def hear(self, batch_id: int, count: int = 10, size: int = 100) -> None:
        self.delivery.window.stored(TOPIC, BatchRecord(batch_id, count, size, self.clock.unix_ns()))

    def lease(
        self, n: int = 5000, *, holder: str = ME, visibility_ms: int = 1000, **more: int
    ) -> list[Leased]:
        while (asked := self.delivery.window.shortage(TOPIC)) is not None:
            self.delivery.window.refill(asked, self.disk.pending(TOPIC, after=asked.after, limit=asked.limit))
        asking = {"max_bytes": 1 << 20, **more}
        return self.delivery.lease(
            TOPIC, holder=holder, max_messages=n, visibility_ms=visibility_ms, **asking
        )

    def settle(self, *named: Receipt, holder: str = ME, final: bool = True, delay_ms: int = 0) -> bytes:
        nack = NackTerms(delay_ms=delay_ms)
        settling = self.delivery.settle(TOPIC, named, holder=holder, final=final, nack=nack)
        self.write(settling.progress)
        self.delivery.transitions.confirm(settling)
        return b"".join(settling.codes)


def ids(leased: list[Leased]) -> list[tuple[int, int, int, int]]:
    return [(one.lease.batch.batch_id, one.first, one.count, one.lease.attempt) for one in leased]


def receipt(one: Leased) -> Receipt:
    return Receipt(one.lease.batch.batch_id, one.first, one.first + one.count, one.lease.attempt)


# -- I-3: visibility ------------------------------------------------------------------------------------


def test_I_3_leased_message_is_invisible_to_everybody_until_its_deadline() -> None:
    bare = BareDelivery()
    bare.append()
    assert ids(bare.lease()) == [(1, 0, 10, 1)]
    bare.clock.advance(ns=999_999_999)
    assert bare.lease() == bare.lease(holder=OTHER) == []


def test_I_3_unacked_message_reappears_after_visibility() -> None:
    bare = BareDelivery()
    bare.append()
    bare.lease()
    bare.woken.clear()
    bare.clock.advance(seconds=1)
    bare.delivery.tick()
    assert bare.woken == [TOPIC]
    assert ids(bare.lease(holder=OTHER)) == [(1, 0, 10, 2)]


def test_I_3_ack_is_final() -> None:
    bare = BareDelivery()
    bare.append()
    (one,) = bare.lease()
    assert bare.settle(receipt(one)) == DONE * 10
    bare.clock.advance(seconds=3600)
    assert bare.lease() == [] and bare.boot() and bare.lease() == []
    assert bare.settle(receipt(one)) == GONE * 10


def test_I_3_partial_ack_leaves_the_rest_under_the_lease_and_only_that_comes_back() -> None:
    bare = BareDelivery()
    bare.append()
    bare.lease()
    assert bare.settle(Receipt(1, 3, 6, 1)) == DONE * 3
    assert bare.settle(Receipt(1, 2, 7, 1)) == DONE + GONE * 3 + DONE
    bare.clock.advance(seconds=1)
    assert ids(bare.lease()) == [(1, 0, 2, 2), (1, 7, 3, 2)]


def test_I_3_late_receipt_changes_nothing() -> None:
    bare = BareDelivery()
    bare.append()
    (old,) = bare.lease()
    bare.clock.advance(seconds=1)
    assert bare.settle(receipt(old)) == LATE * 10
    (new,) = bare.lease()
    assert bare.settle(receipt(old)) == LATE * 10
    assert bare.settle(receipt(new)) == DONE * 10


def test_I_3_deadline_is_monotonic_and_inclusive() -> None:
    bare = BareDelivery()
    bare.append(1)
    (one,) = bare.lease(visibility_ms=250)
    bare.clock.advance(ns=250_000_000)
    assert bare.settle(receipt(one)) == LATE


def test_receipt_of_another_holder_settles_nothing() -> None:
    bare = BareDelivery()
    bare.append()
    (one,) = bare.lease()
    assert bare.settle(receipt(one), holder=OTHER) == LATE * 10
    assert bare.delivery.extend(TOPIC, [receipt(one)], holder=OTHER, visibility_ms=9000) == LATE * 10
    assert bare.settle(receipt(one)) == DONE * 10


def test_forged_receipts_are_gone_or_late_and_never_done() -> None:
    bare = BareDelivery(limits=Limits(window_batches=1))
    for _ in range(3):
        bare.append()
    bare.lease(1)
    assert bare.settle(Receipt(99, 0, 3, 1)) == GONE * 3
    assert bare.settle(Receipt(3, 0, 2, 1)) == LATE * 2
    assert bare.settle(Receipt(1, 8, 12, 1)) == LATE * 2 + GONE * 2
    assert bare.settle(Receipt(1, 20, 22, 1)) == GONE * 2
    assert bare.settle(Receipt(1, 0, 1, 2)) == LATE


def test_same_receipt_twice_in_one_request_is_done_once() -> None:
    bare = BareDelivery()
    bare.append(2)
    bare.lease()
    assert bare.settle(Receipt(1, 0, 2, 1), Receipt(1, 0, 2, 1)) == DONE * 2 + GONE * 2


# -- giving back and extending --------------------------------------------------------------------------


def test_nacked_message_comes_back_at_once_under_the_next_attempt() -> None:
    bare = BareDelivery()
    bare.append()
    bare.lease()
    assert bare.settle(Receipt(1, 4, 5, 1), final=False) == DONE
    assert ids(bare.lease()) == [(1, 4, 1, 2)]


def test_nack_with_delay_keeps_a_message_back_and_wakes_when_it_is_due() -> None:
    bare = BareDelivery()
    bare.append(1)
    bare.lease()
    bare.settle(Receipt(1, 0, 1, 1), final=False, delay_ms=500)
    bare.clock.advance(ns=499_999_999)
    assert bare.lease() == []
    bare.woken.clear()
    bare.clock.advance(ns=1)
    bare.delivery.tick()
    assert bare.woken == [TOPIC] and ids(bare.lease()) == [(1, 0, 1, 2)]


def test_attempts_and_delays_of_nacks_survive_a_restart() -> None:
    bare = BareDelivery()
    bare.append()
    bare.lease()
    bare.settle(Receipt(1, 0, 2, 1), final=False)
    bare.settle(Receipt(1, 2, 4, 1), final=False, delay_ms=5000)
    bare.boot()
    assert ids(bare.lease()) == [(1, 0, 2, 2), (1, 4, 6, 1)]
    bare.clock.advance(seconds=5)
    bare.delivery.tick()
    assert (1, 2, 2, 2) in ids(bare.lease())


def test_attempts_of_expired_leases_are_handed_to_the_disk() -> None:
    bare = BareDelivery()
    bare.append(4)
    bare.lease(3)
    bare.clock.advance(seconds=1)
    bare.delivery.tick()
    history = (Attempt(1, bare.clock.unix_ns(), AttemptOutcome.EXPIRED),)
    assert bare.recorded == [Progress(TOPIC, 1, 4, 0, (Retry(0, 3, 2, 0, history),))]
    bare.write(bare.recorded)
    bare.boot()
    assert ids(bare.lease()) == [(1, 0, 3, 2), (1, 3, 1, 1)]


def test_wall_clock_that_jumped_during_a_restart_delays_no_longer_than_the_bound() -> None:
    bare = BareDelivery(limits=Limits(max_delay_ms=10_000))
    bare.append(1)
    bare.lease()
    bare.settle(Receipt(1, 0, 1, 1), final=False, delay_ms=5_000)
    bare.clock = ManualClock(bare.clock.unix_ns() - 10**18)
    bare.boot()
    assert bare.lease() == []
    bare.clock.advance(seconds=10)
    assert ids(bare.lease()) == [(1, 0, 1, 2)]


def test_extended_part_outlives_the_rest_of_its_lease() -> None:
    bare = BareDelivery()
    bare.append()
    bare.lease()
    bare.clock.advance(seconds=0.5)
    named = [Receipt(1, 2, 4, 1), Receipt(1, 9, 11, 1), Receipt(7, 0, 1, 1)]
    codes = bare.delivery.extend(TOPIC, named, holder=ME, visibility_ms=1000)
    assert codes == DONE * 3 + GONE * 2
    bare.clock.advance(seconds=0.5)
    assert ids(bare.lease()) == [(1, 0, 2, 2), (1, 4, 5, 2)]
    assert bare.settle(Receipt(1, 2, 4, 1)) == DONE * 2
    bare.clock.advance(seconds=0.5)
    assert ids(bare.lease()) == [(1, 9, 1, 2)]


# -- what the disk refuses ------------------------------------------------------------------------------


@pytest.mark.parametrize("final", [True, False])
def test_settlement_that_the_disk_refused_leaves_the_lease_as_it_was(final: bool) -> None:
    bare = BareDelivery()
    bare.append(4)
    (one,) = bare.lease()
    refused = bare.delivery.settle(TOPIC, [Receipt(1, 1, 3, 1)], holder=ME, final=final)
    bare.clock.advance(seconds=0.5)
    assert bare.lease() == []
    bare.delivery.transitions.revert(refused)
    assert bare.settle(receipt(one)) == DONE * 4
    assert bare.delivery.inflight.total == 0


def test_refused_ack_comes_back_even_if_its_deadline_passed_meanwhile() -> None:
    bare = BareDelivery()
    bare.append(1)
    bare.lease()
    refused = bare.delivery.settle(TOPIC, [Receipt(1, 0, 1, 1)], holder=ME, final=True)
    bare.clock.advance(seconds=2)
    assert bare.lease() == []
    bare.delivery.transitions.revert(refused)
    assert ids(bare.lease()) == [(1, 0, 1, 2)]


def test_answer_gone_waits_for_the_ack_that_it_relies_on() -> None:
    bare = BareDelivery()
    bare.append(2)
    bare.lease()
    first = bare.delivery.settle(TOPIC, [Receipt(1, 0, 1, 1)], holder=ME, final=True)
    second = bare.delivery.settle(TOPIC, [Receipt(1, 0, 2, 1)], holder=ME, final=True)
    assert second.codes == [GONE, DONE, b""] and second.after == {first}


# -- order, windows, bounds -----------------------------------------------------------------------------


def test_I_14_order_is_first_in_first_out_and_what_comes_back_comes_first() -> None:
    bare = BareDelivery()
    for _ in range(3):
        bare.append(4)
    assert ids(bare.lease(6)) == [(1, 0, 4, 1), (2, 0, 2, 1)]
    bare.settle(Receipt(1, 1, 2, 1), final=False)
    assert ids(bare.lease(4)) == [(1, 1, 1, 2), (2, 2, 2, 1), (3, 0, 1, 1)]


def test_memory_holds_a_window_and_the_rest_comes_from_disk_in_order() -> None:
    bare = BareDelivery(limits=Limits(window_batches=16))
    for _ in range(100):
        bare.append(1)
    assert len(bare.delivery.topics.by_name[TOPIC].batches) <= 16
    seen: list[int] = []
    while leased := bare.lease(7):
        assert len(bare.delivery.topics.by_name[TOPIC].batches) <= 32
        seen += [one.lease.batch.batch_id for one in leased]
        for one in leased:
            bare.settle(receipt(one))
    assert seen == list(range(1, 101))
    assert bare.delivery.topics.counts(TOPIC).ready == 0  # type: ignore[union-attr]


def test_batch_stored_while_the_disk_is_asked_is_neither_lost_nor_doubled() -> None:
    bare = BareDelivery(limits=Limits(window_batches=1))
    bare.append(1)
    bare.append(1)
    bare.lease(1)
    asked = bare.delivery.window.shortage(TOPIC)
    assert asked is not None
    early = bare.append(1, notify=False)  # on disk before the answer, heard of after it
    answer = bare.disk.pending(TOPIC, after=asked.after, limit=asked.limit)
    late = bare.append(1)  # on disk and heard of while the answer is on its way
    bare.delivery.window.refill(asked, answer)
    bare.hear(early, 1)
    seen = [ids(bare.lease(1)) for _ in range(4)]
    assert seen == [[(2, 0, 1, 1)], [(early, 0, 1, 1)], [(late, 0, 1, 1)], []]


def test_empty_answer_of_the_disk_does_not_hide_what_was_stored_after_the_question() -> None:
    bare = BareDelivery(limits=Limits(window_batches=1))
    bare.append(1)
    bare.append(1)
    bare.lease(1)
    asked = bare.delivery.window.shortage(TOPIC)
    assert asked is not None
    bare.write([Progress(TOPIC, 2, 1, 1)])
    answer = bare.disk.pending(TOPIC, after=asked.after, limit=asked.limit)
    bare.append(1)
    bare.delivery.window.refill(asked, answer)
    assert ids(bare.lease()) == [(3, 0, 1, 1)]


def test_I_5_full_topic_takes_no_more_until_something_is_settled() -> None:
    bare = BareDelivery(limits=Limits(topic_messages=10))
    bare.append(10)
    (one,) = bare.lease()
    assert not bare.has_room(TOPIC, 1)
    assert bare.has_room("acme/other", 10)
    bare.settle(Receipt(one.lease.batch.batch_id, 0, 3, 1))
    assert bare.has_room(TOPIC, 3) and not bare.has_room(TOPIC, 1)
    bare.delivery.topics.release(TOPIC, 3)
    assert bare.has_room(TOPIC, 3)


def test_I_5_global_ceiling_of_leases_holds_across_topics_and_wakes_those_it_kept_back() -> None:
    bare = BareDelivery(limits=Limits(inflight_messages=6))
    bare.append(10)
    assert ids(bare.lease()) == [(1, 0, 6, 1)]
    assert bare.lease() == []
    bare.woken.clear()
    bare.settle(Receipt(1, 0, 2, 1))
    assert bare.woken == [TOPIC]
    assert ids(bare.lease()) == [(1, 6, 2, 1)]


def test_I_5_messages_given_back_one_by_one_hold_up_newer_ones_instead_of_filling_the_memory() -> None:
    bare = BareDelivery(limits=Limits(topic_spans=20, window_batches=4))
    for _ in range(40):
        bare.append(10)
    topic = bare.delivery.topics.topic(TOPIC)
    assert topic is not None
    while leased := bare.lease(10):
        for one in leased:
            for index in range(one.first, one.first + one.count, 2):
                batch_id = one.lease.batch.batch_id
                bare.settle(Receipt(batch_id, index, index + 1, 1), final=False, delay_ms=5000)
                bare.settle(Receipt(batch_id, index + 1, index + 2, 1))
    assert 20 < topic.spans == bare.delivery.window.spans < 40
    seen = topic.spans
    bare.woken.clear()
    bare.clock.advance(seconds=5)
    while topic.messages:
        leased = bare.lease(10)
        assert leased, "what is tried again makes room for what is new"
        for one in leased:
            seen += one.count
            bare.settle(receipt(one))
            assert topic.spans < 40
    assert (topic.spans, bare.delivery.window.spans) == (0, 0) and TOPIC in bare.woken


def test_I_5_messages_that_came_back_one_by_one_are_handed_out_and_do_not_hold_each_other_up() -> None:
    bare = BareDelivery(limits=Limits(topic_spans=20))
    for _ in range(6):
        bare.append(10)
    topic = bare.delivery.topics.topic(TOPIC)
    assert topic is not None
    settling = Settling()
    for batch in topic.batches.values():
        for index in range(0, 10, 2):
            dead = MessageEnding(MessageState.DEAD, 1, "nack-dead")
            batch.move(settling, index, index + 1, Verb.END, attempt=1, ending=dead)
    bare.delivery.transitions.begin(settling)
    bare.delivery.transitions.confirm(settling)
    revival = Settling()
    order = Order(MessageOperation.REQUEUE, frozenset({MessageState.DEAD}), age_ns=5)
    assert sum(change(revival, batch, order, ones(0, 10)) for batch in topic.batches.values()) == 30
    bare.delivery.transitions.begin(revival)
    bare.delivery.transitions.confirm(revival)
    assert topic.spans == 30
    while topic.messages:
        leased = bare.lease(10)
        assert leased
        for one in leased:
            bare.settle(receipt(one))


def test_I_5_number_of_topics_is_bounded() -> None:
    bare = BareDelivery(limits=Limits(topics=2))
    assert [bare.has_room(f"acme/{n}", 1) for n in range(4)] == [True, True, False, False]


def test_bytes_bound_a_lease_but_one_message_always_comes() -> None:
    bare = BareDelivery()
    bare.append(10, size=1000)
    bare.append(10, size=1000)
    assert ids(bare.lease(max_bytes=350)) == [(1, 0, 3, 1)]
    assert ids(bare.lease(max_bytes=1)) == [(1, 3, 1, 1)]
    assert ids(bare.lease(max_bytes=1000)) == [(1, 4, 6, 1), (2, 0, 4, 1)]


def test_what_never_left_the_mailbox_is_ready_again_at_the_same_attempt() -> None:
    bare = BareDelivery()
    bare.append()
    (one,) = bare.lease()
    bare.delivery.give_back(one, keep=4)
    assert ids(bare.lease()) == [(1, 4, 6, 1)]
    assert bare.settle(Receipt(1, 0, 10, 1)) == DONE * 10


def test_withdrawn_batch_is_not_delivered_and_leaves_no_count_behind() -> None:
    bare = BareDelivery()
    bare.append(4)
    bare.append(3)
    bare.lease(2)
    assert bare.delivery.withdraw(TOPIC, 1) == 4
    assert ids(bare.lease()) == [(2, 0, 3, 1)]
    counts = bare.delivery.topics.counts(TOPIC)
    assert counts is not None and (counts.ready, counts.inflight) == (0, 3)
    bare.clock.advance(seconds=5)
    assert ids(bare.lease()) == [(2, 0, 3, 2)]


def test_timers_of_acknowledged_leases_do_not_pile_up() -> None:
    bare = BareDelivery()
    for _ in range(12_000):
        bare.append(1)
        (one,) = bare.lease(visibility_ms=43_200_000)
        bare.settle(receipt(one))
    assert len(bare.delivery.window.timers) < 10_000


def test_counts_tell_ready_inflight_and_age() -> None:
    bare = BareDelivery()
    bare.append(10)
    bare.clock.advance(seconds=2)
    bare.append(5)
    bare.lease(4)
    counts = bare.delivery.topics.counts(TOPIC)
    assert counts is not None and (counts.ready, counts.inflight, counts.oldest_age_ms) == (11, 4, 2000)
    bare.boot()
    again = bare.delivery.topics.counts(TOPIC)
    assert again is not None and (again.ready, again.inflight, again.oldest_age_ms) == (15, 0, 2000)


# -- receipts and ranges --------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(1020, 3100), st.integers(1, 2)), max_size=60), st.booleans())
def test_ranges_of_receipts_name_the_same_messages_in_the_same_order(
    named: list[tuple[int, int]], in_order: bool
) -> None:
    named = sorted(named) if in_order else named
    ranges = receipts([msg_id for msg_id, _ in named], [attempt for _, attempt in named])
    assert [
        (one.batch_id * 1024 + index, one.attempt) for one in ranges for index in range(one.first, one.end)
    ] == named


@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 40), st.integers(1, 20), st.integers(0, 5)), max_size=40)
)
def test_range_map_says_what_an_array_would(steps: list[tuple[bool, int, int, int]]) -> None:
    ranges: RangeMap[int] = RangeMap()
    array: list[int | None] = [None] * 60
    for put, lo, length, value in steps:
        if put:
            ranges.put(lo, lo + length, value)
        else:
            ranges.cut(lo, lo + length)
        array[lo : lo + length] = [value if put else None] * length
        spans = list(ranges)
        assert all(a[1] <= b[0] for a, b in pairwise(spans))
        assert [(i, v) for i, v in enumerate(array) if v is not None] == [
            (i, v) for lo, hi, v in ranges for i in range(lo, hi)
        ]
        assert ranges.over(lo, lo + length) == ([(lo, lo + length, value)] if put else [])


@given(st.integers(0, 2**70), st.integers(1, 64))
def test_zeros_of_a_bitmap_are_exactly_its_open_bits(bitmap: int, count: int) -> None:
    found = list(zeros(bitmap, count))
    assert [i for lo, hi in found for i in range(lo, hi)] == [i for i in range(count) if not bitmap >> i & 1]
    assert sum(ones(lo, hi) for lo, hi in found) == ~bitmap & ones(0, count)


# -- everything at once ---------------------------------------------------------------------------------


class Lives(RuleBasedStateMachine):
    """I-1: a message is acknowledged or comes again, whatever happens; none is acknowledged without an ack."""

    def __init__(self) -> None:
        super().__init__()
        self.bare = BareDelivery(limits=Limits(window_batches=3))
        self.alive: set[tuple[int, int]] = set()
        self.out: list[Receipt] = []

    @rule(count=st.integers(1, 6))
    def append(self, count: int) -> None:
        batch_id = self.bare.append(count)
        self.alive |= {(batch_id, index) for index in range(count)}

    @rule(n=st.integers(1, 9), holder=st.sampled_from([ME, OTHER]))
    def lease(self, n: int, holder: str) -> None:
        for one in self.bare.lease(n, holder=holder):
            assert {(one.lease.batch.batch_id, one.first + i) for i in range(one.count)} <= self.alive
            self.out.append(receipt(one))

    @precondition(lambda self: self.out)
    @rule(data=st.data(), final=st.booleans(), delay_ms=st.sampled_from([0, 700]), stored=st.booleans())
    def settle(self, data: st.DataObject, final: bool, delay_ms: int, stored: bool) -> None:
        whole = data.draw(st.sampled_from(self.out))
        lo = data.draw(st.integers(whole.first, whole.end - 1))
        part = Receipt(whole.batch_id, lo, data.draw(st.integers(lo + 1, whole.end)), whole.attempt)
        delivery = self.bare.delivery
        nack = NackTerms(delay_ms=delay_ms)
        settling = delivery.settle(TOPIC, [part], holder=ME, final=final, nack=nack)
        codes = b"".join(settling.codes)
        assert len(codes) == part.end - part.first
        if not stored:
            delivery.transitions.revert(settling)
            return
        self.commit()
        self.bare.write(settling.progress)
        delivery.transitions.confirm(settling)
        named = {(part.batch_id, part.first + i) for i, code in enumerate(codes) if code == 1}
        assert named <= self.alive
        if final:
            self.alive -= named

    @rule(seconds=st.sampled_from([0.3, 1.0]))
    def wait(self, seconds: float) -> None:
        self.bare.clock.advance(seconds=seconds)
        self.bare.delivery.tick()
        self.commit()

    def commit(self) -> None:
        """Write recorded progress; the mailbox's commits keep the order in which it was made."""
        self.bare.write(self.bare.recorded)
        self.bare.recorded.clear()

    @rule(written=st.booleans())
    def restart(self, written: bool) -> None:
        # Progress that was not committed is lost with the process, and never written by its next life.
        if written:
            self.commit()
        self.bare.recorded.clear()
        self.bare.boot()
        self.out.clear()

    @invariant()
    def counts_agree(self) -> None:
        counts = self.bare.delivery.topics.counts(TOPIC)
        if counts is not None:
            assert counts.ready + counts.inflight == len(self.alive)
            assert counts.inflight == self.bare.delivery.inflight.total

    def teardown(self) -> None:
        self.bare.clock.advance(seconds=100)
        seen: set[tuple[int, int]] = set()
        while leased := self.bare.lease(5, visibility_ms=10_000_000):
            for one in leased:
                messages = {(one.lease.batch.batch_id, one.first + i) for i in range(one.count)}
                assert not messages & seen
                seen |= messages
        assert seen == self.alive


def test_I_1_every_message_is_acknowledged_or_comes_again() -> None:
    run_state_machine_as_test(
        Lives, settings=settings(max_examples=60, stateful_step_count=40, deadline=None)
    )
