"""`slo` and `shadow` as jobs, on one small index that was counted by hand: their files and the page."""

from __future__ import annotations

import json
import os
import re
import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from spark.jobs import arguments, shadow
from tests.spark.test_jobs import Lasting, ended, entry, index, job
from tests.support import slo_rows
from tests.support.telemetry_rows import RATE_CODE, T0, row, write

FULL = os.environ.get("SNAVIO_FULL") == "1"
pytestmark = pytest.mark.timeout(600)
HOUR_S = 3600
WINDOWS = 5
CROWDED = {"target": "crowded", "command_name": "say"}


def an_hour_later() -> list[dict[str, Any]]:
    """A source that crowds another out, and a clock that is ahead."""
    rows = []
    for window in range(WINDOWS):
        for source, count in (("acme/big", 90), ("acme/small", 10)):
            rows.append(row(source=source, count=count, after_s=HOUR_S + window * 30, **CROWDED))
        refused = {"verdict": RATE_CODE, "path": "slow", "count": 10, "dispatch_latency_ms": None}
        rows.append(row(source="acme/small", after_s=HOUR_S + window * 30, **refused, **CROWDED))
    given = {"event": slo_rows.SKEW, "verdict": None, "path": None, "key_version": None}
    rows += [
        row(source="acme/drifts", skew_seconds=10.0 + 10 * n, after_s=HOUR_S + n * 30, **given)
        for n in range(2)
    ]
    return rows


def window(number: int) -> datetime:
    return T0.replace(tzinfo=None) + timedelta(seconds=HOUR_S + number * 30)


LATER: dict[str, slo_rows.Table] = {
    "latency": [
        {**CROWDED, "path": "fast", "delivered": 500, "p50_ms": 2.0, "p95_ms": 2.0, "p99_ms": 2.0}
        | {"latency_03": 500}
    ],
    "refusals": [{**CROWDED, "delivered": 500, "rate_limited": 50}],
    "escalations": [CROWDED],
    "keys": [
        {"source": source, "key_version": "hmac-v1", "commands": number, "last_used": window(WINDOWS - 1)}
        for source, number in (("acme/big", 450), ("acme/small", 100))
    ],
    "revoked": [],
    "timeline": [{"window_start": window(number), "fast": 100, "failed": 10} for number in range(WINDOWS)],
}


@pytest.fixture(scope="module")
def listed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("listed")
    entries = []
    for number, rows in enumerate((slo_rows.rows(), an_hour_later())):
        start = T0 + timedelta(hours=number)
        times: dict[str, Any] = {
            "min_at": start.isoformat(),
            "max_at": (start + timedelta(minutes=3)).isoformat(),
        }
        path = write(rows, folder / f"{number}.parquet")
        entries.append(entry(path, instance=f"fast-{number}", last=len(rows), **times))
    return index(folder, *entries)


def kept(folder: Path) -> slo_rows.Table:
    """The rows of a table on disk, as Python values."""
    return [
        {
            name: value.replace(tzinfo=None) if isinstance(value, datetime) else value
            for name, value in one.items()
        }
        for one in pq.read_table(folder).to_pylist()
    ]


def test_the_slo_job_leaves_tables_and_a_page_of_what_was_counted_by_hand(
    listed: Path, tmp_path: Path
) -> None:
    out = tmp_path / "slo"
    code, told, err = ended(job("slo_report", "--index", listed, "--out", out))
    assert code == 0, err
    assert json.loads(told.splitlines()[-1]) == {"step": "done", "report": str(out / "report.html")}
    for name, expected in slo_rows.EXPECTED.items():
        assert slo_rows.in_order(kept(out / name)) == slo_rows.in_order([*expected, *LATER[name]]), name
    (drifts,) = kept(out / "skew")
    assert drifts == pytest.approx(
        {"source": "acme/drifts", "samples": 2, "skew_seconds": 20.0, "worst_seconds": 20.0}
        # Through two points there is always a line: no trend yet.
        | {"seconds_per_hour": None, "hours_to_rejection": None}
    )
    shares = [one for one in kept(out / "shares") if one["dominant"]]
    assert [(one["source"], one["window_start"], one["warm_share"]) for one in shares] == [
        ("acme/big", window(number), 0.9) for number in range(WINDOWS)
    ]
    (proposal,) = map(json.loads, (out / "proposals.jsonl").read_text().splitlines())
    assert (proposal["source"], proposal["kind"]) == ("acme/big", "dominance-single-target")
    assert (proposal["affected_targets"], proposal["total_violations"]) == (["crowded"], 4)

    page = (out / "report.html").read_text("utf-8")
    for part in (
        "2026-11-16 10:00 to 2026-11-16 11:02 UTC",
        # Of 641 delivered ones 36 went by Slow; 166 valid ones failed.
        "<b>641</b><span>delivered</span>",
        "<b>79.4 %</b><span>of all valid</span>",
        "<b>94.4 %</b><span>by the fast path</span>",
        "<b>209</b><span>turned away by Shield</span>",
        "<b>1</b><span>sources dominant</span>",
        "<b>9</b><span>after revocation</span>",
        "<td>bot · say</td><td>fast</td><td>100</td><td>≤ 1 ms</td><td>≤ 8 ms</td><td>≤ 128 ms</td>",
        "<td>acme/big</td><td>crowded · say</td><td>5</td><td>90.0 %</td><td>18.2 %</td><td>0.61</td>",
        "<td>acme/big</td><td>dominance-single-target</td><td>crowded</td><td>4</td><td>11:00</td><td>11:12</td>"
        "<td>acme/small 40</td>",
        "<td>acme/drifts</td><td>+20.00 s</td><td>20.00 s</td><td></td><td>no danger</td>",
        "<td>acme/shop</td><td>bot · say</td><td>7</td>",
        # 14, 16 and 17 of 52 did not arrive where one in a thousand may not.
        "<td>acme</td><td>pay · go</td><td>52</td><td>47</td><td>9.615 %</td><td>90,385 %</td>",
        "<td>acme</td><td>crowded · say</td><td>500</td><td>0</td><td>100.000 %</td><td>0 %</td>",
        "<td>acme/bulk</td><td>pay · go</td><td>2</td>",
    ):
        assert part in page, part
    assert dict(BAR.findall(page)) == BARS


BAR = re.compile(r'<text class="label"[^>]*>([^<]*)</text><rect[^>]*/><text[^>]*>([^<]*)</text>')
BARS = {
    "rate limited": "61",
    "acl denied": "12",
    "route missing": "13",
    "delivery failed": "14",
    "fairness refused": "15",
    "outcome unknown": "16",
    "saturated": "17",
    "conflicts": "18",
    "invalid schema": "9",
    "invalid hmac": "14",
    "invalid timestamp": "14",
    "invalid key": "66",
    "invalid certificate": "51",
    "wrong audience": "24",
    "replayed": "15",
    "suspended": "16",
    "cache miss": "1",
    "acl expired": "2",
    "route expired": "3",
    "dedupe required": "4",
    "token required": "5",
    "warm banned": "6",
    "cold only": "7",
    "sync": "8",
    "cache fresh": "103",
    "cache stale": "2",
    "cache expired": "36",
    "hmac-v1": "775 commands by 4 sources",
    "hmac-v2": "36 commands by 1 source",
}


def within(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, *options: str | Path) -> None:
    """The job from its command line to its end, without a JVM of its own."""
    monkeypatch.setattr(shadow, "open_session", lambda *_: Lasting(spark))
    monkeypatch.setattr(sys, "argv", ["shadow", *map(str, options)])
    arguments.run(shadow.shadow, shadow.options())


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        (
            # 220, 220 and 110 commands a minute: 170, 170 and 60 too many.
            ("--target", "crowded", "--command", "say", "--limit", "50"),
            [
                {"limit": 50, "source": source, "offered": offered, "refused": refused}
                | {"refused_share": refused / offered, "intervals": 3, "intervals_over": 3}
                for source, offered, refused in (("acme/big", 450, 327), ("acme/small", 100, 73))
            ],
        ),
        (
            ("--dominant-share", "0.95"),
            [
                {"dominant_share": 0.95, "source": "acme/big", **CROWDED, "windows": WINDOWS}
                | {"dominant_now": WINDOWS, "dominant_then": 0, "commands_then": 0}
            ],
        ),
    ],
    ids=["limit", "threshold"],
)
def test_the_shadow_job_answers_in_a_file(
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    listed: Path,
    tmp_path: Path,
    question: tuple[str, ...],
    expected: list[dict[str, Any]],
) -> None:
    options: tuple[str | Path, ...] = ("--index", listed, "--out", tmp_path / "out", *question)
    if FULL:
        code, told, err = ended(job("shadow", *options))
        assert code == 0, err
    else:
        within(request.getfixturevalue("spark"), monkeypatch, *options)
        told = capfd.readouterr().out
    assert json.loads(told.splitlines()[-1]) == {"step": "done", "rows": len(expected)}
    lines = (tmp_path / "out" / "shadow.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == expected


@pytest.mark.parametrize(("interval_s", "limit", "refused"), [(10, 10, 0), (45, 45, 0), (10, 5, 30)])
def test_a_limit_is_answered_in_its_own_intervals(
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    interval_s: int,
    limit: int,
    refused: int,
) -> None:
    """A command a second for a minute: counted in windows of thirty, ten seconds would have had thirty of them."""
    path = write([row(after_s=second, **CROWDED) for second in range(60)], tmp_path / "a.parquet")
    listed = index(tmp_path, entry(path, last=60))
    question = ("--target", "crowded", "--command", "say", "--limit", str(limit))
    options = ("--index", listed, "--out", tmp_path / "out", *question, "--interval-s", str(interval_s))
    within(spark, monkeypatch, *options)
    (found,) = (tmp_path / "out" / "shadow.jsonl").read_text().splitlines()
    assert (json.loads(found)["offered"], json.loads(found)["refused"]) == (60, refused)


@pytest.mark.parametrize(
    "question",
    [
        ("--target", "x", "--command", "y", "--limit", "-5"),
        ("--target", "x", "--command", "y", "--limit", "5", "--interval-s", "0"),
        ("--dominant-share", "1.5"),
        ("--dominant-share", "0.5", "--limit", "5"),
        ("--strict",),
        ("--without-right", "acme"),
    ],
)
def test_a_question_that_cannot_be_answered_is_refused_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    listed: Path,
    tmp_path: Path,
    question: tuple[str, ...],
) -> None:
    monkeypatch.setattr(shadow, "open_session", lambda *_: pytest.fail("a JVM was started for it"))
    monkeypatch.setattr(sys, "argv", ["shadow", "--index", str(listed), "--out", str(tmp_path), *question])
    with pytest.raises(SystemExit) as ended:
        arguments.run(shadow.shadow, shadow.options())
    assert ended.value.code == 2
    assert len(capfd.readouterr().err.splitlines()) == 1
