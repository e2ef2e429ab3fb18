"""Follows the archive as it grows, and proposes as soon as the evidence is there.

Provisional: late events may still come, and the hourly run over closed hours decides. The same rows and the same judge
as there. State is kept: a look reads the counts of those windows that had news, and judges from where no event that
counts can come any more. Killed anywhere, it goes on where it was: the plan of a batch says which index files it is
made of, its note says that they are counted, and a batch that runs again writes the same files.
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from spark.jobs.arguments import open_session, parser, policy_of, run, told
from spark.judging import Alarm, Judge, Run, WindowRows, fold, together
from spark.policy import DetectionPolicy
from spark.read import Entry, read_events, read_index, read_routes
from spark.transforms.abuse import evidence
from spark.transforms.base import FORM, RAW_COLUMNS, base, merged
from spark.write import write_lines, write_table, write_text

LATENESS = timedelta(minutes=15)
"""The longest delay of an event that still counts here; the hourly run takes them all."""
SETTLING = timedelta(seconds=45)
"""The longest usual delay between events of two processes; what comes later is judged when it comes."""
FUTURE = timedelta(minutes=2)
"""Events further ahead than this are left to the hourly run: they must not move the watermark."""
KEPT_ALARMS: Final = timedelta(hours=1)
"""For so long an alarm is told again: a proposal that was not carried yet must not get lost with its file."""
STATE, TAKEN = "state.json", "taken.json"


@dataclass(frozen=True, slots=True)
class Note:
    """A batch that was counted."""

    until: datetime
    """Time of its latest event."""
    windows: tuple[int, ...]
    through: int
    """The last index file that it was made of."""

    @classmethod
    def read(cls, path: Path) -> Note:
        found = json.loads(path.read_text("utf-8"))
        return cls(datetime.fromisoformat(found["until"]), tuple(found["windows"]), int(found["through"]))


class Watcher:
    """The counts so far: a base per batch, in folders, each with a note of what it has."""

    def __init__(
        self,
        spark: SparkSession,
        out: Path,
        policy: DetectionPolicy,
        routes: Path | None,
        *,
        index: Path | None = None,
    ) -> None:
        self._spark = spark
        self._out = out
        self._index = index or out / "index"
        self._bases = out / f"base-{FORM}-{policy.version}"
        self._policy = policy
        self._routes = routes
        self._notes: dict[str, tuple[tuple[int, int], Note]] = {}
        self._judged: set[str] = set()
        self._rows: dict[int, WindowRows] = {}
        self._frontier: int | None = None
        self._state = Judge(policy)
        self._alarms: list[Alarm] = []
        self._last: tuple[Any, ...] | None = None
        self._load()

    # -- counting --------------------------------------------------------------------------------------

    def take(self, most_files: int) -> bool:
        """Count the next batch of index files, oldest first; False when there is none."""
        self._bases.mkdir(parents=True, exist_ok=True)
        batch, through = self._position()
        plan = self._bases / f"batch={batch:08d}.plan"
        if plan.exists():
            names = json.loads(plan.read_text("utf-8"))
        else:
            files = sorted((int(path.stem), path.name) for path in self._index.glob("*.jsonl"))
            names = [name for number, name in files if number > through][:most_files]
            if not names:
                return False
            # Before anything is counted: killed in the middle, the same batch is made of the same files.
            write_text(json.dumps(names), plan)
        entries = [entry for name in names for entry in read_index((self._index / name).read_text("utf-8"))]
        self.count(entries, batch, through=int(Path(names[-1]).stem))
        plan.unlink(missing_ok=True)
        return True

    def count(self, entries: Sequence[Entry], batch: int, *, through: int = 0) -> None:
        """One micro-batch of index entries."""
        now = datetime.now(UTC)
        events = read_events(self._spark, entries, columns=RAW_COLUMNS, until=now + FUTURE)
        folder = self._bases / f"batch={batch:08d}"
        counted = base(events, window_seconds=self._policy.window_seconds)
        # Counted by all tasks, written by one: a batch is small, and a thousand small files are slow to read.
        write_table(counted, folder, files=1)
        newest = max((entry.max_at for entry in entries), default=now)
        # Last: who judges reads the bases that have a note, and those are whole.
        note = {
            "until": min(newest, now + FUTURE).isoformat(),
            "windows": self._windows_of(folder),
            "through": through,
        }
        write_text(json.dumps(note), folder.with_suffix(".json"))
        # For whoever writes the index: from here on these files are nobody's any more.
        write_text(json.dumps({"through": through}), self._out / TAKEN)
        told(step="batch", batch=batch, files=len(entries))

    def _windows_of(self, folder: Path) -> list[int]:
        times = self._spark.read.parquet(str(folder)).select(F.unix_timestamp("window_start")).distinct()
        return sorted(int(row[0]) for row in times.collect())

    def _position(self) -> tuple[int, int]:
        """(number of the next batch, the last index file that was counted)."""
        notes = sorted(self._bases.glob("batch=*.json"))
        if not notes:
            return 0, 0
        return int(notes[-1].stem.partition("=")[2]) + 1, Note.read(notes[-1]).through

    # -- judging ---------------------------------------------------------------------------------------

    def judge(self) -> None:
        """Propose upon all that is known, if there is news since the last time."""
        self._read_notes()
        if not self._notes:
            return
        notes = {name: note for name, (_, note) in self._notes.items()}
        now = datetime.now(UTC)
        heard = min(max(note.until for note in notes.values()), now)
        settled = self._aligned(max(heard - SETTLING, now - LATENESS))
        newest = max(notes)
        if (newest, settled, len(self._judged)) == self._last and self._judged >= notes.keys():
            return
        if self._frontier is None:
            first = min((min(note.windows) for note in notes.values() if note.windows), default=settled)
            self._frontier = first
        self._refresh(notes)
        judge = self._state.copy()
        ahead = fold(judge, self._rows, settled_before=settled)
        proposed = together([*self._alarms, *ahead], self._policy)
        number = write_lines(proposed, self._out / "proposals" / f"{newest.removeprefix('batch=')}.jsonl")
        last = settled - self._policy.window_seconds
        write_lines(judge.ledger(last), self._out / "ledger.jsonl")
        warned = {
            one["proposal_id"]: one for one in (each.warning(self._policy) for each in judge.near(last))
        }
        write_lines(warned.values(), self._out / "warnings" / f"{newest.removeprefix('batch=')}.jsonl")
        self._advance(self._aligned(heard - LATENESS), notes, newest)
        self._last = newest, settled, len(self._judged)
        told(step="judged", proposals=number, watermark=heard - LATENESS, suspects=len(judge.runs))

    def _aligned(self, time: datetime) -> int:
        """The begin of the window that has this time in it, which is the end of the one before."""
        return int(time.timestamp()) // self._policy.window_seconds * self._policy.window_seconds

    def _read_notes(self) -> None:
        """Notes that are new or were written again; a batch that is repeated replaces its note."""
        found = {}
        for path in sorted(self._bases.glob("batch=*.json")):
            kept = self._notes.get(path.stem)
            stat = path.stat()
            mark = (stat.st_mtime_ns, stat.st_ino)
            if kept is None or kept[0] != mark:
                kept = mark, Note.read(path)
                self._judged.discard(path.stem)
            found[path.stem] = kept
        self._notes = found

    def _refresh(self, notes: dict[str, Note]) -> None:
        """The rows of windows that had news, from every batch that has counts of them."""
        assert self._frontier is not None
        news = notes.keys() - self._judged
        # A batch that was counted again may have had windows that it has no more.
        dirty = {window for name in news for window in notes[name].windows if window >= self._frontier}
        if dirty:
            folders = [
                str(self._bases / name) for name, note in notes.items() if dirty.intersection(note.windows)
            ]
            times = [F.timestamp_seconds(F.lit(window)) for window in sorted(dirty)]
            together = self._spark.read.parquet(*folders)
            counts = merged(together.where(F.col("window_start").isin(*times))).localCheckpoint()
            fresh = evidence(counts, read_routes(self._spark, self._routes), self._policy).windows()
            counts.unpersist()
            for window in dirty:
                self._rows.pop(window, None)
            self._rows.update(fresh)
        self._judged |= news

    def _advance(self, until: int, notes: dict[str, Note], newest: str) -> None:
        """Judge for good what no event can change any more, and let go of its counts."""
        assert self._frontier is not None
        if until <= self._frontier:
            return
        over = {window: rows for window, rows in self._rows.items() if window < until}
        self._alarms += fold(self._state, over)
        self._alarms = [one for one in self._alarms if one.window >= until - KEPT_ALARMS.total_seconds()]
        self._rows = {window: rows for window, rows in self._rows.items() if window >= until}
        self._frontier = until
        state = {
            "policy": self._policy.version,
            "frontier": until,
            "runs": self._state.dumped(),
            "alarms": [[one.kind, one.source, one.window, asdict(one.run)] for one in self._alarms],
        }
        # Before the counts go: killed in between, both are there, and counts before the frontier are not read.
        write_text(json.dumps(state), self._out / STATE)
        for name, note in notes.items():
            if name != newest and all(window < until for window in note.windows):
                shutil.rmtree(self._bases / name, ignore_errors=True)
                (self._bases / f"{name}.json").unlink(missing_ok=True)

    def _load(self) -> None:
        """The knowledge of an earlier life; counts of another form or policy, and Spark's checkpoint, are none."""
        for folder in (*self._out.glob("base-*"), self._out / "checkpoint"):
            if folder != self._bases:
                shutil.rmtree(folder, ignore_errors=True)
        for plan in self._bases.glob("*.plan"):
            if plan.with_suffix(".json").exists():
                plan.unlink()
        path = self._out / STATE
        if not path.is_file():
            return
        found = json.loads(path.read_text("utf-8"))
        if found["policy"] != self._policy.version:
            return  # Another policy knows nothing of what this one held against anybody.
        self._frontier = int(found["frontier"])
        self._state = Judge.loaded(self._policy, found["runs"])
        for kind, source, window, held in found["alarms"]:
            values = {**held, "course": [tuple(point) for point in held["course"]]}
            self._alarms.append(Alarm(kind, source, int(window), Run(**values)))


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
        watcher = Watcher(spark, given.out, policy, given.routes, index=given.index)
        told(step="watching")
        pause = max(given.every_s, 1)
        judged, took = float("-inf"), 0.0
        while True:
            began = time.monotonic()
            more = watcher.take(given.files_per_batch)
            # While it catches up, most of its time is for counting.
            if time.monotonic() - judged >= max(pause, 4 * took) or (given.once and not more):
                judged = time.monotonic()
                watcher.judge()
                took = time.monotonic() - judged
            if more:
                continue
            if given.once:
                return
            time.sleep(max(0.0, pause - (time.monotonic() - began)))
    finally:
        spark.stop()


def options() -> argparse.ArgumentParser:
    """The shared options, and how to follow."""
    made = parser(__doc__ or "")
    made.add_argument("--once", action="store_true", help="take what is there, then end")
    made.add_argument("--every-s", type=int, default=5, help="pause between batches, in seconds")
    made.add_argument("--files-per-batch", type=int, default=20)
    return made


if __name__ == "__main__":
    run(watch, options())
