"""Turns between sources are fair, whatever each of them has queued."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import replace

import pytest

from services.slow.deficit_round_robin import DeficitRoundRobin
from snavio.errors import Saturated
from snavio.host.shares import ShareLimit, Shares


def queue(
    *, max_cost: int = 10_000, max_tenant_cost: int = 0, max_queue_cost: int = 1000
) -> DeficitRoundRobin[str]:
    shares = Shares("waiting_commands", ShareLimit(max_cost, max_tenant_cost or max_cost))
    return DeficitRoundRobin(quantum=10, shares=shares, max_queue_cost=max_queue_cost)


async def taken(waiting: DeficitRoundRobin[str], most: int) -> list[str]:
    """A round that ends at once."""
    found = await waiting.take(most)
    waiting.finish(found)
    return list(found.items)


async def test_a_newcomer_is_in_the_next_round_behind_a_flood() -> None:
    waiting = queue()
    for number in range(100):
        waiting.put("flood", f"flood-{number}", cost=10)
    waiting.put("quiet", "quiet-0", cost=10)
    assert await taken(waiting, 20) == ["flood-0", "quiet-0"]


async def test_sources_with_small_and_with_large_items_get_the_same_share() -> None:
    chance, waiting = random.Random(1), queue(max_queue_cost=1_000_000, max_cost=10_000_000)
    costs = {"large": 97, "small": 1, "middle": 13}
    for source, cost in costs.items():
        for _ in range(60_000 // cost):
            waiting.put(source, source, cost=cost)
    served: Counter[str] = Counter()
    for _ in range(300):
        for source in await taken(waiting, chance.randint(50, 150)):
            served[source] += costs[source]
    shares = [served[source] / served.total() for source in costs]
    assert all(0.30 < share < 0.37 for share in shares)


async def test_queues_that_are_held_back_get_at_most_a_fifth_of_the_turns() -> None:
    waiting = queue(max_queue_cost=100_000, max_cost=1_000_000)
    for _ in range(5000):
        waiting.put("banned", "banned", cost=1, held=True)
        waiting.put("other", "other", cost=1)
    first = Counter((await waiting.take(60)).items)
    assert first == {"other": 50, "banned": 10}
    # Theirs is not over: the others have the next one to themselves.
    assert Counter((await waiting.take(60)).items) == {"other": 60}


async def test_queues_that_are_held_back_have_one_round_at_a_time_and_little_of_it() -> None:
    waiting = queue()
    for _ in range(100):
        waiting.put("banned", "banned", cost=1, held=True)
        waiting.put("banned too", "banned", cost=1, held=True)
    first = await waiting.take(100)
    assert (len(first.items), first.held) == (20, True)
    second = asyncio.create_task(waiting.take(100))
    await asyncio.sleep(0)
    assert not second.done()
    waiting.put("quiet", "quiet", cost=1)
    assert (await second).items == ("quiet",)
    third = asyncio.create_task(waiting.take(100))
    await asyncio.sleep(0)
    assert not third.done()
    waiting.finish(first)
    assert (await third).held


@pytest.mark.parametrize(("others", "rest_s"), [(False, 4.0), (True, 9.0)])
async def test_held_queues_have_a_fifth_of_the_time_alone_and_a_tenth_beside_others(
    others: bool, rest_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting, loop, pauses = queue(), asyncio.get_running_loop(), list[float]()
    monkeypatch.setattr(loop, "call_later", lambda pause, _then: pauses.append(pause))
    waiting.put("banned", "banned", cost=1, held=True)
    if others:
        waiting.put("other", "other", cost=1)
    held = await waiting.take(1 if not others else 100)
    waiting.finish(replace(held, began_s=loop.time() - 1))
    assert pauses == [pytest.approx(rest_s, rel=0.1)]


async def test_who_had_nothing_waiting_has_saved_up_nothing() -> None:
    waiting = queue()
    for _ in range(50):
        waiting.put("patient", "patient", cost=1)
        await taken(waiting, 1)
    for _ in range(50):
        waiting.put("patient", "patient", cost=1)
        waiting.put("other", "other", cost=1)
    assert set(await taken(waiting, 20)) == {"patient", "other"}


async def test_a_full_queue_refuses_its_source_and_nobody_else() -> None:
    waiting = queue(max_queue_cost=100)
    for _ in range(10):
        waiting.put("flood", "f", cost=10)
    with pytest.raises(Saturated) as refused:
        waiting.put("flood", "f", cost=1)
    assert refused.value.retry_after_ms > 0
    waiting.put("quiet", "q", cost=100)
    await taken(waiting, 10)
    waiting.put("flood", "f", cost=10)


async def test_everything_together_is_bounded() -> None:
    waiting = queue(max_cost=100)
    for number in range(10):
        waiting.put(f"source-{number}", "x", cost=10)
    with pytest.raises(Saturated):
        waiting.put("another", "x", cost=1)
    assert (waiting.cost, waiting.queues) == (100, 10)


async def test_many_sources_of_one_tenant_leave_room_for_another_tenant() -> None:
    waiting = queue(max_cost=100, max_tenant_cost=25, max_queue_cost=10)
    for number in range(2):
        waiting.put(f"loud/service-{number}", "x", cost=10)
    with pytest.raises(Saturated, match="loud has its share") as refused:
        waiting.put("loud/service-2", "x", cost=10)
    assert (refused.value.reason, refused.value.retry_after_ms > 0) == ("tenant-share", True)
    # What is held back is the tenant's too.
    with pytest.raises(Saturated, match="loud has its share"):
        waiting.put("loud/service-1 banned", "x", cost=10, held=True)
    for number in range(8):
        waiting.put(f"quiet-{number}/service", "x", cost=10)
    with pytest.raises(Saturated, match="Too many"):
        waiting.put("late/service", "x", cost=10)
    # What was taken is given back, to the tenant and in all.
    assert len(await taken(waiting, 20)) == 2
    waiting.put("loud/service-2", "x", cost=10)
    waiting.put("late/service", "x", cost=10)
    assert waiting.cost == 100


async def test_an_item_larger_than_its_tenants_share_is_taken_while_the_tenant_has_nothing_waiting() -> None:
    waiting = queue(max_cost=100, max_tenant_cost=25)
    waiting.put("acme/billing", "large", cost=60)
    with pytest.raises(Saturated, match="acme has its share"):
        waiting.put("acme/shop", "small", cost=1)
    waiting.put("globex/shop", "other", cost=40)
    assert {*await taken(waiting, 200)} == {"large", "other"}
    waiting.put("acme/shop", "small", cost=1)


async def test_an_item_larger_than_a_round_is_served_all_the_same() -> None:
    waiting = queue()
    waiting.put("one", "huge", cost=900)
    assert await taken(waiting, 20) == ["huge"]
    assert (waiting.cost, waiting.queues) == (0, 0)


async def test_taking_waits_for_the_first() -> None:
    waiting = queue()
    taking = asyncio.create_task(taken(waiting, 10))
    await asyncio.sleep(0)
    assert not taking.done()
    waiting.put("one", "x", cost=1)
    assert await taking == ["x"]
