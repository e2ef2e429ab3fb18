"""The archive files that reach Spark: each defect of a file by name, and each event once."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from snavio.audit.archive_index import KEEP_NS, ArchiveFollower
from snavio.audit.index_file import Coverage, write_index
from snavio.audit.pinning import Pins
from snavio.audit.quarantine import sentence, write_report
from snavio.audit.verify_archive import TimeRange, VerifiedArchive, believe, check_columns
from snavio.clock import ManualClock
from snavio.signed.archive_manifest import ArchiveManifest, EventRange, FileEntry, folder_of
from snavio.signed.manifest_signer import ManifestSigner
from snavio.telemetry.archive_inspection import ArchiveFinding, believed, check_file, hours, read_one
from snavio.telemetry.missing_events import missing as missing_stretches
from tests.support.telemetry import NOW, Inside, arrival, block, inside, sign, verifying_keys

TEN = block([1] * 10)
HOUR = 3_600_000_000_000
LATER = 1 << 62
"""A time at which no file is incomplete any more."""


async def archived(relay: Inside, *, files: int = 3, start: int = 0) -> Path:
    for number in range(start, start + files):
        await relay.intake.take(arrival(TEN, first_seq=1 + 10 * number))
        await relay.exporter.export_once()
    return relay.archive_folder / folder_of(NOW)


async def look(relay: Inside, wanted: TimeRange = TimeRange(), now: int = LATER) -> VerifiedArchive:  # noqa: B008
    pins = Pins(relay.folder / "pins")
    return believe(relay.archive_folder, await verifying_keys(), now_unix_ns=now, pin=pins.pin, wanted=wanted)


def problems(verified_archive: VerifiedArchive) -> list[str]:
    return sorted(finding.problem for finding in verified_archive.quarantined)


async def publish(hour: Path, number: int, table: pa.Table, stretch: EventRange, **changes: Any) -> Path:
    """One more file of the hour, with a good manifest."""
    path = hour / stretch.file_name
    pq.write_table(table, path)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    entry = replace(FileEntry(stretch, NOW, NOW, path.stat().st_size, digest), **changes)
    signer = ManifestSigner(sign=sign, keys=verifying_keys)
    manifest = await signer.signed(ArchiveManifest(number, NOW, (entry,)))
    (hour / manifest.file_name).write_bytes(manifest.encoded())
    return path


async def test_every_good_file_is_in_the_index(tmp_path: Path) -> None:
    async with inside(tmp_path) as relay:
        await archived(relay)
        verified_archive = await look(relay)
    assert (len(verified_archive.entries), verified_archive.events, verified_archive.quarantined) == (
        3,
        30,
        [],
    )
    assert write_index(verified_archive.entries, tmp_path / "index.jsonl") == 3
    lines = [json.loads(line) for line in (tmp_path / "index.jsonl").read_text().splitlines()]
    assert [(line["first_seq"], line["last_seq"]) for line in lines] == [(1, 10), (11, 20), (21, 30)]
    assert all(Path(line["path"]).is_file() and "after_seq" not in line for line in lines)


def truncated(hour: Path) -> None:
    path = min(hour.glob("*.parquet"))
    path.write_bytes(path.read_bytes()[:-100])


def corrupt(hour: Path) -> None:
    path = min(hour.glob("*.parquet"))
    body = bytearray(path.read_bytes())
    body[len(body) // 2] ^= 1
    path.write_bytes(body)


def missing(hour: Path) -> None:
    min(hour.glob("*.parquet")).unlink()


def unsigned(hour: Path) -> None:
    min(hour.glob("_manifest-*.json")).unlink()


def half_written(hour: Path) -> None:
    (hour / ".fast-0-7-31-40.parquet.0123456789abcdef.new").write_bytes(b"PAR1")


def forged_manifest(hour: Path) -> None:
    path = min(hour.glob("_manifest-*.json"))
    found = json.loads(path.read_bytes())
    path.write_text(json.dumps({**found, "signature": "00" * 64}))


def stranger(hour: Path) -> None:
    path = min(hour.glob("_manifest-*.json"))
    path.write_text(json.dumps({**json.loads(path.read_bytes()), "key_id": "somebody"}))


def cut_manifest(hour: Path) -> None:
    path = min(hour.glob("_manifest-*.json"))
    path.write_bytes(path.read_bytes()[:50])


@pytest.mark.parametrize(
    ("damage", "expected", "left"),
    [
        (truncated, ["truncated"], 2),
        (corrupt, ["tampered"], 2),
        (missing, ["missing"], 2),
        (unsigned, ["unsigned"], 2),
        (half_written, ["half-written"], 3),
        (forged_manifest, ["bad-signature", "unsigned"], 2),
        (stranger, ["unknown-key", "unsigned"], 2),
        (cut_manifest, ["bad-manifest", "unsigned"], 2),
    ],
)
async def test_a_damaged_file_is_quarantined_by_name_and_the_rest_is_read(
    tmp_path: Path, damage: Any, expected: Sequence[str], left: int
) -> None:
    async with inside(tmp_path) as relay:
        damage(await archived(relay))
        verified_archive = await look(relay)
    assert (problems(verified_archive), len(verified_archive.entries)) == (expected, left)
    write_report(verified_archive, tmp_path / "quarantine.json", now_unix_ns=NOW)
    told = json.loads((tmp_path / "quarantine.json").read_text())
    assert (told["quarantined"], sorted(told["by_reason"])) == (len(expected), expected)
    assert all(finding["path"].startswith("telemetry/") for finding in told["findings"])
    assert expected[0] in sentence(verified_archive, tmp_path / "quarantine.json")


async def test_a_file_that_waits_for_its_manifest_is_not_called_unsigned_yet(tmp_path: Path) -> None:
    async with inside(tmp_path) as relay:
        unsigned(await archived(relay))
        young = min((relay.archive_folder / folder_of(NOW)).glob("*.parquet")).stat().st_mtime_ns
        verified_archive = await look(relay, now=young + 1)
    assert (verified_archive.quarantined, verified_archive.on_their_way, len(verified_archive.entries)) == (
        [],
        1,
        2,
    )


@pytest.mark.parametrize(
    ("column", "kind", "expected"),
    [
        ("count", pa.int32(), "wrong-type"),
        ("verdict", pa.int64(), "wrong-type"),
        ("at", pa.timestamp("ns", "UTC"), "wrong-type"),
        ("at", pa.timestamp("us"), "wrong-type"),
        ("source", pa.binary(), "wrong-type"),
        ("seq", None, "missing-column"),
        ("grant", None, None),
        ("colour", pa.string(), None),
    ],
)
async def test_columns_are_checked_before_a_job_trips_over_them(
    tmp_path: Path, column: str, kind: Any, expected: str | None
) -> None:
    """An old file lacks a column, a newer one has another; both are read. A wrong type is not."""
    async with inside(tmp_path) as relay:
        hour = await archived(relay, files=1)
        table = pq.read_table(min(hour.glob("*.parquet")), partitioning=None)
        if kind is None:
            table = table.drop_columns([column]) if column in table.column_names else table
        elif column in table.column_names:
            at = table.column_names.index(column)
            table = table.set_column(at, column, table[column].cast(kind))
        else:
            table = table.append_column(column, pa.nulls(table.num_rows, kind))
        await publish(hour, 99, table, EventRange("fast-9", 1, 1, 10))
        verified_archive = await look(relay)
    assert problems(verified_archive) == ([expected] if expected else [])
    assert len(verified_archive.entries) == (1 if expected else 2)


def test_what_is_no_parquet_at_all_is_unreadable(tmp_path: Path) -> None:
    (tmp_path / "x.parquet").write_bytes(b"PAR1 no PAR1")
    found = check_columns(tmp_path / "x.parquet")
    assert found is not None
    assert found[0] == "unreadable"


async def test_a_file_of_a_newer_schema_is_read(tmp_path: Path) -> None:
    async with inside(tmp_path) as relay:
        hour = await archived(relay, files=1)
        table = pq.read_table(min(hour.glob("*.parquet")), partitioning=None)
        await publish(hour, 99, table, EventRange("fast-9", 1, 1, 10), schema_version=7)
        assert len((await look(relay)).entries) == 2


async def test_compacted_files_take_the_place_of_those_they_replace(tmp_path: Path) -> None:
    async with inside(tmp_path) as relay:
        await archived(relay)
        relay.clock.advance(ns=2 * HOUR)
        assert await relay.compaction.compact_once() == 1
        verified_archive = await look(relay)
    assert [entry.stretch.rows for entry in verified_archive.entries] == [30]
    assert verified_archive.quarantined == []


async def test_a_pinned_file_outlives_its_compaction(tmp_path: Path) -> None:
    async with inside(tmp_path) as relay:
        await archived(relay)
        verified_archive = await look(relay)
        relay.clock.advance(ns=2 * HOUR)
        await relay.compaction.compact_once()
        assert all(pq.read_metadata(entry.path).num_rows == 10 for entry in verified_archive.entries)
        assert len(list((relay.archive_folder / folder_of(NOW)).glob("*.parquet"))) == 1


async def test_only_files_of_the_range_are_looked_at(tmp_path: Path) -> None:
    async with inside(tmp_path) as relay:
        await archived(relay)
        assert (await look(relay, TimeRange(since_unix_ns=NOW + 1))).entries == []
        assert (await look(relay, TimeRange(until_unix_ns=NOW))).entries == []
        assert len((await look(relay, TimeRange(NOW - HOUR, NOW + HOUR))).entries) == 3
        truncated(relay.archive_folder / folder_of(NOW))
        assert (await look(relay, TimeRange(since_unix_ns=NOW + 1))).quarantined == []


# -- holes ---------------------------------------------------------------------------------------------


async def three_hours(relay: Inside) -> list[Path]:
    """Ten events in each of three hours."""
    folders = []
    for number in range(3):
        at = relay.clock.unix_ns()
        await relay.intake.take(arrival(block([1] * 10, settled=at), first_seq=1 + 10 * number))
        await relay.exporter.export_once()
        folders.append(relay.archive_folder / folder_of(at))
        relay.clock.advance(ns=HOUR)
    return folders


async def test_an_hour_that_was_deleted_is_a_hole_that_everybody_tells(tmp_path: Path) -> None:
    async with inside(tmp_path) as relay:
        folders = await three_hours(relay)
        assert (await look(relay)).holes == []
        shutil.rmtree(folders[1])
        verified_archive = await look(relay)
        verified = missing_stretches(relay.archive_folder, list(hours(relay.archive_folder)))
    (hole,) = verified_archive.holes
    assert (hole.problem, hole.path.rpartition("/")[2]) == ("hole", "fast-0-7-21-30.parquet")
    assert "Events 11 to 20 before it" in hole.detail
    assert verified == [hole]
    assert "1 stretch of events is missing" in sentence(verified_archive, tmp_path / "quarantine.json")
    write_report(verified_archive, tmp_path / "quarantine.json", now_unix_ns=NOW)
    assert len(json.loads((tmp_path / "quarantine.json").read_text())["holes"]) == 1


async def test_a_hole_matters_to_those_ranges_only_in_which_its_events_may_have_been(tmp_path: Path) -> None:
    async with inside(tmp_path) as relay:
        folders = await three_hours(relay)
        shutil.rmtree(folders[1])
        assert len((await look(relay, TimeRange(NOW + HOUR, NOW + HOUR + 1))).holes) == 1
        assert (await look(relay, TimeRange(None, NOW))).holes == []
        assert (await look(relay, TimeRange(NOW + 2 * HOUR + 1, None))).holes == []


async def test_what_relay_told_of_is_no_hole(tmp_path: Path) -> None:
    async with inside(tmp_path) as relay:
        for first in (1, 101):
            await relay.intake.take(arrival(TEN, first_seq=first))
        for _ in range(2):
            await relay.exporter.export_once(flush=True)
        assert {"fast-0", "relay-0"} == {entry.stretch.instance for entry in (await look(relay)).entries}
        assert (await look(relay)).holes == []
        # A gap event written into a file explains nothing: it is not the file that was signed.
        told = next((relay.archive_folder / folder_of(NOW)).glob("relay-0-*.parquet"))
        told.write_bytes(told.read_bytes() + b" ")
        assert ["Events 11 to 100" in hole.detail for hole in (await look(relay)).holes] == [True]


async def test_a_file_that_nobody_finished_takes_no_evidence_with_it(tmp_path: Path) -> None:
    async with inside(tmp_path) as relay:
        hour = await archived(relay)
        half_written(hour)
        assert (await look(relay)).left_out == 0
        truncated(hour)
        assert (await look(relay)).left_out == 1


# -- following -----------------------------------------------------------------------------------------


def lines(folder: Path) -> list[dict[str, Any]]:
    return [
        json.loads(line)
        for path in sorted((folder / "index").glob("*.jsonl"))
        for line in path.read_text().splitlines()
    ]


def events(folder: Path) -> list[int]:
    """Numbers of the events that a job would read."""
    found: list[int] = []
    for line in lines(folder):
        if line["instance"] != "fast-0":
            continue  # Relay's own
        found += range(line["first_seq"], line["last_seq"] + 1)
        if "after_seq" in line:
            assert (line["after_seq"], line["through_seq"]) == (line["first_seq"] - 1, line["last_seq"])
    return found


async def test_what_comes_is_appended_once_and_a_new_follower_goes_on(tmp_path: Path) -> None:
    keys = await verifying_keys()
    async with inside(tmp_path) as relay:
        await archived(relay, files=2)
        follower = ArchiveFollower(relay.archive_folder, tmp_path / "watch", clock=relay.clock)
        assert (follower.step(keys).events, follower.step(keys).events) == (20, 0)
        await archived(relay, files=1, start=2)
        again = ArchiveFollower(relay.archive_folder, tmp_path / "watch", clock=relay.clock)
        assert [again.step(keys).number, again.step(keys).number] == [2, 0]
        assert events(tmp_path / "watch") == list(range(1, 31))


async def test_compaction_and_overlapping_exports_bring_no_event_twice(tmp_path: Path) -> None:
    keys = await verifying_keys()
    async with inside(tmp_path) as relay:
        hour = await archived(relay, files=1)
        follower = ArchiveFollower(relay.archive_folder, tmp_path / "watch", clock=relay.clock)
        follower.step(keys)
        table = pq.read_table(min(hour.glob("*.parquet")), partitioning=None)
        more = pa.concat_tables([table] * 3)
        await publish(hour, 98, more, EventRange("fast-0", 7, 6, 35))
        await publish(hour, 99, table, EventRange("fast-0", 7, 31, 40))
        assert follower.step(keys).events == 30
        assert sorted(events(tmp_path / "watch")) == list(range(1, 41))
        await archived(relay, files=1, start=4)
        relay.clock.advance(ns=2 * HOUR)
        await relay.compaction.compact_once()
        follower.step(keys)
        ArchiveFollower(relay.archive_folder, tmp_path / "watch", clock=relay.clock).step(keys)
        assert sorted(events(tmp_path / "watch")) == list(range(1, 51))


@pytest.mark.parametrize("step", ["pin", "write", "rename", "report"])
async def test_killed_anywhere_the_follower_loses_and_doubles_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    class Killed(BaseException):
        pass

    def killed(*_: Any, **__: Any) -> None:
        raise Killed

    keys = await verifying_keys()
    async with inside(tmp_path) as relay:
        await archived(relay, files=2)
        follower = ArchiveFollower(relay.archive_folder, tmp_path / "watch", clock=relay.clock)
        where = {
            "pin": "snavio.audit.pinning.Pins.pin",
            "write": "snavio.audit.index_file.os.fsync",
            "rename": "snavio.audit.index_file.os.open",
            "report": "snavio.audit.archive_index.write_report",
        }[step]
        if step == "pin":
            monkeypatch.setattr(follower, "_pins", type("Gone", (), {"pin": killed})())
        else:
            monkeypatch.setattr(where, killed)
        with pytest.raises(Killed):
            follower.step(keys)
        monkeypatch.undo()
        ArchiveFollower(relay.archive_folder, tmp_path / "watch", clock=relay.clock).step(keys)
    assert events(tmp_path / "watch") == list(range(1, 21))


async def test_a_file_that_was_quarantined_comes_when_it_is_good_again(tmp_path: Path) -> None:
    keys = await verifying_keys()
    async with inside(tmp_path) as relay:
        hour = await archived(relay)
        path = min(hour.glob("*.parquet"))
        whole = path.read_bytes()
        path.write_bytes(whole[:-1])
        follower = ArchiveFollower(relay.archive_folder, tmp_path / "watch", clock=relay.clock)
        assert [finding.problem for finding in follower.step(keys).quarantined] == ["truncated"]
        path.write_bytes(whole)
        assert follower.step(keys).events == 10
        assert sorted(events(tmp_path / "watch")) == list(range(1, 31))


async def test_what_is_not_believed_is_told_and_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys, checked, reports = await verifying_keys(), [], []

    def check(path: Path, file: FileEntry) -> Any:
        checked.append(path.name)
        return check_file(path, file)

    def report(verified_archive: VerifiedArchive, path: Path, **given: Any) -> None:
        reports.append(len(verified_archive.quarantined))
        write_report(verified_archive, path, **given)

    monkeypatch.setattr("snavio.audit.verify_archive.check_file", check)
    monkeypatch.setattr("snavio.audit.archive_index.write_report", report)
    async with inside(tmp_path) as relay:
        hour = await archived(relay)
        path = min(hour.glob("*.parquet"))
        whole = path.read_bytes()
        path.write_bytes(whole[:-1])
        missing_one = max(hour.glob("*.parquet"))
        missing_one.unlink()
        follower = ArchiveFollower(relay.archive_folder, tmp_path / "watch", clock=relay.clock)
        steps = [follower.step(keys)]
        first_look = len(checked)
        steps += [follower.step(keys) for _ in range(3)]
        assert [sorted(one.problem for one in step.quarantined) for step in steps] == [
            ["missing", "truncated"],
            *([], [], []),
        ]
        assert (len(checked), reports) == (first_look, [2])
        # Another fault of the same file is news, and so is its end.
        path.write_bytes(whole[:-2] + b"xx")
        assert [finding.problem for finding in follower.step(keys).quarantined] == ["tampered"]
        path.write_bytes(whole)
        assert (follower.step(keys).events, reports) == (10, [2, 2, 1])
        assert json.loads((tmp_path / "watch" / "quarantine.json").read_text())["by_reason"] == {"missing": 1}


async def test_index_files_of_yesterday_are_folded_and_still_remembered(tmp_path: Path) -> None:
    keys = await verifying_keys()
    async with inside(tmp_path) as relay:
        await archived(relay)
        follower = ArchiveFollower(relay.archive_folder, tmp_path / "watch", clock=relay.clock)
        follower.step(keys)
        (made,) = (tmp_path / "watch" / "index").glob("*.jsonl")
        late = ManualClock(made.stat().st_mtime_ns + KEEP_NS + 1)
        ArchiveFollower(relay.archive_folder, tmp_path / "watch", clock=late).step(keys)
        # However old: the job has not counted it yet, and its next batch names it.
        assert [path.name for path in (tmp_path / "watch" / "index").iterdir()] == [made.name]
        (tmp_path / "watch" / "taken.json").write_text('{"through": 1}')
        ArchiveFollower(relay.archive_folder, tmp_path / "watch", clock=late).step(keys)
        assert list((tmp_path / "watch" / "index").iterdir()) == []
        assert list((tmp_path / "watch" / "files").iterdir()) == []
        again = ArchiveFollower(relay.archive_folder, tmp_path / "watch", clock=relay.clock).step(keys)
        assert (again.events, again.number) == (0, 0)


async def test_a_first_look_at_a_large_archive_comes_in_bounded_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("snavio.audit.archive_index.MOST_AT_ONCE", 3)
    monkeypatch.setattr("snavio.audit.archive_index.ENTRIES_AT_ONCE", 2)
    keys = await verifying_keys()
    async with inside(tmp_path) as relay:
        await archived(relay, files=7)
        follower = ArchiveFollower(relay.archive_folder, tmp_path / "watch", clock=relay.clock)
        assert [follower.step(keys).files for _ in range(4)] == [3, 3, 1, 0]
        assert sorted(events(tmp_path / "watch")) == list(range(1, 71))
        sizes = [
            len(path.read_text().splitlines()) for path in sorted((tmp_path / "watch" / "index").iterdir())
        ]
        assert sizes == [2, 1, 2, 1, 1]


async def test_a_full_disk_leaves_nothing_out_for_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that cannot be pinned or written for want of room comes with the look after it."""
    keys = await verifying_keys()

    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    async with inside(tmp_path) as relay:
        await archived(relay)
        follower = ArchiveFollower(relay.archive_folder, tmp_path / "watch", clock=relay.clock)
        for step in ("snavio.audit.pinning.os.link", "snavio.audit.archive_index.write_index"):
            with monkeypatch.context() as patch:
                patch.setattr(step, full)
                with pytest.raises(OSError, match="No space left"):
                    follower.step(keys)
        found = follower.step(keys)
        assert (found.events, found.quarantined) == (30, ())
        assert sorted(events(tmp_path / "watch")) == list(range(1, 31))


async def test_a_look_without_news_reads_no_manifest_and_news_is_seen_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys, read, verifications = await verifying_keys(), [], []

    def counting(path: Path, folder: str) -> Any:
        read.append(path.name)
        return read_one(path, folder)

    def verifying(hour: Any, keys: Any) -> Any:
        verifications.extend(hour.manifests)
        return believed(hour, keys)

    monkeypatch.setattr("snavio.audit.known_manifests.read_one", counting)
    monkeypatch.setattr("snavio.audit.known_manifests.believed", verifying)
    async with inside(tmp_path) as relay:
        hour = await archived(relay)
        follower = ArchiveFollower(relay.archive_folder, tmp_path / "watch", clock=relay.clock)
        follower.step(keys)
        # A folder that has just changed may change again at the same time by its clock.
        follower.step(keys)
        assert len(read) == len(verifications) == 3
        os.utime(hour, ns=(1, 1))
        follower.step(keys)
        monkeypatch.setattr(
            "snavio.audit.archive_index.believe_hour", lambda *_, **__: pytest.fail("read again")
        )
        assert follower.step(keys).events == 0
        monkeypatch.undo()
        monkeypatch.setattr("snavio.audit.known_manifests.read_one", counting)
        await archived(relay, files=1, start=3)
        assert follower.step(keys).events == 10
        assert len(read) == 4


async def test_a_manifest_that_was_replaced_is_not_believed_by_its_name(tmp_path: Path) -> None:
    keys = await verifying_keys()
    async with inside(tmp_path) as relay:
        hour = await archived(relay, files=1)
        follower = ArchiveFollower(relay.archive_folder, tmp_path / "watch", clock=relay.clock)
        assert follower.step(keys).events == 10
        path = min(hour.glob("_manifest-*.json"))
        found = json.loads(path.read_bytes())
        fresh = path.with_suffix(".other")
        fresh.write_text(json.dumps({**found, "exported_at": "2020-01-01T00:00:00.000000000Z"}))
        fresh.replace(path)
        assert "bad-signature" in {one.problem for one in follower.step(keys).quarantined}


def test_hours_that_may_lack_events_are_named() -> None:
    archive = VerifiedArchive(
        quarantined=[
            ArchiveFinding("telemetry/date=2026-11-16/hour=00/a.parquet", "tampered", ""),
            ArchiveFinding("telemetry/date=2026-11-16/hour=09/.b.new", "half-written", ""),
        ],
        hole_spans=[(5 * HOUR + 1, 6 * HOUR + 1)],
    )
    assert archive.doubtful_hours() == {
        "2026-11-15T23",
        "2026-11-16T00",
        "1970-01-01T05",
        "1970-01-01T06",
    }


def test_coverage_tells_what_is_missing_of_any_stretch() -> None:
    coverage = Coverage()
    for first, last in ((5, 10), (20, 30), (11, 12)):
        coverage.add(EventRange("a", 1, first, last))
    assert coverage.lives == {("a", 1): [(5, 12), (20, 30)]}
    assert coverage.missing(EventRange("a", 1, 1, 40)) == [(1, 4), (13, 19), (31, 40)]
    assert coverage.missing(EventRange("a", 1, 6, 9)) == []
    assert coverage.missing(EventRange("a", 2, 6, 9)) == [(6, 9)]
