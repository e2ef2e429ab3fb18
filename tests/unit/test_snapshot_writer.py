"""Registry's snapshot writer: when it writes, what it leaves alone, and the state after a failure."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.registry.snapshots import PublishOutcome, SnapshotPlan
from snavio.adapters.embedded.directory_rows import record_line
from snavio.adapters.embedded.folder_archive import FolderArchive
from snavio.domain.directory import (
    AclEntry,
    Ban,
    BanList,
    Draft,
    Fairness,
    Limit,
    Profile,
    Route,
    SourceQuota,
    Suspension,
    Tenant,
)
from snavio.errors import BadRequest, Conflict, NotFound, Saturated, Unavailable
from snavio.native import Dispatch, SnapshotTables, canonical_json, snapshot_header, snapshot_suspensions
from snavio.signed.publisher import FAILED
from snavio.signed.snapshot_manifest import ACL, PLACES
from snavio.signed.verification import ROUTES, VerifiedSnapshot
from snavio.telemetry.events import SnapshotFailed, SnapshotTooLarge
from tests.support.frames import command
from tests.support.snapshots import Studio
from tests.support.wire import mesh_batch, run


def parts_on_disk(studio: Studio, name: str = ROUTES) -> list[str]:
    return sorted(path.name for path in (studio.folder / "registry" / name).glob("*.bin"))


async def test_a_manifest_says_what_document_001_asks_for(tmp_path: Path) -> None:
    studio = Studio(tmp_path)
    await studio.fill()
    assert await studio.writer.write_once() is PublishOutcome.WRITTEN
    encoded = studio.manifest_path.read_bytes()
    assert canonical_json(encoded) == encoded
    found = orjson.loads(encoded)
    assert found["version_id"] == "7"
    assert found["generated_at"] == "2023-11-14T22:13:20.000000000Z"
    assert found["expires_at"] == "2023-11-14T23:13:20.000000000Z"
    assert found["ttl_policy"]["critical"] == {"fresh_seconds": 2, "stale_seconds": 4, "ceiling_seconds": 5}
    assert [(part["name"], part["rows"]) for part in found["parts"]] == [
        ("routes", 3),
        ("acl", 3),
        ("suspensions", 1),
        ("bans", 0),
        ("terms", 0),
    ]
    assert orjson.loads((tmp_path / PLACES[ACL]).read_bytes())["parts"] == [found["parts"][1]]
    assert studio.writer.meter.counters() == {"Snavio.Snapshot.Generated": 1}
    assert studio.writer.meter.gauges()["Snavio.Snapshot.SizeBytes"] == sum(p["size"] for p in found["parts"])


async def test_nothing_is_written_while_nothing_changes(tmp_path: Path) -> None:
    studio = Studio(tmp_path)
    await studio.fill()
    await studio.writer.write_once()
    before, asked = studio.manifest_path.read_bytes(), studio.platform.asked
    studio.clock.advance(seconds=60)
    assert await studio.writer.write_once() is PublishOutcome.UNCHANGED
    assert (studio.manifest_path.read_bytes(), studio.platform.asked) == (before, asked)


async def test_an_unchanged_directory_keeps_its_parts_and_gets_a_new_time_before_they_expire(
    tmp_path: Path,
) -> None:
    studio = Studio(tmp_path)
    await studio.fill()
    await studio.writer.write_once()
    parts = {path: path.stat().st_ino for path in tmp_path.glob("registry/*/*.bin")}
    studio.clock.advance(seconds=1800)
    assert await studio.writer.write_once() is PublishOutcome.RENEWED
    assert {path: path.stat().st_ino for path in tmp_path.glob("registry/*/*.bin")} == parts
    assert studio.manifest().generated_unix_ns == studio.clock.unix_ns()
    assert await studio.refusal() is None


async def test_two_versions_of_the_parts_are_kept(tmp_path: Path) -> None:
    studio = Studio(tmp_path)
    for row in range(4):
        await studio.put(Suspension(f"acme/number-{row}"))
        assert await studio.writer.write_once() is PublishOutcome.WRITTEN
        assert await studio.refusal() is None
    assert [name[:20].lstrip("0") for name in parts_on_disk(studio)] == ["3", "4"]


async def test_a_snapshot_that_is_too_large_is_told_and_the_old_one_stays(tmp_path: Path) -> None:
    studio = Studio(tmp_path)
    await studio.fill()
    await studio.writer.write_once()
    before = studio.manifest_path.read_bytes()
    size = studio.manifest().total_bytes
    await studio.put(*(Suspension(f"acme/number-{row}") for row in range(50)))
    small = studio.new_writer(plan=SnapshotPlan(interval_s=30, lifetime_s=3600, max_bytes=size))
    assert await small.write_once() is PublishOutcome.TOO_LARGE
    assert await small.write_once() is PublishOutcome.TOO_LARGE
    assert small.meter.counters() == {f"{FAILED}.too-large": 2}
    # An operator gets one event, with both sizes.
    recorded = [one.event for one in studio.events.after(0, limit=10)]
    (told,) = [event for event in recorded if event.name == "snavio.snapshot.too_large"]
    assert isinstance(told, SnapshotTooLarge)
    assert (told.max_bytes, told.size_bytes > size) == (size, True)
    assert f"at most {size}" in str(told.fields()["detail"])
    assert studio.manifest_path.read_bytes() == before
    assert await studio.refusal() is None


async def test_a_full_disk_at_any_write_leaves_the_old_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    studio = Studio(tmp_path)
    await studio.fill()
    await studio.writer.write_once()
    before = studio.manifest_path.read_bytes()
    await studio.put(Suspension("acme/worse"))
    real, allowed = os.fsync, 0
    for allowed in range(20):
        left = [allowed]

        def full(descriptor: int, left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] < 0:
                raise OSError(errno.ENOSPC, "no space")
            real(descriptor)

        monkeypatch.setattr(os, "fsync", full)
        outcome = await studio.writer.write_once()
        monkeypatch.setattr(os, "fsync", real)
        # The last write is the manifest: once it is renamed, the new snapshot is whole.
        if studio.manifest_path.read_bytes() != before:
            break
        assert outcome is PublishOutcome.FAILED
        assert await studio.refusal(studio.new_reader(f"reader-{allowed}")) is None
        assert not list(tmp_path.rglob("*.new"))
    assert allowed >= 4
    assert studio.writer.meter.counters()["Snavio.Snapshot.Failed.archive-full"] >= 4
    assert await studio.refusal() is None


async def test_a_newer_snapshot_is_never_replaced_but_by_a_new_epoch(tmp_path: Path) -> None:
    studio = Studio(tmp_path)
    await studio.fill()
    await studio.writer.write_once()
    before, known = studio.manifest_path.read_bytes(), studio.directory.standing
    # A directory that came back from a backup.
    studio.directory._log.pop()
    studio.directory._state.popitem()
    assert await studio.writer.write_once() is PublishOutcome.SUPERSEDED
    assert studio.manifest_path.read_bytes() == before
    # A reader that has the lost writes does not take the next ones for them.
    await studio.directory.write(lambda _view: Draft(Tenant("other")), actor="test")
    page = await studio.directory.changes(since=known[1], epoch=known[0], limit=1000)
    assert page.directory_epoch != known[0]
    assert Tenant("other") in [change.value for change in page.changes]
    assert await studio.writer.write_once() is PublishOutcome.WRITTEN


async def test_whoever_publishes_in_between_wins(tmp_path: Path) -> None:
    studio = Studio(tmp_path)
    await studio.fill()
    other = studio.new_writer()

    async def sign(message: bytes) -> tuple[str, bytes]:
        if not studio.manifest_path.exists():
            await other.write_once()
        return await studio.platform.sign(message)

    assert await studio.new_writer(sign=sign).write_once() is PublishOutcome.FAILED
    assert await studio.refusal() is None


async def test_a_damaged_or_forged_snapshot_is_replaced_even_while_nothing_changes(tmp_path: Path) -> None:
    studio = Studio(tmp_path)
    await studio.fill()
    await studio.writer.write_once()
    studio.part_path(ROUTES).write_bytes(b"rot")
    assert await studio.writer.write_once() is PublishOutcome.WRITTEN
    assert await studio.refusal() is None
    studio.rewrite(lambda document: document.update(version_id="999999"))
    assert await studio.writer.write_once() is PublishOutcome.WRITTEN
    assert await studio.refusal() is None


async def test_a_rotated_key_signs_the_next_snapshot(tmp_path: Path) -> None:
    studio = Studio(tmp_path)
    await studio.fill()
    await studio.writer.write_once()
    studio.platform.key_id, studio.platform.seed = "ed25519-two", bytes(32)
    await studio.put(Suspension("acme/worse"))
    assert await studio.writer.write_once() is PublishOutcome.WRITTEN
    assert studio.manifest().key_id == "ed25519-two"
    assert await studio.refusal() is None


async def test_a_signature_that_readers_would_refuse_is_not_published(tmp_path: Path) -> None:
    studio = Studio(tmp_path)
    await studio.fill()

    async def forgetful(_message: bytes) -> tuple[str, bytes]:
        return studio.platform.key_id, bytes(64)

    writer = studio.new_writer(sign=forgetful)
    assert await writer.write_once() is PublishOutcome.FAILED
    assert writer.meter.counters() == {"Snavio.Snapshot.Failed.invalid-bad-signature": 1}
    assert not studio.manifest_path.exists()


async def test_an_absent_signer_leaves_the_old_snapshot(tmp_path: Path) -> None:
    studio = Studio(tmp_path)
    await studio.fill()
    studio.platform.failing = Unavailable("Signer is away.")
    assert await studio.writer.write_once() is PublishOutcome.FAILED
    studio.platform.failing = None
    assert await studio.writer.write_once() is PublishOutcome.WRITTEN


async def test_a_cause_that_lasts_is_told_once_an_hour_and_another_cause_at_once(tmp_path: Path) -> None:
    studio = Studio(tmp_path)
    await studio.fill()

    def told() -> list[tuple[str, str]]:
        recorded = [one.event for one in studio.events.after(0, limit=100)]
        return [(event.reason, event.detail) for event in recorded if isinstance(event, SnapshotFailed)]

    studio.platform.failing = Unavailable("Signer is away.")
    for _ in range(100):
        assert await studio.writer.write_once() is PublishOutcome.FAILED
        studio.clock.advance(seconds=30)
    assert told() == [("unavailable", "snapshot: Signer is away.")]
    for _ in range(30):
        await studio.writer.write_once()
        studio.clock.advance(seconds=30)
    assert len(told()) == 2
    studio.platform.failing = Unavailable("No room." * 1000, reason="disk-full")
    await studio.writer.write_once()
    assert [reason for reason, _ in told()] == ["unavailable", "unavailable", "disk-full"]
    assert len(told()[-1][1]) == 512
    studio.platform.failing = None
    assert await studio.writer.write_once() is PublishOutcome.WRITTEN
    studio.platform.failing = Unavailable("No room.", reason="disk-full")
    await studio.put(Suspension("acme/worse"))
    await studio.writer.write_once()
    assert len(told()) == 4


async def test_a_record_that_rotted_in_the_store_is_not_spread(tmp_path: Path) -> None:
    studio = Studio(tmp_path)
    await studio.fill()
    place, change = next(iter(studio.directory._state.items()))
    tables = SnapshotTables()
    line = record_line(change.value, change.version)
    for at in range(len(line)):
        damaged = bytearray(line)
        damaged[at] ^= 1
        with pytest.raises(ValueError, match=r"record \d+"):
            tables.add(place[0], bytes(damaged))


async def test_a_survey_is_of_one_moment(tmp_path: Path) -> None:
    studio = Studio(tmp_path)
    await studio.fill()
    version, lines = await studio.directory.survey(
        lambda survey: (survey.version, b"\n".join(survey.records(AclEntry)).count(b"\n") + 1)
    )
    assert (version, lines) == (7, 3)


NAMES = st.from_regex(r"[a-z0-9][a-z0-9.-]{0,12}", fullmatch=True)
SOURCES = st.from_regex(r"[a-z][a-z0-9]{0,8}/[a-z][a-z0-9]{0,8}", fullmatch=True)


ROUTED = st.one_of(st.tuples(NAMES, NAMES), st.just(("", "")))
BANS = st.one_of(
    st.tuples(st.sampled_from([BanList.WARM_BAN, BanList.COLD_ONLY]), SOURCES, ROUTED),
    st.tuples(st.just(BanList.FROZEN), st.just(""), st.tuples(NAMES, st.one_of(NAMES, st.just("")))),
).map(lambda ban: (ban[0], ban[1], *ban[2]))


@settings(max_examples=60, deadline=None)
@given(
    routes=st.dictionaries(st.tuples(NAMES, NAMES), st.sampled_from(Profile), max_size=20),
    acl=st.sets(st.tuples(SOURCES, NAMES, NAMES), max_size=40),
    suspended=st.sets(SOURCES, max_size=10),
    banned=st.sets(BANS, max_size=10),
    version=st.integers(0, 2**63 - 1),
    epoch=st.integers(0, 2**63 - 1),
)
def test_what_is_written_is_what_is_read(
    routes: dict[tuple[str, str], Profile],
    acl: set[tuple[str, str, str]],
    suspended: set[str],
    banned: set[tuple[BanList, str, str, str]],
    version: int,
    epoch: int,
) -> None:
    tables = SnapshotTables()
    for (target, name), profile in routes.items():
        route = Route(target, name, profile=profile).addressed_to("acme")
        tables.add("route", record_line(route, version))
    tables.add("acl", b"\n".join(record_line(AclEntry(*key), version) for key in acl))
    tables.add("suspension", b"\n".join(record_line(Suspension(source), version) for source in suspended))
    bans = [Ban(*key, until_unix_ns=2**62) for key in banned]
    tables.add("ban", b"\n".join(record_line(ban, version) for ban in bans))
    parts = tables.parts(version=version, epoch=epoch)
    assert [snapshot_header(part) for part in parts] == [
        ("routes", version, epoch, len(routes)),
        ("acl", version, epoch, len(acl)),
        ("suspensions", version, epoch, len(suspended)),
        ("bans", version, epoch, len(banned)),
        ("terms", version, epoch, 0),
    ]
    dispatch = Dispatch()
    assert dispatch.load_snapshot(parts[0], parts[1], bans_part=parts[3]) == version
    counted = dispatch.counters()
    assert (counted["routes"], counted["acls"], counted["bans"]) == (len(routes), len(acl), len(banned))
    assert set(snapshot_suspensions(parts[2])) == suspended


@settings(max_examples=300, deadline=None)
@given(first=st.binary(max_size=200), second=st.binary(max_size=200))
def test_no_bytes_are_more_than_a_value_error(first: bytes, second: bytes) -> None:
    header = b"SNAVSNAP\x02\x00\x01\x01"
    for part in (first, header + first):
        for call in (
            snapshot_header,
            snapshot_suspensions,
            lambda part: Dispatch().load_snapshot(part, second),
        ):
            with pytest.raises(ValueError, match="part"):
                call(part)


# -- the archive ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["", "/etc/passwd", "../x", "a/../b", "a//b", "a\0b", "A", ".lock", "a/.b", "x" * 200]
)
async def test_a_name_cannot_lead_out_of_the_archive(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadRequest):
        await FolderArchive(tmp_path).put(name, b"")


async def test_a_swap_wants_what_it_expects(tmp_path: Path) -> None:
    archive = FolderArchive(tmp_path)
    await archive.swap("a/b", b"one", expected=None)
    for wrong in (None, b"", b"on", b"one!", b"two"):
        with pytest.raises(Conflict):
            await archive.swap("a/b", b"two", expected=wrong)
    await archive.swap("a/b", b"two", expected=b"one")
    assert await archive.get("a/b", max_bytes=3) == b"two"
    with pytest.raises(Saturated):
        await archive.get("a/b", max_bytes=2)
    await archive.delete("a/b")
    await archive.delete("a/b")
    with pytest.raises(NotFound):
        await archive.get("a/b", max_bytes=3)
    assert await archive.names("a") == []
    assert await archive.names("nothing") == []


async def test_files_are_private(tmp_path: Path) -> None:
    studio = Studio(tmp_path / "a" / "b")
    await studio.fill()
    await studio.writer.write_once()
    assert await studio.refusal() is None
    modes = {oct(path.stat().st_mode & 0o077) for path in tmp_path.rglob("*")}
    assert modes == {"0o0"}


SENDERS = ("acme/shop", "acme/other", "acme/cold", "acme/timed", "acme/bounded")


async def test_a_loaded_snapshot_decides_as_if_it_had_been_told_entry_by_entry(tmp_path: Path) -> None:
    studio = Studio(tmp_path)
    told = Dispatch()
    commands = []
    for number, profile in enumerate(Profile):
        limit = Limit(10, 60, shadow=number == 2) if number else None
        fairness = Fairness(window_seconds=7, dominant_share=0.55, minimum_volume=number + 1)
        route = Route("bot", f"say{number}", profile=profile, limit=limit, fairness=fairness)
        route = route.addressed_to("acme")
        acl = AclEntry("acme/shop", "bot", route.name)
        await studio.put(route, acl)
        told.put_route(
            "bot",
            route.name,
            queue=0,
            topic=route.topic,
            profile=int(profile),
            strict=False,
            limited=limit is not None,
            shadow=number == 2,
            fairness=(7, 0.55, 0.1, 2, number + 1, 30),
        )
        told.allow(acl.source, acl.target, acl.name, 1)
        # Two more sources, of which one has a right with an end and a profile of its own, the other a limit.
        timed = AclEntry("acme/timed", "bot", route.name, Profile.MODERATE, 60, 10 * 10**9)
        quota = SourceQuota("acme/bounded", "bot", route.name, 100, 60, always=True, shadow=number == 1)
        banned = SourceQuota("acme/shop", "bot", route.name, 100, 60)
        await studio.put(timed, AclEntry("acme/bounded", "bot", route.name), quota, banned)
        told.allow("acme/timed", "bot", route.name, 1, profile=2, ends_unix_ns=10 * 10**9)
        told.allow("acme/bounded", "bot", route.name, 1)
        told.limit_source("acme/bounded", "bot", route.name, limited=True, shadow=number == 1)
        commands.append(command(target="bot", name=route.name))
    await studio.put(Ban(BanList.COLD_ONLY, "acme/cold"), AclEntry("acme/cold", "bot", "say0"))
    told.put_ban(2, "acme/cold", "", "", until_mono_ns=2**63 - 1)
    told.allow("acme/cold", "bot", "say0", 1)
    await studio.writer.write_once()
    found = await studio.load()
    assert isinstance(found, VerifiedSnapshot)
    loaded = Dispatch()
    parts = found.parts
    loaded.load_snapshot(parts["routes"], parts["acl"], bans_part=parts["bans"], terms_part=parts["terms"])
    # Never read from the authority: nothing is sent on its word alone.
    frames = [mesh_batch([run(source, commands)]) for source in SENDERS]
    assert [loaded.plan(frame, now_mono_ns=0).sends for frame in frames] == [[] for _ in SENDERS]
    for dispatch in (told, loaded):
        dispatch.renewed(0)
        assert not dispatch.plan(frames[3], now_mono_ns=0).sends
        dispatch.heard_time(0, 0)
        assert dispatch.plan(frames[3], now_mono_ns=9 * 10**9).sends
        for permits in (0, 5):
            plan = dispatch.plan(frames[4], now_mono_ns=0)
            assert sum(send.count for send in plan.sends) == (2 if permits else 0)
            for number in range(len(commands)):
                dispatch.grant(
                    "bot",
                    f"say{number}",
                    source="acme/bounded",
                    permits=5,
                    interval=1,
                    ends_mono_ns=2**62,
                    now_mono_ns=0,
                )
    for age_s in (0, 3, 4, 9, 10, 15, 20, 60, 90, 180, 1000):
        for frame in frames:
            plans = [dispatch.plan(frame, now_mono_ns=age_s * 10**9) for dispatch in (told, loaded)]
            sends = [[(send.queue, send.count, bytes(send.body)) for send in plan.sends] for plan in plans]
            assert sends[0] == sends[1]
            cold = [[(each.source, each.count, each.body) for each in plan.escalations] for plan in plans]
            assert cold[0] == cold[1]
