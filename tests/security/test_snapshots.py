"""Snapshots that were tampered with, swapped, rolled back or damaged, and the reaction of their readers."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from services.registry.snapshots import PublishOutcome
from snavio.domain.directory import AclEntry, Suspension
from snavio.errors import Unavailable
from snavio.native import Dispatch
from snavio.signed.snapshot_manifest import ACL, PLACES, SNAPSHOT, Manifest, read_manifest
from snavio.signed.snapshot_reader import FAILURES, LOADED, Refused
from snavio.signed.snapshot_refusal import RefusalReason, SnapshotRefused
from snavio.signed.verification import ROUTES, SUSPENSIONS, VerifiedSnapshot, VerifyingKey, verify_manifest
from tests.support.snapshots import PARTS, SECOND, Studio


@pytest.fixture
async def studio(tmp_path: Path) -> Studio:
    """A published snapshot."""
    studio = Studio(tmp_path)
    await studio.fill()
    assert await studio.writer.write_once() is PublishOutcome.WRITTEN
    return studio


async def test_a_good_snapshot_is_loaded_and_counted(studio: Studio) -> None:
    loaded = await studio.load()
    assert isinstance(loaded, VerifiedSnapshot)
    assert loaded.manifest.version == 7
    assert studio.reader.counters() == {LOADED: 1}


async def test_one_flipped_bit_at_any_position_of_the_manifest_is_refused(studio: Studio) -> None:
    good = studio.manifest_path.read_bytes()
    keys = await studio.platform.verifying()
    for bit in range(8 * len(good)):
        with pytest.raises(SnapshotRefused):
            _believed(_flipped(good, bit), keys, studio)
    assert _believed(good, keys, studio) == studio.manifest()
    # And what a service makes of it, here and there.
    for bit in range(0, 8 * len(good), 347):
        studio.manifest_path.write_bytes(_flipped(good, bit))
        assert await studio.refusal() is not None, bit
    studio.manifest_path.write_bytes(good)
    assert await studio.refusal() is None


def _flipped(good: bytes, bit: int) -> bytes:
    damaged = bytearray(good)
    damaged[bit // 8] ^= 1 << (bit % 8)
    return bytes(damaged)


def _believed(encoded: bytes, keys: Sequence[VerifyingKey], studio: Studio) -> Manifest:
    return verify_manifest(
        read_manifest(encoded),
        kind=SNAPSHOT,
        keys=keys,
        now_unix_ns=studio.clock.unix_ns(),
        max_bytes=1 << 20,
    )


@pytest.mark.parametrize("name", PARTS)
async def test_one_flipped_bit_at_any_position_of_a_part_is_refused(studio: Studio, name: str) -> None:
    path = studio.part_path(name)
    good = path.read_bytes()
    for at in range(len(good)):
        damaged = bytearray(good)
        damaged[at] ^= 1 << (at % 8)
        path.write_bytes(damaged)
        assert await studio.refusal() is RefusalReason.PART_TAMPERED, at


@pytest.mark.parametrize("name", PARTS)
async def test_a_part_cut_anywhere_or_made_longer_is_refused(studio: Studio, name: str) -> None:
    path = studio.part_path(name)
    good = path.read_bytes()
    for length in range(len(good)):
        path.write_bytes(good[:length])
        assert await studio.refusal() is RefusalReason.PART_TRUNCATED, length
    path.write_bytes(good + b"\0")
    assert await studio.refusal() is RefusalReason.PART_TRUNCATED


async def test_a_manifest_cut_anywhere_is_refused(studio: Studio) -> None:
    good = studio.manifest_path.read_bytes()
    for length in range(len(good)):
        with pytest.raises(SnapshotRefused) as cut:
            read_manifest(good[:length])
        assert cut.value.refusal is RefusalReason.MALFORMED, length
    for length in range(0, len(good), 41):
        studio.manifest_path.write_bytes(good[:length])
        assert await studio.refusal() is RefusalReason.MALFORMED, length


async def test_a_manifest_without_parts_and_parts_without_a_manifest_are_refused(studio: Studio) -> None:
    part = studio.part_path(ROUTES)
    kept = part.read_bytes()
    part.unlink()
    assert await studio.refusal() is RefusalReason.PART_MISSING
    part.write_bytes(kept)
    studio.manifest_path.unlink()
    assert await studio.refusal() is RefusalReason.ABSENT
    assert studio.reader.counters() == {FAILURES: 1, f"{FAILURES}.part-missing": 1, f"{FAILURES}.absent": 1}


async def test_parts_of_two_snapshots_do_not_mix(studio: Studio) -> None:
    older = studio.part_path(ROUTES).read_bytes()
    await studio.put(Suspension("acme/worse"))
    await studio.writer.write_once()
    studio.part_path(ROUTES).write_bytes(older)
    # Nothing but the version within the part is another, so its size is the same.
    assert await studio.refusal() is RefusalReason.PART_TAMPERED


async def test_a_well_signed_mixture_is_refused_by_what_the_parts_say(studio: Studio) -> None:
    older, described = studio.part_path(ROUTES).read_bytes(), studio.manifest().part(ROUTES)
    await studio.put(Suspension("acme/worse"))
    await studio.writer.write_once()
    path = studio.part_path(ROUTES)
    path.write_bytes(older)
    relative = path.relative_to(studio.folder).as_posix()
    mixed = replace(described, path=relative)
    studio.resign(lambda found: replace(found, parts=(mixed, *(p for p in found.parts if p.name != ROUTES))))
    assert await studio.refusal() is RefusalReason.PART_UNREADABLE


async def test_an_older_snapshot_is_refused_by_whoever_saw_a_newer_one(
    studio: Studio, tmp_path: Path
) -> None:
    old = tmp_path / "old"
    shutil.copytree(studio.folder / "registry", old)
    await studio.put(AclEntry("acme/shop", "bot", "sing"))
    await studio.writer.write_once()
    assert await studio.refusal() is None
    shutil.rmtree(studio.folder / "registry")
    shutil.copytree(old, studio.folder / "registry")
    assert await studio.refusal() is RefusalReason.ROLLED_BACK
    # Also after a restart; a reader that never accepted the newer one cannot know.
    assert await studio.refusal(studio.new_reader("fast-0")) is RefusalReason.ROLLED_BACK
    assert await studio.refusal(studio.new_reader("fast-1")) is None


async def test_a_restored_directory_is_followed_once_and_the_one_before_never_again(
    studio: Studio, tmp_path: Path
) -> None:
    assert await studio.refusal() is None
    old = tmp_path / "old"
    shutil.copytree(studio.folder / "registry", old)
    await studio.directory.renew_epoch()
    studio.clock.advance(seconds=60)
    assert await studio.writer.write_once() is PublishOutcome.WRITTEN
    assert await studio.refusal() is None
    shutil.rmtree(studio.folder / "registry")
    shutil.copytree(old, studio.folder / "registry")
    assert await studio.refusal() is RefusalReason.WRONG_EPOCH


async def test_an_unknown_epoch_from_an_earlier_time_is_refused(studio: Studio) -> None:
    assert await studio.refusal() is None
    studio.resign(lambda found: replace(found, epoch=found.epoch + 2, parts=_moved(found, found.epoch + 2)))
    assert await studio.refusal() is RefusalReason.WRONG_EPOCH


def _moved(found: Any, epoch: int) -> Any:
    from snavio.signed.snapshot_manifest import part_path

    return tuple(
        replace(part, path=part_path(part.name, version=found.version, epoch=epoch)) for part in found.parts
    )


async def test_a_snapshot_ends_when_it_says(studio: Studio) -> None:
    studio.clock.advance(ns=3600 * SECOND - 1)
    assert await studio.refusal() is None
    studio.clock.advance(ns=1)
    assert await studio.refusal() is RefusalReason.EXPIRED


async def test_a_snapshot_from_the_future_is_refused(studio: Studio) -> None:
    now = studio.clock.unix_ns()
    studio.resign(lambda found: replace(found, generated_unix_ns=now + 1))
    assert await studio.refusal() is RefusalReason.FUTURE_DATED
    studio.clock.advance(ns=1)
    assert await studio.refusal() is None


async def test_a_key_that_nobody_knows_or_that_is_not_good_for_the_time_is_refused(studio: Studio) -> None:
    now = studio.clock.unix_ns()
    studio.platform.known = False
    assert await studio.refusal() is RefusalReason.UNKNOWN_KEY
    studio.platform.known = True
    studio.platform.valid_from_unix_ns = now + 1
    assert await studio.refusal() is RefusalReason.KEY_NOT_VALID
    studio.platform.valid_from_unix_ns = 0
    # The key has ended since: a thief could have written any time into the manifest.
    studio.platform.valid_until_unix_ns = now + SECOND
    assert await studio.refusal() is None
    studio.clock.advance(seconds=1)
    assert await studio.refusal() is RefusalReason.KEY_NOT_VALID


async def test_a_signature_by_another_key_of_that_name_is_refused(studio: Studio) -> None:
    studio.platform.seed = bytes(32)
    assert await studio.refusal() is RefusalReason.BAD_SIGNATURE


async def test_a_good_manifest_in_the_place_of_another_is_refused(studio: Studio) -> None:
    shutil.copy(studio.folder / PLACES[ACL], studio.folder / PLACES[SNAPSHOT])
    assert await studio.refusal() is RefusalReason.WRONG_KIND


async def test_a_manifest_or_snapshot_that_is_too_large_is_refused_unread(studio: Studio) -> None:
    good = studio.manifest_path.read_bytes()
    studio.manifest_path.write_bytes(good + b" " * (64 << 10))
    assert await studio.refusal() is RefusalReason.OVERSIZED
    studio.manifest_path.write_bytes(good)
    studio.resign(
        lambda found: replace(found, parts=(replace(found.parts[0], size=1 << 40), *found.parts[1:]))
    )
    assert await studio.refusal() is RefusalReason.OVERSIZED


@pytest.mark.parametrize(
    "document",
    [
        b"",
        b"[]",
        b"null",
        b'{"type":"snavio.snapshot"}',
        b'{"type":"snavio.snapshot","type":"snavio.snapshot"}',
        b"[" * 60_000,
        b"\xff\xfe",
    ],
)
async def test_what_is_no_manifest_is_refused(studio: Studio, document: bytes) -> None:
    studio.manifest_path.write_bytes(document)
    assert await studio.refusal() in {RefusalReason.MALFORMED, RefusalReason.UNKNOWN_FORMAT}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("version_id", 7),
        ("version_id", "07"),
        ("version_id", "٧"),
        ("generated_at", "2026-01-01T00:00:00Z"),
        ("parts", []),
        ("parts", {}),
        ("key_id", "a b"),
        ("signature", "00"),
        ("ttl_policy", None),
        ("kind", "other"),
        ("extra", 1),
    ],
)
async def test_a_field_out_of_its_form_makes_a_manifest_malformed(
    studio: Studio, field: str, value: Any
) -> None:
    studio.rewrite(lambda document: document.update({field: value}))
    assert await studio.refusal() is RefusalReason.MALFORMED


async def test_a_manifest_of_another_format_says_so(studio: Studio) -> None:
    studio.rewrite(lambda document: document.update(format=2))
    assert await studio.refusal() is RefusalReason.UNKNOWN_FORMAT


async def test_a_part_cannot_lie_anywhere_else(studio: Studio) -> None:
    outside = replace(studio.manifest().parts[0], path="../../etc/passwd")
    studio.resign(lambda found: replace(found, parts=(outside, *found.parts[1:])))
    assert await studio.refusal() is RefusalReason.MALFORMED


async def test_a_link_is_not_followed(studio: Studio, tmp_path: Path) -> None:
    path = studio.part_path(SUSPENSIONS)
    elsewhere = tmp_path / "elsewhere"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)
    assert await studio.refusal() is RefusalReason.UNAVAILABLE


async def test_without_keys_there_is_no_snapshot(studio: Studio) -> None:
    studio.platform.failing = Unavailable("Signer is away.")
    assert await studio.refusal() is RefusalReason.UNAVAILABLE


async def test_a_damaged_mark_is_not_a_lower_one(studio: Studio) -> None:
    assert await studio.refusal() is None
    mark = studio.folder / "marks" / "fast-0"
    good = mark.read_bytes()
    for at in range(len(good)):
        damaged = bytearray(good)
        damaged[at] ^= 1
        mark.write_bytes(damaged)
        assert await studio.refusal() is RefusalReason.WATERMARK_DAMAGED
    mark.write_bytes(b"")
    assert await studio.refusal() is RefusalReason.WATERMARK_DAMAGED


async def test_parts_that_were_signed_and_cannot_be_read_are_refused(studio: Studio) -> None:
    def unreadable(_snapshot: VerifiedSnapshot) -> None:
        Dispatch().load_snapshot(b"", b"")

    loaded = await studio.reader.load(PARTS, unreadable)
    assert isinstance(loaded, Refused)
    assert loaded.refusal is RefusalReason.PART_UNREADABLE
