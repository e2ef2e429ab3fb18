"""The sealed part of a snapshot: with any change to its bytes, it opens as it was sealed or not at all."""

from __future__ import annotations

import pytest

from snavio.native import blake3_hex
from snavio.signed.sealed_part import key_id_of, read_header, seal, unseal
from snavio.signed.snapshot_manifest import HMAC, Manifest, ManifestPart, part_path
from snavio.signed.snapshot_refusal import RefusalReason, SnapshotRefused
from snavio.signed.verification import KEYSETS, verify_part

KEY, OTHER = bytes(range(32)), bytes(range(1, 33))
PLAIN = b"all the secrets there are"


def sealed(key: bytes = KEY) -> bytes:
    return seal(PLAIN, key=key, rows=3, version=7, epoch=1 << 62)


def test_a_sealed_part_opens_with_its_key_and_says_what_it_is() -> None:
    part = sealed()
    assert unseal(part, key=KEY) == PLAIN
    header = read_header(part)
    assert (header.rows, header.version, header.epoch, header.key_id) == (3, 7, 1 << 62, key_id_of(KEY))
    assert PLAIN not in part
    assert KEY not in part


def test_two_seals_of_the_same_are_not_the_same() -> None:
    assert sealed() != sealed()


def test_another_key_opens_nothing_and_is_named_as_such() -> None:
    with pytest.raises(SnapshotRefused) as refused:
        unseal(sealed(), key=OTHER)
    assert refused.value.refusal is RefusalReason.CANNOT_OPEN


def test_one_flipped_bit_at_any_position_does_not_open() -> None:
    part = sealed()
    for bit in range(8 * len(part)):
        changed = bytearray(part)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises((ValueError, SnapshotRefused)):
            unseal(bytes(changed), key=KEY)


def test_a_part_cut_anywhere_or_made_longer_does_not_open() -> None:
    part = sealed()
    for length in range(len(part)):
        with pytest.raises((ValueError, SnapshotRefused)):
            unseal(part[:length], key=KEY)
    with pytest.raises(ValueError, match="changed"):
        unseal(part + b"\0", key=KEY)


def manifest_of(part: bytes, *, version: int = 7, rows: int = 3) -> Manifest:
    epoch = 1 << 62
    described = ManifestPart(
        KEYSETS, part_path(KEYSETS, version=version, epoch=epoch), len(part), rows, blake3_hex(part)
    )
    return Manifest(HMAC, version, epoch, 1, 2, (described,))


def test_a_part_is_verified_against_its_manifest_before_anybody_opens_it() -> None:
    part = sealed()
    manifest = manifest_of(part)
    verify_part(manifest.part(KEYSETS), part, of=manifest)
    for change, refusal in (
        (part[:-1], RefusalReason.PART_TRUNCATED),
        (part[:-1] + bytes([part[-1] ^ 1]), RefusalReason.PART_TAMPERED),
    ):
        with pytest.raises(SnapshotRefused) as refused:
            verify_part(manifest.part(KEYSETS), change, of=manifest)
        assert refused.value.refusal is refusal


@pytest.mark.parametrize("lie", [{"version": 8}, {"rows": 4}])
def test_a_manifest_cannot_pass_a_part_off_as_another(lie: dict[str, int]) -> None:
    part = sealed()
    manifest = manifest_of(part, **lie)
    with pytest.raises(SnapshotRefused) as refused:
        verify_part(manifest.part(KEYSETS), part, of=manifest)
    assert refused.value.refusal is RefusalReason.PART_UNREADABLE


def test_what_is_no_sealed_part_in_its_place_is_refused() -> None:
    for part in (b"", b"SNAVSNAP" + bytes(100), bytes(200), b"SNAVSEAL\x02" + bytes(100)):
        manifest = manifest_of(part)
        with pytest.raises(SnapshotRefused) as refused:
            verify_part(manifest.part(KEYSETS), part, of=manifest)
        assert refused.value.refusal is RefusalReason.PART_UNREADABLE
