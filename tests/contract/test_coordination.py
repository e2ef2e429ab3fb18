"""The promises of every coordination store: exact limits, one owner per strict id, and detection of lost records."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from snavio.domain.claim import Claimed
from snavio.domain.quota import GrantState, LimitRule, Permits
from snavio.errors import Saturated
from snavio.ports.coordination import BanSeen, ClaimAsk, Coordination, PermitAsk, PermitReturn
from tests.support.coordination import TERMS, Servers, Shop
from tests.support.moto import MotoServer
from tests.support.redis import RedisServer

KEY = ("discord-bot", "delete-user")
MINUTE = LimitRule(max=100, interval_ms=60_000)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    redis = RedisServer(tmp_path_factory.mktemp("redis"), fsync=None)
    asyncio.run(redis.start())
    try:
        yield Servers(redis, MotoServer())
    finally:
        redis.kill()


# DynamoDB runs the same suite in `test_coordination_dynamo.py`: moto's server is slow.
@pytest.fixture(params=["sqlite", "redis"])
def shop(request: pytest.FixtureRequest, tmp_path: Path, servers: Servers) -> Shop:
    return Shop(request.param, tmp_path, servers)


async def taken(store: Coordination, want: int, rule: LimitRule = MINUTE) -> int:
    [permits] = await store.take([PermitAsk(KEY, rule, want)])
    return permits.count


async def granted(
    store: Coordination, want: int, rule: LimitRule = MINUTE, instance: str = "fast-0", leases: int = 5
) -> Permits:
    [permits] = await store.grant([PermitAsk(KEY, rule, want)], instance=instance, leases=leases)
    return permits


# -- limits


async def test_no_more_than_the_maximum_leaves_one_interval_and_the_next_begins_anew(shop: Shop) -> None:
    async with shop.open() as store:
        assert [await taken(store, 60), await taken(store, 60), await taken(store, 1)] == [60, 40, 0]
        shop.clock.advance(seconds=59.999)
        assert await taken(store, 1) == 0
        shop.clock.advance(seconds=0.001)
        assert await taken(store, 101) == 100


async def test_a_refusal_says_when_the_interval_ends(shop: Shop) -> None:
    async with shop.open() as store:
        await taken(store, 100)
        shop.clock.advance(seconds=5)
        [permits] = await store.take([PermitAsk(KEY, MINUTE, 1)])
        now_ms = shop.clock.unix_ns() // 1_000_000
        assert permits.state is GrantState.EXHAUSTED
        assert permits.interval_end_ms == (now_ms // 60_000 + 1) * 60_000
        assert permits.retry_after_ms == permits.interval_end_ms - now_ms


async def test_entries_of_a_batch_are_decided_in_order_and_keys_do_not_mix(shop: Shop) -> None:
    async with shop.open() as store:
        asks = [
            PermitAsk(KEY, MINUTE, 70),
            PermitAsk(("other", "name"), MINUTE, 100),
            PermitAsk(KEY, MINUTE, 70),
        ]
        assert [permits.count for permits in await store.take(asks)] == [70, 100, 30]


async def test_two_instances_share_one_limit(shop: Shop) -> None:
    if shop.kind == "sqlite":
        pytest.skip("has one owner")
    async with shop.open() as one, shop.open() as two:
        counts = await asyncio.gather(*(taken(store, 7) for store in (one, two) * 10))
        assert sum(counts) == 100


async def test_permits_that_come_back_in_their_interval_can_be_taken_again(shop: Shop) -> None:
    async with shop.open() as store:
        [permits] = await store.take([PermitAsk(KEY, MINUTE, 100)])
        back = PermitReturn(KEY, MINUTE.interval_ms, permits.interval, 30)
        await store.give_back([back])
        assert await taken(store, 50) == 30
        shop.clock.advance(seconds=60)
        await taken(store, 100)
        await store.give_back([back])
        assert await taken(store, 50) == 0


async def test_no_more_comes_back_than_was_issued(shop: Shop) -> None:
    async with shop.open() as store:
        await taken(store, 90)
        permits = await granted(store, 5)
        assert permits.count == 0  # the last tenth is not granted
        await store.give_back([PermitReturn(KEY, 60_000, permits.interval, 1000, granted=True)])
        assert await taken(store, 100) == 10
        await store.give_back([PermitReturn(KEY, 60_000, permits.interval, 1000)])
        assert await taken(store, 1000) == 100


async def test_a_grant_is_at_most_a_twentieth_and_is_debited_when_it_is_issued(shop: Shop) -> None:
    async with shop.open() as store:
        permits = await granted(store, 1000)
        assert (permits.count, permits.state, permits.used) == (5, GrantState.ISSUED, 5)
        assert await taken(store, 1000) == 95


async def test_a_grant_does_not_outlive_its_interval(shop: Shop) -> None:
    async with shop.open() as store:
        left_ms = 60_000 - shop.clock.unix_ns() // 1_000_000 % 60_000
        permits = await granted(store, 5)
        assert 0 < permits.life_ms <= left_ms
        shop.clock.advance(ns=(left_ms - 10) * 1_000_000)
        assert (await granted(store, 5)).life_ms < 10


async def test_small_limits_and_low_remainders_are_decided_by_slow(shop: Shop) -> None:
    async with shop.open() as store:
        assert (await granted(store, 5, replace(MINUTE, max=99))).state is GrantState.DECIDED_BY_SLOW
        await taken(store, 89)
        assert (await granted(store, 5)).state is GrantState.ISSUED
        assert (await granted(store, 5)).state is GrantState.DECIDED_BY_SLOW
        await taken(store, 6)
        assert (await granted(store, 5)).state is GrantState.EXHAUSTED


async def test_five_instances_prefetch_in_one_second_and_a_sixth_in_the_next(shop: Shop) -> None:
    rule = replace(MINUTE, max=10_000)
    async with shop.open() as store:
        states = [(await granted(store, 5, rule, f"fast-{number}")).state for number in range(6)]
        assert states == [GrantState.ISSUED] * 5 + [GrantState.NO_LEASE]
        assert (await granted(store, 5, rule, "fast-0")).state is GrantState.ISSUED
        refused = await granted(store, 5, rule, "fast-5")
        assert 0 < refused.retry_after_ms <= 1000
        shop.clock.advance(ns=refused.retry_after_ms * 1_000_000)
        assert (await granted(store, 5, rule, "fast-5")).state is GrantState.ISSUED


async def test_no_second_holds_more_than_the_burst_even_across_aligned_seconds(shop: Shop) -> None:
    rule = replace(MINUTE, burst=10)
    async with shop.open() as store:
        shop.clock.advance(ns=950_000_000)
        assert await taken(store, 8, rule) == 8
        shop.clock.advance(ns=100_000_000)  # the next aligned second, 100 ms later
        assert await taken(store, 8, rule) == 2
        [refused] = await store.take([PermitAsk(KEY, rule, 1)])
        assert 0 < refused.retry_after_ms <= 1100
        shop.clock.advance(ns=refused.retry_after_ms * 1_000_000)
        assert await taken(store, 20, rule) == 8


async def test_granted_permits_count_against_every_second_in_which_they_may_be_used(shop: Shop) -> None:
    rule = replace(MINUTE, max=1000, burst=40)
    async with shop.open() as store:
        permits = await granted(store, 30, rule)
        assert (permits.count, permits.life_ms < 1000) == (30, True)
        shop.clock.advance(seconds=1)
        # The last of them may have been used 0.3 s ago.
        assert await taken(store, 2, rule) == 2
        assert (await granted(store, 50, rule)).count == 8
        assert await taken(store, 40, rule) == 0


async def test_cooldown_follows_the_reached_limit_even_into_the_next_interval(shop: Shop) -> None:
    rule = replace(MINUTE, cooldown_ms=30_000)
    async with shop.open() as store:
        shop.clock.advance(seconds=50)
        await taken(store, 100, rule)
        shop.clock.advance(seconds=20)
        [refused] = await store.take([PermitAsk(KEY, rule, 1)])
        assert (refused.count, refused.retry_after_ms) == (0, 10_000)
        shop.clock.advance(seconds=10)
        assert await taken(store, 1, rule) == 1


async def test_shadow_counts_and_reports_and_refuses_nothing(shop: Shop) -> None:
    rule = replace(MINUTE, shadow=True)
    async with shop.open() as store:
        [first, second] = await store.take([PermitAsk(KEY, rule, 80), PermitAsk(KEY, rule, 80)])
        assert [(each.count, each.over) for each in (first, second)] == [(80, 0), (80, 60)]
        assert (await granted(store, 5, rule)).count == 5
        assert await taken(store, 1) == 0  # in earnest, nothing is left


async def test_a_limit_that_gets_another_interval_keeps_what_was_used_where_they_overlap(shop: Shop) -> None:
    async with shop.open() as store:
        await taken(store, 100)
        assert await taken(store, 1, replace(MINUTE, interval_ms=3_600_000)) == 0
        assert await taken(store, 1, replace(MINUTE, interval_ms=1000)) == 0
        shop.clock.advance(seconds=3600)
        assert await taken(store, 1, replace(MINUTE, interval_ms=1000)) == 1


# -- a store's memory and its clock


async def test_what_was_used_is_remembered_when_everybody_was_away(shop: Shop) -> None:
    async with shop.open() as store:
        await taken(store, 60)
    async with shop.open(known_epoch=f"{shop.name}-1") as store:
        assert await taken(store, 60) == 40


async def test_a_store_that_came_back_empty_waits_for_the_next_interval(shop: Shop) -> None:
    async with shop.open() as store:
        assert await taken(store, 10) == 10
    await shop.forget_everything()
    async with shop.open(known_epoch=f"{shop.name}-1") as store:
        assert await taken(store, 1) == 0
        [daily] = await store.take([PermitAsk(("a", "b"), LimitRule(max=5, interval_ms=86_400_000), 1)])
        assert daily.count == 0
        shop.clock.advance(seconds=60)
        assert await taken(store, 200) == 100


async def test_a_redis_that_went_back_in_time_waits_for_the_next_interval_and_the_dedupe_time(
    shop: Shop,
) -> None:
    """Its epoch is the known one: only its lower count of calls shows the loss."""
    if shop.kind != "redis":
        pytest.skip("syncs what it answers")
    async with shop.open() as store, shop.open() as other:
        assert [await taken(store, 10), await taken(other, 10)] == [10, 10]
        async with shop.going_back():
            assert await taken(store, 80) == 80
            assert await claimed(store, 1) is Claimed.NEW
            await store.commit([ask(1)], owner="a")
        assert await taken(store, 1) == 0
        assert await taken(other, 1) == 0
        assert await claimed(store, 1) is Claimed.UNKNOWN
        shop.clock.advance(seconds=60)
        assert await taken(other, 200) == 100
        shop.clock.advance(seconds=240)
        assert await claimed(other, 2) is Claimed.NEW


async def test_a_store_that_nobody_has_known_works_at_once(shop: Shop) -> None:
    async with shop.open() as store:
        assert await taken(store, 1) == 1
        assert (await claimed(store, 1)) is Claimed.NEW


async def test_a_newcomer_that_found_an_emptied_store_is_corrected_by_whoever_knows_better(
    shop: Shop,
) -> None:
    async with shop.open() as newcomer:
        assert await taken(newcomer, 1) == 1
    async with shop.open(known_epoch="another") as witness:
        assert await taken(witness, 1) == 0
        shop.clock.advance(seconds=60)
        assert await taken(witness, 1) == 1


async def test_an_hour_back_is_an_interval_lost_and_no_more(shop: Shop) -> None:
    async with shop.open() as store:
        await taken(store, 10)
    behind = type(shop.clock)(shop.clock.unix_ns() - 3_600_000_000_000)
    async with shop.open(known_epoch=f"{shop.name}-1", clock=behind) as store:
        assert await taken(store, 1) == 0
        behind.advance(seconds=60)
        assert await taken(store, 200) == 100


async def test_an_interval_that_the_clock_steps_back_out_of_is_not_given_twice(shop: Shop) -> None:
    to_the_end_ns = 60_000_000_000 - shop.clock.unix_ns() % 60_000_000_000
    async with shop.open() as store:
        shop.clock.advance(ns=to_the_end_ns + 2_000_000)
        assert await taken(store, 70) == 70
        # As when two instances disagree slightly about the store's time.
        shop.clock.advance(ns=-5_000_000)
        [permits] = await store.take([PermitAsk(KEY, MINUTE, 1)])
        assert (permits.count, permits.retry_after_ms) == (0, 3)
        assert (await granted(store, 5)).count == 0
        shop.clock.advance(ns=3_000_000)
        assert await taken(store, 70) == 30


async def test_a_cooldown_outlives_a_clock_that_is_set_back(shop: Shop) -> None:
    rule = replace(MINUTE, cooldown_ms=600_000)
    async with shop.open() as store:
        assert await taken(store, 100, rule) == 100
    behind = type(shop.clock)(shop.clock.unix_ns() - 3_600_000_000_000)
    async with shop.open(known_epoch=f"{shop.name}-1", clock=behind) as store:
        assert await taken(store, 1, rule) == 0
        behind.advance(seconds=599)
        assert await taken(store, 1, rule) == 0
        behind.advance(seconds=60)
        assert await taken(store, 1, rule) == 1


async def test_an_hour_forward_begins_a_new_interval(shop: Shop) -> None:
    async with shop.open() as store:
        await taken(store, 100)
    ahead = type(shop.clock)(shop.clock.unix_ns() + 3_600_000_000_000)
    async with shop.open(known_epoch=f"{shop.name}-1", clock=ahead) as store:
        assert await taken(store, 200) == 100


# -- strict ids


def ask(number: int = 1, payload: bytes = b"p" * 32, source: str = "acme/billing") -> ClaimAsk:
    return ClaimAsk(source, number.to_bytes(16), payload)


async def claimed(
    store: Coordination,
    number: int = 1,
    owner: str = "a",
    payload: bytes = b"p" * 32,
    source: str = "acme/billing",
) -> Claimed:
    [answer] = await store.claim([ask(number, payload, source)], owner=owner)
    return answer.claimed


async def test_every_duplicate_of_a_committed_id_gets_the_first_outcome(shop: Shop) -> None:
    async with shop.open() as store:
        assert await claimed(store) is Claimed.NEW
        shop.clock.advance(seconds=2)
        await store.commit([ask()], owner="a")
        committed_ms = shop.clock.unix_ns() // 1_000_000
        shop.clock.advance(seconds=1)
        assert [await claimed(store, owner=f"b{turn}") for turn in range(7)] == [Claimed.DUPLICATE] * 7
        [answer] = await store.claim([ask()], owner="c")
        assert answer.delivered_unix_ms == committed_ms
        shop.clock.advance(seconds=298)
        assert await claimed(store) is Claimed.DUPLICATE


async def test_looking_an_id_up_tells_what_a_claim_would_and_claims_nothing(shop: Shop) -> None:
    async def seen(store: Coordination) -> Claimed:
        looked = await store.look_up("acme/billing", ask().command_id)
        assert await store.look_up("acme/billing", ask().command_id) == looked
        return looked.claimed

    async with shop.open() as store:
        assert await seen(store) is Claimed.NEW
        assert await claimed(store) is Claimed.NEW
        looked = await store.look_up("acme/billing", ask().command_id)
        assert (looked.claimed, looked.retry_after_ms) == (Claimed.PENDING, TERMS.lease_ms)
        shop.clock.advance(seconds=TERMS.lease_ms / 1000)
        assert await seen(store) is Claimed.TAKEN_OVER
        assert await claimed(store, owner="b") is Claimed.TAKEN_OVER
        await store.commit([ask()], owner="b")
        looked = await store.look_up("acme/billing", ask().command_id)
        assert (looked.claimed, looked.delivered_unix_ms) == (
            Claimed.DUPLICATE,
            shop.clock.unix_ns() // 1_000_000,
        )
        assert (await store.look_up("acme/shop", ask().command_id)).claimed is Claimed.NEW
        shop.clock.advance(seconds=TERMS.keep_ms / 1000)
        assert await seen(store) is Claimed.NEW


async def test_an_id_is_free_again_after_the_dedupe_time_although_the_record_may_still_lie_there(
    shop: Shop,
) -> None:
    async with shop.open() as store:
        await claimed(store)
        await store.commit([ask()], owner="a")
        shop.clock.advance(seconds=300)
        assert await claimed(store, payload=b"q" * 32) is Claimed.NEW


async def test_another_payload_is_a_conflict_pending_or_committed(shop: Shop) -> None:
    async with shop.open() as store:
        await claimed(store)
        assert await claimed(store, owner="b", payload=b"q" * 32) is Claimed.CONFLICT
        await store.commit([ask()], owner="a")
        assert await claimed(store, owner="b", payload=b"q" * 32) is Claimed.CONFLICT


async def test_a_second_claim_waits_while_the_first_is_at_it(shop: Shop) -> None:
    async with shop.open() as store:
        first, second = await store.claim([ask(), ask()], owner="a")
        assert (first.claimed, second.claimed) == (Claimed.NEW, Claimed.PENDING)
        assert 0 < second.retry_after_ms <= TERMS.lease_ms


async def test_a_released_id_is_free_at_once_and_a_committed_one_is_not(shop: Shop) -> None:
    async with shop.open() as store:
        await claimed(store)
        await store.release([ask()], owner="b")
        assert await claimed(store, owner="c") is Claimed.PENDING
        await store.release([ask()], owner="a")
        assert await claimed(store, owner="c") is Claimed.NEW
        await store.commit([ask()], owner="c")
        await store.release([ask()], owner="c")
        assert await claimed(store, owner="d") is Claimed.DUPLICATE


async def test_a_dead_owners_claim_is_taken_over_after_its_lease_and_its_late_commit_changes_nothing(
    shop: Shop,
) -> None:
    async with shop.open() as store:
        await claimed(store, owner="dead")
        shop.clock.advance(ns=(TERMS.lease_ms - 1) * 1_000_000)
        assert await claimed(store, owner="heir") is Claimed.PENDING
        shop.clock.advance(ns=1_000_000)
        assert await claimed(store, owner="heir") is Claimed.TAKEN_OVER
        await store.commit([ask()], owner="dead")
        await store.release([ask()], owner="dead")
        assert await claimed(store, owner="third") is Claimed.PENDING
        await store.commit([ask()], owner="heir")
        assert await claimed(store, owner="third") is Claimed.DUPLICATE


async def test_one_source_cannot_claim_anothers_id(shop: Shop) -> None:
    async with shop.open() as store:
        await claimed(store, source="acme/billing")
        assert await claimed(store, source="globex/shop", payload=b"q" * 32) is Claimed.NEW


async def test_ids_are_refused_for_the_dedupe_time_by_a_store_that_came_back_empty(shop: Shop) -> None:
    async with shop.open() as store:
        await claimed(store)
    await shop.forget_everything()
    async with shop.open(known_epoch=f"{shop.name}-1") as store:
        assert await claimed(store) is Claimed.UNKNOWN
        shop.clock.advance(seconds=299)
        [answer] = await store.claim([ask()], owner="a")
        assert (answer.claimed, answer.retry_after_ms) == (Claimed.UNKNOWN, 1000)
        shop.clock.advance(seconds=1)
        assert await claimed(store) is Claimed.NEW


async def test_a_full_table_refuses_and_forgets_nobody(shop: Shop) -> None:
    if shop.kind == "dynamo":
        pytest.skip("grows with what is paid for")
    async with shop.open(max_claims=8, per_source=5) as store:
        for number in range(5):
            await claimed(store, number)
        with pytest.raises(Saturated):
            await claimed(store, 5)
        for number in range(3):
            await claimed(store, number, source="globex/shop")
        with pytest.raises(Saturated):
            await claimed(store, 9, source="initech/x")
        assert await claimed(store, 0) is Claimed.PENDING
        await store.release([ask(0)], owner="a")
        assert await claimed(store, 9, source="initech/x") is Claimed.NEW
        shop.clock.advance(seconds=420)
        assert await claimed(store, 77) is Claimed.NEW


async def test_a_table_full_of_what_is_over_takes_a_batch_of_any_size(shop: Shop) -> None:
    # More than a store might forget at once, were that a fixed number: each batch needs the room of those before.
    async with shop.open(max_claims=130, per_source=120) as store:
        for batch in range(4):
            asks = [ask(1000 * batch + number) for number in range(100)]
            assert {answer.claimed for answer in await store.claim(asks, owner="a")} == {Claimed.NEW}
            shop.clock.advance(seconds=3600)


async def test_a_refused_batch_leaves_the_count_of_claims_as_it_was(shop: Shop) -> None:
    if shop.kind == "dynamo":
        pytest.skip("grows with what is paid for")
    async with shop.open(max_claims=8, per_source=8) as store:
        for _ in range(3):
            with pytest.raises(Saturated):
                await store.claim([ask(number) for number in range(9)], owner="a")
        asks = [ask(number) for number in range(8)]
        assert {answer.claimed for answer in await store.claim(asks, owner="a")} == {Claimed.NEW}
        with pytest.raises(Saturated):
            await claimed(store, 8)


# -- bans


async def test_bans_are_counted_within_their_time_and_from_nothing_once_they_are_in_the_directory(
    shop: Shop,
) -> None:
    one, other = BanSeen(("acme/billing", *KEY), 1000), BanSeen(("globex/shop", *KEY), 1000)
    async with shop.open() as store:
        assert await store.count_bans([one, other], within_ms=60_000) == [1, 1]
        shop.clock.advance(seconds=1)
        assert await store.count_bans([one], within_ms=60_000) == [2]
        shop.clock.advance(seconds=58)
        assert await store.count_bans([one], within_ms=60_000) == [3]
        shop.clock.advance(seconds=1)
        assert await store.count_bans([one], within_ms=60_000) == [3]
        await store.forget_bans([one.key, one.key])
        assert await store.count_bans([one], within_ms=60_000) == [1]


async def test_one_offence_that_three_fasts_have_seen_is_one(shop: Shop) -> None:
    seen = BanSeen(("acme/billing", *KEY), 30_000)
    async with shop.open() as store:
        assert await store.count_bans([seen], within_ms=600_000) == [1]
        # Another Fast, a little later; and twice in one report.
        shop.clock.advance(seconds=9)
        assert await store.count_bans([seen, seen], within_ms=600_000) == [1, 1]
        shop.clock.advance(seconds=20)
        assert await store.count_bans([seen], within_ms=600_000) == [1]
        # The window is over; the next ban is another offence, and so on, however often each is seen.
        shop.clock.advance(seconds=1)
        assert await store.count_bans([seen], within_ms=600_000) == [2]
        shop.clock.advance(seconds=29)
        assert await store.count_bans([seen], within_ms=600_000) == [2]
        # A route with a shorter window has offences that are closer to each other.
        shop.clock.advance(seconds=1)
        assert await store.count_bans([BanSeen(seen.key, 1000)], within_ms=600_000) == [3]


async def test_bans_are_counted_again_once_those_that_filled_the_table_are_long_ago(shop: Shop) -> None:
    def of(day: int) -> list[BanSeen]:
        return [BanSeen((f"acme/service-{day}-{number}", *KEY), 30_000) for number in range(100)]

    async with shop.open(max_banned=130) as store:
        for day in range(4):
            assert await store.count_bans(of(day), within_ms=60_000) == [1] * 100
            shop.clock.advance(seconds=86_400)
