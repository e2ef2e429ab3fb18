"""Without a snapshot, Fast and Shield load the present directory from Registry's dump, not its whole log."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from services.fast.directory import CachedDirectory
from services.shield.suspension_cache import SuspensionCache
from snavio.native import Admission, Dispatch
from snavio.rpc.channel import MeshChannel
from snavio.v1 import registry_pb2 as reg
from tests.support.frames import command
from tests.support.neighbours import Bench, ScriptedRegistry, eventually
from tests.support.wire import mesh_batch, run

SOURCE = "acme/billing"


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    made = Bench(tmp_path)
    yield made
    await made.close()


@asynccontextmanager
async def fast(bench: Bench, registry: ScriptedRegistry) -> AsyncIterator[tuple[Dispatch, CachedDirectory]]:
    neighbour = await bench.neighbour("registry", registry.methods())
    channel = bench.channel(neighbour.address, bench.authority.mesh("fast"), "registry")
    dispatch = Dispatch()
    directory = CachedDirectory(dispatch=dispatch, registry=channel, clock=bench.clock, interval_s=0.05)
    try:
        yield dispatch, directory
    finally:
        await directory.stop()


def allowed(bench: Bench, dispatch: Dispatch, name: str) -> bool:
    frame = mesh_batch([run(SOURCE, [command(target="bot", name=name)])])
    return len(dispatch.plan(frame, now_mono_ns=bench.clock.mono_ns()).sends) == 1


def filled(*, page: int = 0) -> ScriptedRegistry:
    registry = ScriptedRegistry(page=page)
    for number in range(5):
        registry.allow(SOURCE, "bot", f"say{number}")
    # A history that a starting service need not read.
    for _ in range(50):
        registry.write(suspension=reg.Suspension(source="acme/evil"))
        registry.write(deleted=True, suspension=reg.Suspension(source="acme/evil"))
    registry.write(deleted=True, acl=reg.AclEntry(source=SOURCE, target="bot", name="say4"))
    registry.write(suspension=reg.Suspension(source="acme/loud"))
    return registry


async def test_fast_reads_the_dump_in_pages_and_then_what_changed(bench: Bench) -> None:
    registry = filled(page=3)
    async with fast(bench, registry) as (dispatch, directory):
        await directory.start(within_s=5)
        assert registry.dumped == 4  # ten entries stand
        assert allowed(bench, dispatch, "say0")
        assert not allowed(bench, dispatch, "say4")
        assert dispatch.counters()["acls"] == 4
        dumped = registry.dumped
        registry.write(deleted=True, acl=reg.AclEntry(source=SOURCE, target="bot", name="say0"))
        await eventually(lambda: not allowed(bench, dispatch, "say0"))
        assert registry.dumped == dumped


class FailingChannel(MeshChannel):
    """Breaks in the middle of a dump, a given number of times."""

    breaks = 0
    pages = 0

    async def call(self, method: str, *arguments: object, **named: object) -> object:  # type: ignore[override]
        if method.endswith("/Dump"):
            self.pages += 1
            if self.pages > 1 and self.breaks:
                self.breaks -= 1
                from snavio.errors import Unavailable

                raise Unavailable("scripted")
        return await super().call(method, *arguments, **named)  # type: ignore[arg-type]


async def test_a_dump_that_breaks_goes_on_where_it_was_and_grants_nothing_meanwhile(bench: Bench) -> None:
    registry = filled(page=2)
    neighbour = await bench.neighbour("registry", registry.methods())
    channel = FailingChannel(neighbour.address, files=bench.authority.mesh("fast"), service="registry")
    channel.breaks = 3
    dispatch = Dispatch()
    directory = CachedDirectory(dispatch=dispatch, registry=channel, clock=bench.clock, interval_s=0.05)
    try:
        await directory.start(within_s=5)
        assert allowed(bench, dispatch, "say3")
        # Five pages, each read once: the broken one was requested again, and nothing from the start.
        assert registry.dumped == 5
    finally:
        await directory.stop()
        await channel.close()


async def test_a_half_read_dump_grants_nothing(bench: Bench) -> None:
    registry = filled(page=2)
    neighbour = await bench.neighbour("registry", registry.methods())
    channel = FailingChannel(neighbour.address, files=bench.authority.mesh("fast"), service="registry")
    channel.breaks = 10_000
    dispatch = Dispatch()
    directory = CachedDirectory(dispatch=dispatch, registry=channel, clock=bench.clock, interval_s=0.05)
    try:
        starting = asyncio.create_task(directory.start(within_s=60))
        # The first page is here, and the second one broke, more than once.
        await eventually(lambda: channel.breaks < 9_998)
        assert not starting.done()
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        with pytest.raises(Exception, match="could not be read"):
            await directory.start(within_s=0.2)
        assert dispatch.counters()["routes"] > 0
        assert not any(allowed(bench, dispatch, f"say{number}") for number in range(5))
    finally:
        await channel.close()


async def test_a_directory_that_was_replaced_is_read_anew_and_nothing_of_the_old_one_stays(
    bench: Bench,
) -> None:
    registry = filled()
    async with fast(bench, registry) as (dispatch, directory):
        await directory.start(within_s=5)
        assert allowed(bench, dispatch, "say0")
        registry.log.clear()
        registry.epoch = 2
        registry.allow(SOURCE, "bot", "other")
        await eventually(lambda: allowed(bench, dispatch, "other"))
        assert not allowed(bench, dispatch, "say0")
        assert registry.dumped == 2


async def test_shield_reads_suspensions_alone_and_keeps_the_old_ones_until_all_new_are_read(
    bench: Bench,
) -> None:
    registry = filled(page=1)
    neighbour = await bench.neighbour("registry", registry.methods())
    channel = bench.channel(neighbour.address, bench.authority.mesh("shield"), "registry")
    held = SuspensionCache(
        admission=Admission(audience="shield-0:1"), registry=channel, clock=bench.clock, interval_s=0.05
    )
    await held.start(within_s=5)
    try:
        assert held.sources == {"acme/loud"}
        assert registry.dumped == 1
        registry.log.clear()
        registry.epoch = 2
        registry.write(suspension=reg.Suspension(source="acme/new"))
        await eventually(lambda: held.sources == {"acme/new"} and not held._before)
    finally:
        await held.stop()
