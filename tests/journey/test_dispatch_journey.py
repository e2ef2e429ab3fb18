"""Limits and strict routes through the real processes: permits reach Fast and the limit holds; a strict command arrives
once, whatever is sent again and whoever was restarted meanwhile."""

from __future__ import annotations

import asyncio
import re
import time
import uuid
from collections import Counter

import pytest

from snavio.domain.verdict import Verdict
from snavio.native import parse_timestamp
from snavio.sdk import Producer
from snavio.v1 import registry_pb2 as reg
from tests.support.mesh import SOURCE, TARGET, DemoMesh

MAXIMUM, INTERVAL_S = 400, 1
MOST_INTERVALS = 90
LIMITED, STRICT = "limited", "refund"
ROUTES = (
    reg.Route(target=TARGET, name=LIMITED, limit=reg.Limit(max=MAXIMUM, interval_seconds=INTERVAL_S)),
    reg.Route(target=TARGET, name=STRICT, dedupe_mode=reg.DEDUPE_MODE_STRICT),
)
# A window of the mailbox's own that is shorter than a restart takes must not matter.
SETTINGS: dict[str, dict[str, object]] = {"mailbox": {"replay_window_ms": 1000}}
NAMED = re.compile(r"Stored at (?P<at>\S+Z) as message (?P<message>\d+)\.")
pytestmark = pytest.mark.asyncio(loop_scope="module")


async def furnish(mesh: DemoMesh) -> None:
    async with mesh.operator() as operator:
        for route in ROUTES:
            await operator._write("PutRoute", reg.PutRouteRequest(route=route))
            await operator.grant(SOURCE, TARGET, route.name)


async def test_duplicates_get_the_first_outcome_seven_times_and_arrive_once(mesh: DemoMesh) -> None:
    command_id, began = str(uuid.uuid4()), time.time_ns()
    async with mesh.producer() as producer, mesh.consumer() as consumer:
        first = await producer.send(TARGET, STRICT, b"10 EUR", command_id=command_id)
        assert first.verdict is Verdict.DELIVERED
        told = set()
        for _ in range(7):
            again = await producer.send(TARGET, STRICT, b"10 EUR", command_id=command_id)
            assert (again.verdict, again.delivered) == (Verdict.DUPLICATE, True)
            told.add(again.detail)
        # Fast answers from memory, and yet with when and as which message it was stored.
        (detail,) = told
        named = NAMED.fullmatch(detail)
        assert named, detail
        stored_unix_ns = parse_timestamp(named["at"])
        assert began - 10**9 < stored_unix_ns <= time.time_ns() + 10**9
        assert int(named["message"]) > 0
        other = await producer.send(TARGET, STRICT, b"1000 EUR", command_id=command_id)
        assert other.verdict is Verdict.CONFLICT
        marker = await producer.send(TARGET, STRICT, b"the end")
        received = []
        async for command in consumer:
            received.append(command.command_id)
            await command.ack()
            if command.command_id == marker.command_id:
                break
        assert received == [command_id, marker.command_id]


async def test_a_restart_of_fast_and_slow_forgets_no_id(mesh: DemoMesh) -> None:
    command_id = str(uuid.uuid4())
    async with mesh.producer() as producer:
        first = await producer.send(TARGET, STRICT, b"x", command_id=command_id)
        assert first.verdict is Verdict.DELIVERED
        before = (await producer.send(TARGET, STRICT, b"x", command_id=command_id)).detail
        for service in ("fast", "slow"):
            mesh.processes.kill(service)
            await asyncio.to_thread(mesh.processes.restart, service)
        verdicts = set()
        async with asyncio.timeout(60):
            while Verdict.DUPLICATE not in verdicts:
                again = await producer.send(TARGET, STRICT, b"x", command_id=command_id)
                verdicts.add(again.verdict)
        assert Verdict.DELIVERED not in verdicts
        # The mailbox's word now, and the same.
        assert NAMED.fullmatch(again.detail)
        assert again.detail == before


async def test_each_of_a_batch_of_duplicates_is_told_its_own_first(mesh: DemoMesh) -> None:
    ids = [str(uuid.uuid4()) for _ in range(5)]
    async with mesh.producer() as producer:

        async def send(payload: bytes) -> list[tuple[Verdict, str]]:
            told = await asyncio.gather(
                *(producer.send(TARGET, STRICT, payload, command_id=one) for one in ids)
            )
            return [(outcome.verdict, outcome.detail) for outcome in told]

        assert await send(b"x") == [(Verdict.DELIVERED, "")] * 5
        again = await send(b"x")
        assert {verdict for verdict, _ in again} == {Verdict.DUPLICATE}
        assert len({detail for _, detail in again}) == 5
        assert await send(b"x") == again


async def send(producer: Producer, count: int) -> Counter[Verdict]:
    outcomes = await producer.send_batch([(TARGET, LIMITED, b"x")] * count, timeout_s=1.0)
    return Counter(outcome.verdict for outcome in outcomes)


async def test_permits_reach_fast_and_no_more_is_delivered_than_the_intervals_allow(mesh: DemoMesh) -> None:
    outcomes: Counter[Verdict] = Counter()
    async with mesh.producer() as producer:
        began = time.time()
        while time.time() - began < MOST_INTERVALS * INTERVAL_S:
            outcomes += await send(producer, 100)
            told = await mesh.counters("fast")
            # The SDK waits and tries again when a limit is reached, so it shows at Slow and not in the outcomes.
            felt = told.get("grants.state.exhausted", 0) + told.get("grants.state.decided_by_slow", 0)
            warm = told.get("grants.permits", 0) and told["dispatch.dispatched"]
            if felt and warm and outcomes[Verdict.DELIVERED] > 2 * MAXIMUM:
                break
        else:
            pytest.fail(f"the limit was not felt, or no permits came: {outcomes}, {told}")
        touched = int(time.time() // INTERVAL_S) - int(began // INTERVAL_S) + 1
    # A send that timed out before the next interval has an unknown outcome, or was refused as late.
    late = {Verdict.OUTCOME_UNKNOWN, Verdict.DELIVERY_FAILURE, Verdict.SATURATED}
    assert set(outcomes) - late <= {Verdict.DELIVERED, Verdict.RATE_LIMIT_EXCEEDED}
    assert outcomes[Verdict.DELIVERED] <= MAXIMUM * touched
