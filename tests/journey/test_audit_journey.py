"""The hourly audit through the real mesh: a confirmed ban stays, an unconfirmed one is withdrawn.

A signed archive of an hour ago has one forger. Two sources were banned provisionally for that hour, as the streaming
job does; one of them is innocent.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from snavio.admin.bans import BanClient, Proposal
from snavio.audit.ban_audit import LATENESS_NS
from snavio.audit.runner import MeshAccess
from snavio.clock import SystemClock
from snavio.rpc.channel import MeshChannel
from snavio.rpc.credentials import CertificateFiles
from snavio.signed.archive_manifest import ArchiveManifest, EventRange, FileEntry, folder_of
from snavio.signed.manifest_signer import ManifestSigner
from snavio.signed.platform_keys import PlatformKeys
from snavio.v1.registry_pb2 import PROPOSAL_STATE_CONFIRMED, PROPOSAL_STATE_WITHDRAWN
from spark.policy import DEFAULT_VERSION
from tests.journey.test_ban_journey import HONEST, QUICK
from tests.support.mesh import NAME, SOURCE, TARGET, DemoMesh, demo_mesh
from tests.support.telemetry_rows import HMAC_CODE, T0, row, write

SECOND_NS = 1_000_000_000
PERIOD_S = 600
KIND = "burst-invalid-hmac"
FORGED = 300
PATIENCE_S = 240.0

pytestmark = pytest.mark.timeout(600)


@asynccontextmanager
async def relays_signature(mesh: DemoMesh) -> AsyncIterator[ManifestSigner]:
    files = CertificateFiles.in_folder(mesh.processes.mesh.certificates("relay"))
    channel = MeshChannel(mesh.addresses["signer"], files=files, service="signer")
    try:
        platform = PlatformKeys(channel)
        yield ManifestSigner(sign=platform.sign, keys=platform.verifying)
    finally:
        await channel.close()


async def archive_of(mesh: DemoMesh, archive: Path, start_s: int) -> None:
    """One good file: what SOURCE forged within a minute, and what HONEST sent beside it."""
    after_s = start_s - T0.timestamp()
    rows = [
        row(
            source=SOURCE, target=TARGET, command_name=NAME, verdict=HMAC_CODE, count=FORGED, after_s=after_s
        ),
        row(source=HONEST, target=TARGET, command_name=NAME, count=500, after_s=after_s + 1),
    ]
    now = time.time_ns()
    folder, stretch = archive / folder_of(now), EventRange("fast-0", 1, 1, len(rows))
    contents = write(rows, folder / stretch.file_name).read_bytes()
    listed = FileEntry(
        stretch,
        start_s * SECOND_NS,
        (start_s + 1) * SECOND_NS,
        len(contents),
        hashlib.sha256(contents).hexdigest(),
    )
    async with relays_signature(mesh) as signer:
        signed = await signer.signed(ArchiveManifest(1, now, (listed,)))
    (folder / signed.file_name).write_bytes(signed.encoded())


def provisional(source: str, start_s: int) -> Proposal:
    """Proposals as the streaming job makes them, with a ban that has not ended."""
    key = f"{DEFAULT_VERSION}|{KIND}|{source}|{start_s}"
    end = (start_s + 60) * SECOND_NS
    return Proposal(
        hashlib.sha256(key.encode()).hexdigest(),
        *(
            DEFAULT_VERSION,
            KIND,
            source,
            (),
            FORGED,
            start_s * SECOND_NS,
            end,
            time.time_ns() + 1800 * SECOND_NS,
            "{}",
        ),
        provisional=True,
    )


async def test_the_hourly_audit_confirms_what_it_finds_again_and_withdraws_what_it_does_not(
    tmp_path: Path,
) -> None:
    # A whole period that no event can come late for.
    start_s = (int(time.time()) - LATENESS_NS // SECOND_NS) // PERIOD_S * PERIOD_S - 2 * PERIOD_S
    guilty, innocent = provisional(SOURCE, start_s), provisional(HONEST, start_s)
    async with demo_mesh(tmp_path / "mesh") as mesh:
        operator_folder = mesh.certificates("operator-admin")
        async with mesh.operator() as operator:
            await mesh.register_service(operator, "shop")
            await operator.grant(HONEST, TARGET, NAME)
        await archive_of(mesh, tmp_path / "archive", start_s)
        async with MeshAccess.open(
            mesh.processes.mesh, operator_certificates=operator_folder, clock=SystemClock()
        ) as access:
            answers = await access.bans.propose([guilty, innocent])
        assert [answer.applied for answer in answers] == [True, True]
        async with BanClient(mesh.addresses["registry"], certificates=operator_folder) as client:
            assert {standing.ban.source for standing in (await client.ls()).ban} == {SOURCE, HONEST}
            document = json.loads(await _audited(mesh, tmp_path))
            assert [one["proposal_id"] for one in document["proposals"]] == [guilty.proposal_id]
            assert (document["confirmed"], document["withdrawn"]) == (
                [guilty.proposal_id],
                [innocent.proposal_id],
            )
            # The abuse ended longer ago than a ban lasts: no new ban follows.
            assert document["answers"] == []
            assert {standing.ban.source for standing in (await client.ls()).ban} == {SOURCE}
            states = {source: (await client.explain(source)).proposal[0].state for source in (SOURCE, HONEST)}
            assert states == {SOURCE: PROPOSAL_STATE_CONFIRMED, HONEST: PROPOSAL_STATE_WITHDRAWN}


async def _audited(mesh: DemoMesh, folder: Path) -> str:
    """As a person or a timer runs it."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "snavio.cli", "spark", "audit", "--json", "--short"),
        *("--config", str(mesh.processes.config), "--dir", str(folder / "archive")),
        *("--out", str(folder / "abuse"), "--master", QUICK.master, "--driver-memory", QUICK.driver_memory),
        *(part for setting in QUICK.settings for part in ("--conf", setting)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), PATIENCE_S)
    assert process.returncode == 0, err.decode()
    return out.decode()
