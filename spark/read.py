"""The archive as Spark may read it: files that were verified, each event once.

Never lists the archive itself: an index, made by whoever checked signatures and digests, says which files count.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark.schema import event_schema

EVENT_KEY = ("instance", "epoch", "seq")


@dataclass(frozen=True, slots=True)
class Entry:
    """One verified file: events `first_seq` to `last_seq` of one life of one process."""

    path: str
    instance: str
    epoch: int
    first_seq: int
    last_seq: int
    min_at: datetime
    max_at: datetime
    after_seq: int = 0
    """Events up to this one were in files before; they are left out."""
    through_seq: int = 0
    """Events after this one were in files before; 0 is none."""

    @property
    def part(self) -> bool:
        """True when only some of the file's events count."""
        return bool(self.after_seq or self.through_seq)


def read_index(text: str) -> list[Entry]:
    """The entries of an index: JSON lines. ValueError says which line is none."""
    entries = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            try:
                entries.append(_entry(json.loads(line)))
            except (KeyError, TypeError, ValueError) as error:
                raise ValueError(f"line {number} of the index is no entry: {error}") from error
    return entries


def _entry(found: dict[str, Any]) -> Entry:
    return Entry(
        path=str(found["path"]),
        instance=str(found["instance"]),
        epoch=int(found["epoch"]),
        first_seq=int(found["first_seq"]),
        last_seq=int(found["last_seq"]),
        min_at=datetime.fromisoformat(found["min_at"]),
        max_at=datetime.fromisoformat(found["max_at"]),
        after_seq=int(found.get("after_seq", 0)),
        through_seq=int(found.get("through_seq", 0)),
    )


def within(entries: Iterable[Entry], since: datetime | None, until: datetime | None) -> list[Entry]:
    """Entries that may hold events of the range."""
    return [
        entry
        for entry in entries
        if (since is None or entry.max_at >= since) and (until is None or entry.min_at < until)
    ]


def overlapping(entries: Sequence[Entry]) -> tuple[list[Entry], list[Entry]]:
    """(entries that share no event with another, entries that may). A file that is named twice counts once."""
    alone: list[Entry] = []
    shared: list[Entry] = []
    lives: dict[tuple[str, int], list[Entry]] = {}
    for entry in {(entry.path, entry.after_seq): entry for entry in entries}.values():
        lives.setdefault((entry.instance, entry.epoch), []).append(entry)
    for life in lives.values():
        life.sort(key=lambda entry: (entry.first_seq, entry.last_seq))
        cluster: list[Entry] = []
        reach = -1
        for entry in life:
            if cluster and entry.first_seq > reach:
                (alone if len(cluster) == 1 else shared).extend(cluster)
                cluster = []
            cluster.append(entry)
            reach = max(reach, entry.last_seq) if len(cluster) > 1 else entry.last_seq
        (alone if len(cluster) == 1 else shared).extend(cluster)
    return alone, shared


def read_events(
    spark: SparkSession,
    entries: Sequence[Entry],
    *,
    columns: Sequence[str] = (),
    since: datetime | None = None,
    until: datetime | None = None,
) -> DataFrame:
    """The events of these files, each once, within the range of event times."""
    alone, shared = overlapping(within(entries, since, until))
    wanted = event_schema(*columns)
    keyed = event_schema(*(*columns, *EVENT_KEY)) if columns else wanted
    events = _files(spark, [entry for entry in alone if not entry.part], wanted)
    for entry in alone:
        if entry.part:
            events = events.unionByName(_part(spark, entry, keyed).select(*wanted.names))
    if shared:
        # Telling rows apart costs more than all the rest, so only files whose names overlap are asked to.
        rows = _files(spark, [entry for entry in shared if not entry.part], keyed)
        for entry in shared:
            if entry.part:
                rows = rows.unionByName(_part(spark, entry, keyed))
        events = events.unionByName(rows.dropDuplicates(list(EVENT_KEY)).select(*wanted.names))
    if since is not None:
        events = events.where(F.col("at") >= F.lit(since))
    if until is not None:
        events = events.where(F.col("at") < F.lit(until))
    return events


def _part(spark: SparkSession, entry: Entry, schema: Any) -> DataFrame:
    rows = _files(spark, [entry], schema).where(F.col("seq") > entry.after_seq)
    return rows.where(F.col("seq") <= entry.through_seq) if entry.through_seq else rows


def _files(spark: SparkSession, entries: Sequence[Entry], schema: Any) -> DataFrame:
    if not entries:
        return spark.createDataFrame([], schema)
    return spark.read.schema(schema).parquet(*(entry.path for entry in entries))


def read_routes(spark: SparkSession, path: Path | None) -> DataFrame:
    """The routes' own fairness parameters, as JSON lines; none means the defaults everywhere."""
    schema = (
        "target string, command_name string, min_dominant_share double, min_competing_share double, "
        "min_competitors double, min_minimum_volume double"
    )
    rows: list[tuple[Any, ...]] = []
    if path is not None:
        for line in path.read_text("utf-8").splitlines():
            found = json.loads(line)
            numbers = (found.get(name) for name in _PARAMETERS)
            rows.append(
                (
                    found["target"],
                    found["command_name"],
                    *(None if number is None else float(number) for number in numbers),
                )
            )
    return spark.createDataFrame(rows, schema)


_PARAMETERS = ("dominant_share", "competing_share", "competitors", "minimum_volume")
