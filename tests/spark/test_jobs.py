"""The jobs as their own processes: their input, their output, and their messages when something is wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark.jobs import arguments, backfill
from spark.read import Entry, overlapping, read_events, read_index, within
from tests.support.telemetry_rows import RATE_CODE, T0, row, table, write

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 240
# A handful of rows: compiling the queries would take longer than running them.
QUICK = (
    *("--conf", "spark.sql.codegen.wholeStage=false", "--conf", "spark.sql.codegen.factoryMode=NO_CODEGEN"),
    *("--conf", "spark.sql.shuffle.partitions=1", "--conf", "spark.sql.adaptive.enabled=false"),
)


def entry(
    path: Path, *, instance: str = "fast-0", first: int = 1, last: int = 10, **more: Any
) -> dict[str, Any]:
    return {
        "path": str(path),
        "instance": instance,
        "epoch": 1,
        "first_seq": first,
        "last_seq": last,
        "min_at": T0.isoformat(),
        "max_at": (T0 + timedelta(minutes=10)).isoformat(),
        **more,
    }


def index(folder: Path, *entries: dict[str, Any], name: str = "1") -> Path:
    path = folder / f"{name}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".new")
    fresh.write_text("".join(json.dumps(one) + "\n" for one in entries), "utf-8")
    return fresh.replace(path)


def job(
    name: str, *options: str | Path, environment: dict[str, str] | None = None, halted: str = ""
) -> subprocess.Popen[str]:
    """A job's process; `watch_abuse` can be made to halt at a point of `tests.support.halting_watch`."""
    module = ("tests.support.halting_watch", halted) if halted else (f"spark.jobs.{name}",)
    return subprocess.Popen(
        [
            sys.executable,
            "-m",
            *module,
            "--short",
            "--driver-memory",
            "1g",
            *QUICK,
            *map(str, options),
        ],
        cwd=ROOT,
        env={**os.environ, **(environment or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=LIMIT)
    return process.returncode, out, err


class Lasting:
    """The tests' own session, which a job reuses and cannot stop."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def __getattr__(self, name: str) -> Any:
        return getattr(self._spark, name)

    def stop(self) -> None:
        pass


def contended(windows: int, *, start: int = 0) -> list[dict[str, Any]]:
    rows = []
    for window in range(start, start + windows):
        rows += [row(source="acme/big", after_s=window * 30) for _ in range(90)]
        rows += [row(source="acme/small", after_s=window * 30) for _ in range(10)]
        rows += [
            row(source="acme/small", verdict=RATE_CODE, path="slow", after_s=window * 30) for _ in range(10)
        ]
    return rows


# -- reading -------------------------------------------------------------------------------------------


def made(first: int, last: int, *, instance: str = "fast-0") -> Entry:
    (found,) = read_index(
        json.dumps(entry(Path(f"/{instance}/{first}-{last}"), instance=instance, first=first, last=last))
    )
    return found


def test_only_files_that_share_events_are_told_apart_row_by_row() -> None:
    a, b, c, d = made(1, 10), made(11, 20), made(15, 30), made(31, 40)
    other = made(1, 40, instance="fast-1")
    alone, shared = overlapping([d, c, b, a, other, a])
    assert sorted(alone, key=lambda one: one.path) == sorted([a, d, other], key=lambda one: one.path)
    assert sorted(shared, key=lambda one: one.first_seq) == [b, c]


def test_a_long_file_overlaps_all_that_it_covers() -> None:
    whole, parts = made(1, 100), [made(1, 10), made(50, 60), made(90, 100)]
    alone, shared = overlapping([*parts, whole])
    assert (alone, len(shared)) == ([], 4)


def test_duplicate_and_overlapping_files_count_each_event_once(spark: SparkSession, tmp_path: Path) -> None:
    rows = table([row() for _ in range(30)])
    one = write(rows.slice(0, 20), tmp_path / "one.parquet")
    two = write(rows.slice(10, 20), tmp_path / "two.parquet")
    entries = read_index(
        "\n".join(
            json.dumps(found)
            for found in (
                entry(one, first=1, last=20),
                entry(two, first=11, last=30),
                entry(two, first=11, last=30),
            )
        )
    )
    assert read_events(spark, entries).count() == 30
    assert read_events(spark, entries, columns=("at", "count")).count() == 30
    rest = read_index(json.dumps(entry(two, first=11, last=30, after_seq=20)))
    assert read_events(spark, rest, columns=("at",)).count() == 10


def test_a_missing_column_reads_as_nulls_and_an_unknown_event_is_kept(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = table([row(), row(event="snavio.future.thing")]).drop_columns(["grant", "topic"])
    entries = read_index(json.dumps(entry(write(rows, tmp_path / "old.parquet"), last=2)))
    events = read_events(spark, entries)
    assert events.where("grant is null and topic is null").count() == 2
    assert events.where("event = 'snavio.future.thing'").count() == 1


def test_an_empty_range_reads_nothing(spark: SparkSession, tmp_path: Path) -> None:
    entries = read_index(json.dumps(entry(write([row()], tmp_path / "a.parquet"), last=1)))
    later = T0 + timedelta(hours=1)
    assert within(entries, later, None) == []
    assert read_events(spark, entries, since=later).count() == 0
    assert read_events(spark, [], since=later).count() == 0
    assert read_events(spark, entries, until=T0).count() == 0


def test_an_index_that_is_none_says_which_line() -> None:
    with pytest.raises(ValueError, match="line 2 of the index"):
        read_index(json.dumps(entry(Path("/a"))) + '\n{"path": "/b"}\n')


# -- whole jobs ----------------------------------------------------------------------------------------


@pytest.mark.timeout(600)
def test_a_backfill_goes_hour_by_hour_and_leaves_what_is_done_or_empty(tmp_path: Path) -> None:
    one, two = (
        write(contended(5), tmp_path / "1.parquet"),
        write(contended(5, start=120), tmp_path / "2.parquet"),
    )
    later: dict[str, Any] = {
        "min_at": (T0 + timedelta(hours=1)).isoformat(),
        "max_at": (T0 + timedelta(hours=1)).isoformat(),
    }
    listed = index(tmp_path, entry(one, last=550), entry(two, instance="fast-1", last=550, **later))
    out = tmp_path / "out"
    (out / "2026-11-16T11").mkdir(parents=True)
    (out / "2026-11-16T11" / "_done").write_text("1\n")
    until = (T0 + timedelta(hours=4)).isoformat()
    options = ("--index", listed, "--out", out, "--since", T0.isoformat(), "--until", until)
    code, told, err = ended(job("backfill", *options))
    assert code == 0, err
    lines = [json.loads(line) for line in told.splitlines()]
    assert [(line["done"], line["of"]) for line in lines if line["step"] == "hour"] == [
        (number, 4) for number in (1, 2, 3, 4)
    ]
    assert lines[-1] == {"step": "done", "proposals": 1, "hours": 4, "skipped": 1, "empty": 2, "open": 0}
    (found,) = (out / "2026-11-16T10" / "proposals.jsonl").read_text().splitlines()
    assert json.loads(found)["source"] == "acme/big"
    assert (out / "2026-11-16T10" / "fairness").is_dir()
    assert (out / "2026-11-16T10" / "_done").exists()


@pytest.mark.timeout(600)
def test_a_backfill_calls_done_only_what_is_whole(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Hours that lack evidence, the hours after them, and the hour that is not over are counted again next time."""
    now = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    entries = []
    for number in range(4):
        start = now - timedelta(hours=3 - number)
        path = write([row(after_s=(start - T0).total_seconds())], tmp_path / f"{number}.parquet")
        times: dict[str, Any] = {"min_at": start.isoformat(), "max_at": start.isoformat()}
        entries.append(entry(path, instance=f"fast-{number}", last=1, **times))
    doubts = tmp_path / "doubts.json"
    doubts.write_text(json.dumps([f"{now - timedelta(hours=3):%Y-%m-%dT%H}"]))
    monkeypatch.setattr(backfill, "open_session", lambda *_: Lasting(spark))

    def done(*more: str) -> tuple[set[str], dict[str, Any]]:
        options = ("--index", index(tmp_path, *entries), "--out", tmp_path / "out", *more)
        since, until = (now - timedelta(hours=3)).isoformat(), (now + timedelta(hours=1)).isoformat()
        monkeypatch.setattr(sys, "argv", ["backfill", *map(str, options), "--since", since, "--until", until])
        arguments.run(backfill.backfill, backfill.options())
        told = json.loads(capfd.readouterr().out.splitlines()[-1])
        return {path.parent.name for path in (tmp_path / "out").glob("*/_done")}, told

    found, told = done("--doubts", str(doubts))
    closed = {f"{now - timedelta(hours=1):%Y-%m-%dT%H}"} if datetime.now(UTC).minute >= 15 else set()
    assert (found, told["skipped"], told["open"]) == (closed, 0, 4 - len(closed))
    # The evidence is there now.
    found, told = done()
    whole = {f"{now - timedelta(hours=hours):%Y-%m-%dT%H}" for hours in (3, 2)}
    assert (found, told["skipped"]) == (whole | closed, len(closed))


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        ("backfill", ("--index", "/nowhere.jsonl"), "say --since and --until"),
        ("detect_abuse", ("--index", "/nowhere.jsonl"), "No such file"),
        ("shadow", ("--index", "/nowhere.jsonl"), "Ask one thing"),
        ("shadow", ("--index", "/nowhere.jsonl", "--limit", "5"), "--target and --command"),
        ("detect_abuse", ("--index", "/x", "--since", "yesterday"), "no RFC 3339 time"),
    ],
)
def test_a_mistake_is_one_sentence(
    tmp_path: Path, name: str, options: tuple[str, ...], sentence: str
) -> None:
    code, _, err = ended(job(name, *options, "--out", tmp_path / "out"))
    assert code == 2
    assert sentence in err
    assert "Traceback" not in err


def test_a_missing_java_is_one_sentence(tmp_path: Path) -> None:
    nothing = {"PATH": str(tmp_path), "JAVA_HOME": str(tmp_path)}
    code, _, err = ended(
        job("slo_report", "--index", index(tmp_path), "--out", tmp_path / "out", environment=nothing)
    )
    assert (code, len(err.strip().splitlines())) == (3, 1)
    assert "Spark needs Java 17: install it" in err
