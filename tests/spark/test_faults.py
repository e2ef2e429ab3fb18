"""Traffic that no job may fail on: future times, skewed clocks, crowds, a flood."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from spark.jobs import watch_abuse
from spark.jobs.watch_abuse import Watcher
from spark.policy import DetectionPolicy
from spark.read import Entry, read_routes
from spark.schema import event_schema
from spark.transforms.abuse import proposals
from spark.transforms.base import FORM, base
from tests.support.telemetry_rows import RATE_CODE, T0, bulk, row, write

FULL = os.environ.get("SNAVIO_FULL") == "1"
FLOOD = 1_000_000 if FULL else 10_000

pytestmark = pytest.mark.timeout(600)


def judged(spark: SparkSession, *paths: Path) -> list[dict[str, Any]]:
    counts = base(spark.read.schema(event_schema()).parquet(*map(str, paths))).localCheckpoint()
    found = proposals(counts, read_routes(spark, None), DetectionPolicy())
    return sorted(found, key=lambda one: (one["source"], one["kind"]))


def contended(*, start_s: float = 0.0, **given: Any) -> list[dict[str, Any]]:
    rows = []
    for window in range(5):
        for source, count in (("acme/big", 90), ("acme/small", 10)):
            rows.append(row(source=source, count=count, after_s=start_s + window * 30, **given))
        refused = {"verdict": RATE_CODE, "path": "slow", "count": 10}
        rows.append(row(source="acme/small", after_s=start_s + window * 30, **refused, **given))
    return rows


def entry_of(path: Path, number: int, rows: int, *, until: datetime) -> Entry:
    return Entry(
        path=str(path),
        instance=f"fast-{number}",
        epoch=1,
        first_seq=1,
        last_seq=rows,
        min_at=until - timedelta(minutes=30),
        max_at=until,
    )


def test_events_from_the_future_neither_hold_up_the_watcher_nor_move_its_watermark(
    spark: SparkSession, tmp_path: Path
) -> None:
    now = datetime.now(UTC)
    recent = (now.timestamp() - 600) // 30 * 30 - T0.timestamp()
    rows = [
        *contended(start_s=recent),
        row(source="acme/ahead", after_s=now.timestamp() - T0.timestamp() + 86400),
    ]
    path = write(rows, tmp_path / "a.parquet")
    watcher = Watcher(spark, tmp_path / "out", DetectionPolicy(), None)
    ahead = replace(entry_of(path, 0, len(rows), until=now), max_at=now + timedelta(days=1))
    watcher.count([ahead], 0)
    watcher.judge()
    (proposal,) = (tmp_path / "out" / "proposals" / "00000000.jsonl").read_text().splitlines()
    assert json.loads(proposal)["source"] == "acme/big"
    kept = spark.read.parquet(str(bases(tmp_path / "out") / "batch=00000000"))
    assert kept.where("source = 'acme/ahead'").count() == 0
    # An hour of silence later it still knows what it counted.
    watcher.count([], 1)
    watcher.judge()
    assert (tmp_path / "out" / "proposals" / "00000001.jsonl").read_text().splitlines() == [proposal]


def bases(out: Path) -> Path:
    (found,) = out.glob("base-*")
    return found


def test_watch_judges_shares_of_a_window_only_when_others_may_have_been_heard(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last window is half of one; the instance that has the rivals in it is heard later."""
    start = T0 + timedelta(hours=1)
    rows = contended(start_s=3600)

    class Moved(datetime):
        at = start

        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return cls.at

    monkeypatch.setattr(watch_abuse, "datetime", Moved)
    watcher = Watcher(spark, tmp_path / "out", DetectionPolicy(), None)

    def until(seconds: int, batch: int, *found: dict[str, Any]) -> int:
        path = write(list(found), tmp_path / f"{batch}.parquet")
        Moved.at = start + timedelta(seconds=seconds)
        watcher.count([entry_of(path, batch, len(found), until=Moved.at)], batch)
        watcher.judge()
        return len((tmp_path / "out" / "proposals" / f"{batch:08d}.jsonl").read_text().splitlines())

    # Four windows are over, and three of them are settled.
    assert until(120, 0, *[one for one in rows if one["at"] < start + timedelta(seconds=120)]) == 0
    assert until(150, 1, row(after_s=3749)) == 0
    assert until(180, 2, row(after_s=3779)) == 1


def test_a_batch_that_is_counted_again_takes_the_place_of_what_it_was(
    spark: SparkSession, tmp_path: Path
) -> None:
    """An earlier life planned it and was killed: the same files, whatever has come meanwhile, and once."""
    now = datetime.now(UTC)
    recent = (now.timestamp() - 600) // 30 * 30 - T0.timestamp()
    rows = contended(start_s=recent)
    out, index = tmp_path / "out", tmp_path / "index"
    index.mkdir()
    for number in (1, 2):
        path = write(rows, tmp_path / f"{number}.parquet")
        line = {"path": str(path), "instance": f"fast-{number}", "epoch": 1, "first_seq": 1}
        line |= {"last_seq": len(rows), "min_at": now.isoformat(), "max_at": now.isoformat()}
        (index / f"{number:08d}.jsonl").write_text(json.dumps(line) + "\n")
    watcher = Watcher(spark, out, DetectionPolicy(), None, index=index)
    plan = out / f"base-{FORM}-{DetectionPolicy().version}" / "batch=00000000.plan"
    plan.parent.mkdir(parents=True)
    plan.write_text(json.dumps(["00000001.jsonl"]))
    assert [watcher.take(20), watcher.take(20), watcher.take(20)] == [True, True, False]
    assert json.loads((out / "taken.json").read_text()) == {"through": 2}
    for batch in (0, 1):
        (part,) = (bases(out) / f"batch={batch:08d}").glob("*.parquet")
        assert sum(pq.read_table(part)["number"].to_pylist()) == 550
    assert not plan.exists()
    # Killed between the note and the end of the plan: the next life counts nothing twice.
    plan.write_text(json.dumps(["00000001.jsonl"]))
    assert not Watcher(spark, out, DetectionPolicy(), None, index=index).take(20)
    # What an earlier form left is nobody's.
    (out / "base-1").mkdir()
    (out / "checkpoint" / "offsets").mkdir(parents=True)
    Watcher(spark, out, DetectionPolicy(), None, index=index)
    assert not (out / "base-1").exists() and not (out / "checkpoint").exists()


def test_clocks_an_hour_apart_make_two_windows_and_no_abuser(spark: SparkSession, tmp_path: Path) -> None:
    """Dispatches of one Fast now and of another an hour ago are not compared: each alone is no contention."""
    now = [row(source="acme/big", count=90, after_s=window * 30) for window in range(5)]
    then = [
        row(source="acme/small", count=10, after_s=window * 30 - 3600, instance="fast-1")
        for window in range(5)
    ]
    one, two = write(now, tmp_path / "1.parquet"), write(then, tmp_path / "2.parquet")
    assert judged(spark, one, two) == []
    ahead = write(contended(start_s=3600, instance="fast-1"), tmp_path / "3.parquet")
    (proposal,) = judged(spark, one, two, ahead)
    assert proposal["window_start"].replace(tzinfo=UTC) >= T0 + timedelta(hours=1)


def test_ten_thousand_sources_hide_nobody(spark: SparkSession, tmp_path: Path) -> None:
    crowd = bulk(10_000, seed=3, minutes=2, routes=20).drop_columns(["command_id"])
    names = pa.array([f"crowd/s{number}" for number in range(10_000)])
    each = pa.DictionaryArray.from_arrays(pa.array(np.arange(10_000, dtype=np.int32)), names)
    crowd = crowd.set_column(crowd.schema.get_field_index("source"), "source", each)
    abuse = write(contended(target="quiet-corner"), tmp_path / "abuse.parquet")
    paths = (str(write(crowd, tmp_path / "crowd.parquet")), str(abuse))
    counts = base(spark.read.schema(event_schema()).parquet(*paths)).localCheckpoint()
    assert counts.select("source").distinct().count() == 10_002
    found = proposals(counts, read_routes(spark, None), DetectionPolicy())
    assert "acme/big" in [one["source"] for one in found]


def test_a_million_commands_in_a_minute_are_counted_to_the_last(spark: SparkSession, tmp_path: Path) -> None:
    flood = bulk(FLOOD, seed=5, minutes=1, sources=1, routes=1, abusers=1)
    verdicts = np.full(FLOOD, 38, np.int32)
    at = flood.schema.get_field_index("verdict")
    flood = flood.set_column(at, "verdict", pa.array(verdicts)).drop_columns(["command_id"])
    path = tmp_path / "flood.parquet"
    pq.write_table(flood, path)
    found = judged(spark, path)
    assert {one["kind"] for one in found} == {"burst-invalid-hmac"}
    assert sum(one["total_violations"] for one in found) == FLOOD


@pytest.mark.parametrize("rows", [[], [row(source=None, event="snavio.telemetry.journal_gap", verdict=None)]])
def test_an_archive_without_commands_proposes_nothing(
    spark: SparkSession, tmp_path: Path, rows: list[dict[str, Any]]
) -> None:
    assert judged(spark, write(rows, tmp_path / "a.parquet")) == []
