"""The queue to the next hop is fair by tenant, and within a tenant by source; compared with a plain model."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass

import pytest

from snavio.errors import Saturated
from snavio.hop.fair_queue import FairSendQueue
from snavio.native import Reply
from snavio.ports.queue import BatchPart


@dataclass(slots=True, eq=False)
class Piece:
    """A batch part of one source."""

    source: str
    count: int = 100
    size: int = 1000
    deadline_mono_ns: int = 2**62

    @property
    def body(self) -> bytes:
        return bytes(self.size)

    @property
    def buffer(self) -> bytes:
        return self.body

    def settle(self, offset: int, reply: Reply) -> None:
        raise AssertionError

    def lost(self, *, written: bool, cause: str) -> None:
        raise AssertionError


def source_of(piece: BatchPart) -> str:
    assert isinstance(piece, Piece)
    return piece.source


def queue(max_bytes: int = 1 << 30) -> FairSendQueue:
    return FairSendQueue(max_bytes=max_bytes, what="test")


def test_flood_of_one_tenant_waits_behind_itself() -> None:
    line = queue()
    for number in range(300):
        line.put(Piece(f"big/service-{number}"))
    line.put(neighbour := Piece("small/one"))
    taken = [line.take() for _ in range(3)]
    assert neighbour in taken


def test_tenants_share_alike_whatever_their_sources_and_sources_share_alike_within_them() -> None:
    line = queue()
    for _ in range(100):
        for source in ("acme/a", "acme/b", "acme/c", "globex/only"):
            line.put(Piece(source))
    served = Counter(source_of(line.take()) for _ in range(120))
    assert served["globex/only"] == pytest.approx(60, abs=2)
    for source in ("acme/a", "acme/b", "acme/c"):
        assert served[source] == pytest.approx(20, abs=2)


def test_large_batches_have_fewer_turns() -> None:
    line = queue()
    for _ in range(100):
        line.put(Piece("acme/large", count=900))
        line.put(Piece("globex/small", count=100))
    served = Counter(source_of(line.take()) for _ in range(50))
    assert served["globex/small"] == pytest.approx(45, abs=2)


def test_one_large_part_at_a_time_is_no_way_around_turns() -> None:
    line = queue()
    for _ in range(200):
        line.put(Piece("globex/small", count=100))
        line.put(Piece("acme/small", count=100))
    line.put(Piece("initech/large", count=1000))
    line.put(Piece("acme/large", count=1000))
    served: Counter[str] = Counter()
    for _ in range(100):
        taken = line.take()
        source = source_of(taken)
        served[source] += taken.count
        if source.endswith("large"):
            # It has nothing waiting in between, and comes back at once.
            line.put(Piece(source, count=1000))
    tenants = Counter[str]()
    for source, count in served.items():
        tenants[source.partition("/")[0]] += count
    for tenant in ("acme", "globex", "initech"):
        assert tenants[tenant] / tenants.total() == pytest.approx(1 / 3, abs=0.1)
    assert served["acme/large"] == pytest.approx(served["acme/small"], abs=1000)


def test_order_of_one_source_is_kept() -> None:
    line = queue()
    pieces = [Piece("acme/a", count=number % 7 + 1) for number in range(50)]
    for piece in pieces:
        line.put(piece)
    assert [line.take() for _ in pieces] == pieces
    assert not line


def test_bound_holds_for_all_together_and_the_rest_goes_on() -> None:
    line = queue(max_bytes=10_000)
    for _ in range(10):
        line.put(Piece("acme/a"))
    with pytest.raises(Saturated) as full:
        line.put(Piece("globex/b"))
    assert full.value.retry_after_ms > 0
    line.take()
    line.put(Piece("globex/b"))
    assert line.size == 10_000


@pytest.mark.parametrize("seed", range(20))
def test_counts_and_members_are_those_of_a_plain_list(seed: int) -> None:
    chance = random.Random(seed)
    line, model = queue(), list[Piece]()
    now = 0
    for _ in range(400):
        step = chance.random()
        if step < 0.55:
            source = f"{chance.choice('abc')}/{chance.choice('xyz')}"
            piece = Piece(source, chance.randint(1, 50), chance.randint(1, 99), now + chance.randint(1, 60))
            line.put(piece)
            model.append(piece)
        elif step < 0.9 and model:
            head = line.head()
            taken = line.take()
            assert taken is head and taken in model
            model.remove(taken)
        else:
            now += chance.randint(1, 20)
            late = line.overdue(now)
            assert sorted(map(id, late)) == sorted(id(each) for each in model if each.deadline_mono_ns <= now)
            model = [each for each in model if each.deadline_mono_ns > now]
        assert line.size == sum(each.size for each in model)
        assert line.commands == sum(each.count for each in model)
        assert bool(line) == bool(model)
        for tenant in "abc":
            assert (
                line.held(tenant)
                == line.held(f"{tenant}/x")
                == sum(each.size for each in model if each.source[0] == tenant)
            )
