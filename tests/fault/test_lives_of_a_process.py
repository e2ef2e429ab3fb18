"""Lives of one process: after a clock that was set back, after kill -9, and two at a time under one name.

libfaketime (`apt install libfaketime`) moves the clock of a real process; without it, that test is skipped.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from snavio.config.sections import SERVICES
from snavio.sdk import Producer
from snavio.v1 import registry_pb2 as reg
from tests.support.mesh import NAME, SOURCE, TARGET, DemoMesh

LIBRARY = next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)
AHEAD_S = 3600
STRICT, SENDS, BACK_WITHIN_S = "refund", 100, 5.0
OTHERS = ("mailbox", "shield", "registry", "relay", "signer", "gateway")
pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(600)]


async def furnish(mesh: DemoMesh) -> None:
    """A strict route."""
    async with mesh.operator() as operator:
        route = reg.Route(target=TARGET, name=STRICT, dedupe_mode=reg.DEDUPE_MODE_STRICT)
        await operator._write("PutRoute", reg.PutRouteRequest(route=route))
        await operator.grant(SOURCE, TARGET, STRICT)


async def restart(mesh: DemoMesh, service: str, *, ahead_s: int = 0) -> None:
    """Kill a service and start it again, with a wall clock that is off by an amount."""
    mesh.processes.kill(service)
    fake = {"LD_PRELOAD": str(LIBRARY), "FAKETIME": f"+{ahead_s}s", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
    before = dict(os.environ)
    if ahead_s:
        os.environ.update(fake)
    try:
        mesh.processes.spawn(service)
    finally:
        os.environ.clear()
        os.environ.update(before)
    await asyncio.to_thread(mesh.processes.wait_ready, service)


async def sent(producer: Producer, mark: bytes = b"") -> Counter[str]:
    """The outcomes of commands of both kinds, some at a time."""
    outcomes: Counter[str] = Counter()
    for start in range(0, SENDS, 10):
        told = await asyncio.gather(
            *(
                producer.send(TARGET, (NAME, STRICT)[n % 2], mark + b"%d" % n)
                for n in range(start, start + 10)
            )
        )
        outcomes.update(outcome.reason for outcome in told)
    return outcomes


@pytest.mark.skipif(LIBRARY is None, reason="libfaketime is not installed")
async def test_clock_set_back_an_hour_before_a_restart_leaves_nothing_unknown(
    mesh: DemoMesh, figure: Callable[[str], None]
) -> None:
    async with mesh.producer() as producer:
        for service in ("fast", "slow"):
            await restart(mesh, service, ahead_s=AHEAD_S)
            assert (await sent(producer)).keys() == {"delivered"}, service
            # Its clock is put right, so this life has the smaller epoch.
            await restart(mesh, service)
            assert await sent(producer) == {"delivered": SENDS}, service
    figure(f"{SENDS} sends after each clock was set back by an hour: all delivered")


@pytest.mark.skipif(LIBRARY is None, reason="libfaketime is not installed")
async def test_clock_of_any_other_service_set_back_an_hour_before_a_restart_stops_nothing(
    mesh: DemoMesh,
) -> None:
    assert {*OTHERS, "fast", "slow"} == set(SERVICES)
    async with mesh.producer() as producer, mesh.consumer() as consumer:
        for service in OTHERS:
            await restart(mesh, service, ahead_s=AHEAD_S)
            # What a service an hour ahead does to others is another question: it has lived, and noted times.
            await producer.send(TARGET, NAME, b"ahead")
            await restart(mesh, service)
            mark = service.encode()
            assert await sent(producer, mark) == {"delivered": SENDS}, service
            waiting = {mark + b"%d" % number for number in range(SENDS)}
            async with asyncio.timeout(60):
                while waiting:
                    command = await anext(consumer)
                    await command.ack()
                    waiting.discard(command.payload)


@pytest.mark.parametrize("service", ["fast", "shield"])
async def test_second_process_of_one_name_is_refused_and_the_first_goes_on(
    mesh: DemoMesh, tmp_path: Path, service: str, figure: Callable[[str], None]
) -> None:
    second = f"{service}-0"
    async with mesh.producer() as producer:
        assert await sent(producer) == {"delivered": SENDS}
        # The first one's default name; on another machine, so that no file lock can tell.
        elsewhere = tmp_path / "elsewhere"
        shutil.copytree(mesh.certificates(service), elsewhere / "certs" / service)
        await mesh.another(service, second, state_dir=str(elsewhere))
        async with asyncio.timeout(60):
            while (code := mesh.processes.ended(second)) is None:
                assert (await producer.send(TARGET, NAME, b"meanwhile")).delivered
                await asyncio.sleep(0.05)
        assert code != 0
        log = mesh.processes.log(second).read_text()
        assert f"Another process runs under the name {service}/{second}." in log
        assert await sent(producer) == {"delivered": SENDS}
        mesh.processes.forget(second)

        # One that is back after kill -9 is let in.
        began = time.monotonic()
        await restart(mesh, service)
        started_s = time.monotonic() - began
        assert (await producer.send(TARGET, NAME, b"back")).delivered
        back_s = time.monotonic() - began - started_s
        assert back_s < BACK_WITHIN_S
        assert await sent(producer) == {"delivered": SENDS}
    figure(f"a {service} that was killed delivers again {back_s:.2f} s after it was ready")
