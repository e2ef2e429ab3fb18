"""Forecasts of full routes: the line, its interval, and its place on the page."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark.forecast import Line, Saturation, saturation
from spark.report import Findings, page
from spark.transforms import slo
from tests.spark.test_slo import counted
from tests.spark.test_transforms import told
from tests.support.telemetry_rows import RATE_CODE, row


def line(points: list[tuple[float, float]]) -> Line:
    """The sums, as a person would take them."""
    xs, ys = [x for x, _ in points], [y for _, y in points]
    x, y = sum(xs) / len(xs), sum(ys) / len(ys)
    return Line(
        windows=len(points),
        first=min(xs),
        last=max(xs),
        mean_x=x,
        mean_y=y,
        sxx=sum((one - x) ** 2 for one in xs),
        sxy=sum((one - x) * (other - y) for one, other in points),
        syy=sum((other - y) ** 2 for other in ys),
    )


def test_the_interval_has_the_true_time_in_about_95_of_100_cases() -> None:
    dice = random.Random(20)
    inside = 0
    for _ in range(1000):
        # 100 and 40 more each hour reach 300 after five hours; the last of 60 windows is at two.
        points = [(n / 30, 100 + 40 * n / 30 + dice.gauss(0, 20)) for n in range(61)]
        found = saturation(line(points), 300)
        assert found is not None
        assert found.earliest <= found.hours
        inside += found.earliest <= 3.0 <= (found.latest or 1e9)
    # Five standard deviations of a thousand throws; an interval of another width is well outside.
    assert 915 <= inside <= 985


def test_demand_without_growth_has_no_forecast_more_often_than_chance_allows() -> None:
    dice = random.Random(21)
    steady = [
        saturation(line([(n / 30, 100 + dice.gauss(0, 20)) for n in range(61)]), 150) for _ in range(400)
    ]
    assert sum(found is not None for found in steady) <= 25
    falling = line([(n / 30, 100.0 - n) for n in range(61)])
    assert saturation(falling, 150) is None
    assert saturation(line([(n / 30, 100.0 + n) for n in range(11)]), 150) is None
    assert saturation(line([(n / 30, 100.0 + n / 100) for n in range(61)]), 9000) is None


def test_a_route_that_is_full_is_full_now() -> None:
    assert saturation(line([(n / 30, 100.0 + n) for n in range(61)]), 150) == Saturation(0.0, 0.0, 0.0)


@pytest.mark.parametrize("full", [True, False])
def test_the_page_says_when_a_route_that_was_full_before_will_be_so_again(
    spark: SparkSession, tmp_path: Path, full: bool
) -> None:
    # A moment of too much at first, then steady growth to half of what went through then.
    burst = [row(count=100, after_s=0), *([row(verdict=RATE_CODE, path="slow", count=50)] if full else [])]
    grows = [row(count=10 + n, after_s=3600 + 30 * n) for n in range(40)]
    quiet = [row(count=1, target="quiet", after_s=30 * n) for n in range(20)]
    (*found,) = told(slo.demand(counted(spark, tmp_path, [*burst, *grows, *quiet])))
    assert [one["capacity"] for one in found] == ([100] if full else [])
    if full:
        assert found[0]["windows"] == 41
    empty = dict.fromkeys(
        ("timeline", "latency", "refusals", "escalations", "shares", "skew", "keys", "revoked"), ()
    )
    html = page(Findings(since=None, until=None, window_seconds=30, demand=found, **empty))
    assert ("3.3/s" in html, "No route was full" in html) == (full, not full)
