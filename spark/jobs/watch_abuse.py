"""Follows the archive as it grows: proposes bursts within a minute or two, dominance when its period is over.

Never judges shares of a period that still runs: an honest burst of two minutes has most of a period that is two minutes
old. Provisional: late events may still come, and the hourly run over closed hours decides. The same steps as there,
another way of reading. Killed anywhere, it goes on where it was: Spark's checkpoint says which index files a batch was
made of, and a batch that runs again writes the same files.
"""

from __future__ import annotations

import argparse
import json
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Lock

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark.jobs.arguments import open_session, parser, policy_of, run, told
from spark.policy import DetectionPolicy
from spark.read import read_events, read_index, read_routes
from spark.transforms.abuse import proposals
from spark.transforms.base import FORM, RAW_COLUMNS, base, merged
from spark.transforms.fairness import fairness
from spark.write import write_lines, write_table, write_text

LATENESS = timedelta(minutes=15)
"""The longest delay of an event that still counts here; the hourly run takes them all."""
SETTLING = timedelta(seconds=90)
"""The longest delay between events of two processes: Relay's longest wait for a file, and its export."""
FUTURE = timedelta(minutes=2)
"""Events further ahead than this are left to the hourly run: they must not move the watermark."""


class Watcher:
    """The counts so far: a base per batch, in folders, each with a note of its latest event time.

    Counting and judging are two things: a batch is counted in less than a second, whatever is known already, and what
    is known is judged now and then. More often than twice in a window would tell nothing new.
    """

    def __init__(self, spark: SparkSession, out: Path, policy: DetectionPolicy, routes: Path | None) -> None:
        self._spark = spark
        self._out = out
        self._bases = out / f"base-{FORM}"
        self._policy = policy
        self._routes = routes
        self._horizon = LATENESS + timedelta(minutes=2 * policy.period_minutes)
        self._judged: tuple[str, datetime] | None = None
        self._judging = Lock()

    def count(self, lines: DataFrame, batch: int) -> None:
        """One micro-batch of index lines."""
        entries = read_index("\n".join(row[0] for row in lines.collect()))
        now = datetime.now(UTC)
        events = read_events(self._spark, entries, columns=RAW_COLUMNS, until=now + FUTURE)
        folder = self._bases / f"batch={batch:08d}"
        note = folder.with_suffix(".json")
        if note.exists():
            # An earlier life got as far as this, and Spark did not hear of it. Counting has a thread of its own: who
            # judges at this moment may finish, and without its note nobody judges what is about to be replaced.
            with self._judging:
                note.unlink(missing_ok=True)
        write_table(base(events, window_seconds=self._policy.window_seconds), folder)
        newest = max((entry.max_at for entry in entries), default=now)
        # Last: who judges reads the bases that have a note, and those are whole.
        write_text(json.dumps({"until": min(newest, now + FUTURE).isoformat()}), note)
        told(step="batch", batch=batch, files=len(entries))

    def judge(self) -> None:
        """Propose upon all that is known, if there is news since the last time."""
        with self._judging:
            self._judge()

    def _judge(self) -> None:
        notes = {note.stem: _until(note) for note in sorted((self._bases).glob("batch=*.json"))}
        if not notes:
            return
        newest, now = max(notes), datetime.now(UTC)
        heard = min(max(notes.values()), now)
        finished = self._finished(heard, now)
        if (newest, finished) == self._judged:
            return
        watermark = heard - LATENESS
        begins = watermark - self._horizon
        self._forget([name for name, until in notes.items() if until < begins and name != newest])
        folders = [
            str(self._bases / name) for name, until in notes.items() if until >= begins or name == newest
        ]
        together = self._spark.read.option("basePath", str(self._bases)).parquet(*folders)
        counts = (
            merged(together.drop("batch")).where(F.col("window_start") >= F.lit(begins)).localCheckpoint()
        )
        over = counts.where(F.col("window_start") < F.lit(finished))
        shares = fairness(over, read_routes(self._spark, self._routes))
        found = proposals(shares, counts, self._policy)
        rows = [row.asDict() for row in found.orderBy("proposal_id").collect()]
        number = write_lines(rows, self._out / "proposals" / f"{newest.removeprefix('batch=')}.jsonl")
        self._judged = newest, finished
        told(step="judged", proposals=number, watermark=watermark)

    def _finished(self, heard: datetime, now: datetime) -> datetime:
        """The end of the last period of which all events are here, or come too late to count."""
        settled = max(heard - SETTLING, now - LATENESS).timestamp()
        seconds = self._policy.period_minutes * 60
        return datetime.fromtimestamp(settled // seconds * seconds, UTC)

    def _forget(self, names: list[str]) -> None:
        """Bases of which no window can matter any more."""
        for name in names:
            shutil.rmtree(self._bases / name, ignore_errors=True)
            (self._bases / f"{name}.json").unlink(missing_ok=True)


def tidy(checkpoint: Path) -> None:
    """Remove what a kill left of files that Spark was writing; it gives them their names when they are whole.

    Killed within its first such file, Spark would never start again: a checkpoint without batches in which there is
    anything at all belongs, as it sees it, to another query.
    """
    for unfinished in [*checkpoint.rglob(".*.tmp"), *checkpoint.rglob(".*.tmp.crc")]:
        unfinished.unlink(missing_ok=True)


def _until(note: Path) -> datetime:
    return datetime.fromisoformat(json.loads(note.read_text("utf-8"))["until"])


def watch(given: argparse.Namespace) -> None:
    """Until it is stopped, or once over what is there."""
    policy = policy_of(given)
    if given.remote:
        # It would take our steps to a Python of its own, away from the index and from the proposals.
        raise ValueError("watch cannot run through Spark Connect: use --master, or run `abuse` there.")
    given.out.mkdir(parents=True, exist_ok=True)
    given.index.mkdir(parents=True, exist_ok=True)
    spark = open_session("snavio watch", given)
    try:
        watcher = Watcher(spark, given.out, policy, given.routes)
        lines = (
            spark.readStream.format("text")
            .option("pathGlobFilter", "*.jsonl")
            .option("maxFilesPerTrigger", given.files_per_batch)
            .load(str(given.index))
        )
        checkpoint = given.out / "checkpoint"
        tidy(checkpoint)
        writer = lines.writeStream.foreachBatch(watcher.count).option("checkpointLocation", str(checkpoint))
        if given.once:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{given.every_s} seconds")
        query = writer.start()
        told(step="watching")
        while not query.awaitTermination(max(given.every_s, policy.window_seconds / 2)):
            watcher.judge()
        watcher.judge()
    finally:
        spark.stop()


def options() -> argparse.ArgumentParser:
    """The shared options, and how to follow."""
    made = parser(__doc__ or "")
    made.add_argument("--once", action="store_true", help="take what is there, then end")
    made.add_argument("--every-s", type=int, default=5, help="pause between batches, in seconds")
    made.add_argument("--files-per-batch", type=int, default=200)
    return made


if __name__ == "__main__":
    run(watch, options())
