"""The streaming job, killed at any point: its next life continues, and loses and doubles nothing."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import threading
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from spark.policy import DEFAULT_VERSION
from spark.transforms.base import FORM
from tests.spark.test_jobs import contended, ended, entry, index, job
from tests.support.telemetry_rows import T0, write

FULL = os.environ.get("SNAVIO_FULL") == "1"
pytestmark = pytest.mark.timeout(900)
WINDOWS = (2, 3)
LONGEST_DELAY_S = 8.0
"""From the start of the job; by then it has counted and judged everything."""


@dataclass(frozen=True, slots=True)
class Kill:
    """The moment of the kill: so long after a line of progress; or where the job was made to halt."""

    line: str
    delay_s: float = 0.0
    halted: str = ""

    def __str__(self) -> str:
        return self.halted or f"{self.line} + {self.delay_s:.1f} s"


AFTER_A_BATCH = Kill("batch")
IN_ORDER = [
    Kill("watching"),
    *(
        Kill("halted", halted=point)
        for point in ("nothing counted", "base without note", "note without word")
    ),
    AFTER_A_BATCH,
    *(
        Kill("halted", halted=point)
        for point in ("judging", "judged and not written", "proposals without word")
    ),
    Kill("judged"),
]
# One in each sixth of the time that the job takes.
DRAW = random.Random(2026)
AT_RANDOM = [Kill("watching", (sixth + DRAW.random()) / 6 * LONGEST_DELAY_S) for sixth in range(6)]


@dataclass(frozen=True, slots=True)
class Archive:
    """Two index files, thus two batches, and the proposals of the batch run on them."""

    index: Path
    record: list[dict[str, Any]]

    def watch(self, out: Path, kill: Kill | None = None) -> tuple[int, str, str]:
        """One life of the job; its last line of progress, if it was killed."""
        options = ("--index", self.index, "--files-per-batch", "1", "--out", out, "--once")
        process = job("watch_abuse", *options, halted=kill.halted if kill is not None else "")
        if kill is None:
            return ended(process)
        assert process.stdout is not None
        heard = ""
        for line in process.stdout:
            heard = json.loads(line)["step"]
            if heard == kill.line:
                break
        # The job runs on meanwhile; a reader keeps it from waiting for room to say so.
        killer = threading.Timer(kill.delay_s, killed, (process.pid,))
        killer.start()
        _, err = process.communicate(timeout=240)
        # It may have come to its end before.
        killer.cancel()
        killer.join()
        assert heard == kill.line, err
        # A job that stands still does not end by itself.
        assert process.returncode == -signal.SIGKILL or not kill.halted
        return process.returncode, heard, err


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Archive:
    folder = tmp_path_factory.mktemp("archive")
    now = datetime.now(UTC).timestamp() - T0.timestamp() - 1600
    start = int(now // 600) * 600 // 30
    at = (T0 + timedelta(seconds=start * 30)).isoformat()
    for number, windows in enumerate(WINDOWS):
        rows = contended(windows, start=start + sum(WINDOWS[:number]))
        path = write(rows, folder / f"{number}.parquet")
        named = entry(path, instance=f"fast-{number}", last=len(rows), min_at=at, max_at=at)
        index(folder / "index", named, name=f"{number + 1:08d}")
    code, _, err = ended(job("detect_abuse", "--index", folder / "index", "--out", folder / "batch"))
    assert code == 0, err
    record = lines(folder / "batch" / "proposals.jsonl")
    assert [found["source"] for found in record] == ["acme/big"]
    assert record[0]["total_violations"] == 4
    return Archive(folder / "index", record)


def killed(group: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def nothing_lost_and_nothing_doubled(archive: Archive, out: Path) -> None:
    bases = out / f"base-{FORM}-{DEFAULT_VERSION}"
    # What is kept is whole: a base and a note for each batch, and every command in exactly one of them.
    names = sorted(path.name for path in bases.glob("batch=*") if path.is_dir())
    assert sorted(path.stem for path in bases.glob("batch=*.json")) == names
    assert len(names) == len(WINDOWS)
    assert list(bases.glob("*.plan")) == []
    counted = [sum(pq.read_table(bases / name)["number"].to_pylist()) for name in names]
    assert sum(counted) == 110 * sum(WINDOWS)
    told = [lines(path) for path in sorted((out / "proposals").glob("*.jsonl"))]
    # As the batch run has it, evidence and all; and no life before has said anything else.
    assert told[-1] == archive.record
    ids = {found["proposal_id"] for found in archive.record}
    assert all(len(found) <= len(ids) and {one["proposal_id"] for one in found} <= ids for found in told)


@pytest.mark.parametrize("kill", [*IN_ORDER, *AT_RANDOM] if FULL else [AFTER_A_BATCH], ids=str)
def test_a_killed_watch_loses_and_doubles_nothing_and_proposes_what_the_batch_run_does(
    archive: Archive, tmp_path: Path, kill: Kill
) -> None:
    out = tmp_path / "watch"
    archive.watch(out, kill)
    code, _, err = archive.watch(out)
    assert code == 0, err
    nothing_lost_and_nothing_doubled(archive, out)


@pytest.mark.skipif(not FULL, reason="a JVM for each life: with SNAVIO_FULL=1")
def test_a_watch_that_is_killed_at_one_point_after_the_other_gets_there_in_the_end(
    archive: Archive, tmp_path: Path
) -> None:
    out = tmp_path / "watch"
    for kill in IN_ORDER:
        archive.watch(out, kill)
    code, _, err = archive.watch(out)
    assert code == 0, err
    nothing_lost_and_nothing_doubled(archive, out)
