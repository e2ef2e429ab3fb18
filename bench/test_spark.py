"""What the Spark jobs cost: against a scan of the same columns, against DuckDB, and against twenty times the events.

Everything is one run on the same files, so that what the machine's other guests do falls on both sides. Needs some
4 GB of disk and memory; SNAVIO_SPARK_EVENTS makes it smaller.

Run: `python -m pytest bench/test_spark.py -q -s`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from bench.meters import record, resident_mb
from spark.jobs.watch_abuse import Watcher
from spark.policy import Policy
from spark.read import read_routes
from spark.schema import event_schema
from spark.session import session
from spark.transforms.abuse import proposals
from spark.transforms.base import RAW_COLUMNS, base
from spark.transforms.fairness import fairness
from tests.support.telemetry_rows import T0, bulk

LARGE = int(os.environ.get("SNAVIO_SPARK_EVENTS", "20000000"))
SMALL = LARGE // 20
FILE_ROWS = 500_000
BASE_RATIO, DUCKDB_RATIO, GROWTH, BATCH_S, PEAK_MB, START_S = 2.5, 4.0, 5.0, 1.0, 3000.0, 4.0
ROOT = Path(__file__).resolve().parents[1]


@dataclass(slots=True)
class Peak:
    """The most memory that the JVM and this process had together, looked at ten times a second."""

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
            part = bulk(min(FILE_ROWS, rows - number), seed=number)
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
    counts = base(spark.read.schema(event_schema(*RAW_COLUMNS)).parquet(str(folder))).localCheckpoint()
    return len(proposals(fairness(counts, read_routes(spark, None)), counts, Policy()).collect())


def judge_with_duckdb(folder: Path) -> int:
    """The same counters, shares and rules in SQL; the oracle of tests/spark, made whole."""
    connection = duckdb.connect()
    connection.sql("SET threads = 2")
    connection.sql(
        f"""
        CREATE TABLE base AS SELECT
          epoch(at)::BIGINT // 30 * 30 AS w, target, command_name, source, path, key_version,
          sum(CASE WHEN verdict = 1 OR (verdict >= 64 AND verdict NOT IN (65, 66)) THEN count ELSE 0 END) AS offered,
          sum(CASE WHEN (verdict = 1 OR (verdict >= 64 AND verdict NOT IN (65, 66)))
              AND coalesce(escalation, '') NOT IN ('warm_banned', 'cold_only') THEN count ELSE 0 END) AS competing,
          sum(CASE WHEN verdict = 1 AND path = 'fast' THEN count ELSE 0 END) AS warm,
          sum(CASE WHEN verdict = 38 THEN count ELSE 0 END) AS forged,
          sum(CASE WHEN verdict = 39 THEN count ELSE 0 END) AS replayed,
          sum(CASE WHEN verdict BETWEEN 16 AND 31 THEN count ELSE 0 END) AS bad_schema,
          sum(CASE WHEN verdict IN (65, 66) THEN count ELSE 0 END) AS misrouted,
          sum(CASE WHEN verdict = 64 THEN count ELSE 0 END) AS limited,
          sum(CASE WHEN escalation = 'cache_miss' THEN count ELSE 0 END) AS missed,
          sum(CASE WHEN cache_phase = 'fresh' THEN count ELSE 0 END) AS fresh,
          max(abs(skew_seconds)) AS skew, sum(count) AS sent,
          {", ".join(f"sum(CASE WHEN verdict = 1 AND least(greatest(ceil(log2(dispatch_latency_ms + 1e-9)) + 2, 0), 15) = {at} THEN count ELSE 0 END) AS l{at}" for at in range(16))}
        FROM read_parquet('{folder}/*.parquet') WHERE source IS NOT NULL GROUP BY 1, 2, 3, 4, 5, 6"""  # noqa: E501
    )
    found = connection.sql(
        """
        WITH per AS (SELECT w, target, command_name, source, sum(warm) AS warm, sum(competing) AS competing FROM base
                     GROUP BY 1, 2, 3, 4 HAVING sum(offered) > 0),
        shared AS (SELECT *, sum(warm) OVER r AS volume, sum(competing) OVER r AS all_competing,
                   count_if(competing > 0) OVER r - (competing > 0)::INT AS rivals
                   FROM per WINDOW r AS (PARTITION BY w, target, command_name)),
        judged AS (SELECT *, warm > 0.8 * volume AND volume >= 50 AS dominant FROM shared
                   WHERE (all_competing - competing) >= 0.1 * all_competing OR rivals >= 2),
        one AS (SELECT w // 600 AS period, source, target FROM judged GROUP BY 1, 2, 3
                HAVING count_if(dominant) >= 3 AND sum(warm) > 0.8 * sum(volume)),
        bursts AS (SELECT w // 60 AS minute, source FROM base GROUP BY 1, 2
                   HAVING sum(forged) >= 200 AND sum(forged) >= 0.5 * sum(sent))
        SELECT (SELECT count(*) FROM one) + (SELECT count(*) FROM bursts)"""
    ).fetchone()
    return int(found[0]) if found else 0


def test_counting_judging_growth_and_memory(spark: SparkSession, archives: tuple[Path, Path]) -> None:
    small, large = archives
    jvm = int(spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid())  # type: ignore[union-attr]
    peak = Peak(jvm)
    threading.Thread(target=peak.watch, daemon=True).start()
    for folder in archives:  # the first run compiles
        judge(spark, folder)
        scan(spark, folder)
    scanned = timed(lambda: scan(spark, large))
    counted = timed(lambda: count(spark, large))
    judged = timed(lambda: judge(spark, large))
    judged_small = timed(lambda: judge(spark, small))
    judge_with_duckdb(large)
    duck = timed(lambda: judge_with_duckdb(large))
    peak.running = False
    figures = {
        "events": LARGE,
        "scan_s": scanned,
        "base_s": counted,
        "fairness_and_abuse_s": judged,
        "fairness_and_abuse_small_s": judged_small,
        "duckdb_s": duck,
        "peak_jvm_mb": peak.most_mb,
    }
    print(json.dumps(figures, indent=2))
    record("spark base / scan", values=[counted / scanned], unit="x", target=f"<= {BASE_RATIO}")
    record("spark jobs / DuckDB", values=[judged / duck], unit="x", target=f"<= {DUCKDB_RATIO}")
    record("spark 20x the events", values=[judged / judged_small], unit="x", target=f"<= {GROWTH}")
    record("spark peak memory", values=[peak.most_mb], unit="MB", target=f"<= {PEAK_MB:.0f}")
    assert counted <= BASE_RATIO * scanned
    assert judged <= DUCKDB_RATIO * duck
    assert judged <= GROWTH * judged_small
    assert peak.most_mb <= PEAK_MB


def test_a_micro_batch_of_ten_thousand_rows(spark: SparkSession, tmp_path: Path) -> None:
    watcher = Watcher(spark, tmp_path / "out", Policy(), None)
    shift = datetime.now(UTC).timestamp() - T0.timestamp() - 300
    times = []
    for number in range(8):
        rows = bulk(10_000, seed=number, minutes=1)
        path = tmp_path / f"{number}.parquet"
        pq.write_table(rows, path)
        at = datetime.fromtimestamp(T0.timestamp() + shift, UTC).isoformat()
        entry = {
            "path": str(path),
            "instance": f"fast-{number}",
            "epoch": 1,
            "first_seq": 1,
            "last_seq": 10_000,
            "min_at": at,
            "max_at": at,
        }
        lines = spark.createDataFrame([(json.dumps(entry),)], "value string")
        times.append(timed(partial(watcher.take, lines, number)))
    best = sorted(times[3:])[len(times[3:]) // 2]
    record("spark micro-batch of 10k rows", values=times[3:], unit="s", target=f"<= {BATCH_S:.0f}")
    assert best <= BATCH_S


def test_session_and_first_query_of_a_test() -> None:
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
    record("spark test session and query", values=times, unit="s", target=f"<= {START_S:.0f}")
    assert min(times) <= START_S
