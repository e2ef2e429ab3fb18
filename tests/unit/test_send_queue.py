"""A source that waits for Slow waits behind its own commands, not behind a flood of another."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from snavio.errors import Saturated
from snavio.hop import fair_queue
from snavio.hop.fair_queue import FairSendQueue
from snavio.hop.send_queue import FifoSendQueue
from snavio.native import Reply
from snavio.ports.queue import BatchPart


@dataclass(frozen=True)
class Piece:
    """Commands of one source."""

    source: str
    count: int = 1
    body: bytes = b"x" * 10
    deadline_mono_ns: int = 100

    @property
    def buffer(self) -> bytes:
        return self.body

    def settle(self, offset: int, reply: Reply) -> None: ...
    def lost(self, *, written: bool, cause: str) -> None: ...


def source_of(batch_part: BatchPart) -> str:
    assert isinstance(batch_part, Piece)
    return batch_part.source


def line(**bounds: int) -> FairSendQueue:
    given = {"max_bytes": 1 << 20, "max_source_bytes": 1 << 16, "max_source_commands": 5000, **bounds}
    return FairSendQueue(**given, what="test")


def taken(fair: FairSendQueue, number: int) -> list[str]:
    return [source_of(fair.take()) for _ in range(number)]


def test_a_flood_waits_behind_itself() -> None:
    fair = line()
    for _ in range(100):
        fair.put(Piece("evil/flood", count=10))
    for source in ("acme/a", "acme/b", "acme/c"):
        fair.put(Piece(source))
    # The flood came first and has its first turn; then it has had ten times the others' demand.
    assert taken(fair, 4) == ["evil/flood", "acme/a", "acme/b", "acme/c"]
    assert fair.commands == 990


def test_a_source_that_comes_later_is_next_and_not_last() -> None:
    fair = line()
    for _ in range(100):
        fair.put(Piece("evil/flood", count=10))
    taken(fair, 50)
    fair.put(Piece("acme/late"))
    # At most the batch that is being served goes before it.
    assert "acme/late" in taken(fair, 2)


def test_turns_are_counted_in_commands() -> None:
    fair = line()
    for _ in range(30):
        fair.put(Piece("acme/large", count=100))
        fair.put(Piece("acme/small", count=10))
    served = Counter(taken(fair, 22))
    assert served["acme/small"] >= 19


def test_a_full_share_refuses_its_source_alone_and_with_a_hint() -> None:
    fair = line(max_source_commands=100)
    for _ in range(10):
        fair.put(Piece("evil/flood", count=10))
    with pytest.raises(Saturated) as refused:
        fair.put(Piece("evil/flood"))
    assert refused.value.retry_after_ms > 0
    fair.put(Piece("acme/a"))
    assert (fair.refused, fair.commands, fair.sources) == (1, 101, 2)
    assert source_of(fair.take()) == "evil/flood"
    fair.put(Piece("evil/flood", count=10))


def test_sources_of_one_tenant_fill_the_tenants_share_and_leave_room_for_others() -> None:
    fair = line(max_bytes=100, max_tenant_bytes=50)
    for number in range(5):
        fair.put(Piece(f"evil/{number}"))
    with pytest.raises(Saturated):
        fair.put(Piece("evil/more"))
    fair.put(Piece("acme/a"))
    assert (fair.held("evil"), fair.held("acme"), fair.refused) == (50, 10, 1)
    while fair.held("evil") == 50:
        fair.take()
    fair.put(Piece("evil/more"))


def test_a_tenants_share_smaller_than_one_part_still_lets_one_wait() -> None:
    fair = line(max_tenant_bytes=5)
    fair.put(Piece("acme/a"))
    with pytest.raises(Saturated):
        fair.put(Piece("acme/b"))
    fair.put(Piece("globex/b"))


def test_a_share_smaller_than_one_part_still_lets_one_wait() -> None:
    fair = line(max_source_bytes=5, max_source_commands=1)
    fair.put(Piece("acme/a", count=50))
    with pytest.raises(Saturated):
        fair.put(Piece("acme/a", count=50))


def test_all_sources_together_have_a_bound() -> None:
    fair = line(max_bytes=100)
    for number in range(10):
        fair.put(Piece(f"acme/{number}"))
    with pytest.raises(Saturated):
        fair.put(Piece("acme/more"))


def test_everybody_whose_time_is_over_leaves_and_the_others_keep_their_turns() -> None:
    for empty in (line(), FifoSendQueue(max_bytes=1000, what="test")):
        pieces = [Piece("acme/a", deadline_mono_ns=number) for number in (5, 50, 6)]
        for piece in pieces:
            empty.put(piece)
        assert empty.overdue(4) == []
        assert set(empty.overdue(6)) == {pieces[0], pieces[2]}
        assert (empty.size, empty.commands, bool(empty)) == (10, 1, True)
        assert empty.head() is pieces[1]
        assert empty.take() is pieces[1]
        assert (empty.size, empty.commands, bool(empty)) == (0, 0, False)


def test_in_order_is_in_order_and_bounded() -> None:
    order = FifoSendQueue(max_bytes=20, what="test")
    order.put(Piece("b"))
    order.put(Piece("a"))
    with pytest.raises(Saturated):
        order.put(Piece("c"))
    assert [source_of(order.take()), source_of(order.take())] == ["b", "a"]


def test_sources_that_came_once_are_not_remembered_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fair_queue, "REMEMBERED_TURNS", 10)
    fair = line()
    for _ in range(50):
        fair.put(Piece("evil/flood", count=1))
    for number in range(500):
        fair.put(Piece(f"acme/{number}", count=1000))
        taken(fair, 2)
        fair.put(Piece("evil/flood", count=1))
    tenants = fair._tenants.values()
    assert fair._turns.remembered <= 10 + 2
    assert sum(tenant.turns.remembered for tenant in tenants) <= 2 * 10 + fair.sources


puts = st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 9)), max_size=60)


@settings(max_examples=100, deadline=None)
@given(puts=puts, takes=st.integers(0, 60))
def test_nothing_is_lost_and_each_source_keeps_its_own_order(puts: list[tuple[str, int]], takes: int) -> None:
    fair, told = line(), []
    for number, (source, count) in enumerate(puts):
        piece = Piece(source, count, deadline_mono_ns=1000 + number)
        fair.put(piece)
        told.append(piece)
    out = [fair.take() for _ in range(min(takes, len(puts)))]
    out += fair.overdue(10_000)
    assert Counter(id(each) for each in out) == Counter(id(each) for each in told)
    for source in "abc":
        deadlines = [each.deadline_mono_ns for each in out[:takes] if source_of(each) == source]
        assert deadlines == sorted(deadlines)
    assert (fair.size, fair.commands, fair.sources, fair._turns.remembered) == (0, 0, 0, 0)
    assert not fair._tenants


class SlowTwin:
    """The bounds of a fair queue over one list, counted anew for each question."""

    def __init__(self) -> None:
        self.waiting: list[Piece] = []

    def fits(self, piece: Piece) -> bool:
        own = [each for each in self.waiting if each.source == piece.source]
        tenants = [each for each in self.waiting if tenant_of(each) == tenant_of(piece)]
        return not (
            size(self.waiting, piece) > 300
            or (tenants and size(tenants, piece) > 150)
            or (own and (size(own, piece) > 80 or sum(each.count for each in (*own, piece)) > 20))
        )


def tenant_of(piece: Piece) -> str:
    return piece.source.partition("/")[0]


def size(waiting: list[Piece], *more: Piece) -> int:
    return sum(len(each.body) for each in (*waiting, *more))


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_bounds_and_counts_are_those_of_a_slow_twin_whatever_comes_leaves_or_is_late(seed: int) -> None:
    chance, twin, now = random.Random(seed), SlowTwin(), 0
    fair = line(max_bytes=300, max_tenant_bytes=150, max_source_bytes=80, max_source_commands=20)
    refused = 0
    for _ in range(120):
        step = chance.random()
        if step < 0.6:
            source = chance.choice(["a/x", "a/y", "a/z", "b/x", "c/x", "", "a"])
            body = bytes(chance.choice([0, 1, 30, 90]))
            piece = Piece(source, chance.choice([0, 1, 7, 25]), body, now + chance.randint(-2, 40))
            if twin.fits(piece):
                fair.put(piece)
                twin.waiting.append(piece)
            else:
                refused += piece.count
                with pytest.raises(Saturated):
                    fair.put(piece)
        elif step < 0.85 and fair:
            head = fair.head()
            assert fair.take() is head
            assert next(each for each in twin.waiting if each.source == source_of(head)) is head
            twin.waiting = [each for each in twin.waiting if each is not head]
        else:
            now += chance.randint(0, 10)
            late = Counter(id(each) for each in twin.waiting if each.deadline_mono_ns <= now)
            assert Counter(id(each) for each in fair.overdue(now)) == late
            twin.waiting = [each for each in twin.waiting if each.deadline_mono_ns > now]
        assert (fair.size, fair.commands) == (size(twin.waiting), sum(each.count for each in twin.waiting))
        assert (bool(fair), fair.refused) == (bool(twin.waiting), refused)
        assert fair.sources == len({each.source for each in twin.waiting})
        for tenant in "abc":
            assert fair.held(tenant) == size([each for each in twin.waiting if tenant_of(each) == tenant])
