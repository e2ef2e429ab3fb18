"""Events of commands in a mesh of real processes are in the archive with all their fields.

Every event that a mesh can produce is provoked in one of the catalogue's tests; `tests/unit/test_event_names.py` says
where.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from datetime import datetime

import pytest

from snavio.cli.invalid_commands import Forger
from snavio.clock import SystemClock
from snavio.domain.verdict import Verdict
from snavio.telemetry import schema
from tests.support.archived import PATIENCE_S, Row, fields, found, in_archive
from tests.support.mesh import NAME, SOURCE, TARGET, TOPIC, DemoMesh

# The archive is written soon, and Fast pulls a revocation late enough to use the old right meanwhile.
SETTINGS: dict[str, dict[str, object]] = {
    "mesh": {"pull_interval_ms": 1000},
    "relay": {"export_after_s": 0.3, "export_few_after_s": 0.3},
}

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def forger(mesh: DemoMesh, service: str = "billing") -> Forger:
    built = Forger(
        mesh.processes.mesh, certificates=mesh.certificates(f"acme-{service}"), clock=SystemClock()
    )
    await built.start()
    return built


async def test_delivered_by_fast_and_by_slow(mesh: DemoMesh) -> None:
    async with mesh.producer() as producer, asyncio.timeout(PATIENCE_S):
        paths: dict[str, Row] = {}
        while len(paths) < 2:
            outcome = await producer.send(TARGET, NAME, b"hello")
            assert outcome.verdict is Verdict.DELIVERED
            (row,) = await found(mesh, in_archive(outcome.command_id) + " AND event LIKE '%delivered'")
            paths[row["path"]] = row
            if "slow" not in paths:
                # A right that Fast has not pulled yet is decided by Slow.
                async with mesh.operator() as operator:
                    await operator.put_route(TARGET, "fresh-name")
                    await operator.grant(SOURCE, TARGET, "fresh-name")
                outcome = await producer.send(TARGET, "fresh-name", b"hello")
                (row,) = await found(mesh, in_archive(outcome.command_id) + " AND event LIKE '%delivered'")
                paths[row["path"]] = row
    for row in paths.values():
        told = fields(row)
        assert told["source"] == SOURCE and told["target"] == TARGET
        assert told["dispatch_latency_ms"] > 0
        assert row["received_at"] >= told["timestamp"]
        assert (row["key_version"], row["topic"], row["grant"], row["count"]) == (
            "hmac-v1",
            TOPIC,
            "unlimited",
            1,
        )
    assert paths["fast"]["acl_version"] > 0 and paths["fast"]["cache_phase"] in ("fresh", "stale")
    assert paths["slow"]["escalation"] == "cache_miss"


async def test_invalid_with_its_reason_and_what_could_be_read(mesh: DemoMesh) -> None:
    billing = await forger(mesh)
    forged = billing.signed(target=TARGET, secret=bytes(32))
    assert await billing.submit(forged) is Verdict.HMAC_MISMATCH
    assert await billing.submit(b"\xff") is Verdict.MALFORMED
    await billing.close()
    (row,) = await found(mesh, "reason = 'hmac-mismatch'")
    # All of them: the forged command had them all.
    assert row["event"] == schema.INVALID
    assert fields(row).keys() == schema.BY_NAME[schema.INVALID].fields.keys()
    (row,) = await found(mesh, "reason = 'malformed'")
    assert fields(row) == {"source": SOURCE, "reason": "malformed"}


async def test_failed_with_its_reason(mesh: DemoMesh) -> None:
    billing, bot = await forger(mesh), await forger(mesh, "bot")
    assert await billing.submit(billing.signed(target="nobody-home")) is Verdict.ROUTE_MISSING
    assert await bot.submit(bot.signed(target=TARGET)) is Verdict.ACL_DENY
    await billing.close()
    await bot.close()
    for reason, source in (("route-missing", SOURCE), ("acl-deny", "acme/bot")):
        (row,) = await found(mesh, f"reason = '{reason}'")
        assert row["event"] == schema.FAILED
        assert fields(row).keys() >= {"command_id", "source", "target", "command.name", "timestamp", "reason"}
        assert (row["source"], row["path"]) == (source, "slow")


async def test_skew_near_the_limit_and_samples(mesh: DemoMesh) -> None:
    billing = await forger(mesh)
    began = time.monotonic()
    assert await billing.submit(billing.signed(target=TARGET, ahead_ns=50_000_000_000)) is Verdict.DELIVERED
    lasted = time.monotonic() - began
    await billing.close()
    (row,) = await found(mesh, f"event = '{schema.SKEW_NEAR_LIMIT}'")
    told = fields(row)
    # As far ahead as it was stamped, less what it was on its way.
    assert -50.1 < told["skew_seconds"] < -49.9 + lasted
    assert (told["received_at"] - told["sent_at"]).total_seconds() == pytest.approx(told["skew_seconds"])
    async with mesh.producer() as producer:
        # None sampled of so many: once in a trillion runs.
        for _ in range(3):
            await producer.send_batch([(TARGET, NAME, b"x")] * 1000)
    samples = await found(mesh, f"event = '{schema.SKEW_SAMPLE}'")
    assert all(abs(fields(row)["skew_seconds"]) < 30 for row in samples)


async def test_executed_after_its_right_was_taken_away(mesh: DemoMesh) -> None:
    async with mesh.operator() as operator, mesh.producer() as producer, asyncio.timeout(PATIENCE_S):
        longest = 0.0
        while True:
            await operator.grant(SOURCE, TARGET, NAME)
            sent = ""
            while not sent:
                outcome = await producer.send(TARGET, NAME, b"x")
                rows = await found(mesh, in_archive(outcome.command_id))
                sent = outcome.command_id if rows[0]["path"] == "fast" else ""
            began = time.monotonic()
            await operator.revoke(SOURCE, TARGET, NAME)
            # Fast asks about once a second: some of these go by the old word.
            late = [await producer.send(TARGET, NAME, b"late", timeout_s=2) for _ in range(10)]
            longest = max(longest, time.monotonic() - began)
            if any(outcome.verdict is Verdict.DELIVERED for outcome in late):
                break
        await operator.grant(SOURCE, TARGET, NAME)
    rows = await found(mesh, f"event = '{schema.EXECUTED_AFTER_REVOCATION}'")
    told = fields(rows[0])
    assert (told["source"], told["target"], told["command.name"]) == (SOURCE, TARGET, NAME)
    assert 0 < told["stale_duration_seconds"] < longest + 0.1
    assert isinstance(told["acl_revocation_timestamp"], datetime)
    delivered = sum(outcome.verdict is Verdict.DELIVERED for outcome in late)
    await found(
        mesh,
        f"event = '{schema.EXECUTED_AFTER_REVOCATION}'",
        enough=lambda rows: sum(row["count"] for row in rows) >= delivered,
    )


async def test_the_archive_verifies(mesh: DemoMesh) -> None:
    ran = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "snavio.cli", "archive", "verify", "--json"),
        *("--config", str(mesh.processes.config), "--state-dir", str(mesh.processes.state_dir)),
        stdout=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(PATIENCE_S):
        told = json.loads((await ran.communicate())[0])
    # Also while Relay is in the middle of a file.
    assert (told["findings"], ran.returncode) == ([], 0)
    assert told["events"] > 3000
