"""Events of limits, fairness, strict routes and mailboxes are in the archive with all their fields."""

from __future__ import annotations

import asyncio
import time
import uuid

import pytest

from snavio.domain.verdict import Verdict
from snavio.errors import BadRequest
from snavio.sdk import Producer
from snavio.telemetry import schema
from snavio.v1 import registry_pb2 as reg
from tests.support.archived import PATIENCE_S, archived, fields, found, in_archive
from tests.support.mesh import SOURCE, TARGET, TENANT, TOPIC, DemoMesh

RIVAL = f"{TENANT}/bot"
SMALL, CONTESTED, CROWDED, STRICT, SYNC, COLD = "small", "contested", "crowded", "strict", "sync", "cold"
# Under a hundred, and for so long that no test sees the next interval: Slow decides command by command.
# Intervals are aligned: of these, one does not end soon.
INTERVAL_S = next(s for s in (86_400, 86_000, 50_000, 40_000) if s - time.time() % s > 1800)
LIMIT = reg.Limit(max=20, interval_seconds=INTERVAL_S)
# So long that a slow machine still sees the ban after it has found the event.
FAIR = reg.Fairness(minimum_volume=10, ban_seconds=300)
ROUTES = (
    reg.Route(target=TARGET, name=SMALL, limit=LIMIT),
    reg.Route(target=TARGET, name=CONTESTED, limit=LIMIT, fairness=FAIR),
    reg.Route(target=TARGET, name=CROWDED, fairness=FAIR),
    reg.Route(target=TARGET, name=STRICT, dedupe_mode=reg.DEDUPE_MODE_STRICT),
    reg.Route(target=TARGET, name=SYNC, profile=reg.PROFILE_SYNC),
    reg.Route(target=TARGET, name=COLD, dispatch_mode=reg.DISPATCH_MODE_COLD_ONLY),
)
SETTINGS: dict[str, dict[str, object]] = {
    "relay": {"export_after_s": 0.3, "export_few_after_s": 0.3},
    "mailbox": {"retention_dlq_messages": 2},
}

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def furnish(mesh: DemoMesh) -> None:
    async with mesh.operator() as operator:
        for route in ROUTES:
            await operator._write("PutRoute", reg.PutRouteRequest(route=route))
            for source in (SOURCE, RIVAL):
                await operator.grant(source, TARGET, route.name)


async def send(producer: Producer, name: str, count: int, *, timeout_s: float = 2.0) -> list[Verdict]:
    outcomes = await producer.send_batch([(TARGET, name, b"x")] * count, timeout_s=timeout_s)
    return [outcome.verdict for outcome in outcomes]


def failed(reason: str, name: str) -> str:
    return f"event = '{schema.FAILED}' AND reason = '{reason}' AND command_name = '{name}'"


async def test_a_command_over_the_limit_is_told_with_when_to_come_again(mesh: DemoMesh) -> None:
    async with mesh.producer() as producer:
        await send(producer, SMALL, 25)
    for row in await found(mesh, failed("rate-limit-exceeded", SMALL), enough=lambda rows: len(rows) >= 5):
        told = fields(row)
        assert (told["source"], told["target"], row["path"]) == (SOURCE, TARGET, "slow")
        assert told["retry_after_ms"] > 0 and told["throttle_until"] > row["at"]
    went = f"event = '{schema.DELIVERED}' AND command_name = '{SMALL}'"
    rows = await found(mesh, went, enough=lambda rows: len(rows) == 20)
    assert {row["grant"] for row in rows} == {"arbitrated"}


async def test_a_source_that_takes_a_saturated_route_from_others_is_told_its_shares(mesh: DemoMesh) -> None:
    ban = reg.Ban(
        list=reg.BAN_LIST_WARM_BAN,
        source=SOURCE,
        target=TARGET,
        name=CONTESTED,
        until_unix_ns=time.time_ns() + 600_000_000_000,
    )
    async with mesh.operator() as operator:
        await operator._write("SetBan", reg.SetBanRequest(ban=ban))
    async with mesh.producer() as producer, mesh.producer("bot") as rival:
        assert await send(producer, CONTESTED, 19, timeout_s=20.0) == [Verdict.DELIVERED] * 19
        await send(rival, CONTESTED, 4)
        async with asyncio.timeout(PATIENCE_S):
            # Slow may know of the ban before Fast does, which then escalates everything because of the limit.
            violations = f"{failed('fairness-violation', CONTESTED)} AND escalation = 'warm_banned'"
            while not (rows := await archived(mesh, violations)):
                await send(producer, CONTESTED, 3)
    for row in rows:
        told = fields(row)
        assert told["retry_after_ms"] >= 30_000 and told["throttle_until"] > row["at"]
        assert (told["source_share"], told["dispatch_volume"]) == (0.95, 20)
        assert 0 < told["competing_share"] < 1


async def test_a_source_that_dominates_is_banned_from_the_warm_path_once(mesh: DemoMesh) -> None:
    # Other tests of this mesh have their own bans, on their own routes.
    banned = f"event = '{schema.WARM_PATH_BAN}' AND command_name = '{CROWDED}'"
    async with mesh.producer() as producer, mesh.producer("bot") as rival:
        async with asyncio.timeout(PATIENCE_S):
            # Nothing is warm before Fast has pulled the route.
            while not (rows := await archived(mesh, banned)):
                assert await send(rival, CROWDED, 30, timeout_s=20.0) == [Verdict.DELIVERED] * 30
                assert await send(producer, CROWDED, 200, timeout_s=20.0) == [Verdict.DELIVERED] * 200
        (row,) = rows
        told = fields(row)
        assert (told["source"], told["target"], told["command.name"]) == (SOURCE, TARGET, CROWDED)
        assert told["source_share"] > 0.8 and 0.1 <= told["competing_share"] < 0.2
        assert row["dispatch_volume"] >= 200
        assert told["retry_after_ms"] == 300_000 and told["throttle_until"] > row["at"]
        went = await producer.send(TARGET, CROWDED, b"x")
    (row,) = await found(mesh, in_archive(went.command_id))
    assert (row["path"], row["escalation"]) == ("slow", "warm_banned")


async def test_a_duplicate_on_a_strict_route_is_told(mesh: DemoMesh) -> None:
    command_id = str(uuid.uuid4())
    async with mesh.producer() as producer:
        assert (await producer.send(TARGET, STRICT, b"x", command_id=command_id)).verdict is Verdict.DELIVERED
        for _ in range(2):
            again = await producer.send(TARGET, STRICT, b"x", command_id=command_id)
            assert again.verdict is Verdict.DUPLICATE
    duplicates = f"{in_archive(command_id)} AND event = '{schema.DUPLICATE}'"
    for row in await found(mesh, duplicates, enough=lambda rows: len(rows) == 2):
        told = fields(row)
        assert (told["dedupe_mode"], told["command.name"], told["source"]) == ("strict", STRICT, SOURCE)


async def test_an_id_that_is_used_for_another_command_is_told_as_a_conflict(mesh: DemoMesh) -> None:
    command_id = str(uuid.uuid4())
    async with mesh.producer() as producer:
        assert (await producer.send(TARGET, STRICT, b"x", command_id=command_id)).verdict is Verdict.DELIVERED
        assert (await producer.send(TARGET, STRICT, b"y", command_id=command_id)).verdict is Verdict.CONFLICT
    (row,) = await found(mesh, f"{in_archive(command_id)} AND event = '{schema.CONFLICT}'")
    told = fields(row)
    assert (told["dedupe_mode"], told["reason"], told["source"]) == ("strict", "conflict", SOURCE)


@pytest.mark.parametrize(
    ("name", "reason"), [(SYNC, "sync"), (COLD, "cold_only"), (STRICT, "dedupe_required")]
)
async def test_why_a_command_went_by_slow_is_told(mesh: DemoMesh, name: str, reason: str) -> None:
    async with mesh.producer() as producer, asyncio.timeout(PATIENCE_S):
        told = {""}
        # `cache_miss` before Fast has pulled the route.
        while told & {"", "cache_miss"}:
            outcome = await producer.send(TARGET, name, b"x")
            (row,) = await found(mesh, f"{in_archive(outcome.command_id)} AND event = '{schema.DELIVERED}'")
            told = {row["escalation"]}
    assert told == {reason}
    assert (row["path"], fields(row)["command.name"]) == ("slow", name)


async def test_what_leaves_a_dlq_unread_is_told(mesh: DemoMesh) -> None:
    dead = 0
    async with mesh.producer() as producer, mesh.consumer() as consumer, asyncio.timeout(PATIENCE_S):
        assert await send(producer, SYNC, 5, timeout_s=20.0) == [Verdict.DELIVERED] * 5
        async for command in consumer:
            await (command.nack(dead=True) if command.name == SYNC else command.ack())
            dead += command.name == SYNC
            if dead == 5:
                break
    rows = await found(
        mesh,
        f"event = '{schema.DLQ_PRUNED}'",
        enough=lambda rows: sum(row["messages"] for row in rows) >= 3,
    )
    for row in rows:
        told = fields(row)
        assert (told["topic"], told["state"], told["cause"]) == (TOPIC, "dead", "depth")
        assert (row["service"], row["instance"]) == ("mailbox", "mailbox-0")


async def test_an_installation_without_redis_refuses_such_a_route(mesh: DemoMesh) -> None:
    async with mesh.operator() as operator:
        with pytest.raises(BadRequest, match="no redis queues") as refused:
            await operator.put_route(TARGET, "streamed", queue_kind=reg.QUEUE_KIND_REDIS)
    assert refused.value.reason == "queue-kind-not-available"


async def test_a_command_whose_queue_is_away_is_told_as_a_delivery_failure(mesh: DemoMesh) -> None:
    mesh.processes.kill("mailbox")
    try:
        async with mesh.producer() as producer, asyncio.timeout(PATIENCE_S):
            # Commands in flight to the mailbox when it ended have an unknown outcome.
            while (outcome := await producer.send(TARGET, SYNC, b"x", timeout_s=4.0)).verdict is not (
                Verdict.DELIVERY_FAILURE
            ):
                assert outcome.verdict is Verdict.OUTCOME_UNKNOWN
    finally:
        mesh.processes.spawn("mailbox")
        await asyncio.to_thread(mesh.processes.wait_ready, "mailbox")
    for row in await found(mesh, f"{in_archive(outcome.command_id)} AND reason = 'delivery-failure'"):
        assert (row["event"], fields(row)["command.name"]) == (schema.FAILED, SYNC)
        assert fields(row).keys() >= {"command_id", "source", "target", "timestamp"}
