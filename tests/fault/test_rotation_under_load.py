"""Keys rotate while commands flow, Signer is killed in between, and no valid command is refused.

SNAVIO_FULL=1 sends more and rotates more often.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter

import pytest

from snavio.admin.keys import KeyClient
from snavio.errors import SnavioError
from snavio.launch.probes import Probes
from snavio.sdk import Producer
from tests.support.mesh import NAME, SOURCE, TARGET, DemoMesh

FULL = os.environ.get("SNAVIO_FULL") == "1"
ROTATIONS = 10 if FULL else 2
AT_ONCE = 200 if FULL else 20
DELAY_S = 1.0
KEY_REFUSALS = ("unknown-key-version", "key-expired", "key-revoked", "hmac-mismatch")
SETTINGS: dict[str, dict[str, object]] = {"signer": {"distribution_delay_s": DELAY_S, "poll_after_s": 1}}

pytestmark = pytest.mark.asyncio(loop_scope="module")


def key_client(mesh: DemoMesh) -> KeyClient:
    return KeyClient(mesh.addresses["signer"], certificates=mesh.certificates("operator-admin"))


async def refused_for_their_key(mesh: DemoMesh) -> int:
    """Refusals as Shield counted them, including those that the SDK repaired by fetching keys and signing again."""
    async with Probes(mesh.processes.mesh, certificates=mesh.certificates("operator-admin")) as probes:
        status = await probes.status("shield")
    assert status is not None
    counts = {counter.name: counter.value for counter in status.counter}
    return sum(counts[f"admission.{reason}"] for reason in KEY_REFUSALS)


class Load:
    """Commands that never stop while the block runs."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self._ending = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.verdicts: Counter[str] = Counter()

    async def __aenter__(self) -> Load:
        self._task = asyncio.create_task(self._send(), name="load")
        return self

    async def __aexit__(self, *_raised: object) -> None:
        self._ending.set()
        assert self._task is not None
        await asyncio.wait_for(self._task, 30.0)

    async def _send(self) -> None:
        while not self._ending.is_set():
            sent = (self._producer.send(TARGET, NAME, b"x") for _ in range(AT_ONCE))
            self.verdicts.update(outcome.verdict.name for outcome in await asyncio.gather(*sent))

    async def flows(self) -> None:
        """Wait until commands sent after this call were delivered."""
        wanted = self.verdicts.total() + 3 * AT_ONCE
        async with asyncio.timeout(20.0):
            while self.verdicts.total() < wanted:
                await asyncio.sleep(0.02)


async def until_primary(keys: KeyClient, version: str) -> None:
    async with asyncio.timeout(20.0):
        while (await keys.status(SOURCE)).primary != version:
            await asyncio.sleep(0.05)


async def test_rotation_under_load_refuses_no_valid_command(mesh: DemoMesh) -> None:
    async with mesh.producer() as producer, key_client(mesh) as keys:
        async with Load(producer) as load:
            await load.flows()
            # From here on: the source was registered a moment ago, and its first key was news to Shield.
            before = await refused_for_their_key(mesh)
            for number in range(2, ROTATIONS + 2):
                await keys.rotate(SOURCE)
                await load.flows()
                await until_primary(keys, f"hmac-v{number}")
                # Long enough for the producer to have asked: the next rotation would end its version.
                await _used(keys, f"hmac-v{number}")
                await load.flows()
        status = await keys.status(SOURCE)
    assert set(load.verdicts) == {"DELIVERED"}
    assert await refused_for_their_key(mesh) == before
    assert status.primary == f"hmac-v{ROTATIONS + 1}"
    assert status.last_poll_unix_ns > 0


async def test_rotation_cut_by_a_crash_of_signer_refuses_no_valid_command(mesh: DemoMesh) -> None:
    before = await refused_for_their_key(mesh)
    async with mesh.producer() as producer, Load(producer) as load:
        await load.flows()
        async with key_client(mesh) as keys:
            newest = (await keys.status(SOURCE)).keyset.version[-1].version
            rotation = asyncio.create_task(keys.rotate(SOURCE))
            await asyncio.sleep(0)
            mesh.processes.kill("signer")
            answered = not isinstance(await _outcome(rotation), SnavioError)
        await load.flows()
        mesh.processes.restart("signer")
        async with key_client(mesh) as keys:
            found = (await keys.status(SOURCE)).keyset.version[-1].version
            # The old state or the new one; the new one if it was acknowledged.
            added = f"hmac-v{int(newest.removeprefix('hmac-v')) + 1}"
            assert found == added or (found == newest and not answered)
            await until_primary(keys, found)
        await load.flows()
    assert set(load.verdicts) == {"DELIVERED"}
    assert await refused_for_their_key(mesh) == before


async def test_emergency_under_load_is_repaired_by_the_sdk_alone(mesh: DemoMesh) -> None:
    async with mesh.producer() as producer, key_client(mesh) as keys, Load(producer) as load:
        await load.flows()
        signing = (await keys.status(SOURCE)).primary
        after = await keys.revoke(SOURCE, signing)
        assert after.primary != signing
        await load.flows()
        await _used(keys, after.primary)
    # Refused by Shield for a moment, then asked for, signed again and delivered: the sender sees nothing.
    assert set(load.verdicts) == {"DELIVERED"}


async def _outcome(task: asyncio.Task[object]) -> object:
    try:
        return await task
    except SnavioError as error:
        return error


async def _used(keys: KeyClient, version: str) -> None:
    async with asyncio.timeout(20.0):
        while True:
            use = {use.version: use.last_hour for use in (await keys.status(SOURCE)).use}
            if use.get(version, 0) > 0:
                return
            await asyncio.sleep(0.05)
