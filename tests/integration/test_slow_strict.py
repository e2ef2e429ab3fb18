"""Strict delivery: each id once, the first outcome for every duplicate, and nothing lost when a Slow dies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from snavio.adapters.embedded.sqlite_coordination import SqliteCoordination
from snavio.clock import ManualClock
from snavio.domain.claim import Terms
from snavio.domain.verdict import Verdict
from snavio.ports.coordination import Coordination, PermitAsk
from snavio.v1 import registry_pb2 as reg
from snavio.v1.slow_pb2 import ESCALATION_REASON_WARM_BANNED as WARM_BANNED
from tests.support.arbiter import MAILBOX, answer, arbiter_stage
from tests.support.frames import RunOf, command
from tests.support.neighbours import eventually
from tests.support.slow import limit

GOOD, TWICE = Verdict.DELIVERED, Verdict.DUPLICATE
TERMS = Terms(lease_ms=15_000, keep_ms=300_000)
ID = "0190c1e0-0000-7000-8000-000000000001"


async def opened(path: Path, clock: ManualClock, known: str | None = None) -> SqliteCoordination:
    return await SqliteCoordination.open(
        path,
        clock=clock,
        known_epoch=known,
        fresh_epoch="e",
        boot="b",
        terms=TERMS,
        max_claims=10_000,
        max_claims_per_source=1000,
    )


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_700_000_040_000_000_000)


@pytest.fixture
async def store(tmp_path: Path, clock: ManualClock) -> AsyncIterator[Coordination]:
    store = await opened(tmp_path / "c.db", clock)
    yield store
    await store.close()


# -- on the mailbox, whose own memory of ids is the claim


async def test_strict_commands_are_sent_once_only_and_others_are_not(
    store: Coordination, clock: ManualClock
) -> None:
    async with arbiter_stage(store, clock, queue_kind=MAILBOX) as strict:
        assert await strict.ask(command(), command()) == [GOOD, GOOD]
        # With the time that Slow promises: the mailbox's own may be shorter.
        (topic,) = (topic for body in strict.mailbox.bodies for topic in body.topic)
        assert (topic.once, topic.once_ms) == (True, 300_000)
    async with arbiter_stage(store, clock, queue_kind=MAILBOX, dedupe_mode=reg.DEDUPE_MODE_NONE) as plain:
        assert await plain.ask(command()) == [GOOD]
        assert [topic.once for body in plain.mailbox.bodies for topic in body.topic] == [False]


async def test_duplicates_of_what_this_slow_delivered_are_answered_from_memory_and_cost_no_permit(
    store: Coordination, clock: ManualClock
) -> None:
    async with arbiter_stage(store, clock, queue_kind=MAILBOX, remembered=100, limit=limit(1)) as slow:
        again = command(command_id=ID)
        assert await slow.ask(again) == [GOOD]
        # The limit is used up, and still every duplicate has the first outcome.
        for _ in range(7):
            assert await slow.ask(again) == [TWICE]
        assert await slow.ask(again, again, again) == [TWICE] * 3
        assert await slow.ask(command()) == [Verdict.RATE_LIMIT_EXCEEDED]
        assert slow.mailbox.delivered == 1
        assert slow.strict.counters()["DuplicatesPrevented"] == 10
        assert slow.strict.counters()["StrictModeUsage"] == 12
        clock.advance(seconds=300)
        assert await slow.ask(again) == [GOOD]


async def test_the_same_id_with_other_contents_is_for_the_mailbox_to_judge(
    store: Coordination, clock: ManualClock
) -> None:
    async with arbiter_stage(store, clock, queue_kind=MAILBOX, remembered=100) as slow:
        assert await slow.ask(command(command_id=ID)) == [GOOD]
        slow.mailbox.verdict = Verdict.CONFLICT
        assert await slow.ask(command(command_id=ID, payload=b"other")) == [Verdict.CONFLICT]
        assert await slow.ask(command(command_id=ID), source="globex/shop") == [Verdict.CONFLICT]
        assert slow.mailbox.delivered == 3


async def test_only_what_was_delivered_is_remembered(store: Coordination, clock: ManualClock) -> None:
    async with arbiter_stage(store, clock, queue_kind=MAILBOX, remembered=100) as slow:
        for verdict in (Verdict.OUTCOME_UNKNOWN, Verdict.SATURATED, Verdict.DELIVERY_FAILURE):
            slow.mailbox.verdict = verdict
            assert await slow.ask(command(command_id=ID)) == [verdict]
        slow.mailbox.verdict = GOOD
        assert await slow.ask(command(command_id=ID)) == [GOOD]


# -- on queues that cannot tell: claim, dispatch, commit


async def test_every_duplicate_gets_the_first_outcome_and_another_payload_a_conflict(
    store: Coordination, clock: ManualClock
) -> None:
    async with arbiter_stage(store, clock) as slow:
        assert await slow.ask(command(command_id=ID)) == [GOOD]
        for _ in range(7):
            assert await slow.ask(command(command_id=ID)) == [TWICE]
        assert await slow.ask(command(command_id=ID, payload=b"other")) == [Verdict.CONFLICT]
        assert await slow.ask(command(command_id=ID), source="globex/shop") == [GOOD]
        assert slow.redis.delivered == 2
    async with arbiter_stage(store, clock, instance="slow-1") as another:
        assert await another.ask(command(command_id=ID)) == [TWICE]


async def test_a_duplicate_of_what_is_under_way_is_told_to_come_again(
    store: Coordination, clock: ManualClock
) -> None:
    async with arbiter_stage(store, clock) as slow:
        slow.redis.verdict = None
        first = slow.send(RunOf([command(command_id=ID)]))
        await eventually(lambda: slow.redis.held)
        told = await slow.send(RunOf([command(command_id=ID)]))
        assert told.codes == [Verdict.OUTCOME_UNKNOWN]
        assert told.refusals[0].retry_after_ms > 0
        answer(slow.redis.held[0], GOOD)
        assert (await first).codes == [GOOD]
        assert await slow.ask(command(command_id=ID)) == [TWICE]


@pytest.mark.parametrize("verdict", [Verdict.SATURATED, Verdict.DELIVERY_FAILURE])
async def test_a_definite_failure_frees_the_id_at_once(
    store: Coordination, clock: ManualClock, verdict: Verdict
) -> None:
    async with arbiter_stage(store, clock) as slow:
        slow.redis.verdict = verdict
        assert await slow.ask(command(command_id=ID)) == [verdict]
        slow.redis.verdict = GOOD
        assert await slow.ask(command(command_id=ID, payload=b"corrected")) == [GOOD]


async def test_an_unknown_outcome_keeps_the_id_until_its_lease_is_over(
    store: Coordination, clock: ManualClock
) -> None:
    """Released on a timeout, a command that did arrive would be delivered twice."""
    async with arbiter_stage(store, clock) as slow:
        slow.redis.verdict = Verdict.OUTCOME_UNKNOWN
        assert await slow.ask(command(command_id=ID)) == [Verdict.OUTCOME_UNKNOWN]
        slow.redis.verdict = GOOD
        assert await slow.ask(command(command_id=ID)) == [Verdict.OUTCOME_UNKNOWN]
        assert slow.redis.delivered == 1
        clock.advance(seconds=15)
        assert await slow.ask(command(command_id=ID)) == [GOOD]


async def test_a_limit_refuses_without_burning_the_id_and_duplicates_burn_no_permit(
    store: Coordination, clock: ManualClock
) -> None:
    async with arbiter_stage(store, clock, limit=limit(2)) as slow:
        assert await slow.ask(command(command_id=ID)) == [GOOD]
        for _ in range(5):
            assert await slow.ask(command(command_id=ID)) == [TWICE]
        one, two = command(), command()
        assert await slow.ask(one, two) == [GOOD, Verdict.RATE_LIMIT_EXCEEDED]
        clock.advance(seconds=60)
        assert await slow.ask(two) == [GOOD]


async def test_answers_come_after_the_commit_and_in_order(store: Coordination, clock: ManualClock) -> None:
    """Answered before, a crash in between would let an acknowledged command be delivered again."""
    async with arbiter_stage(store, clock) as slow:
        committed: list[int] = []
        commit = store.commit

        async def late(asks: object, *, owner: str) -> None:
            await asyncio.sleep(0)
            committed.append(len(asks))  # type: ignore[arg-type]
            await commit(asks, owner=owner)  # type: ignore[arg-type]

        store.commit = late  # type: ignore[method-assign]
        told = await slow.send(RunOf([command(), command()]), RunOf([command()], source="globex/shop"))
        assert told.codes == [GOOD] * 3
        assert sum(committed) == 3


async def test_what_a_dead_slow_left_between_claim_and_commit_is_taken_over_and_told_truly_ever_after(
    tmp_path: Path, clock: ManualClock
) -> None:
    store = await opened(tmp_path / "d.db", clock)
    async with arbiter_stage(store, clock) as dying:
        dying.redis.verdict = None
        waiting = dying.send(RunOf([command(command_id=ID)]))
        await eventually(lambda: dying.redis.held)
        waiting.cancel()
    # The queue's answer is lost.
    await store.close()
    store = await opened(tmp_path / "d.db", clock, known="e")
    async with arbiter_stage(store, clock, instance="slow-1") as heir:
        assert await heir.ask(command(command_id=ID)) == [Verdict.OUTCOME_UNKNOWN]
        assert heir.redis.delivered == 0
        clock.advance(seconds=15)
        assert await heir.ask(command(command_id=ID)) == [GOOD]
        for _ in range(5):
            assert await heir.ask(command(command_id=ID)) == [TWICE]
        assert heir.redis.delivered == 1
    await store.close()


async def test_a_store_that_hangs_is_waited_for_once_and_not_by_every_lane(
    store: Coordination, clock: ManualClock
) -> None:
    asked = 0

    async def hang(asks: object, *, owner: str) -> None:
        nonlocal asked
        asked += 1
        await asyncio.Event().wait()

    async with arbiter_stage(store, clock, timeout_ms=50) as slow:
        store.claim = hang  # type: ignore[assignment, method-assign]
        told = await slow.send(*(RunOf([command(name=f"n{number}")]) for number in range(20)))
        assert told.codes == [Verdict.DELIVERY_FAILURE] * 20
        assert asked == 1


async def test_releasing_refused_ids_holds_up_nobody_who_was_let_through(
    store: Coordination, clock: ManualClock
) -> None:
    """Awaited first, a slow release would carry permits into an interval that has not paid for them."""
    async with arbiter_stage(store, clock, limit=limit(1)) as slow:
        release, sent_by_then = store.release, []

        async def watched(asks: object, *, owner: str) -> None:
            sent_by_then.append(slow.redis.delivered)
            await release(asks, owner=owner)  # type: ignore[arg-type]

        store.release = watched  # type: ignore[method-assign]
        assert await slow.ask(command(), command()) == [GOOD, Verdict.RATE_LIMIT_EXCEEDED]
        await eventually(lambda: sent_by_then)
        assert sent_by_then == [1]


async def test_permits_are_not_used_once_their_interval_ended_behind_the_sources_own_quota(
    store: Coordination, clock: ManualClock
) -> None:
    quota = reg.SourceQuota(
        source="acme/billing", target="bot", name="notify-user", max=5, interval_seconds=60
    )
    async with arbiter_stage(store, clock, queue_kind=MAILBOX, dedupe_mode=reg.DEDUPE_MODE_NONE) as slow:
        slow.directory.source_quota = quota
        slow.directory.route["limit"] = limit(100, seconds=3600)
        take = store.take

        async def slowly(asks: list[PermitAsk]) -> object:
            answers = await take(asks)
            if len(asks[0].key) == 2:
                clock.advance(seconds=4)
            return answers

        store.take = slowly  # type: ignore[assignment, method-assign]
        # Two seconds before the end of the quota's minute.
        clock.advance(ns=58_000_000_000 - clock.unix_ns() % 60_000_000_000 + 60_000_000_000)
        assert await slow.ask(command(), reason=WARM_BANNED) == [Verdict.DELIVERY_FAILURE]
        assert slow.mailbox.delivered == 0
