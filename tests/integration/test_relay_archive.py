"""From Relay's intake to the archive, all real but Signer: interrupted anywhere, each event is there once."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from services.relay import exporter, rejected_pages
from services.relay import manifests as present_module
from services.relay.revocations import Revocations
from snavio.adapters.embedded.checksums import connect
from snavio.audit.verify_archive import TimeRange, believe
from snavio.cli.app import app
from snavio.clock import ManualClock
from snavio.domain.signing_scope import Pair, provision, rotate_scope
from snavio.errors import Conflict, SnavioError, Unavailable
from snavio.native import ed25519_public_key, ed25519_sign, telemetry_columns
from snavio.ports.archive import Archive
from snavio.ports.outbox import Cursor, RevokedRight
from snavio.signed import archive_manifest as manifest_bounds
from snavio.signed.archive_manifest import ArchiveManifest, folder_of
from snavio.signed.verification import VerifyingKey
from snavio.telemetry import schema
from snavio.telemetry.archive_inspection import check, hours, retired
from snavio.telemetry.parquet import encode_pages
from snavio.wiring import open_archive, open_outbox
from tests.support.telemetry import (
    NAME,
    NOW,
    SOURCE,
    TARGET,
    Inside,
    arrival,
    block,
    inside,
    sign,
    verifying_keys,
)

TEN = block([1] * 10, lane={"acl_version": 4})
HOUR_S = 3600.0
SECOND = 1_000_000_000


def _pair(number: int) -> Pair:
    seed = bytes([number]) * 32
    return Pair(ed25519_public_key(seed), seed)


class Interrupted(Exception):
    """Represents a kill at this moment."""


class FailingArchive:
    """A folder whose n-th write fails, or succeeds without an answer."""

    def __init__(self, folder: Path, *, fails: Callable[[str], bool], after: bool = False) -> None:
        self._real = open_archive(folder)
        self._fails = fails
        self._after = after

    async def get(self, name: str, *, max_bytes: int) -> bytes:
        return await self._real.get(name, max_bytes=max_bytes)

    async def put(self, name: str, contents: bytes) -> None:
        if not self._fails(name):
            await self._real.put(name, contents)
            return
        if self._after:
            await self._real.put(name, contents)
        raise Interrupted

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


async def once_each(relay: Inside, *, instance: str = "fast-0") -> list[int]:
    """Event numbers in the archive, each once; other files are not counted."""
    numbers = [row["seq"] for row in relay.rows(f"instance = '{instance}'")]
    assert len(set(numbers)) == len(numbers)
    return numbers


async def test_pages_become_a_signed_file_with_exactly_their_events(tmp_path: Path) -> None:
    async with inside(tmp_path) as relay:
        assert await relay.intake.take(arrival(TEN, TEN)) == 20
        assert await relay.exporter.export_once() == 20
        (hour,) = hours(relay.archive_folder)
        assert (hour.folder, [file.name for file in hour.files]) == (
            folder_of(NOW),
            ["fast-0-7-1-20.parquet"],
        )
        assert await once_each(relay) == list(range(1, 21))
        assert await relay.findings() == []
        assert await relay.exporter.export_once() == 0


@pytest.mark.parametrize("after", [False, True], ids=["before the write", "after the write"])
@pytest.mark.parametrize("place", ["fast-0-7", "slow-0-3", "_manifest"])
async def test_an_export_interrupted_at_any_write_is_finished_by_the_next_life(
    tmp_path: Path, place: str, after: bool
) -> None:
    def fails(name: str) -> bool:
        return place in name

    failing: Archive = FailingArchive(tmp_path / "archive", fails=fails, after=after)
    async with inside(tmp_path, archive=failing) as relay:
        await relay.intake.take(arrival(TEN))
        await relay.intake.take(arrival(TEN, instance="slow-0", epoch=3, service="slow"))
        with pytest.raises(Interrupted):
            await relay.exporter.export_once()
    # The next life is in another hour; the same files appear where they belong.
    clock = ManualClock(NOW + 7200 * 1_000_000_000)
    async with inside(tmp_path, clock=clock) as relay:
        await relay.intake.take(arrival(TEN, first_seq=11))
        assert await relay.exporter.export_once() == 30
        assert await once_each(relay) == list(range(1, 21))
        assert await once_each(relay, instance="slow-0") == list(range(1, 11))
        assert await relay.findings() == []
        assert {hour.folder for hour in hours(relay.archive_folder)} == {
            folder_of(NOW),
            folder_of(clock.unix_ns()),
        }


async def test_a_crash_between_the_manifest_and_the_outbox_doubles_nothing(tmp_path: Path) -> None:
    outbox = await open_outbox(tmp_path / "outbox.db", max_bytes=1 << 20)

    class Forgetful:
        async def finish(self, *_args: Any, **_kwargs: Any) -> list[int]:
            raise Interrupted

        def __getattr__(self, name: str) -> Any:
            return getattr(outbox, name)

    async with inside(tmp_path, outbox=Forgetful()) as relay:
        await relay.intake.take(arrival(TEN))
        with pytest.raises(Interrupted):
            await relay.exporter.export_once()
        assert await once_each(relay) == list(range(1, 11))
    async with inside(tmp_path) as relay:
        assert await relay.exporter.export_once() == 10
        assert await once_each(relay) == list(range(1, 11))
        assert await relay.findings() == []


async def test_without_signer_nothing_is_forgotten_and_nothing_counts(tmp_path: Path) -> None:
    async def away(_message: bytes) -> tuple[str, bytes]:
        raise Unavailable("Signer is away.")

    async with inside(tmp_path, signing=away) as relay:
        await relay.intake.take(arrival(TEN))
        for _ in range(3):
            with pytest.raises(Unavailable):
                await relay.exporter.export_once()
        assert relay.rows() == []
        assert [finding.problem for finding in await relay.findings()] == ["unsigned"]
    async with inside(tmp_path) as relay:
        assert await relay.exporter.export_once() == 10
        assert await relay.findings() == []


@pytest.mark.parametrize("later_s", [605, 86_400, 10 * 86_400])
async def test_an_export_planned_before_a_rotation_is_signed_after_it(tmp_path: Path, later_s: int) -> None:
    clock = ManualClock(NOW)
    scope = provision("platform", _pair(1), now_ns=NOW - 3600 * SECOND)

    async def away(_message: bytes) -> tuple[str, bytes]:
        raise Unavailable("Signer is away.")

    async with inside(tmp_path, clock=clock, signing=away) as relay:
        await relay.intake.take(arrival(TEN))
        with pytest.raises(Unavailable):
            await relay.exporter.export_once()
    scope = rotate_scope(
        scope, _pair(2), now_ns=NOW + 600 * SECOND, delay_ns=SECOND, overlap_ns=7 * 86_400 * SECOND
    )
    clock.advance(seconds=later_s)

    async def signing(message: bytes) -> tuple[str, bytes]:
        key = scope.active(clock.unix_ns())
        return key.key_id, ed25519_sign(key.seed, message)

    async def keys() -> list[VerifyingKey]:
        return [
            VerifyingKey(key.key_id, key.public_key, key.valid_from_ns, key.valid_until_ns)
            for key in scope.verifying(clock.unix_ns())
        ]

    async with inside(tmp_path, clock=clock, signing=signing, keys=keys) as relay:
        await relay.intake.take(arrival(TEN, first_seq=11))
        assert await relay.exporter.export_once() == 20
        found = list(hours(relay.archive_folder))
        assert [each for hour in found for each in check(relay.archive_folder, hour, await keys())] == []
        # Where it was planned: a file of the first attempt must not lie in one hour and its manifest in another.
        assert [file.name for file in found[0].files][:1] == ["fast-0-7-1-10.parquet"]
        assert found[0].folder == folder_of(NOW)


async def test_a_signature_that_does_not_verify_is_not_published(tmp_path: Path) -> None:
    async def wrong(message: bytes) -> tuple[str, bytes]:
        return (await sign(message))[0], bytes(64)

    async with inside(tmp_path, signing=wrong) as relay:
        await relay.intake.take(arrival(TEN))
        with pytest.raises(Conflict, match="verify"):
            await relay.exporter.export_once()
        assert relay.rows() == []


async def test_gaps_are_events_of_relay_and_reach_the_archive_too(tmp_path: Path) -> None:
    async with inside(tmp_path) as relay:
        await relay.intake.take(arrival(TEN, first_seq=101))
        await relay.intake.take(arrival(TEN, first_seq=121))
        await relay.exporter.export_once(flush=True)
        told = [
            (row["dropped_events"], row["reason"]) for row in relay.rows(f"event = '{schema.JOURNAL_GAP}'")
        ]
        assert told == [(100, "overflow"), (10, "overflow")]
        assert [row["seq"] for row in relay.rows("instance = 'relay-0'")] == [1, 2]


async def test_a_damaged_page_is_missed_and_told_and_holds_nothing_up(tmp_path: Path) -> None:
    async with inside(tmp_path) as relay:
        for number in range(3):
            await relay.intake.take(arrival(TEN, first_seq=1 + 10 * number))
    with connect(tmp_path / "outbox.db") as connection:
        connection.execute("UPDATE page SET body = zeroblob(5) WHERE first_seq = 11")
    connection.close()
    async with inside(tmp_path) as relay:
        await relay.exporter.export_once(flush=True)
        await relay.exporter.export_once(flush=True)
        assert await once_each(relay) == [*range(1, 11), *range(21, 31)]
        (gap,) = relay.rows(f"event = '{schema.JOURNAL_GAP}'")
        assert (gap["dropped_events"], gap["reason"], gap["detail"]) == (
            10,
            "damaged",
            "fast-0 epoch 7: 11 to 20",
        )


async def test_a_page_that_cannot_be_rows_is_parked_and_told_and_holds_nothing_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def encode(pages: Any, **given: Any) -> Any:
        if any(first_seq == 11 for first_seq, _ in pages):
            raise OverflowError("int too large to convert")
        return encode_pages(pages, **given)

    monkeypatch.setattr(exporter, "encode_pages", encode)
    async with inside(tmp_path) as relay:
        for number in range(4):
            await relay.intake.take(arrival(TEN, first_seq=1 + 10 * number))
        await relay.exporter.export_once(flush=True)
        await relay.exporter.export_once(flush=True)
        assert await once_each(relay) == [*range(1, 11), *range(21, 41)]
        (gap,) = relay.rows(f"event = '{schema.JOURNAL_GAP}'")
        assert (gap["reason"], gap["detail"]) == ("damaged", "fast-0 epoch 7: 11 to 20")
        assert (await relay.findings(), relay.exporter.counters()["damaged"]) == ([], 1)
        (parked,) = (relay.archive_folder / "parked").iterdir()
        assert parked.name == "fast-0-7-11-20.page"
        assert telemetry_columns([(11, parked.read_bytes())], relay.tombstones)[0] == 10


async def test_no_more_than_so_many_pages_are_parked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def encode(pages: Any, *, service: str, **given: Any) -> Any:
        if service == "fast":
            raise ValueError("no rows")
        return encode_pages(pages, service=service, **given)

    monkeypatch.setattr(exporter, "encode_pages", encode)
    monkeypatch.setattr(rejected_pages, "MOST", 2)
    async with inside(tmp_path) as relay:
        for number in range(4):
            await relay.intake.take(arrival(TEN, first_seq=1 + 10 * number))
        await relay.exporter.export_once(flush=True)
        assert len(list((relay.archive_folder / "parked").iterdir())) == 2
        assert relay.exporter.counters()["damaged"] == 4


async def test_a_full_outbox_makes_its_writers_wait_until_there_is_room(tmp_path: Path) -> None:
    first, second = arrival(TEN), arrival(*[TEN] * 3, first_seq=11)
    size = sum(len(raw) for _, raw in second.blocks)
    async with inside(tmp_path, max_bytes=size + 10) as relay:
        await relay.intake.take(first)
        waiting = asyncio.create_task(relay.intake.take(second))
        async with asyncio.timeout(20):
            while not relay.intake.counters()["full"]:
                await asyncio.sleep(0.01)
        assert not waiting.done()
        await relay.exporter.export_once()
        # The other reader of the outbox.
        await relay.outbox.forget(await relay.outbox.last_page())
        async with asyncio.timeout(20):
            assert await waiting == 40


async def test_many_pages_are_one_commit(tmp_path: Path) -> None:
    async with inside(tmp_path) as relay:
        writers = [f"fast-{number}" for number in range(30)]
        async with asyncio.TaskGroup() as group:
            for name in writers:
                group.create_task(relay.intake.take(arrival(TEN, instance=name)))
        assert relay.intake.counters()["commits"] <= 2
        assert relay.intake.counters()["events"] == 300


async def test_a_journal_belongs_to_one_service(tmp_path: Path) -> None:
    async with inside(tmp_path) as relay:
        await relay.intake.take(arrival(TEN))
        relay.intake.require_owner("fast-0", "fast")
        for name in ("fast-0", "relay-0"):
            with pytest.raises(Conflict, match="another service"):
                relay.intake.require_owner(name, "slow")


# --- compaction


async def filled(relay: Inside, files: int = 5) -> None:
    for number in range(files):
        await relay.intake.take(arrival(TEN, first_seq=1 + 10 * number))
        await relay.exporter.export_once()


async def test_a_closed_hour_becomes_one_file(tmp_path: Path) -> None:
    async with inside(tmp_path) as relay:
        await filled(relay)
        assert await relay.compaction.compact_once() == 0
        before = relay.rows()
        relay.clock.advance(seconds=HOUR_S + 300)
        assert await relay.compaction.compact_once() == 1
        names = sorted(path.name for path in (relay.archive_folder / folder_of(NOW)).iterdir())
        assert names == ["_manifest-000000000006.json", "fast-0-7-1-50.parquet"]
        assert relay.rows() == before
        assert await relay.findings() == []
        assert await relay.compaction.compact_once() == 0


@pytest.mark.parametrize("after", [False, True], ids=["before the write", "after the write"])
@pytest.mark.parametrize("place", ["fast-0-7-1-50", "_manifest-000000000006"])
async def test_a_compaction_interrupted_at_any_write_loses_and_doubles_nothing(
    tmp_path: Path, place: str, after: bool
) -> None:
    failing: Archive = FailingArchive(tmp_path / "archive", fails=lambda name: place in name, after=after)
    async with inside(tmp_path, archive=failing) as relay:
        await filled(relay)
        relay.clock.advance(seconds=HOUR_S + 300)
        with pytest.raises(Interrupted):
            await relay.compaction.compact_once()
        assert await once_each(relay) == list(range(1, 51))
    async with inside(tmp_path, clock=ManualClock(NOW + 7200 * 1_000_000_000)) as relay:
        await relay.compaction.compact_once()
        assert await once_each(relay) == list(range(1, 51))
        assert await relay.findings() == []


@pytest.mark.parametrize("how", ["start", "compaction"])
async def test_what_a_kill_left_unfinished_is_swept(tmp_path: Path, how: str) -> None:
    async with inside(tmp_path) as relay:
        await filled(relay, files=1)
        hour = relay.archive_folder / folder_of(NOW)
        unfinished = hour / ".fast-0-7-11-20.parquet.0123456789abcdef.new"
        others = hour / ".hidden"
        for path in (unfinished, others):
            path.write_bytes(b"PAR1")
        if how == "start":
            await relay.exporter.start()
            await relay.exporter.stop()
            assert relay.exporter.counters()["swept"] == 1
        else:
            relay.clock.advance(seconds=HOUR_S + 300)
            assert await relay.compaction.compact_once() == 1
        assert (unfinished.exists(), others.exists()) == (False, True)
        assert await once_each(relay) == list(range(1, 11))


async def test_compaction_leaves_what_it_cannot_believe(tmp_path: Path) -> None:
    async with inside(tmp_path) as relay:
        await filled(relay, files=3)
        folder = relay.archive_folder / folder_of(NOW)
        (folder / "fast-0-7-11-20.parquet").write_bytes(b"rubbish")
        relay.clock.advance(seconds=HOUR_S + 300)
        await relay.compaction.compact_once()
        assert len(list(folder.glob("*.parquet"))) == 3
        assert [finding.problem for finding in await relay.findings()] == ["truncated"]


@pytest.mark.parametrize(("bound", "value"), [("MAX_FILES", 3), ("MAX_MANIFEST_BYTES", 2600)])
async def test_compaction_keeps_to_the_bounds_that_readers_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: str, value: int
) -> None:
    """A manifest beyond them would be malformed to every reader, and the whole hour lost."""
    monkeypatch.setattr(manifest_bounds, bound, value)
    monkeypatch.setattr(present_module, bound, value, raising=False)
    async with inside(tmp_path) as relay:
        for number in range(14):
            # Lives of their own cannot be joined, so each remains a file.
            await relay.intake.take(arrival(TEN, epoch=7 + number // 2, first_seq=1 + 10 * (number % 2)))
            await relay.exporter.export_once()
        before = relay.rows()
        relay.clock.advance(seconds=HOUR_S + 300)
        assert await relay.compaction.compact_once() == 1
        assert relay.rows() == before
        assert await relay.findings() == []
        assert len(list((relay.archive_folder / folder_of(NOW)).glob("*.parquet"))) == 7


async def test_compaction_deletes_nothing_whose_heir_cannot_be_read_back(tmp_path: Path) -> None:
    class Spoiled(FailingArchive):
        async def put(self, name: str, contents: bytes) -> None:
            if "fast-0-7-1-50" in name:
                contents = contents[:-1]
            await super().put(name, contents)

    archive: Archive = Spoiled(tmp_path / "archive", fails=lambda _: False)
    async with inside(tmp_path, archive=archive) as relay:
        await filled(relay)
        relay.clock.advance(seconds=HOUR_S + 300)
        assert await relay.compaction.compact_once() == 1
        (relay.archive_folder / folder_of(NOW) / "fast-0-7-1-50.parquet").unlink()
        assert await once_each(relay) == list(range(1, 51))


async def test_compaction_deletes_nothing_when_the_joined_file_was_damaged_since(tmp_path: Path) -> None:
    """It was killed before deleting, and the disk damaged the replacement of the originals."""
    failing: Archive = FailingArchive(
        tmp_path / "archive", fails=lambda name: "_manifest-000000000006" in name, after=True
    )
    async with inside(tmp_path, archive=failing) as relay:
        await filled(relay)
        relay.clock.advance(seconds=HOUR_S + 300)
        with pytest.raises(Interrupted):
            await relay.compaction.compact_once()
    async with inside(tmp_path, clock=ManualClock(NOW + 7200 * 1_000_000_000)) as relay:
        folder = relay.archive_folder / folder_of(NOW)
        joined = folder / "fast-0-7-1-50.parquet"
        sound = joined.read_bytes()
        joined.write_bytes(sound[:-1] + b"X")
        await relay.compaction.compact_once()
        assert relay.compaction.counters()["unproven"] == 1
        assert len(list(folder.glob("*.parquet"))) == 6


async def test_an_export_does_not_wait_for_the_work_of_a_compaction(tmp_path: Path) -> None:
    reading, go_on = asyncio.Event(), asyncio.Event()

    class Slow(FailingArchive):
        async def get(self, name: str, *, max_bytes: int) -> bytes:
            if name.endswith(".parquet"):
                reading.set()
                await go_on.wait()
            return await super().get(name, max_bytes=max_bytes)

    archive: Archive = Slow(tmp_path / "archive", fails=lambda _: False)
    async with inside(tmp_path, archive=archive) as relay:
        await filled(relay)
        relay.clock.advance(seconds=HOUR_S + 300)
        compacting = asyncio.create_task(relay.compaction.compact_once())
        await reading.wait()
        await relay.intake.take(arrival(TEN, first_seq=51))
        async with asyncio.timeout(30):
            assert await relay.exporter.export_once() == 10
        go_on.set()
        assert await compacting == 1
        assert await once_each(relay) == list(range(1, 61))


async def test_an_hour_that_gets_an_export_while_it_is_compacted_is_done_again(tmp_path: Path) -> None:
    async with inside(tmp_path) as relay:
        await filled(relay, files=3)
        relay.clock.advance(seconds=HOUR_S + 300)
        proven = relay.compaction._proven

        async def meanwhile(folder: str, heir: ArchiveManifest) -> bool:
            # An export that was planned within the hour and had to wait, such as for Signer.
            relay.compaction._proven = proven  # type: ignore[method-assign]
            relay.clock.advance(seconds=-HOUR_S - 300)
            await relay.intake.take(arrival(TEN, first_seq=31))
            await relay.exporter.export_once(flush=True)
            relay.clock.advance(seconds=HOUR_S + 300)
            return await proven(folder, heir)

        relay.compaction._proven = meanwhile  # type: ignore[method-assign]
        await relay.compaction.compact_once()
        assert await relay.outbox.hours() == [folder_of(NOW)]
        await relay.compaction.compact_once()
        assert await relay.outbox.hours() == []
        assert await once_each(relay) == list(range(1, 41))
        assert len(list((relay.archive_folder / folder_of(NOW)).glob("*.parquet"))) == 1


async def test_a_forged_manifest_is_not_made_true_by_compaction(tmp_path: Path) -> None:
    async with inside(tmp_path) as relay:
        await filled(relay, files=3)
        folder = relay.archive_folder / folder_of(NOW)
        (hour,) = hours(relay.archive_folder)
        forged = ArchiveManifest(
            99,
            NOW,
            (),
            tuple(file.name for file in hour.files),
            key_id="platform-1",
            signature=bytes(64),
        )
        (folder / forged.file_name).write_bytes(forged.encoded())
        relay.clock.advance(seconds=HOUR_S + 300)
        await relay.compaction.compact_once()
        assert [finding.problem for finding in await relay.findings()] == ["bad-signature"]
        (folder / forged.file_name).unlink()
        assert await once_each(relay) == list(range(1, 31))


# --- rights that were taken away


class Silent:
    """A Registry that is never called here."""


def revocations(relay: Inside) -> Revocations:
    return Revocations(
        registry=Silent(),  # type: ignore[arg-type]
        outbox=relay.outbox,
        archive=relay.archive,
        waiting=relay.waiting,
        own=relay.own,
        tombstones=relay.tombstones,
        turn=relay.turn,
        clock=relay.clock,
        interval_s=1,
        patience_s=30,
    )


def after_revocation(relay: Inside) -> list[tuple[int, float]]:
    rows = relay.rows(f"event = '{schema.EXECUTED_AFTER_REVOCATION}'")
    for row in rows:
        assert (row["source"], row["target"], row["command_name"]) == (SOURCE, TARGET, NAME)
    return [(row["count"], row["stale_duration_seconds"]) for row in rows]


@pytest.mark.parametrize("known", ["before the export", "after the export"])
async def test_a_dispatch_after_its_revocation_is_told_whenever_the_revocation_is_heard_of(
    tmp_path: Path, known: str
) -> None:
    right = RevokedRight(SOURCE, TARGET, NAME, 9, NOW - 2_000_000_000)
    async with inside(tmp_path) as relay:
        following = revocations(relay)
        await relay.intake.take(arrival(TEN, block([1, 65, 1], lane={"acl_version": 4})))
        if known == "after the export":
            await relay.exporter.export_once(flush=True)
        async with relay.turn:
            await following._take([right], Cursor(1, 9))
        await relay.exporter.export_once(flush=True)
        await relay.exporter.export_once(flush=True)
        assert sum(count for count, _ in after_revocation(relay)) == 12
        assert {stale for _, stale in after_revocation(relay)} == {2.0}
    # Reported again by the next life, it is not archived again.
    async with inside(tmp_path) as relay:
        assert await relay.outbox.cursor() == Cursor(1, 9)
        await relay.exporter.export_once(flush=True)
        assert sum(count for count, _ in after_revocation(relay)) == 12


async def test_the_ids_of_commands_that_went_by_an_ended_right_are_listed(tmp_path: Path) -> None:
    right = RevokedRight(SOURCE, TARGET, NAME, 9, NOW - 2_000_000_000)
    async with inside(tmp_path) as relay:
        following = revocations(relay)
        await relay.intake.take(arrival(TEN, block([1, 65, 1], lane={"acl_version": 4})))
        async with relay.turn:
            await following._take([right], Cursor(1, 9))
        await relay.exporter.export_once(flush=True)
        await relay.exporter.export_once(flush=True)
        at = ("acl", "after-revocation", TARGET, "--dir", str(relay.archive_folder), "--unverified")
        told = json.loads(CliRunner().invoke(app, [*at, "--json"], catch_exceptions=False).stdout)
        delivered = relay.rows(f"event = '{schema.DELIVERED}'")
        ids = [str(uuid.UUID(bytes=row["command_id"])) for row in delivered]
        assert [one["command_id"] for one in told["commands"]] == ids and len(ids) == 12
        assert {one["late_s"] for one in told["commands"]} == {2.0}
        shown = CliRunner().invoke(app, list(at), catch_exceptions=False).stdout
        assert ids[0] in shown and f"{len(ids)} commands to {TARGET}" in shown
        nobody = CliRunner().invoke(app, [*at[:2], "another", *at[3:]], catch_exceptions=False).stdout
        assert "No command to another" in nobody


@pytest.mark.parametrize(
    "right",
    [
        RevokedRight(SOURCE, TARGET, NAME, 9, NOW + 1),
        RevokedRight(SOURCE, TARGET, NAME, 3, NOW - 5_000_000_000),
        RevokedRight("acme/other", TARGET, NAME, 9, NOW - 5_000_000_000),
    ],
    ids=["later", "granted again since", "somebody else's"],
)
async def test_a_dispatch_by_a_right_that_stood_is_not_told(tmp_path: Path, right: RevokedRight) -> None:
    async with inside(tmp_path) as relay:
        following = revocations(relay)
        await relay.intake.take(arrival(TEN))
        async with relay.turn:
            await following._take([right], Cursor(1, 9))
        await relay.exporter.export_once(flush=True)
        await relay.exporter.export_once(flush=True)
        assert after_revocation(relay) == []


# --- retention


async def test_an_hour_that_is_too_old_goes_and_a_signed_note_says_what_it_had(tmp_path: Path) -> None:
    async with inside(tmp_path) as relay:
        await filled(relay)
        relay.clock.advance(seconds=6 * 24 * HOUR_S)
        await relay.intake.take(arrival(TEN, first_seq=51))
        await relay.exporter.export_once()
        assert await relay.retention.retire_once() == 0
        relay.clock.advance(seconds=25 * HOUR_S)
        assert await relay.retention.retire_once() == 1
        assert not (relay.archive_folder / folder_of(NOW)).exists()
        assert await once_each(relay) == list(range(51, 61))
        assert await relay.findings() == []
        (note,), bad = retired(relay.archive_folder, await verifying_keys())
        assert (note.folder, note.files, note.events, bad) == (folder_of(NOW), 5, 50, [])
        assert [(one.instance, one.first_seq, one.last_seq) for one in note.ranges] == [("fast-0", 1, 50)]
        assert await relay.retention.retire_once() == 0
        assert folder_of(NOW) not in await relay.outbox.hours()


@pytest.mark.parametrize("deletes", [0, 1, 3, 5, 7])
async def test_a_retention_killed_at_any_deletion_goes_on_with_the_note_that_it_signed(
    tmp_path: Path, deletes: int
) -> None:
    class Killed:
        def __init__(self) -> None:
            self._real = open_archive(tmp_path / "archive")
            self.left = deletes

        async def delete(self, name: str) -> None:
            if not self.left:
                raise Interrupted
            self.left -= 1
            await self._real.delete(name)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._real, name)

    clock = ManualClock(NOW)
    async with inside(tmp_path, clock=clock, archive=Killed()) as relay:
        await filled(relay)
        clock.advance(seconds=8 * 24 * HOUR_S)
        with pytest.raises(Interrupted):
            await relay.retention.retire_once()
    async with inside(tmp_path, clock=clock) as relay:
        assert await relay.retention.retire_once() == 1
        (note,), bad = retired(relay.archive_folder, await verifying_keys())
        assert (note.files, note.events, bad) == (5, 50, [])
        assert await relay.findings() == []
        assert list(hours(relay.archive_folder)) == []


async def test_nothing_goes_while_its_note_cannot_be_written_or_does_not_verify(tmp_path: Path) -> None:
    def fails(name: str) -> bool:
        return name.startswith("retired/")

    async def forged(message: bytes) -> tuple[str, bytes]:
        key, signature = await sign(message)
        return key, bytes(64) if b"retirement" in message else signature

    clock = ManualClock(NOW)
    failing: Archive = FailingArchive(tmp_path / "archive", fails=fails)
    async with inside(tmp_path, clock=clock, archive=failing) as relay:
        await filled(relay)
        clock.advance(seconds=8 * 24 * HOUR_S)
        with pytest.raises(Interrupted):
            await relay.retention.retire_once()
        assert await once_each(relay) == list(range(1, 51))
    async with inside(tmp_path, clock=clock, signing=forged) as relay:
        with pytest.raises(SnavioError, match="does not verify"):
            await relay.retention.retire_once()
        assert await once_each(relay) == list(range(1, 51))


async def test_an_audit_sets_nobody_free_over_hours_that_went(tmp_path: Path) -> None:
    async with inside(tmp_path) as relay:
        await filled(relay)
        relay.clock.advance(seconds=8 * 24 * HOUR_S)
        await relay.retention.retire_once()
        keys, now = await verifying_keys(), relay.clock.unix_ns()
        over = TimeRange(NOW - 10 * SECOND, NOW + 10 * SECOND)
        found = believe(relay.archive_folder, keys, now_unix_ns=now, pin=lambda _, path: path, wanted=over)
        assert [(one.path, one.problem) for one in found.quarantined] == [(folder_of(NOW), "retired")]
        assert found.left_out == 1
        every = believe(relay.archive_folder, keys, now_unix_ns=now, pin=lambda _, path: path)
        # Without a begin, the range begins where the archive does; it must not be doubtful for ever.
        assert (every.left_out, every.begins_unix_ns) == (0, NOW + 3 * 3600 * SECOND)
        later = TimeRange(NOW + 30 * 3600 * SECOND, None)
        found = believe(relay.archive_folder, keys, now_unix_ns=now, pin=lambda _, path: path, wanted=later)
        assert found.quarantined == []
