"""An audit judges the bans of the policy that it ran with, in periods of that policy's length."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from snavio.audit import runner
from snavio.audit.index_file import IndexEntry
from snavio.audit.runner import JobRequest
from snavio.audit.verify_archive import VerifiedArchive
from snavio.clock import ManualClock
from snavio.signed.archive_manifest import EventRange
from spark.jobs import arguments, detect_abuse
from tests.spark.test_jobs import Lasting, contended, entry, index
from tests.support.telemetry_rows import T0, write
from tests.unit.test_proposing import Registry

MINUTE = 60_000_000_000
START = int(T0.timestamp()) * 1_000_000_000


async def test_the_job_tells_its_policy_and_the_audit_goes_by_it(
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    policy = tmp_path / "policy.json"
    policy.write_text(json.dumps({"version": "Hourly", "period_minutes": 60}))
    listed = index(tmp_path, entry(write(contended(5), tmp_path / "1.parquet"), last=550))
    out = tmp_path / "out"
    monkeypatch.setattr(detect_abuse, "open_session", lambda *_: Lasting(spark))
    asked = ("--index", listed, "--out", out, "--policy", policy)
    monkeypatch.setattr(sys, "argv", ["abuse", *map(str, asked)])
    arguments.run(detect_abuse.detect, arguments.parser(""))
    last = json.loads(capfd.readouterr().out.splitlines()[-1])
    assert (last["proposals"], last["policy_version"], last["period_minutes"]) == (1, "Hourly", 60)

    registry = Registry()
    access: Any = SimpleNamespace(bans=registry)
    read = IndexEntry(tmp_path / "1.parquet", EventRange("fast-0", 1, 1, 500), START, START + 3 * MINUTE)
    # Three quarters of an hour later: six periods of ten minutes are over, and not a single one of an hour.
    clock = ManualClock(START + 45 * MINUTE)
    early = await _audited(out, read, last, access, clock)
    assert (early.not_judged != "", registry.concluded) == (True, [])
    clock.advance(ns=30 * MINUTE)
    await _audited(out, read, last, access, clock)
    (told,) = registry.concluded
    assert (told["policy_version"], told["from_unix_ns"], told["to_unix_ns"]) == (
        *("Hourly", START, START + 60 * MINUTE),
    )
    assert len(told["found"]) == 1


async def _audited(out: Path, read: IndexEntry, last: dict[str, Any], access: Any, clock: ManualClock) -> Any:
    return await runner._audit(
        JobRequest("abuse", out), VerifiedArchive([read]), last, access=access, clock=clock, began=7
    )
