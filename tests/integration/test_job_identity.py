"""The audit jobs keep a valid identity as long as they run, although none of them may renew it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from services.signer.settings import SignerSettings
from snavio.admin.bans import JOB_FOLDER
from snavio.audit import runner
from snavio.audit.identity import job_certificates
from snavio.audit.routes import read_routes
from snavio.audit.runner import MeshAccess
from snavio.errors import SnavioError, Unauthenticated, Unavailable
from snavio.rpc import renewal
from snavio.rpc.renewal import Leaf
from tests.support.control import ADMIN, control_plane

LIFE_S = 90
PATIENCE_S = 20.0


async def test_a_job_outlives_its_certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(renewal, "LONGEST_SLEEP_S", 0.05)
    async with control_plane(
        tmp_path, registry=True, signer_settings=SignerSettings(job_ttl_s=LIFE_S)
    ) as control:
        folder = control.mesh.certificates(JOB_FOLDER)
        async with MeshAccess.open(
            control.mesh, operator_certificates=control.mesh.certificates(ADMIN), clock=control.clock
        ) as access:
            await access.bans.version()
            first = Leaf.in_folder(folder)
            control.clock.advance(seconds=LIFE_S * 0.7)
            async with asyncio.timeout(PATIENCE_S):
                while Leaf.in_folder(folder).serial == first.serial:
                    await asyncio.sleep(0.02)
            assert Leaf.in_folder(folder).spiffe_id == first.spiffe_id
            control.clock.advance(seconds=LIFE_S * 0.4)
            assert control.clock.unix_ns() > first.not_after_ns
            # Both ways, the channels look at the files four times a second and then speak with the new certificate.
            async with asyncio.timeout(PATIENCE_S):
                for call in (access.bans.version, lambda: read_routes(access.registry)):
                    await _until_it_answers(call)


async def _until_it_answers(call: Any) -> None:
    while True:
        try:
            await call()
            return
        except Unauthenticated:
            await asyncio.sleep(0.05)


async def test_nobody_renews_for_a_job_that_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(renewal, "LONGEST_SLEEP_S", 0.02)
    async with control_plane(tmp_path, signer_settings=SignerSettings(job_ttl_s=LIFE_S)) as control:
        operator = control.mesh.certificates(ADMIN)
        folder = await job_certificates(control.mesh, operator_certificates=operator, clock=control.clock)
        async with MeshAccess.open(control.mesh, operator_certificates=operator, clock=control.clock):
            before = Leaf.in_folder(folder).serial
        control.clock.advance(seconds=LIFE_S * 0.7)
        await asyncio.sleep(0.2)
        assert Leaf.in_folder(folder).serial == before


@pytest.mark.parametrize("error", [Unavailable("Signer is away."), Unauthenticated("It has expired.")])
async def test_a_watch_goes_on_when_it_is_heard_again(
    monkeypatch: pytest.MonkeyPatch, error: SnavioError
) -> None:
    """A machine that slept past the end of the certificate wakes up before the renewal does."""
    monkeypatch.setattr(runner, "LOOK_SECONDS", 0.0)
    asked = 0

    async def ever() -> Sequence[Any]:
        nonlocal asked
        asked += 1
        if asked < 3:
            raise error
        return ()

    seen: asyncio.Queue[str] = asyncio.Queue()
    follower: Any = SimpleNamespace(step=lambda keys: "looked")
    access: Any = SimpleNamespace(keys=SimpleNamespace(ever=ever))
    following = asyncio.create_task(runner._follow(follower, access, seen.put_nowait))  # type: ignore[arg-type]
    try:
        async with asyncio.timeout(PATIENCE_S):
            assert await seen.get() == "looked"
    finally:
        following.cancel()
    assert asked >= 3
