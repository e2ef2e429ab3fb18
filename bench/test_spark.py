"""Cost of the Spark jobs: against a scan of the same columns, against DuckDB, and against twenty times the events.

Everything is one run on the same files, in turns, so that what the machine's other guests do falls on both sides.
Every figure is recorded, also one that misses its target; then the test fails with all that were missed. Needs 1 GB
of disk and 4 GB of memory; SNAVIO_SPARK_EVENTS makes it smaller.

Run: `python -m pytest bench/test_spark.py -q -s`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from bench.meters import median_and_range, record, resident_mb
from spark import class_archive
from spark.jobs.watch_abuse import Watcher
from spark.judging import Crowding, Judge, Refusals, by_window, fold, together
from spark.policy import DetectionPolicy
from spark.read import Entry, read_routes
from spark.schema import event_schema
from spark.session import session
from spark.transforms.abuse import proposals
from spark.transforms.base import RAW_COLUMNS, base, by_route
from tests.support.telemetry_rows import T0, bulk

LARGE = int(os.environ.get("SNAVIO_SPARK_EVENTS", "20000000"))
SMALL = LARGE // 20
FILE_ROWS = 500_000
REPEATS = 3
BASE_RATIO, DUCKDB_RATIO, GROWTH, BATCH_S, PEAK_MB, START_S = 2.5, 4.0, 5.0, 1.0, 3000.0, 4.0
ROOT = Path(__file__).resolve().parents[1]


@dataclass(slots=True)
class Peak:
    """Peak memory of the JVM, sampled ten times a second."""

    jvm: int
    most_mb: float = 0.0
    running: bool = True

    def watch(self) -> None:
        while self.running:
            self.most_mb = max(self.most_mb, resident_mb(self.jvm))
            time.sleep(0.1)


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    made = session("bench", master="local[2]", driver_memory="2g")
    yield made
    made.stop()


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Files of a small and of a large archive."""
    folder = tmp_path_factory.mktemp("spark-bench")
    for name, rows in (("small", SMALL), ("large", LARGE)):
        (folder / name).mkdir()
        for number in range(0, rows, FILE_ROWS):
            # As Relay exports: each file has its own few minutes of the hour.
            size = min(FILE_ROWS, rows - number)
            part = bulk(size, seed=number, minutes=60 * size / rows, after_minutes=60 * number / rows)
            pq.write_table(part, folder / name / f"{number}.parquet", compression="zstd")
    return folder / "small", folder / "large"


def timed(work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def scan(spark: SparkSession, folder: Path) -> None:
    spark.read.schema(event_schema(*RAW_COLUMNS)).parquet(str(folder)).write.format("noop").mode(
        "overwrite"
    ).save()


def count(spark: SparkSession, folder: Path) -> None:
    base(spark.read.schema(event_schema(*RAW_COLUMNS)).parquet(str(folder))).write.format("noop").mode(
        "overwrite"
    ).save()


def judge(spark: SparkSession, folder: Path) -> int:
    counts = by_route(base(spark.read.schema(event_schema(*RAW_COLUMNS)).parquet(str(folder))))
    return len(proposals(counts, read_routes(spark, None), DetectionPolicy()))


def judge_with_duckdb(folder: Path) -> int:
    """The same base and the same rows for the same judge, in SQL; both must find the same number.

    Both leave out columns that are not needed here: latencies and clocks.
    """
    with duckdb.connect() as connection:
        connection.execute("SET threads = 2")
        connection.execute(
            f"""
            CREATE TEMP TABLE base AS SELECT
              epoch_us("at") // 30000000 * 30 AS w, target, command_name, source, path, key_version,
              event, verdict, escalation, cache_phase, sum("count")::BIGINT AS n
              FROM read_parquet('{folder}/*.parquet') WHERE source IS NOT NULL GROUP BY ALL"""
        )
        crowding = connection.execute(
            """
            WITH rows AS (SELECT *, verdict = 1 OR (verdict >= 64 AND verdict NOT IN (65, 66, 72)) AS offers,
                coalesce(escalation IN ('warm_banned', 'cold_only'), false) AS kept_off FROM base),
            per AS (SELECT w, target, command_name, source,
                coalesce(sum(n) FILTER (offers), 0)::BIGINT AS offered,
                coalesce(sum(n) FILTER (offers AND NOT kept_off), 0)::BIGINT AS competing,
                coalesce(sum(n) FILTER (verdict = 1 AND NOT kept_off), 0)::BIGINT AS taken,
                coalesce(sum(n) FILTER (verdict IN (64, 70) AND NOT kept_off), 0)::BIGINT AS hurt
                FROM rows GROUP BY ALL HAVING sum(n) FILTER (offers) > 0),
            together AS (SELECT w, target, command_name,
                max({'taken': taken, 'source': source, 'competing': competing, 'offered': offered,
                  'hurt': hurt}) AS top,
                sum(taken)::BIGINT AS taken, count_if(competing >= 5) AS heavy,
                coalesce(sum(competing) FILTER (competing >= 5), 0)::BIGINT AS competing,
                coalesce(sum(hurt) FILTER (competing >= 5), 0)::BIGINT AS hurt FROM per GROUP BY ALL),
            shared AS (SELECT *, top.taken + (taken - top.taken) * top.competing // top.offered AS volume,
                if(top.competing >= 5, top.competing, 0) AS mine, if(top.competing >= 5, top.hurt, 0) AS own_hurt
                FROM together)
            SELECT w, top.source, target, command_name, top.taken, volume, heavy - if(mine > 0, 1, 0),
                competing - mine, hurt - own_hurt, 0, 700 FROM shared
            WHERE heavy - if(mine > 0, 1, 0) >= 1 AND hurt - own_hurt >= 5 AND volume >= 50
                AND (hurt - own_hurt) * 1000 >= (competing - mine) * 50 AND top.taken * 1000 > 500 * volume"""
        ).fetchall()
        refused = []
        kinds = (
            ("burst-invalid-hmac", "verdict = 38", 5, 1),
            ("burst-replayed", "verdict = 39", 5, 1),
            ("burst-schema", "verdict BETWEEN 16 AND 28", 20, 20),
            ("burst-misrouted", "verdict IN (65, 66)", 20, 20),
        )
        for kind, condition, allowed, milli in kinds:
            refused += connection.execute(
                f"""
                SELECT w, source, '{kind}', bad, bad - {allowed} - sent * {milli} // 1000, sent FROM (
                  SELECT w, source, sum(n)::BIGINT AS sent,
                  coalesce(sum(n) FILTER ({condition}), 0)::BIGINT AS bad FROM base GROUP BY ALL)
                WHERE bad - {allowed} - sent * {milli} // 1000 > 0"""
            ).fetchall()
    policy = DetectionPolicy()
    rows = by_window((Crowding(*row) for row in crowding), (), (Refusals(*row) for row in refused))
    return len(together(fold(Judge(policy), rows), policy))


@pytest.mark.timeout(1800)
def test_counting_judging_growth_and_memory(spark: SparkSession, archives: tuple[Path, Path]) -> None:
    small, large = archives
    jvm = int(spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid())  # type: ignore[union-attr]
    peak = Peak(jvm)
    watching = threading.Thread(target=peak.watch, daemon=True)
    watching.start()
    works: dict[str, Callable[[], Any]] = {
        "scan": lambda: scan(spark, large),
        "base": lambda: count(spark, large),
        "jobs": lambda: judge(spark, large),
        "jobs on a twentieth": lambda: judge(spark, small),
        "DuckDB": lambda: judge_with_duckdb(large),
    }
    found = judge(spark, large), judge_with_duckdb(large)  # the first run compiles
    times: dict[str, list[float]] = {name: [] for name in works}
    # In turns: what else the machine does falls on all of them.
    for _ in range(1 + REPEATS):
        for name, work in works.items():
            times[name].append(timed(work))
    peak.running = False
    watching.join()
    times = {name: values[1:] for name, values in times.items()}
    print(f"\n  {LARGE:,} events, {found[0]} proposals (DuckDB finds {found[1]}); second runs, seconds:")
    for name, values in times.items():
        print(f"    {name:20} {', '.join(f'{value:.2f}' for value in values)}")

    def ratios(one: str, other: str) -> list[float]:
        return [mine / theirs for mine, theirs in zip(times[one], times[other], strict=True)]

    events = f"{LARGE / 1e6:g} M events"
    judged(
        reached("spark base / scan of its columns", ratios("base", "scan"), "x", BASE_RATIO, events),
        reached("spark fairness and abuse / DuckDB", ratios("jobs", "DuckDB"), "x", DUCKDB_RATIO, events),
        reached("spark 20x the events", ratios("jobs", "jobs on a twentieth"), "x", GROWTH, events),
        reached("spark peak memory of the JVM", [peak.most_mb], "MB", PEAK_MB, events),
        "" if found[0] == found[1] > 0 else f"Spark proposes {found[0]}, DuckDB {found[1]}",
    )


def reached(name: str, values: list[float], unit: str, most: float, note: str = "") -> str:
    """Record a figure; a sentence when its median is over `most`."""
    record(name, values=values, unit=unit, target=f"<= {most:g}", note=note)
    middle = median_and_range(values)[0]
    return "" if middle <= most else f"{name}: {middle:.2f} {unit}, over {most:g}"


def judged(*complaints: str) -> None:
    """Fail with every missed target, after all were recorded."""
    missed = [complaint for complaint in complaints if complaint]
    assert not missed, "; ".join(missed)


def test_a_micro_batch_of_ten_thousand_rows(spark: SparkSession, tmp_path: Path) -> None:
    watcher = Watcher(spark, tmp_path / "out", DetectionPolicy(), None)
    ago = (datetime.now(UTC) - T0).total_seconds() / 60 - 5
    times, judging = [], []
    for number in range(3 + 2 * REPEATS):
        path = tmp_path / f"{number}.parquet"
        pq.write_table(bulk(10_000, seed=number, minutes=1, after_minutes=ago), path)
        at = T0 + timedelta(minutes=ago)
        entry = Entry(str(path), f"fast-{number}", 1, 1, 10_000, at, at)
        times.append(timed(partial(watcher.count, [entry], number)))
        judging.append(timed(watcher.judge))
    record(
        "spark judging what is known",
        values=judging[3:],
        unit="s",
        target="-",
        note="what is new, of what is known",
    )
    judged(reached("spark micro-batch of 10k rows", times[3:], "s", BATCH_S, "the first three compile"))


def test_session_and_first_query_of_a_test() -> None:
    assert class_archive.ensure()
    script = (
        "import time; began = time.perf_counter()\n"
        "from spark.session import session\n"
        "made = session('start', master='local[2]', driver_memory='1g', short=True)\n"
        "assert made.range(1000).selectExpr('sum(id)').collect()[0][0] == 499500\n"
        "print(time.perf_counter() - began, flush=True)\n"
        "made.stop()\n"
    )
    times = []
    for _ in range(3):
        done = subprocess.run(
            [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=300, check=True
        )
        times.append(float(done.stdout.split()[-1]))
    judged(reached("spark test session and first query", times, "s", START_S))
