"""Slow enforces every limit before dispatch, exactly, and says when there is room again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from snavio.domain.verdict import Verdict
from snavio.errors import BadRequest, Unavailable
from snavio.v1 import registry_pb2 as reg
from snavio.v1 import slow_pb2 as wire
from snavio.v1.introspection_pb2 import StatusRequest, StatusResponse
from tests.support.neighbours import answering, commands_of, eventually
from tests.support.slow import GOOD, NAME, SOURCE, TARGET, Scene, always, limit, resolution, slow

WARM_BANNED, DEDUPE_REQUIRED = 6, 4
LIMITED = Verdict.RATE_LIMIT_EXCEEDED
MINUTE_NS = 60_000_000_000
RIVAL = "globex/shop"


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    async with slow(tmp_path) as running:
        # To the start of a minute, so that no test runs over the end of one.
        running.bench.clock.advance(ns=MINUTE_NS - running.bench.clock.unix_ns() % MINUTE_NS)
        yield running


def routed(scene: Scene, **route: object) -> None:
    scene.registry.resolve = always(resolution(**route))  # type: ignore[arg-type]


async def call(scene: Scene, method: str, request: Any, answer: type[Any]) -> Any:
    channel = scene.bench.channel(scene.address, scene.bench.authority.mesh("fast"), "slow")
    return await channel.call(method, request, answer, timeout_s=10)


async def counters(scene: Scene) -> dict[str, int]:
    told = await call(scene, "/snavio.v1.Introspection/Status", StatusRequest(), StatusResponse)
    return {counter.name: counter.value for counter in told.counter}


async def test_the_first_commands_pass_and_the_rest_are_told_when_to_come_again(scene: Scene) -> None:
    routed(scene, limit=limit(5))
    answer = await scene.ask(*scene.commands(8))
    assert answer.codes == [GOOD] * 5 + [LIMITED] * 3
    assert [refused.index for refused in answer.refusals] == [5, 6, 7]
    now = scene.bench.clock.unix_ns()
    for refused in answer.refusals:
        assert refused.throttle_until_unix_ns == (now // MINUTE_NS + 1) * MINUTE_NS
        assert refused.retry_after_ms == (refused.throttle_until_unix_ns - now) // 1_000_000
        assert "5 in 60 s" in refused.detail
    assert scene.mailbox.commands == 5
    scene.bench.clock.advance(seconds=60)
    assert (await scene.ask(*scene.commands(6))).codes == [GOOD] * 5 + [LIMITED]


async def test_all_sources_share_a_routes_limit_and_other_routes_have_their_own(scene: Scene) -> None:
    routed(scene, limit=limit(5))
    assert (await scene.ask(*scene.commands(3))).codes == [GOOD] * 3
    assert (await scene.ask(*scene.commands(3), source=RIVAL)).codes == [GOOD] * 2 + [LIMITED]
    other = [scene.forge.command(name="other") for _ in range(5)]
    assert (await scene.ask(*other)).codes == [GOOD] * 5


async def test_a_shadow_limit_counts_and_reports_and_refuses_nothing(scene: Scene) -> None:
    routed(scene, limit=limit(5, shadow=True))
    assert (await scene.ask(*scene.commands(8))).codes == [GOOD] * 8
    assert (await counters(scene))["limits.shadow_over"] == 3


async def test_refused_commands_cost_nothing(scene: Scene) -> None:
    routed(scene, limit=limit(5), allowed=False)
    assert set((await scene.ask(*scene.commands(5))).codes) == {Verdict.ACL_DENY}
    routed(scene, limit=limit(5))
    assert (await scene.ask(*scene.commands(5))).codes == [GOOD] * 5


@pytest.mark.parametrize("outcome", [Verdict.SATURATED, Verdict.DUPLICATE, Verdict.CONFLICT])
async def test_what_the_queue_did_not_newly_take_gives_its_permit_back(
    scene: Scene, outcome: Verdict
) -> None:
    routed(scene, limit=limit(5))

    async def refuse(batch: object, stream: object) -> None:
        stream.reply(answering(batch, [outcome] * len(commands_of(batch))), True)  # type: ignore[attr-defined]

    scene.mailbox.script = refuse
    assert (await scene.ask(*scene.commands(5))).codes == [outcome] * 5
    scene.mailbox.script = None
    codes: list[Verdict] = []
    async with asyncio.timeout(10):
        # The permits come back a moment after the answer.
        while codes.count(GOOD) < 5:
            codes += (await scene.ask(*scene.commands(1))).codes
    assert (await scene.ask(*scene.commands(1))).codes == [LIMITED]


async def test_an_unknown_outcome_keeps_its_permit(scene: Scene) -> None:
    routed(scene, limit=limit(5))
    scene.mailbox.script = scene.mailbox.hold
    await scene.stream.send(scene.batch(*scene.commands(5)))
    await eventually(lambda: scene.mailbox.held)
    scene.bench.clock.advance(seconds=5)
    assert (await scene.stream.answer(1)).codes == [Verdict.OUTCOME_UNKNOWN] * 5
    scene.mailbox.release()
    assert (await scene.ask(*scene.commands(1))).codes == [LIMITED]


async def test_a_sources_own_quota_counts_only_while_it_is_banned(scene: Scene) -> None:
    quota = reg.SourceQuota(source=SOURCE, target=TARGET, name=NAME, max=2, interval_seconds=60)
    routed(scene, source_quota=quota)
    assert (await scene.ask(*scene.commands(4))).codes == [GOOD] * 4
    answer = await scene.ask(*scene.commands(4), reason=WARM_BANNED)
    assert answer.codes == [GOOD] * 2 + [LIMITED] * 2
    assert {refused.detail for refused in answer.refusals} == {"source-quota"}
    assert all(refused.throttle_until_unix_ns for refused in answer.refusals)
    routed(scene, source_quota=quota, warm_banned=True)
    assert (await scene.ask(*scene.commands(1))).codes == [LIMITED]


async def test_what_the_route_refuses_is_not_taken_from_the_sources_quota(scene: Scene) -> None:
    quota = reg.SourceQuota(source=SOURCE, target=TARGET, name=NAME, max=10, interval_seconds=3600)
    routed(scene, source_quota=quota, limit=limit(2))
    assert (await scene.ask(*scene.commands(8), reason=WARM_BANNED)).codes == [GOOD] * 2 + [LIMITED] * 6
    routed(scene, source_quota=quota)
    async with asyncio.timeout(10):
        codes: list[Verdict] = []
        while codes.count(GOOD) < 8:
            codes += (await scene.ask(*scene.commands(1), reason=WARM_BANNED)).codes
    assert (await scene.ask(*scene.commands(1), reason=WARM_BANNED)).codes == [LIMITED]


async def test_a_banned_source_that_goes_on_taking_a_saturated_route_from_others_is_refused_for_it(
    scene: Scene,
) -> None:
    fair = reg.Fairness(minimum_volume=10, dominant_share=0.8)
    routed(scene, limit=limit(20), fairness=fair)
    assert (await scene.ask(*scene.commands(19), reason=WARM_BANNED)).codes == [GOOD] * 19
    # Others take the rest, and want more.
    assert (await scene.ask(*scene.commands(4), source=RIVAL)).codes == [GOOD] + [LIMITED] * 3
    answer = await scene.ask(*scene.commands(3), reason=WARM_BANNED)
    assert answer.codes == [Verdict.FAIRNESS_VIOLATION] * 3
    for refused in answer.refusals:
        source_share, competing_share, volume = refused.shares
        assert (source_share, volume) == (0.95, 20)
        assert competing_share == pytest.approx(4 / 26)
        assert refused.retry_after_ms >= 30_000
        assert refused.throttle_until_unix_ns > scene.bench.clock.unix_ns()


async def test_a_banned_source_alone_on_its_route_is_limited_and_not_blamed(scene: Scene) -> None:
    routed(scene, limit=limit(20), fairness=reg.Fairness(minimum_volume=10))
    answer = await scene.ask(*scene.commands(25), reason=WARM_BANNED)
    assert answer.codes == [GOOD] * 20 + [LIMITED] * 5


async def test_a_source_that_is_not_banned_is_never_blamed(scene: Scene) -> None:
    routed(scene, limit=limit(20), fairness=reg.Fairness(minimum_volume=10))
    await scene.ask(*scene.commands(19))
    await scene.ask(*scene.commands(4), source=RIVAL)
    assert (await scene.ask(*scene.commands(3))).codes == [LIMITED] * 3


async def test_a_banned_source_is_not_blamed_while_there_is_room(scene: Scene) -> None:
    routed(scene, limit=limit(100), fairness=reg.Fairness(minimum_volume=10))
    await scene.ask(*scene.commands(5), source=RIVAL)
    assert (await scene.ask(*scene.commands(60), reason=WARM_BANNED)).codes == [GOOD] * 60


async def test_refused_traffic_is_no_competition(scene: Scene) -> None:
    """A rival without the right to send could otherwise cause a ban."""
    routed(scene, allowed=False, limit=limit(20))
    await scene.ask(*scene.commands(50), source=RIVAL)
    routed(scene, limit=limit(20), fairness=reg.Fairness(minimum_volume=10))
    answer = await scene.ask(*scene.commands(25), reason=WARM_BANNED)
    assert answer.codes == [GOOD] * 20 + [LIMITED] * 5


# -- permits for Fast


async def grants(scene: Scene, permits: int, instance: str = "fast-0") -> wire.Grant:
    wish = wire.GrantWish(target=TARGET, name=NAME, permits=permits)
    request = wire.GrantsRequest(instance=instance, wish=[wish])
    answer = await call(scene, "/snavio.v1.Slow/Grants", request, wire.GrantsResponse)
    [grant] = answer.grant
    assert isinstance(grant, wire.Grant)
    return grant


async def test_granted_permits_are_gone_until_they_are_returned(scene: Scene) -> None:
    routed(scene, limit=limit(200))
    grant = await grants(scene, 50)
    assert (grant.state, grant.permits) == (wire.GRANT_STATE_ISSUED, 10)
    assert 0 < grant.life_ms <= 60_000
    assert grant.interval_end_unix_ns % MINUTE_NS == 0
    assert (await scene.ask(*scene.commands(200))).codes.count(GOOD) == 190
    back = wire.PermitReturn(target=TARGET, name=NAME, interval=grant.interval, permits=7)
    await call(
        scene,
        "/snavio.v1.Slow/ReturnPermits",
        wire.ReturnPermitsRequest(permit=[back]),
        wire.ReturnPermitsResponse,
    )
    assert (await scene.ask(*scene.commands(10))).codes.count(GOOD) == 7


async def test_every_wish_is_answered_with_why(scene: Scene) -> None:
    for route, state in (
        ({}, wire.GRANT_STATE_UNLIMITED),
        ({"routed": False}, wire.GRANT_STATE_NO_ROUTE),
        ({"limit": limit(10)}, wire.GRANT_STATE_DECIDED_BY_SLOW),
        (
            {"limit": limit(1000), "dispatch_mode": reg.DISPATCH_MODE_COLD_ONLY},
            wire.GRANT_STATE_DECIDED_BY_SLOW,
        ),
        ({"limit": limit(1000)}, wire.GRANT_STATE_ISSUED),
    ):
        routed(scene, **route)
        assert (await grants(scene, 5)).state == state, route


async def test_without_registry_there_are_no_permits(scene: Scene) -> None:
    scene.registry.away = True
    with pytest.raises(Unavailable):
        await grants(scene, 5)


async def test_bad_requests_about_permits_are_refused_plainly(scene: Scene) -> None:
    with pytest.raises(BadRequest, match="instance"):
        await grants(scene, 5, instance="Not A Name")
    wishes = [wire.GrantWish(target=TARGET, name=NAME)] * 1001
    with pytest.raises(BadRequest, match="wish"):
        await call(
            scene,
            "/snavio.v1.Slow/Grants",
            wire.GrantsRequest(instance="fast-0", wish=wishes),
            wire.GrantsResponse,
        )


# -- bans


async def report(scene: Scene, *, instance: str = "fast-0", **changed: Any) -> int:
    shares = {"source_share": 0.9, "competing_share": 0.2, **changed}
    ban = wire.BanReport(source=SOURCE, target=TARGET, name=NAME, dispatch_volume=60, **shares)
    answer = await call(
        scene,
        "/snavio.v1.Slow/ReportBans",
        wire.ReportBansRequest(instance=instance, ban=[ban]),
        wire.ReportBansResponse,
    )
    return int(answer.escalated)


async def offend(scene: Scene) -> int:
    """Another offence, in another window than the one before."""
    scene.bench.clock.advance(seconds=30)
    return await report(scene)


async def test_three_fasts_that_see_one_offence_do_not_make_a_durable_ban_of_it(scene: Scene) -> None:
    for instance in ("fast-0", "fast-1", "fast-2"):
        assert await report(scene, instance=instance, window_ms=30_000) == 0
        scene.bench.clock.advance(seconds=9)
    assert scene.registry.bans == []


async def test_three_bans_in_ten_minutes_become_one_in_the_directory(scene: Scene) -> None:
    assert [await offend(scene), await offend(scene)] == [0, 0]
    scene.bench.clock.advance(seconds=601)
    assert [await offend(scene), await offend(scene), await offend(scene)] == [0, 0, 1]
    [ban] = [request.ban for request in scene.registry.bans]
    assert (ban.list, ban.source, ban.target, ban.name) == (reg.BAN_LIST_WARM_BAN, SOURCE, TARGET, NAME)
    assert ban.until_unix_ns == scene.bench.clock.unix_ns() + 600_000_000_000
    assert "source_share=0.90" in ban.evidence
    assert await report(scene) == 0


async def test_a_ban_that_registry_did_not_take_is_tried_with_the_next_report(scene: Scene) -> None:
    scene.registry.away = True
    assert [await offend(scene) for _ in range(4)] == [0] * 4
    scene.registry.away = False
    assert await report(scene) == 1


async def test_a_reported_ban_is_evidence_that_others_compete(scene: Scene) -> None:
    await report(scene)
    routed(scene, limit=limit(20), fairness=reg.Fairness(minimum_volume=10))
    answer = await scene.ask(*scene.commands(25), reason=WARM_BANNED)
    assert answer.codes == [GOOD] * 20 + [Verdict.FAIRNESS_VIOLATION] * 5
    assert answer.refusals[0].shares == pytest.approx((1.0, 0.2, 20))


async def test_a_share_that_is_none_is_refused(scene: Scene) -> None:
    with pytest.raises(BadRequest, match="shares"):
        await report(scene, source_share=1.5)


async def test_strict_delivery_is_counted_under_the_catalogues_names(scene: Scene) -> None:
    routed(scene, dedupe_mode=reg.DEDUPE_MODE_STRICT)
    await scene.ask(*scene.commands(3), reason=DEDUPE_REQUIRED)
    again = scene.commands(1)
    await scene.ask(*again, *again)
    await scene.ask(*again)
    told = {name.removeprefix("Snavio.Dedup."): value for name, value in (await counters(scene)).items()}
    assert (told["StrictModeUsage"], told["Escalations"], told["DuplicatesPrevented"]) == (6, 3, 1)
