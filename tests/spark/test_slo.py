"""The figures of the SLO report, and their appearance on the page."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from spark.report import Findings, page
from spark.transforms import slo
from spark.transforms.base import base
from spark.transforms.fairness import fairness
from spark.transforms.shadow import with_limit, with_threshold
from tests.spark.test_transforms import contended, read, routes, told
from tests.support import slo_rows
from tests.support.telemetry_rows import RATE_CODE, T0, row, write


def counted(spark: SparkSession, folder: Path, rows: list[dict[str, Any]]) -> DataFrame:
    return base(read(spark, write(rows, folder / "a.parquet"))).localCheckpoint()


def test_percentiles_are_exact_to_their_bucket(spark: SparkSession, tmp_path: Path) -> None:
    latencies = [1.0] * 90 + [7.0] * 8 + [100.0] * 2
    (found,) = told(slo.latency(counted(spark, tmp_path, [row(dispatch_latency_ms=ms) for ms in latencies])))
    assert (found["p50_ms"], found["p95_ms"], found["p99_ms"]) == (1.0, 8.0, 128.0)


def test_every_table_says_what_was_counted_by_hand(spark: SparkSession, tmp_path: Path) -> None:
    counts = counted(spark, tmp_path, slo_rows.rows())
    for name, expected in slo_rows.EXPECTED.items():
        found = told(getattr(slo, name)(counts))
        assert slo_rows.in_order(found) == expected, name


def test_a_drifting_clock_is_told_with_the_time_that_is_left(spark: SparkSession, tmp_path: Path) -> None:
    sample = "snavio.telemetry.skew_sample"
    # Where a clock is at first, and what each of ten samples within an hour adds to that.
    clocks = {"ahead": (10, 1), "behind": (-10, -1), "mends": (20, -1), "over": (61, 1), "steady": (-3, 0)}
    rows = [
        row(
            event=sample,
            verdict=None,
            path=None,
            source=f"acme/{name}",
            skew_seconds=float(start + n * step),
            after_s=n * 360,
        )
        for name, (start, step) in clocks.items()
        for n in range(11)
    ]
    found = {one.pop("source"): one for one in told(slo.skew(counted(spark, tmp_path, rows)))}
    names = ("samples", "skew_seconds", "worst_seconds", "seconds_per_hour", "hours_to_rejection")
    for name, expected in {
        "ahead": (11, 20, 20, 10, 4),
        "behind": (11, -20, 20, -10, 4),
        "mends": (11, 10, 20, -10, None),
        "over": (11, 71, 71, 10, 0),
        "steady": (11, -3, 3, 0, None),
    }.items():
        assert found[f"acme/{name}"] == pytest.approx(dict(zip(names, expected, strict=True))), name
    assert len(found) == len(clocks)


def test_a_shadow_limit_tells_who_would_have_been_refused(spark: SparkSession, tmp_path: Path) -> None:
    rows = [row(source="acme/big") for _ in range(90)] + [row(source="acme/small") for _ in range(10)]
    rows += [row(source="acme/small", after_s=60) for _ in range(20)]
    rows += [row(source="acme/small", after_s=60, verdict=RATE_CODE, path="slow")]
    answer = with_limit(
        counted(spark, tmp_path, rows), target="bot", command_name="say", limit=50, interval_seconds=60
    )
    found = {one["source"]: (one["offered"], one["refused"], one["intervals_over"]) for one in told(answer)}
    assert found == {"acme/big": (90, 45, 1), "acme/small": (31, 5, 1)}


def test_a_shadow_threshold_tells_who_would_have_been_dominant(spark: SparkSession, tmp_path: Path) -> None:
    shares = fairness(counted(spark, tmp_path, contended(windows=3, big=70, small=30)), routes(spark))
    assert told(with_threshold(shares, dominant_share=0.8)) == []
    (found,) = told(with_threshold(shares, dominant_share=0.6))
    assert (found["source"], found["dominant_now"], found["dominant_then"]) == ("acme/big", 0, 3)


def test_a_shadow_threshold_does_not_judge_quiet_windows(spark: SparkSession, tmp_path: Path) -> None:
    quiet = counted(spark, tmp_path, contended(windows=3, big=9, small=1))
    assert told(with_threshold(fairness(quiet, routes(spark)), dominant_share=0.8)) == []
    own = fairness(quiet, routes(spark, ("bot", "say", None, None, None, 10.0)))
    assert told(with_threshold(own, dominant_share=0.8))[0]["dominant_then"] == 3


def test_the_page_escapes_names_and_says_what_is_not_there(spark: SparkSession, tmp_path: Path) -> None:
    counts = counted(
        spark, tmp_path, [row(target="<script>alert(1)</script>", after_s=n * 30) for n in range(3)]
    )
    rows = {
        name: told(getattr(slo, name)(counts))
        for name in ("timeline", "latency", "refusals", "escalations", "skew", "keys", "revoked")
    }
    html = page(Findings(since=T0, until=T0 + timedelta(hours=1), window_seconds=30, shares=[], **rows))
    assert "&lt;script&gt;" in html
    assert "<script" not in html
    assert "http" not in html.replace("https://", "")
    assert "Nobody was dominant." in html
    nothing = page(Findings(None, None, 30, *([] for _ in range(8))))
    assert "No events in this range." in nothing
