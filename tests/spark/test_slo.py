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
from spark.transforms.shadow import with_dedupe, with_limits, with_thresholds, without_rights
from tests.spark.test_transforms import contended, read, routes, told
from tests.support import slo_rows
from tests.support.telemetry_rows import ACL_CODE, HMAC_CODE, RATE_CODE, T0, row, write


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


def test_two_samples_are_no_trend_and_a_clock_that_is_right_has_no_end(
    spark: SparkSession, tmp_path: Path
) -> None:
    given = {"event": "snavio.telemetry.skew_sample", "verdict": None, "path": None}
    rows = [row(source="acme/two", skew_seconds=10.0 + n, after_s=n * 30, **given) for n in range(2)]
    # A hundredth of a second an hour: refused in 250 days, if ever.
    rows += [row(source="acme/right", skew_seconds=0.011 * n, after_s=n * 3600, **given) for n in range(5)]
    found = {one["source"]: one for one in told(slo.skew(counted(spark, tmp_path, rows)))}
    assert found["acme/two"]["seconds_per_hour"] is None
    assert found["acme/right"]["seconds_per_hour"] == pytest.approx(0.011)
    assert [one["hours_to_rejection"] for one in found.values()] == [None, None]


def test_budget_and_use_are_counted_by_tenant(spark: SparkSession, tmp_path: Path) -> None:
    rows = [row(count=1997), row(verdict=67, path="slow", count=2), row(verdict=69, path="slow")]
    # As agreed: neither a limit nor a missing right uses up what the mesh owes.
    rows += [row(verdict=RATE_CODE, path="slow", count=500), row(verdict=ACL_CODE, path="slow", count=7)]
    rows += [row(source="bank/atm", path="slow", count=10), row(source="bank/atm", verdict=38, path=None)]
    counts = counted(spark, tmp_path, rows)
    budgets = {one["tenant"]: one for one in told(slo.budgets(counts))}
    assert (budgets["acme"]["taken_on"], budgets["acme"]["failed"]) == (2000, 3)
    assert budgets["acme"]["budget_used"] == pytest.approx(1.5)
    assert (budgets["bank"]["arrived"], budgets["bank"]["budget_used"]) == (1.0, 0.0)
    used = {one.pop("tenant"): tuple(one.values()) for one in told(slo.use(counts))}
    assert used == {"acme": (2507, 1997, 0, 510, 0), "bank": (11, 0, 10, 0, 1)}


def test_a_shadow_limit_tells_who_would_have_been_refused(spark: SparkSession, tmp_path: Path) -> None:
    rows = [row(source="acme/big") for _ in range(90)] + [row(source="acme/small") for _ in range(10)]
    rows += [row(source="acme/small", after_s=60) for _ in range(20)]
    rows += [row(source="acme/small", after_s=60, verdict=RATE_CODE, path="slow")]
    answer = with_limits(
        counted(spark, tmp_path, rows),
        target="bot",
        command_name="say",
        limits=[50, 1000],
        interval_seconds=60,
    )
    found = {
        (one["limit"], one["source"]): (one["offered"], one["refused"], one["intervals_over"])
        for one in told(answer)
    }
    assert found == {
        (50, "acme/big"): (90, 45, 1),
        (50, "acme/small"): (31, 5, 1),
        (1000, "acme/big"): (90, 0, 0),
        (1000, "acme/small"): (31, 0, 0),
    }


def test_a_right_that_would_go_says_who_would_miss_it(spark: SparkSession, tmp_path: Path) -> None:
    rows = [row(count=7), row(target="pay", count=3, after_s=60), row(source="acme/other", count=50)]
    rows += [row(verdict=ACL_CODE, path="slow", count=2)]
    rights = [
        ("acme/shop", "", ""),
        ("acme/shop", "pay", "say"),
        ("acme/shop", "pay", "go"),
        ("x/y", "bot", ""),
    ]
    found = told(without_rights(counted(spark, tmp_path, rows), rights))
    assert {(one["source"], one["target"], one["command_name"]): one["refused"] for one in found} == {
        ("acme/shop", "", ""): 10,
        ("acme/shop", "pay", "say"): 3,
        ("acme/shop", "pay", "go"): 0,
        ("x/y", "bot", ""): 0,
    }
    (whole,) = [one for one in found if one["refused"] == 10]
    assert (whole["denied_already"], whole["last_used"]) == (
        2,
        T0.replace(tzinfo=None) + timedelta(seconds=60),
    )


def test_strict_ids_would_refuse_what_was_delivered_before(spark: SparkSession, tmp_path: Path) -> None:
    again = row()
    rows = [again, dict(again), dict(again), row(), row(verdict=RATE_CODE, command_id=again["command_id"])]
    rows += [row(target="pay", command_id=again["command_id"])]
    events = read(spark, write(rows, tmp_path / "a.parquet"))
    (found,) = told(with_dedupe(events, target="bot", command_name="say"))
    assert found == {"source": "acme/shop", "delivered": 4, "refused": 2, "ids_again": 1}


def test_a_shadow_threshold_tells_who_would_have_been_dominant(spark: SparkSession, tmp_path: Path) -> None:
    shares = fairness(counted(spark, tmp_path, contended(windows=3, big=70, small=30)), routes(spark))
    assert told(with_thresholds(shares, [0.8])) == []
    (found,) = told(with_thresholds(shares, [0.6, 0.8]))
    assert (found["source"], found["dominant_now"], found["dominant_then"]) == ("acme/big", 0, 3)


def test_a_shadow_threshold_does_not_judge_quiet_windows(spark: SparkSession, tmp_path: Path) -> None:
    quiet = counted(spark, tmp_path, contended(windows=3, big=9, small=1))
    assert told(with_thresholds(fairness(quiet, routes(spark)), [0.8])) == []
    own = fairness(quiet, routes(spark, ("bot", "say", None, None, None, 10.0)))
    assert told(with_thresholds(own, [0.8]))[0]["dominant_then"] == 3


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


def test_a_key_version_that_comes_back_after_another_took_over_is_told(
    spark: SparkSession, tmp_path: Path
) -> None:
    def uses(source: str, *used: tuple[str, float]) -> list[dict[str, Any]]:
        return [row(source=source, key_version=version, after_s=hours * 3600) for version, hours in used]

    rows = [
        *uses(
            "acme/back", ("v1", 0), ("v2", 0.1), ("v2", 1), ("v1", 2), ("v1", 2.1), ("v2", 2.2), ("v1", 4.1)
        ),
        *uses("acme/rotates", ("v1", 0), ("v1", 1), ("v2", 1), ("v1", 1.1), ("v2", 2), ("v2", 9)),
        # Nobody signed in between: a service that sleeps at night.
        *uses("acme/sleeps", ("v1", 0), ("v1", 9), ("v2", 9)),
    ]
    # A forger's commands are no use of a key.
    rows.append(row(source="acme/rotates", key_version="v1", after_s=8 * 3600, verdict=HMAC_CODE))
    (one, *others) = told(slo.returned_keys(counted(spark, tmp_path, rows)))
    assert others == []
    assert (one["source"], one["key_version"], one["returns"], one["hours_away"]) == (
        "acme/back",
        "v1",
        2,
        2.0,
    )
    empty = dict.fromkeys(
        ("timeline", "latency", "refusals", "escalations", "shares", "skew", "keys", "revoked"), ()
    )
    html = page(Findings(since=None, until=None, window_seconds=30, returned_keys=[one], **empty))
    assert "<td>acme/back</td><td>v1</td><td>2</td><td>2.0 h</td>" in html
