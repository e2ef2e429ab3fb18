"""A ban from the first abusive command to its end, through the real mesh: a forger's burst, and repeated dominance.

The burst is banned until the ban ends; the dominant source until an operator lifts its ban.

The way it goes, file by file:

    services/shield/admission.py        a verdict: forged, refused
    snavio/telemetry/journal.py         the verdict becomes a numbered event; journal_uploader.py uploads it
    services/relay/exporter.py          events become Parquet, with a manifest that Signer has signed
    snavio/audit/archive_index.py       verified files are added to the index, once
    spark/jobs/watch_abuse.py           counts, computes shares, judges (spark/transforms/), writes a proposal
    snavio/audit/proposer.py            sends it to Registry under the job's own identity
    services/registry/writes/bans.py    decides: applied, until a time
    services/fast/directory.py          pulls it; native/src/core/dispatch.rs hands the source's commands to Slow
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from snavio.admin.bans import BanClient
from snavio.admin.operator import Operator
from snavio.audit.jobs import SparkLocation
from snavio.audit.runner import JobRequest, MeshAccess, watch
from snavio.cli.invalid_commands import Forger
from snavio.clock import SystemClock
from snavio.domain.verdict import Verdict
from snavio.telemetry import schema
from snavio.telemetry.archive_query import ask
from snavio.v1.registry_pb2 import PROFILE_LOW, QUEUE_KIND_MAILBOX, Fairness, PutRouteRequest, Route
from tests.support.archived import fields, found
from tests.support.mesh import NAME, SOURCE, TARGET, TENANT, DemoMesh

MAX_BAN_S = 40
SETTINGS: dict[str, dict[str, object]] = {
    # It lives for minutes: caches that pull often would take more CPU than the journey.
    "mesh": {"pull_interval_ms": 500},
    "relay": {"export_after_s": 0.3, "export_few_after_s": 0.3},
    # Long enough to see it, short enough to see its end.
    "registry": {"max_ban_s": MAX_BAN_S},
    # Repeated offences are Spark's to find here, not Slow's.
    "slow": {"bans_to_escalate": 100},
}
# Dominance recurs within seconds instead of minutes.
POLICY_WINDOW_S = 4
POLICY = {
    "version": "journey",
    "window_seconds": POLICY_WINDOW_S,
    # Dominance is judged when its period is over.
    "period_minutes": 1,
    "single_target_windows": 2,
    "single_target_share": 0.5,
}
FORGED = 260
PATIENCE_S = 240.0
HONEST = f"{TENANT}/shop"
CROWDER, CROWDED = f"{TENANT}/crowder", "crowded-bot"
# Rows by the hundred: compiling the queries would take longer than running them.
QUICK = SparkLocation(
    "local[2]",
    driver_memory="1g",
    short=True,
    settings=(
        "spark.sql.codegen.wholeStage=false",
        "spark.sql.codegen.factoryMode=NO_CODEGEN",
        "spark.sql.shuffle.partitions=1",
        "spark.sql.adaptive.enabled=false",
    ),
)

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(600)]


async def furnish(mesh: DemoMesh) -> None:
    async with mesh.operator() as operator:
        await mesh.register_service(operator, "shop")
        await operator.grant(HONEST, TARGET, NAME)
        await _crowded_route(mesh, operator)
    await asyncio.sleep(mesh.processes.mesh.pull_interval_ms / 1000 + 0.2)


async def asked(mesh: DemoMesh, question: str) -> Any:
    return (await asyncio.to_thread(ask, mesh.processes.mesh.archive(), question)).rows


async def sent(mesh: DemoMesh, service: str, number: int = 1, *, target: str = TARGET) -> None:
    async with mesh.producer(service) as producer:
        outcomes = await producer.send_batch([(target, NAME, b"x")] * number, timeout_s=30)
    assert {outcome.verdict for outcome in outcomes} == {Verdict.DELIVERED}


async def paths(mesh: DemoMesh, source: str) -> list[tuple[str, str | None]]:
    """The path of each delivered command of a source, in order."""
    rows = await asked(
        mesh,
        "SELECT path, escalation FROM events WHERE event = 'snavio.command.delivered' "
        f"AND source = '{source}' ORDER BY \"at\", seq",
    )
    return [(path, escalation) for path, escalation in rows]


async def room(seconds: float, *, within: int) -> None:
    """Wait until that much is left of an aligned period: evidence of two periods is not added up."""
    left = within - time.time() % within
    if left < seconds:
        await asyncio.sleep(left + 0.1)


async def until_last(
    mesh: DemoMesh, source: str, wanted: tuple[str, str | None], *, target: str = TARGET
) -> None:
    """Send until the archive shows that the source's last command took that path."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            await sent(mesh, source.partition("/")[2], target=target)
            before = await paths(mesh, source)
            if before and before[-1] == wanted:
                return
            await asyncio.sleep(0.5)


@dataclass(frozen=True, slots=True)
class Watched:
    """Registry's answers to the proposals of one streaming job, which all tests share because of its JVM's start."""

    task: asyncio.Task[Any]
    answers: asyncio.Queue[Any]

    async def next(self) -> Any:
        first = asyncio.create_task(self.answers.get())
        try:
            async with asyncio.timeout(PATIENCE_S):
                await asyncio.wait({first, self.task}, return_when=asyncio.FIRST_COMPLETED)
            if not first.done():
                await self.task  # raises what ended it
            return first.result()
        finally:
            first.cancel()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def watched(mesh: DemoMesh, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Watched]:
    clock, installed, folder = SystemClock(), mesh.processes.mesh, tmp_path_factory.mktemp("watch")
    policy = folder / "policy.json"
    policy.write_text(json.dumps(POLICY), "utf-8")
    answers: asyncio.Queue[Any] = asyncio.Queue()
    operator = mesh.certificates("operator-admin")
    async with MeshAccess.open(installed, operator_certificates=operator, clock=clock) as access:
        order = JobRequest("watch", folder, place=QUICK, options=("--every-s", "1", "--policy", str(policy)))
        task = asyncio.create_task(
            watch(
                order,
                archive=installed.archive(),
                access=access,
                clock=clock,
                told=lambda _: None,
                seen=lambda _: None,
                answered=lambda found: deque(map(answers.put_nowait, found), 0).clear(),
            )
        )
        yield Watched(task, answers)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_forger_is_banned_goes_by_slow_and_comes_back(mesh: DemoMesh, watched: Watched) -> None:
    # Good standing: Fast decides by itself.
    await sent(mesh, "shop", 20)
    await until_last(mesh, SOURCE, ("fast", None))

    # Then it forges, as fast as it can.
    forger = Forger(
        mesh.processes.mesh, certificates=mesh.certificates(f"{TENANT}-billing"), clock=SystemClock()
    )
    await forger.start()
    # Within one minute: a burst that is split over two minutes counts in neither.
    await room(20, within=60)
    verdicts = await asyncio.gather(*(forger.submit(forger.signed(secret=bytes(32))) for _ in range(FORGED)))
    await forger.close()
    assert set(verdicts) == {Verdict.HMAC_MISMATCH}

    proposal, answer = await watched.next()
    assert (proposal.source, proposal.kind) == (SOURCE, "burst-invalid-hmac")
    # It may be found before all of it is archived.
    assert 200 <= proposal.total_violations <= FORGED
    assert answer.applied, answer

    # Banned: still delivered, but Slow decides, and no other source is slowed down.
    await until_last(mesh, SOURCE, ("slow", "warm_banned"))
    await sent(mesh, "shop", 20)

    # Warm again when the ban ends; the job runs on, and neither bans nor reports the same minute again.
    await until_last(mesh, SOURCE, ("fast", None))
    assert watched.answers.empty()
    assert {way for way in await paths(mesh, HONEST) if way[1] == "warm_banned"} == set()
    # The targets that a forger names are not checked: it is banned from the warm path of all its routes.
    await _told_once(mesh, proposal, affected=[])


async def test_one_that_crowds_others_out_again_and_again_is_banned_until_it_is_lifted(
    mesh: DemoMesh, watched: Watched
) -> None:
    async def crowd() -> None:
        while True:
            for service, number in (("shop", 3), ("bot", 3), ("crowder", 150)):
                await sent(mesh, service, number, target=CROWDED)
            # Into the next window; Fast's own ban of a second is over by then.
            await asyncio.sleep(POLICY_WINDOW_S)

    crowding = asyncio.create_task(crowd())
    try:
        proposal, answer = await watched.next()
    finally:
        crowding.cancel()
        await asyncio.gather(crowding, return_exceptions=True)
    assert (proposal.source, proposal.kind) == (CROWDER, "dominance-single-target")
    assert (proposal.affected_targets, answer.applied) == ((CROWDED,), True)
    assert proposal.total_violations >= 2
    async with BanClient(
        mesh.addresses["registry"], certificates=mesh.certificates("operator-admin")
    ) as client:
        # Its victims never are, though they had the warm path to themselves meanwhile.
        assert {standing.ban.source for standing in (await client.ls()).ban} == {CROWDER}
        await until_last(mesh, CROWDER, ("slow", "warm_banned"), target=CROWDED)
        await client.lift(CROWDER, reason="it has promised to behave")
    await until_last(mesh, CROWDER, ("fast", None), target=CROWDED)
    assert watched.answers.empty()
    await _told_once(mesh, proposal, affected=[CROWDED])


async def _crowded_route(mesh: DemoMesh, operator: Operator) -> None:
    """A route on which Fast's own bans last a second: what recurs there is for the archive to tell."""
    await mesh.register_service(operator, "crowder")
    await operator.claim_target(CROWDED, TENANT)
    route = Route(
        target=CROWDED,
        name=NAME,
        profile=PROFILE_LOW,
        queue_kind=QUEUE_KIND_MAILBOX,
        fairness=Fairness(window_seconds=POLICY_WINDOW_S, ban_seconds=1),
    )
    await operator._write("PutRoute", PutRouteRequest(route=route))
    for service in ("crowder", "shop", "bot"):
        await operator.grant(f"{TENANT}/{service}", CROWDED, NAME)


async def _told_once(mesh: DemoMesh, proposal: Any, *, affected: list[str]) -> None:
    async with BanClient(
        mesh.addresses["registry"], certificates=mesh.certificates("operator-admin")
    ) as client:
        (decided,) = (await client.explain(proposal.source)).proposal
    until = min(proposal.ban_applied_until_unix_ns, decided.decided_unix_ns + MAX_BAN_S * 1_000_000_000)
    (row,) = await found(mesh, f"event = '{schema.ABUSE_DETECTED}' AND source = '{proposal.source}'")
    assert fields(row) == {
        "source": proposal.source,
        "affected_targets": affected,
        "total_violations": proposal.total_violations,
        # The archive has microseconds.
        "ban_applied_until": datetime.fromtimestamp(until // 1_000_000_000, UTC).replace(
            microsecond=until % 1_000_000_000 // 1000
        ),
    }


async def test_the_hourly_run_finds_the_same_and_says_so(mesh: DemoMesh, tmp_path: Path) -> None:
    """As a person runs it; after the journey above, on the same archive. What it confirms: test_audit_journey.py."""
    (damaged, *_) = sorted(mesh.processes.mesh.archive().rglob("*.parquet"))
    stray = damaged.with_name("fast-9-1-1-5.parquet")
    stray.write_bytes(damaged.read_bytes()[:100])
    os.utime(stray, (0, 0))
    # 1 where Registry refuses to ban the other again, which was lifted; whom it may refuse is checked below.
    told = await _cli(mesh, "audit", "--out", str(tmp_path / "abuse"), "--short", "--json", codes=(0, 1))
    document = json.loads(told)
    ids: dict[str, set[str]] = {}
    for one in document["proposals"]:
        # One for each period: on a slow machine the same abuse reaches into the next.
        ids.setdefault(one["source"], set()).add(one["proposal_id"])
    # On a slow machine the other crowded for so long that this policy, too, calls it abuse: it was lifted, its period
    # still runs, or ended after the ban was lifted, and then the audit bans it by right.
    assert SOURCE in ids and ids.keys() <= {SOURCE, CROWDER}
    applied = {one["proposal_id"]: one["applied"] for one in document["answers"]}
    assert [applied.pop(each) for each in ids[SOURCE]] == [True] * len(ids[SOURCE])
    assert applied.keys() <= ids.get(CROWDER, set())
    assert document["archive"]["by_reason"] == {"unsigned": 1}
    stray.unlink()
    if os.environ.get("SNAVIO_FULL") != "1":
        return  # The report as a job is in tests/spark/test_reports.py; here it would be one more JVM.
    told = await _cli(mesh, "report", "--out", str(tmp_path / "slo"), "--short")
    assert f"The report: {tmp_path / 'slo' / 'report.html'}" in told
    assert SOURCE in (tmp_path / "slo" / "report.html").read_text("utf-8")


async def _cli(mesh: DemoMesh, *arguments: str, codes: Sequence[int] = (0,)) -> str:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "snavio.cli", "spark", *arguments),
        *("--config", str(mesh.processes.config)),
        *(part for setting in QUICK.settings for part in ("--conf", setting)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), PATIENCE_S)
    assert process.returncode in codes, err.decode()
    return out.decode()
