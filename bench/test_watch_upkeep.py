"""The cost of following and judging when much is behind: a look without news, a judgement with 600 batches known.

Run: `python -m pytest bench/test_watch_upkeep.py -q -s`.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from bench.meters import median_and_range, record
from snavio.audit.archive_index import ArchiveFollower
from snavio.clock import ManualClock
from snavio.signed.archive_manifest import ArchiveManifest, EventRange, FileEntry, folder_of
from snavio.signed.manifest_signer import ManifestSigner
from spark.jobs.watch_abuse import Note, Watcher
from spark.judging import Crowding, WindowRows
from spark.policy import DetectionPolicy
from spark.read import Entry
from spark.session import session
from spark.transforms.base import FORM
from tests.support.telemetry import NOW, sign, verifying_keys
from tests.support.telemetry_rows import T0, bulk, row, write

MANIFESTS, BATCHES, LOOKS = 50_000, 600, 20
MANY_BATCHES, BASE_BYTES = 100_000, 25_000
LOOK_MS, JUDGING_S, STATE_MB = 50.0, 5.0, 50.0

pytestmark = pytest.mark.timeout(1800)


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    made = session("bench", master="local[2]", driver_memory="2g")
    yield made
    made.stop()


async def test_a_look_at_many_manifests_with_nothing_new(tmp_path: Path) -> None:
    folder, stretch = tmp_path / folder_of(NOW), EventRange("fast-0", 1, 1, 1)
    contents = write([row()], folder / stretch.file_name).read_bytes()
    entry = FileEntry(stretch, NOW, NOW, len(contents), hashlib.sha256(contents).hexdigest())
    signer = ManifestSigner(sign=sign, keys=verifying_keys)
    for number in range(1, MANIFESTS + 1):
        manifest = await signer.signed(ArchiveManifest(number, NOW, (entry,)))
        (folder / manifest.file_name).write_bytes(manifest.encoded())
    # As it is a second after the last of them.
    os.utime(folder, ns=(1, 1))
    follower = ArchiveFollower(tmp_path, tmp_path / "watch", clock=ManualClock(NOW))
    keys = await verifying_keys()
    began = time.perf_counter()
    follower.step(keys)
    print(f"\n  first look at {MANIFESTS:,} manifests: {time.perf_counter() - began:.1f} s")
    times = []
    for _ in range(LOOKS):
        began = time.perf_counter()
        assert follower.step(keys).events == 0
        times.append((time.perf_counter() - began) * 1000)
    note = f"{MANIFESTS:,} manifests in one hour"
    record("watch look with nothing new", values=times, unit="ms", target=f"<= {LOOK_MS:g}", note=note)
    assert median_and_range(times)[0] <= LOOK_MS


def test_judging_with_many_batches_known(spark: SparkSession, tmp_path: Path) -> None:
    """Five seconds of traffic in each; every one after the first 560 is counted and judged, as `watch` does."""
    watcher = Watcher(spark, tmp_path / "out", DetectionPolicy(), None)
    now = datetime.now(UTC)
    start = now - timedelta(seconds=5 * BATCHES)
    path = tmp_path / "rows.parquet"
    pq.write_table(bulk(10_000, seed=1, minutes=0.08, after_minutes=(start - T0).total_seconds() / 60), path)
    watcher.count([Entry(str(path), "fast-0", 1, 1, 10_000, start, start)], 0)
    (bases,) = (tmp_path / "out").glob("base-*")
    first = pq.read_table(bases / "batch=00000000")
    at = first.schema.get_field_index("window_start")
    # Arrow reads Spark's own times as nanoseconds, which Spark does not take back.
    stamp = pa.field("window_start", pa.timestamp("us", tz="UTC"))
    times = []
    for batch in range(1, BATCHES):
        moment = start + timedelta(seconds=5 * batch)
        window = int(moment.timestamp()) // 30 * 30
        folder = bases / f"batch={batch:08d}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        column = pa.array([window * 1_000_000] * len(first)).cast(stamp.type)
        pq.write_table(first.set_column(at, stamp, column), folder / "part.parquet")
        kept = {"until": moment.isoformat(), "windows": [window], "through": batch}
        folder.with_suffix(".json").write_text(json.dumps(kept))
        if batch >= BATCHES - 2 * LOOKS:
            began = time.perf_counter()
            watcher.judge()
            times.append(time.perf_counter() - began)
    later = sorted(times[1:])
    print(f"\n  first judgement, of all that is known: {times[0]:.1f} s")
    p95 = later[round(0.95 * (len(later) - 1))]
    note = f"{BATCHES} batches of 10k rows known, one of them new; the 95th of a hundred"
    record("watch judging p95", values=[p95], unit="s", target=f"<= {JUDGING_S:g}", note=note)
    assert p95 <= JUDGING_S


def test_what_is_kept_after_many_batches(tmp_path: Path) -> None:
    """100k batches of five seconds, simulated: all on disk is real but the counts, which have a real one's size.

    In every window 20 of 400 sources crowd others out, so that the judge has much to remember.
    """
    out = tmp_path / "out"

    class Simulated(Watcher):
        def _refresh(self, notes: dict[str, Note]) -> None:
            for name in notes.keys() - self._judged:
                for window in notes[name].windows:
                    if window >= (self._frontier or 0):
                        self._rows[window] = WindowRows([crowding(window, number) for number in range(20)])
            self._judged |= notes.keys()

    def crowding(window: int, number: int) -> Crowding:
        source = f"tenant-{(window // 30 * 7 + number) % 400}/a-service-with-a-name"
        hurt = tuple((f"acme/victim-{one}", 10) for one in range(5))
        return Crowding(
            window, source, f"target-{number % 60}", "command", 900, 1000, 5, 100, 50, 20, 800, hurt
        )

    watcher = Simulated(None, out, DetectionPolicy(), None, index=tmp_path / "index")  # type: ignore[arg-type]
    (bases,) = (out / f"base-{FORM}-{DetectionPolicy().version}",)
    bases.mkdir(parents=True)
    start = datetime.now(UTC) - timedelta(seconds=5 * MANY_BATCHES)
    most = 0
    for batch in range(MANY_BATCHES):
        moment = start + timedelta(seconds=5 * batch)
        window = int(moment.timestamp()) // 30 * 30
        folder = bases / f"batch={batch:08d}"
        folder.mkdir()
        (folder / "part.parquet").write_bytes(bytes(BASE_BYTES))
        note = {"until": moment.isoformat(), "windows": [window], "through": batch}
        folder.with_suffix(".json").write_text(json.dumps(note))
        if batch % 180 == 179:
            watcher.judge()
            for kind in ("proposals", "warnings"):
                for path in sorted((out / kind).glob("*.jsonl"))[:-50]:
                    path.unlink()  # As the carrier does.
        if batch % 5000 == 4999:
            most = max(most, sum(path.stat().st_size for path in out.rglob("*") if path.is_file()))
    assert len(list(bases.glob("batch=*.json"))) < 500
    mb = most / 1e6
    note_ = f"{MANY_BATCHES:,} batches simulated, judged each 180th; counts of {BASE_BYTES:,} bytes a batch"
    record("watch state after 100k batches", values=[mb], unit="MB", target=f"<= {STATE_MB:g}", note=note_)
    assert mb <= STATE_MB
