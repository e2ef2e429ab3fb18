"""Cost of a pull without news from a directory that is not empty; and cost of a check."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable
from typing import Any

from bench.meters import percentile, record
from snavio.admin.directory import DirectoryClient
from snavio.domain.directory import AclEntry, Route, Value
from snavio.rpc.channel import MeshChannel
from snavio.rpc.credentials import CertificateFiles
from snavio.v1.registry_pb2 import ChangesRequest, ChangesResponse
from tests.support.mesh import NAME, SOURCE, TARGET, DemoMesh

REPEATS = 6
CALLS = 500
ROUTES = 900


def test_changes_with_nothing_new(benchmark: Any, runner: asyncio.Runner, mesh: DemoMesh) -> None:
    # The certificate of a mesh service, as Fast and Shield have it.
    channel = MeshChannel(
        mesh.addresses["registry"],
        files=CertificateFiles.in_folder(mesh.certificates("fast")),
        service="registry",
    )
    runner.run(_fill(mesh))

    async def read_all() -> ChangesRequest:
        request = ChangesRequest()
        while True:
            answer = await channel.call(
                "/snavio.v1.Registry/Changes", request, ChangesResponse, timeout_s=10.0
            )
            request = ChangesRequest(since_version=answer.version, directory_epoch=answer.directory_epoch)
            if not answer.more:
                return request

    newest = runner.run(read_all())

    async def pull() -> None:
        answer = await channel.call("/snavio.v1.Registry/Changes", newest, ChangesResponse, timeout_s=5.0)
        assert not answer.change

    p95 = _measured(benchmark, runner, pull)
    record("Changes with nothing new: p95", values=p95, unit="ms", target="≤ 2")
    runner.run(channel.close())
    assert statistics.median(p95) <= 2


def test_check_of_one_command(benchmark: Any, runner: asyncio.Runner, mesh: DemoMesh) -> None:
    client = _client(mesh)

    async def check() -> None:
        assert (await client.check(SOURCE, TARGET, NAME)).passes

    p95 = _measured(benchmark, runner, check)
    record("Check of one command: p95", values=p95, unit="ms", target="-", note="asks Signer too")
    runner.run(client.__aexit__(None, None, None))


def _measured(benchmark: Any, runner: asyncio.Runner, call: Callable[[], Awaitable[None]]) -> list[float]:
    """The 95th percentile of each repeat, in milliseconds, one call at a time."""
    found: list[float] = []

    async def calls() -> list[float]:
        seconds = []
        for _ in range(CALLS):
            began = time.perf_counter()
            await call()
            seconds.append(time.perf_counter() - began)
        return seconds

    def repeat() -> None:
        found.append(percentile(runner.run(calls()), 0.95) * 1000)

    benchmark.pedantic(repeat, rounds=REPEATS, iterations=1, warmup_rounds=1)
    return found[1:]


async def _fill(mesh: DemoMesh) -> None:
    values: list[Value] = [Route(TARGET, f"bench-{number}") for number in range(ROUTES // 2)]
    values += [AclEntry(SOURCE, TARGET, f"bench-{number}") for number in range(ROUTES // 2)]
    async with _client(mesh) as client:
        await client.apply(values)


def _client(mesh: DemoMesh) -> DirectoryClient:
    return DirectoryClient(mesh.addresses["registry"], certificates=mesh.certificates("operator-admin"))
