"""An abuser from its first command to its ban, and back to good standing when the ban ends; through the real mesh.

The way it goes, file by file:

    services/shield/admission.py    a verdict: forged, refused
    snavio/telemetry/journal.py     the verdict becomes a numbered event; courier.py carries it
    services/relay/exporting.py     events become Parquet, with a manifest that Signer has signed
    snavio/audit/following.py       what is signed and whole comes into the index, once
    spark/jobs/watch_abuse.py       counts, shares, judges (spark/transforms/), writes a proposal
    snavio/audit/proposing.py       carries it to Registry under the job's own identity
    services/registry/bans.py       decides: applied, until then
    services/fast/directory.py      hears of it; native/src/core/dispatch.rs hands the source's commands to Slow
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from snavio.audit.jobs import Place
from snavio.audit.running import Access, Order, watch
from snavio.cli.mischief import Forger
from snavio.clock import SystemClock
from snavio.domain.verdict import Verdict
from snavio.telemetry.asking import ask
from tests.support.mesh import NAME, SOURCE, TARGET, TENANT, DemoMesh, demo_mesh

SETTINGS: dict[str, dict[str, object]] = {
    "relay": {"export_after_s": 0.3, "export_few_after_s": 0.3},
    # Long enough to see it, short enough to see its end.
    "registry": {"max_ban_s": 20},
}
FORGED = 260
PATIENCE_S = 240.0
HONEST = f"{TENANT}/shop"
# Rows by the hundred: compiling the queries would take longer than running them.
QUICK = Place(
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


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def mesh(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[DemoMesh]:
    async with demo_mesh(tmp_path_factory.mktemp("ban") / "mesh", settings=SETTINGS) as running:
        async with running.operator() as operator:
            await running.register_service(operator, "shop")
            await operator.grant(HONEST, TARGET, NAME)
        await asyncio.sleep(running.processes.mesh.pull_interval_ms / 1000 + 0.2)
        yield running


async def asked(mesh: DemoMesh, question: str) -> Any:
    return (await asyncio.to_thread(ask, mesh.processes.mesh.archive(), question)).rows


async def sent(mesh: DemoMesh, service: str, number: int = 1) -> None:
    async with mesh.producer(service) as producer:
        outcomes = await producer.send_batch([(TARGET, NAME, b"x")] * number, timeout_s=30)
    assert {outcome.verdict for outcome in outcomes} == {Verdict.DELIVERED}


async def paths(mesh: DemoMesh, source: str) -> list[tuple[str, str | None]]:
    """Which way each delivered command of a source went, in order."""
    rows = await asked(
        mesh,
        "SELECT path, escalation FROM events WHERE event = 'snavio.command.delivered' "
        f"AND source = '{source}' ORDER BY \"at\", seq",
    )
    return [(path, escalation) for path, escalation in rows]


async def until_last(mesh: DemoMesh, source: str, wanted: tuple[str, str | None]) -> None:
    """Send until the archive says that the source's last command went that way."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            await sent(mesh, source.partition("/")[2])
            before = await paths(mesh, source)
            if before and before[-1] == wanted:
                return
            await asyncio.sleep(0.5)


async def test_an_abuser_is_banned_goes_by_slow_and_comes_back(mesh: DemoMesh, tmp_path: Path) -> None:
    clock, installed = SystemClock(), mesh.processes.mesh
    operator = mesh.certificates("operator-admin")

    # Good standing: Fast decides by itself.
    await sent(mesh, "shop", 20)
    await until_last(mesh, SOURCE, ("fast", None))

    # Then it forges, as fast as it can.
    forger = Forger(installed, certificates=mesh.certificates(f"{TENANT}-billing"), clock=clock)
    await forger.begin()
    verdicts = await asyncio.gather(*(forger.submit(forger.signed(secret=bytes(32))) for _ in range(FORGED)))
    await forger.close()
    assert set(verdicts) == {Verdict.HMAC_MISMATCH}

    answers: asyncio.Queue[Any] = asyncio.Queue()
    async with Access.open(installed, operator_certificates=operator, clock=clock) as access:
        watching = asyncio.create_task(
            watch(
                Order("watch", tmp_path / "watch", place=QUICK, options=("--every-s", "1")),
                archive=installed.archive(),
                access=access,
                clock=clock,
                told=lambda _: None,
                seen=lambda _: None,
                answered=lambda found: [answers.put_nowait(one) for one in found] and None,
            )
        )
        try:
            first = asyncio.create_task(answers.get())
            async with asyncio.timeout(PATIENCE_S):
                await asyncio.wait({first, watching}, return_when=asyncio.FIRST_COMPLETED)
            if watching.done():
                await watching
            proposal, answer = first.result()
            assert (proposal.source, proposal.kind) == (SOURCE, "burst-invalid-hmac")
            assert proposal.total_violations == FORGED
            assert answer.applied, answer

            # Banned: delivered all the same, but Slow decides, and nobody else is slowed down.
            await until_last(mesh, SOURCE, ("slow", "warm_banned"))
            await sent(mesh, "shop", 20)

            # Told once.
            told = await _abuse_detected(mesh)
            assert told == [(SOURCE, FORGED)]

            # And back when the ban ends; the watcher runs on and bans nobody for the same minute again.
            await until_last(mesh, SOURCE, ("fast", None))
            assert answers.empty()
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
    assert {way for way in await paths(mesh, HONEST) if way[1] == "warm_banned"} == set()
    assert await _abuse_detected(mesh) == [(SOURCE, FORGED)]


async def _abuse_detected(mesh: DemoMesh) -> list[tuple[str, int]]:
    question = "SELECT source, total_violations FROM events WHERE event = 'snavio.fairness.abuse_detected'"
    async with asyncio.timeout(PATIENCE_S):
        while not (rows := await asked(mesh, question)):
            await asyncio.sleep(0.5)
    return [(source, number) for source, number in rows]


@pytest.mark.skipif(os.environ.get("SNAVIO_FULL") != "1", reason="two more JVMs: with SNAVIO_FULL=1")
async def test_the_hourly_run_finds_the_same_and_says_so(mesh: DemoMesh, tmp_path: Path) -> None:
    """As a person runs it; after the journey above, on the same archive."""
    (damaged, *_) = sorted(mesh.processes.mesh.archive().rglob("*.parquet"))
    stray = damaged.with_name("fast-9-1-1-5.parquet")
    stray.write_bytes(damaged.read_bytes()[:100])
    os.utime(stray, (0, 0))
    told = await _cli(mesh, "abuse", "--out", str(tmp_path / "abuse"), "--short", "--json")
    document = json.loads(told)
    assert [one["source"] for one in document["proposals"]] == [SOURCE]
    assert [one["applied"] for one in document["answers"]] == [True]
    assert document["archive"]["by_reason"] == {"unsigned": 1}
    stray.unlink()
    told = await _cli(mesh, "slo", "--out", str(tmp_path / "slo"), "--short")
    assert f"The report: {tmp_path / 'slo' / 'report.html'}" in told
    assert SOURCE in (tmp_path / "slo" / "report.html").read_text("utf-8")


async def _cli(mesh: DemoMesh, *arguments: str) -> str:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "snavio.cli", "spark", "run", *arguments),
        *("--config", str(mesh.processes.config)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), PATIENCE_S)
    assert process.returncode == 0, err.decode()
    return out.decode()
