"""`make spark-demo`, as a newcomer runs it: an abuser's traffic, its ban, the report."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from snavio.cli.spark_demo import ABUSER, FORGED
from snavio.launch.demo_tenant import PRODUCER, TENANT

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [
    pytest.mark.skipif(os.environ.get("SNAVIO_FULL") != "1", reason="two long JVMs: with SNAVIO_FULL=1"),
    pytest.mark.timeout(900),
]


def test_the_demo_bans_the_abuser_alone_and_reports_every_command(tmp_path: Path) -> None:
    # What make would run at last; not make itself, which might build first.
    planned = subprocess.run(
        ["make", "-n", "spark-demo", f"ARGS=--out {tmp_path / 'out'} --json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()[-1]
    assert planned.split()[:3] == [".venv/bin/snavio", "spark", "demo"]
    before = sorted(path.name for path in ROOT.iterdir())
    ran = subprocess.run(planned.split(), cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert ran.returncode == 0, ran.stderr
    shown = json.loads(ran.stdout)
    assert (shown["good"], shown["forged"], shown["proposals"]) == (True, FORGED, 1)
    assert [ban["source"] for ban in shown["bans"]] == [ABUSER]
    assert shown["delivered"] > 0

    (line,) = (tmp_path / "out" / "abuse" / "proposals.jsonl").read_text("utf-8").splitlines()
    proposal = json.loads(line)
    # Two minutes may share the forged ones, and only one that has 200 of them counts.
    assert (proposal["source"], proposal["kind"]) == (ABUSER, "burst-invalid-hmac")
    assert 200 <= proposal["total_violations"] <= FORGED
    timeline = pq.read_table(tmp_path / "out" / "slo" / "timeline").to_pylist()
    assert sum(one["fast"] + one["slow"] for one in timeline) == shown["delivered"]
    assert sum(one["invalid"] for one in timeline) == FORGED
    keys = pq.read_table(tmp_path / "out" / "slo" / "keys").to_pylist()
    assert {one["source"] for one in keys} == {f"{TENANT}/{PRODUCER}"}
    page = Path(shown["report"]).read_text("utf-8")
    assert f"<b>{FORGED}</b><span>turned away by Shield</span>" in page
    assert f"<td>{ABUSER}</td><td>burst-invalid-hmac</td>" in page
    # A mesh of its own: nothing of it stays here.
    assert sorted(path.name for path in ROOT.iterdir()) == before
