"""Detection on traffic with a known truth, and that all who judge it judge the same."""

from __future__ import annotations

import json
import os
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from bench import detection_quality
from spark.jobs import watch_abuse
from spark.jobs.watch_abuse import Watcher
from spark.judging import Judge, fold, together
from spark.policy import DetectionPolicy
from spark.read import Entry, read_routes
from spark.schema import event_schema
from spark.transforms.abuse import proposals
from spark.transforms.base import base
from tests.support.abuse_scenarios import (
    ABUSIVE_SCENARIOS,
    HONEST_SCENARIOS,
    SCENARIOS,
    START,
    WINDOW_S,
    WINDOWS,
    Traffic,
    as_table,
    rows,
    simulated,
)

FULL = os.environ.get("SNAVIO_FULL") == "1"
SEEDS, ENTROPY = (20 if FULL else 4), 2026
POLICY = DetectionPolicy()
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def hour() -> dict[str, Traffic]:
    return {name: simulated(name, SEEDS, ENTROPY) for name in SCENARIOS}


def by_twin(traffic: Traffic) -> list[dict[str, Any]]:
    return together(fold(Judge(POLICY), rows(traffic, POLICY)), POLICY)


def plain(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """As the lines of a file have it."""
    return sorted(
        (
            {name: value.isoformat() if isinstance(value, datetime) else value for name, value in one.items()}
            for one in found
        ),
        key=lambda one: one["proposal_id"],
    )


def test_no_honest_source_is_proposed_and_abusers_are(hour: dict[str, Traffic]) -> None:
    """Few seeds; docs/fairness.md has many. The entropy is not the one of the table."""
    found = {name: {one["source"] for one in by_twin(traffic)} for name, traffic in hour.items()}
    for name in HONEST_SCENARIOS:
        assert found[name] == set(), name
        assert len(hour[name].sources()) >= 2 * SEEDS
    for name in ("slow-burn", "ninety-percent", "on-off", "trickle", "alternating-routes", "overwhelming"):
        assert hour[name].abusers() <= found[name], name


def test_the_table_counts_with_the_delays_of_watch_and_refuses_a_changed_tree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert watch_abuse.SETTLING.total_seconds() == detection_quality.SETTLING_S
    assert watch_abuse.options().get_default("every_s") == detection_quality.LOOK_S
    assert all((detection_quality.ROOT / name).is_file() for name in detection_quality.WATCHED)

    def git(*words: str) -> str:
        who = ("-c", "user.name=t", "-c", "user.email=t@t", "-c", "commit.gpgsign=false")
        done = subprocess.run(["git", *who, *words], cwd=tmp_path, capture_output=True, text=True, check=True)
        return done.stdout

    monkeypatch.setattr(detection_quality, "ROOT", tmp_path)
    monkeypatch.setattr(detection_quality, "WATCHED", ("rules.py",))
    git("init", "-q")
    with pytest.raises(SystemExit, match="Not measured"):
        detection_quality.origin()
    (tmp_path / "rules.py").write_text("one")
    git("add", "rules.py")
    git("commit", "-q", "-m", "one", "--no-verify")
    commit, entropy = detection_quality.origin()
    # Another commit that changes no rule changes no seed.
    (tmp_path / "other.py").write_text("other")
    git("add", "other.py")
    git("commit", "-q", "-m", "other", "--no-verify")
    assert detection_quality.origin() == (commit, entropy)
    (tmp_path / "rules.py").write_text("two")
    with pytest.raises(SystemExit, match=r"rules\.py changed"):
        detection_quality.origin()


def test_the_twin_judges_what_spark_judges_to_the_last_character(
    spark: SparkSession, tmp_path: Path, hour: dict[str, Traffic]
) -> None:
    """Otherwise the table of docs/fairness.md would be about other code than the one that bans."""
    chosen = [
        hour[name] for name in (*ABUSIVE_SCENARIOS, "honest-bursts-short", "clock-skew", "stubborn-batches")
    ]
    pq.write_table(as_table(chosen), tmp_path / "events.parquet")
    counts = base(spark.read.schema(event_schema()).parquet(str(tmp_path / "events.parquet")))
    ours = proposals(counts.localCheckpoint(), read_routes(spark, None), POLICY)
    twins = [one for traffic in chosen for one in by_twin(traffic)]
    assert len(twins) > 10 * SEEDS
    assert plain(ours) == plain(twins)


def test_watch_proposes_on_a_replayed_stream_what_the_audit_finds(
    spark: SparkSession, tmp_path: Path, hour: dict[str, Traffic], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batch by batch, with looks in between, a restart in the middle, and events that are late."""
    chosen = [hour[name] for name in ("on-off", "alternating-routes", "fast-bans", "honest-bursts-short")]

    class Moved(datetime):
        at = datetime.fromtimestamp(START, UTC)

        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return cls.at

    monkeypatch.setattr(watch_abuse, "datetime", Moved)
    told: dict[str, dict[str, Any]] = {}
    late: list[Any] = []
    parts = 8
    size = WINDOWS // parts
    watcher = Watcher(spark, tmp_path / "out", POLICY, None)
    for part in range(parts):
        windows = range(part * size, (part + 1) * size)
        made = as_table(chosen, windows=windows)
        # A tenth of it comes with the next batch: another process was slower.
        cut = len(made) // 10
        table = made.slice(cut)
        folder = tmp_path / f"{part}"
        folder.mkdir()
        paths = []
        for number, some in enumerate([table, *late]):
            pq.write_table(some, folder / f"{number}.parquet")
            paths.append(folder / f"{number}.parquet")
        late = [made.slice(0, cut)] if part < parts - 1 else []
        if part == parts - 1:
            pq.write_table(made.slice(0, cut), folder / "rest.parquet")
            paths.append(folder / "rest.parquet")
        Moved.at = datetime.fromtimestamp(START + (part + 1) * size * WINDOW_S, UTC)
        entries = [
            Entry(
                path=str(path),
                instance=f"fast-{part}-{number}",
                epoch=1,
                first_seq=1,
                last_seq=10**6,
                min_at=Moved.at - timedelta(minutes=15),
                max_at=Moved.at,
            )
            for number, path in enumerate(paths)
        ]
        watcher.count(entries, part)
        watcher.judge()
        if part == parts // 2:
            watcher = Watcher(spark, tmp_path / "out", POLICY, None)
        for line in (tmp_path / "out" / "proposals" / f"{part:08d}.jsonl").read_text().splitlines():
            one = json.loads(line)
            told[one["proposal_id"]] = one
    # An hour without news: everything is judged for good.
    Moved.at += timedelta(hours=1)
    watcher.count([], parts)
    watcher.judge()
    kept = (tmp_path / "out" / "proposals" / f"{parts:08d}.jsonl").read_text().splitlines()
    record = plain([one for traffic in chosen for one in by_twin(traffic)])
    assert {json.loads(line)["proposal_id"] for line in kept} == {one["proposal_id"] for one in record}
    # Whatever was said before all of it was there is what the record says, or what it calls by the other name.
    known = {name for one in record for name in (one["proposal_id"], *one["also"])}
    assert [one["source"] for name, one in told.items() if name not in known] == []
