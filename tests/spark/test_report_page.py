"""The page of the SLO report on rows made by hand: it must not make the service look better, or busier, than it was."""

from __future__ import annotations

import math
import re
from datetime import datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark.report import MOST_POINTS, Findings, page
from spark.transforms.base import BUCKETS
from spark.transforms.slo import latency, upper_ms
from tests.spark.test_slo import counted
from tests.spark.test_transforms import told
from tests.support.telemetry_rows import row

START = datetime(2026, 11, 16, 10)
POLYGON = re.compile(r'<polygon class="fast" points="([^"]*)"')
TICK = re.compile(r'<text class="axis" x="[^"]*" y="232"[^>]*>([^<]*)</text>')


def made(**rows: Any) -> str:
    nothing = dict.fromkeys(
        ("timeline", "latency", "refusals", "escalations", "shares", "skew", "keys", "revoked"), ()
    )
    return page(Findings(since=None, until=None, window_seconds=30, **{**nothing, **rows}))


def window(after_s: float, fast: int = 300) -> dict[str, Any]:
    return {
        "window_start": START + timedelta(seconds=after_s),
        "fast": fast,
        "slow": 0,
        "failed": 0,
        "invalid": 0,
    }


def roof(html: str) -> list[float]:
    """The height of the fast traffic at every point, from 0 to 1."""
    found = POLYGON.search(html)
    assert found is not None
    points = [tuple(map(float, point.split(","))) for point in found[1].split()]
    heights = [y for _, y in points[: len(points) // 2]]
    floor = max(y for _, y in points)
    return [round((floor - height) / (floor - min(heights)), 3) for height in heights]


def test_windows_without_traffic_are_drawn_as_none() -> None:
    """The table has no rows for them, and a line over the gap would show an hour of traffic."""
    assert roof(made(timeline=[window(90), window(0), window(30)])) == [1, 1, 0, 1]


def test_a_long_range_is_drawn_with_few_points_and_the_same_traffic() -> None:
    windows = 10 * MOST_POINTS - 3
    drawn = roof(made(timeline=[window(30 * number) for number in range(windows)]))
    assert drawn == [1.0] * MOST_POINTS


def test_a_range_of_days_says_which_day() -> None:
    ban = {
        "source": "acme/big",
        "kind": "burst-schema",
        "affected_targets": [],
        "total_violations": 1,
        "window_start": START,
        "ban_applied_until": START + timedelta(minutes=10),
    }
    short = made(timeline=[window(0), window(3600)], proposals=[ban])
    assert "<td>10:00</td><td>10:10</td>" in short
    assert TICK.findall(short)[0] == "10:00"
    long = made(timeline=[window(0), window(3 * 86_400)], proposals=[ban])
    assert "<td>11-16 10:00</td><td>11-16 10:10</td>" in long
    assert (TICK.findall(long)[0], TICK.findall(long)[-1][:5]) == ("11-16 10:00", "11-19")


@pytest.mark.parametrize(
    ("skew_s", "hours", "said"),
    [
        (59.0, None, "near the limit"),
        (-48.0, None, "near the limit"),
        (47.9, None, "no danger"),
        (-71.0, None, "now"),
        (71.0, 0.0, "now"),
        (50.0, 1.5, "1.5 h"),
    ],
)
def test_a_steady_clock_near_the_limit_is_no_good_clock(
    skew_s: float, hours: float | None, said: str
) -> None:
    clock = {"source": "acme/shop", "skew_seconds": skew_s, "worst_seconds": abs(skew_s)}
    html = made(skew=[{**clock, "seconds_per_hour": 0.0, "hours_to_rejection": hours}])
    assert f"<td>{said}</td></tr>" in html


def test_what_took_longer_than_every_bucket_is_not_told_as_within_one(
    spark: SparkSession, tmp_path: Any
) -> None:
    rows = [row(dispatch_latency_ms=ms) for ms in (*[4000.0] * 9, 60_000.0)]
    found = told(latency(counted(spark, tmp_path, rows)))
    assert (upper_ms(BUCKETS - 2), upper_ms(BUCKETS - 1)) == (4096.0, math.inf)
    assert "<td>≤ 4096 ms</td><td>&gt; 4096 ms</td><td>&gt; 4096 ms</td>" in made(latency=found)
