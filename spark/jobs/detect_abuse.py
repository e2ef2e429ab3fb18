"""The record: counts a range of the archive, tells how it was shared out, and who abused it."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from spark.jobs.arguments import open_session, parser, policy_of, run, told
from spark.policy import DetectionPolicy
from spark.read import Entry, read_events, read_index, read_routes, within
from spark.transforms.abuse import proposals
from spark.transforms.base import RAW_COLUMNS, base, by_route
from spark.transforms.fairness import fairness
from spark.write import write_lines, write_table

LOOKBACK = timedelta(hours=1)
"""Read before the range: what was held against a source when it began. Whoever makes the index reads as far back."""


def entries_of(given: argparse.Namespace) -> list[Entry]:
    """Every entry of the index, which may be several files."""
    paths = sorted(given.index.glob("*.jsonl")) if given.index.is_dir() else [given.index]
    return [entry for path in paths for entry in read_index(path.read_text("utf-8"))]


def counted(spark: SparkSession, given: argparse.Namespace, *, window_seconds: int = 0) -> None:
    """The base of the range, in `out/base`; in the policy's windows unless others are asked for."""
    entries = entries_of(given)
    used = within(entries, given.since, given.until)
    told(step="reading", files=len(used), of=len(entries))
    events = read_events(spark, entries, columns=RAW_COLUMNS, since=given.since, until=given.until)
    windows = window_seconds or policy_of(given).window_seconds
    write_table(base(events, window_seconds=windows), given.out / "base")


def detect_range(
    spark: SparkSession,
    given: argparse.Namespace,
    policy: DetectionPolicy,
    *,
    since: datetime | None,
    until: datetime | None,
    out: Path,
) -> int:
    """base, then fairness, then proposals, all in `out`; how many proposals."""
    # A judge that began at the range would not find whoever had nearly reached the alarm when it began.
    earlier = None if since is None else since - LOOKBACK
    counted(spark, argparse.Namespace(**{**vars(given), "since": earlier, "until": until, "out": out}))
    counts = spark.read.parquet(str(out / "base"))
    told(step="sharing")
    routes = read_routes(spark, given.routes)
    shares = fairness(by_route(counts), routes)
    write_table(
        shares if since is None else shares.where(F.col("window_start") >= F.lit(since)), out / "fairness"
    )
    rows = [
        one
        for one in proposals(counts, routes, policy)
        # One that began within the hour before is of that hour's audit.
        if since is None or one["window_start"] >= since.astimezone(UTC)
    ]
    return write_lines(rows, out / "proposals.jsonl")


def detect(given: argparse.Namespace) -> None:
    """The range as one."""
    policy = policy_of(given)
    entries_of(given)  # a missing index is told before a JVM is started for it
    spark = open_session("snavio abuse", given)
    try:
        number = detect_range(spark, given, policy, since=given.since, until=given.until, out=given.out)
        # The audit of what was found judges the bans of this policy, in periods of this length.
        told(
            step="done",
            proposals=number,
            policy_version=policy.version,
            period_minutes=policy.period_minutes,
        )
    finally:
        spark.stop()


if __name__ == "__main__":
    run(detect, parser(__doc__ or ""))
