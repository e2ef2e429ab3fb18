"""`snavio spark demo`: from an abuser's traffic to its ban and the report, on a mesh of its own.

Never touches an installation; only the results stay, in the folder that was named.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from snavio.admin.bans import BanClient
from snavio.audit.jobs import SparkLocation
from snavio.audit.quarantine import sentence
from snavio.audit.runner import JobRequest, MeshAccess, run_batch
from snavio.cli.demo_clients import producer
from snavio.cli.invalid_commands import Forger
from snavio.clock import SystemClock
from snavio.errors import Unavailable
from snavio.launch.demo_tenant import CONSUMER, NAME, PRODUCER, TARGET, TENANT, folder_name
from snavio.launch.installation import OPERATOR_FOLDER
from snavio.launch.temporary import TemporaryMesh, temporary_mesh
from snavio.telemetry.archive_query import ask

TRAFFIC_S: Final = 15.0
BATCH: Final = 200
FORGED: Final = 400
PATIENCE_S: Final = 60.0
SETTINGS: Final = {"relay": {"export_after_s": 1.0, "export_few_after_s": 1.0}}
ABUSER: Final = f"{TENANT}/{CONSUMER}"


async def play(out: Path, say: Callable[[str], None]) -> dict[str, Any]:
    """The whole of it; what was seen."""
    clock = SystemClock()
    say("starting a mesh of its own ...")
    async with temporary_mesh(
        clock=clock, healthy=lambda _: None, say=lambda text: say(f"  {text}"), settings=SETTINGS
    ) as running:
        say(
            f"{TENANT}/{PRODUCER} sends for {TRAFFIC_S:.0f} s; {ABUSER} forges {FORGED} commands meanwhile ..."
        )
        delivered = await _traffic(running, clock)
        say(f"{delivered:,} commands delivered, {FORGED} forged ones refused")
        archive = running.mesh.archive()
        await _archived(archive, delivered + FORGED)
        operator = running.mesh.certificates(OPERATOR_FOLDER)
        async with MeshAccess.open(running.mesh, operator_certificates=operator, clock=clock) as access:
            results = {}
            for job in ("abuse", "slo"):
                say(f"running the job {job} ...")
                order = JobRequest(job, out / job, place=SparkLocation("local[2]", short=True))
                results[job] = await run_batch(
                    order, archive=archive, access=access, clock=clock, told=lambda _: None
                )
                if left_out := sentence(results[job].verified_archive, results[job].report):
                    say(f"  {left_out}")
        async with BanClient(
            running.mesh.registry, certificates=operator, trust_domain=running.mesh.trust_domain
        ) as client:
            standing = (await client.ls()).ban
            explained = await client.explain(ABUSER)
    audited = results["abuse"].audited
    bans = [
        {
            "source": one.ban.source,
            "until": datetime.fromtimestamp(one.ban.until_unix_ns / 1e9, UTC).isoformat(timespec="seconds"),
            "reason": one.ban.reason,
        }
        for one in standing
    ]
    for ban in bans:
        say(f"banned: {ban['source']} until {ban['until']}: {ban['reason']}")
    for proposal in explained.proposal:
        say(f"  because of {proposal.kind}, {proposal.total_violations} times: {proposal.evidence}")
    report = out / "slo" / "report.html"
    good = {str(ban["source"]) for ban in bans} == {ABUSER} and report.is_file()
    say(f"The report: {report}" if report.is_file() else "There is no report.")
    say("Everything as it should be." if good else "Something is not as it should be.")
    return {
        "good": good,
        "delivered": delivered,
        "forged": FORGED,
        "events": results["abuse"].verified_archive.events,
        "proposals": len(audited.answers) if audited is not None else 0,
        "bans": bans,
        "report": str(report),
    }


async def _traffic(running: TemporaryMesh, clock: SystemClock) -> int:
    mesh = running.mesh
    delivered, end = 0, time.monotonic() + TRAFFIC_S
    forged = 0
    async with (
        Forger(mesh, certificates=mesh.certificates(folder_name(CONSUMER)), clock=clock) as forger,
        producer(mesh) as sender,
    ):
        while time.monotonic() < end or forged < FORGED:
            outcomes = await sender.send_batch([(TARGET, NAME, b"hello")] * BATCH, timeout_s=30)
            delivered += sum(outcome.delivered for outcome in outcomes)
            some = min(FORGED - forged, 40)
            await asyncio.gather(*(forger.submit(forger.signed(secret=bytes(32))) for _ in range(some)))
            forged += some
            await asyncio.sleep(0.2)
    return delivered


async def _archived(archive: Path, commands: int) -> None:
    """Wait until the archive has them all."""
    question = "SELECT coalesce(sum(count), 0) FROM events WHERE verdict IS NOT NULL"
    end = time.monotonic() + PATIENCE_S
    while int((await asyncio.to_thread(ask, archive, question)).rows[0][0]) < commands:
        if time.monotonic() > end:
            raise Unavailable("The archive does not have all events after a minute.", reason="archive-late")
        await asyncio.sleep(0.5)
