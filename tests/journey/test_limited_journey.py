"""A limited route through the real processes: permits reach Fast, and the limit holds."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from snavio.domain.verdict import Verdict
from snavio.sdk import Producer
from snavio.transport.channel import MeshChannel
from snavio.transport.credentials import CertificateFiles
from snavio.transport.introspection import METHOD
from snavio.v1 import registry_pb2 as reg
from snavio.v1.introspection_pb2 import StatusRequest, StatusResponse
from tests.support.mesh import SOURCE, TARGET, DemoMesh, demo_mesh

MAXIMUM, INTERVAL_S = 400, 1
LIMITED = "limited"
MOST_INTERVALS = 30


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def mesh(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[DemoMesh]:
    async with demo_mesh(tmp_path_factory.mktemp("limited")) as running:
        limit = reg.Limit(max=MAXIMUM, interval_seconds=INTERVAL_S)
        async with running.operator() as operator:
            route = reg.Route(target=TARGET, name=LIMITED, limit=limit)
            await operator._write("PutRoute", reg.PutRouteRequest(route=route))
            await operator.grant(SOURCE, TARGET, LIMITED)
        yield running


pytestmark = pytest.mark.asyncio(loop_scope="module")


async def counted(mesh: DemoMesh) -> dict[str, int]:
    files = CertificateFiles.in_folder(mesh.certificates("operator-admin"))
    channel = MeshChannel(mesh.addresses["fast"], files=files, service="fast")
    try:
        told = await channel.call(METHOD, StatusRequest(), StatusResponse, timeout_s=10)
    finally:
        await channel.close()
    return {each.name: each.value for each in told.counter}


async def send(producer: Producer, count: int) -> Counter[Verdict]:
    outcomes = await producer.send_batch([(TARGET, LIMITED, b"x")] * count, timeout_s=1.0)
    return Counter(outcome.verdict for outcome in outcomes)


async def test_permits_reach_fast_and_no_more_is_delivered_than_the_intervals_allow(mesh: DemoMesh) -> None:
    outcomes: Counter[Verdict] = Counter()
    async with mesh.producer() as producer:
        began = time.time()
        while time.time() - began < MOST_INTERVALS * INTERVAL_S:
            outcomes += await send(producer, 100)
            told = await counted(mesh)
            # The SDK waits and tries again when a limit is reached, so it shows at Slow and not in the outcomes.
            felt = told.get("grants.state.exhausted", 0) + told.get("grants.state.decided_by_slow", 0)
            warm = told.get("grants.permits", 0) and told["dispatch.dispatched"]
            if felt and warm and outcomes[Verdict.DELIVERED] > 2 * MAXIMUM:
                break
        else:
            pytest.fail(f"the limit was not felt, or no permits came: {outcomes}, {told}")
        touched = int(time.time() // INTERVAL_S) - int(began // INTERVAL_S) + 1
    # Whose patience ended before the next interval began does not know.
    assert set(outcomes) <= {Verdict.DELIVERED, Verdict.RATE_LIMIT_EXCEEDED, Verdict.OUTCOME_UNKNOWN}
    assert outcomes[Verdict.DELIVERED] <= MAXIMUM * touched
