"""A snapshot writer that is killed at any moment, and a disk that is really full."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.registry.snapshots import PublishOutcome
from snavio.adapters.embedded.folder_archive import FileWatermark, FolderArchive
from snavio.clock import SystemClock
from snavio.domain.directory import AclEntry
from snavio.signed.snapshot_reader import SnapshotReader
from snavio.signed.verification import VerifiedSnapshot, examine
from tests.support.snapshots import PARTS, Platform, Studio

ROOT = Path(__file__).resolve().parents[2]
ROUNDS = 30 if os.environ.get("SNAVIO_FULL") == "1" else 2
PATIENCE_S = 20.0


async def test_a_killed_writer_leaves_a_whole_snapshot_that_never_goes_back(tmp_path: Path) -> None:
    chance = random.Random(11)
    reader = SnapshotReader(
        archive=FolderArchive(tmp_path / "snapshots"),
        keys=Platform().verifying,
        watermark=FileWatermark(tmp_path / "mark"),
        clock=SystemClock(),
    )

    def use(snapshot: VerifiedSnapshot) -> int:
        examine(snapshot)
        return snapshot.manifest.version

    versions = []
    for _ in range(ROUNDS):
        writer = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.support.snapshot_process",
            str(tmp_path),
            cwd=ROOT,
            stdout=asyncio.subprocess.PIPE,
        )
        assert writer.stdout is not None
        async with asyncio.timeout(PATIENCE_S):
            # Its log goes the same way; a round that was written says so in a line of its own.
            while (await writer.stdout.readline()).strip() != b"written":
                pass
        await asyncio.sleep(chance.uniform(0, 0.1))
        writer.send_signal(signal.SIGKILL)
        await writer.wait()
        # A clock of its own for each start: another process's "now" may be a little ahead of an old anchor.
        reader._clock = SystemClock()
        version = await reader.load(PARTS, use)
        assert isinstance(version, int), version
        versions.append(version)
    assert versions == sorted(versions)
    assert reader.counters() == {"Snavio.Cache.SnapshotLoaded": ROUNDS}


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 128 KiB."""
    place = tmp_path / "disk"
    place.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=128k,mode=700", "tmpfs", str(place)],
        capture_output=True,
        check=False,
    )
    if made.returncode != 0:
        pytest.skip("mounting is not allowed here")
    yield place
    subprocess.run(["umount", str(place)], check=True)


async def test_a_disk_that_is_full_keeps_the_old_snapshot_until_there_is_room(small_disk: Path) -> None:
    studio = Studio(small_disk)
    await studio.fill()
    assert await studio.writer.write_once() is PublishOutcome.WRITTEN
    assert await studio.refusal() is None
    before = studio.manifest_path.read_bytes()
    filler = small_disk / "filler"
    with pytest.raises(OSError, match="space"), filler.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    await studio.put(*(AclEntry(f"acme/shop{row}", "bot", "say0") for row in range(500)))
    assert await studio.writer.write_once() is PublishOutcome.FAILED
    assert studio.writer.meter.counters()["Snavio.Snapshot.Failed.archive-full"] == 1
    assert studio.manifest_path.read_bytes() == before
    assert not [path for path in small_disk.rglob("*") if path.name.endswith(".new")]
    filler.unlink()
    assert await studio.refusal() is None
    assert await studio.writer.write_once() is PublishOutcome.WRITTEN
    assert studio.manifest().part("acl").rows == 503
    assert await studio.refusal() is None
