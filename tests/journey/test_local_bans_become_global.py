"""The second way to a ban, with default thresholds and in real time: local bans of Fast become one for every Fast.

The way it goes, file by file:

    native/src/core/fairness.rs             a source dominates a route's warm path: Fast bans it for 30 s, locally
    services/fast/bans.py                   reports the local ban to Slow
    services/slow/bans.py                   counts offences in distinct windows; the third within 10 min escalates
    services/registry/wire/write_servicer.py, writes/ownership.py   write the ban to the directory, for 10 min
    services/fast/directory.py              every Fast pulls it, and sends the source's commands to Slow

It waits out two local bans of 30 s: a moved clock would have to move in Fast, Slow and Registry at once.
"""

from __future__ import annotations

import asyncio
import time

import pytest

from services.slow.settings import SlowSettings
from snavio.admin.bans import BanClient
from snavio.domain.directory import Fairness
from snavio.sdk import Producer
from snavio.v1.registry_pb2 import BAN_LIST_WARM_BAN, StandingBan
from tests.support.archived import found, in_archive
from tests.support.mesh import NAME, TARGET, TENANT, DemoMesh

DEFAULTS, FAIRNESS = SlowSettings(), Fairness()
# Rows are read from the archive, which by default is written once a minute.
SETTINGS: dict[str, dict[str, object]] = {
    "relay": {"export_after_s": 0.3, "export_few_after_s": 0.3},
    # It lives for minutes: caches that pull often would take more CPU than the journey.
    "mesh": {"pull_interval_ms": 500},
}
CROWDER, VICTIMS = "crowder", ("shop", "bot")
WARM, BANNED = ("fast", None), ("slow", "warm_banned")
PATIENCE_S = 60.0
pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(600)]


async def furnish(mesh: DemoMesh) -> None:
    """Two paths to one Slow: shield over fast-0, and shield-1 over fast-1."""
    fast = await mesh.another("fast", "fast-1")
    mesh.addresses["shield-1"] = await mesh.another("shield", "shield-1", fast=fast)
    async with mesh.operator() as operator:
        for service in (CROWDER, *VICTIMS):
            if service != "bot":
                await mesh.register_service(operator, service)
            await operator.grant(f"{TENANT}/{service}", TARGET, NAME)


def producer(mesh: DemoMesh, service: str, shield: str) -> Producer:
    return Producer(
        shield=mesh.addresses[shield],
        signer=mesh.addresses["signer"],
        certificates=mesh.certificates(f"{TENANT}-{service}"),
    )


async def path(mesh: DemoMesh, service: str, shield: str) -> tuple[str, str | None]:
    """The path that one more command of a service takes."""
    async with producer(mesh, service, shield) as sender:
        outcome = await sender.send(TARGET, NAME, b"x", timeout_s=30)
    assert outcome.delivered, outcome
    (row,) = await found(mesh, f"{in_archive(outcome.command_id)} AND event = 'snavio.command.delivered'")
    return row["path"], row["escalation"]


async def until_path(mesh: DemoMesh, service: str, shield: str, wanted: tuple[str, str | None]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while await path(mesh, service, shield) != wanted:
            await asyncio.sleep(0.2)


async def reports(mesh: DemoMesh) -> int:
    """Local bans that were reported to Slow."""
    return (await mesh.counters("slow")).get("bans.reported", 0)


async def offend(mesh: DemoMesh, shield: str) -> None:
    """Dominate the route beside two others until that makes one local ban."""
    before = await reports(mesh)
    async with asyncio.timeout(PATIENCE_S):
        while await reports(mesh) == before:
            for service, number in (*((victim, 3) for victim in VICTIMS), (CROWDER, 150)):
                async with producer(mesh, service, shield) as sender:
                    outcomes = await sender.send_batch([(TARGET, NAME, b"x")] * number, timeout_s=30)
                assert not outcomes.refused
            # Fast reports a fifth of a second after the ban.
            await asyncio.sleep(0.5)
    assert await reports(mesh) == before + 1


async def standing(mesh: DemoMesh) -> list[StandingBan]:
    """Bans in the directory."""
    certificates = mesh.certificates("operator-admin")
    async with BanClient(mesh.addresses["registry"], certificates=certificates) as client:
        return list((await client.ls()).ban)


async def test_offences_in_three_windows_ban_a_source_from_every_warm_path(mesh: DemoMesh) -> None:
    for service in (CROWDER, *VICTIMS):
        for shield in ("shield", "shield-1"):
            await until_path(mesh, service, shield, WARM)

    # The first offence is committed at both Fasts: two local bans and two reports of the same window count once.
    for shield in ("shield", "shield-1"):
        await offend(mesh, shield)
    first = time.monotonic()
    assert await path(mesh, CROWDER, "shield") == BANNED
    # Longer than a local ban and than the window within which bans are one offence.
    apart_s = max(FAIRNESS.ban_seconds, FAIRNESS.window_seconds) + 1
    for offence in range(2, DEFAULTS.bans_to_escalate + 1):
        # One too few is none: until now every ban is that Fast's own, and at the other one it has ended.
        assert await standing(mesh) == [], offence
        await asyncio.sleep(apart_s)
        for shield in ("shield", "shield-1"):
            assert await path(mesh, CROWDER, shield) == WARM, (offence, shield)
        await offend(mesh, "shield")
    assert time.monotonic() - first < DEFAULTS.bans_within_ms / 1000

    # The third one is in the directory, written by Slow through Registry, for ten minutes.
    async with asyncio.timeout(PATIENCE_S):
        while not (bans := await standing(mesh)):
            await asyncio.sleep(0.1)
    (ban,) = (entry.ban for entry in bans)
    assert (ban.source, ban.target, ban.name, ban.list) == (
        f"{TENANT}/{CROWDER}",
        TARGET,
        NAME,
        BAN_LIST_WARM_BAN,
    )
    assert ban.reason == "3 bans from the warm path within 10 min."
    left_s = ban.until_unix_ns / 1e9 - time.time()
    assert DEFAULTS.escalated_ban_ms / 1000 - 60 < left_s <= DEFAULTS.escalated_ban_ms / 1000

    # At the other Fast the source did nothing since its first offence: only the directory's ban applies there.
    await until_path(mesh, CROWDER, "shield-1", BANNED)
    for victim in VICTIMS:
        assert await path(mesh, victim, "shield-1") == WARM

    certificates = mesh.certificates("operator-admin")
    async with BanClient(mesh.addresses["registry"], certificates=certificates) as client:
        await client.lift(f"{TENANT}/{CROWDER}", target=TARGET, name=NAME, reason="it has promised to behave")
    await until_path(mesh, CROWDER, "shield-1", WARM)
