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
from spark.jobs.watch_abuse import Watcher
from spark.policy import DetectionPolicy
from spark.read import Entry
from spark.session import session
from tests.support.telemetry import NOW, sign, verifying_keys
from tests.support.telemetry_rows import T0, bulk, row, write

MANIFESTS, BATCHES, LOOKS = 50_000, 600, 20
LOOK_MS, JUDGING_S = 50.0, 5.0

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
    times = []
    for batch in range(1, BATCHES):
        moment = start + timedelta(seconds=5 * batch)
        window = int(moment.timestamp()) // 30 * 30
        folder = bases / f"batch={batch:08d}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        column = pa.array([window * 1_000_000] * len(first)).cast(first.schema.field(at).type)
        pq.write_table(first.set_column(at, first.schema.field(at), column), folder / "part.parquet")
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
