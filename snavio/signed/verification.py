"""Verifies a snapshot: signature, key, kind and times, then sizes and hashes, in that order.

Pure, and the same for writers and readers. No part is parsed before all of it has been verified, and without a
verifying key there is no snapshot.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from snavio.native import Dispatch, blake3_hex, ed25519_verify, snapshot_header, snapshot_suspensions
from snavio.signed.sealed_part import read_header
from snavio.signed.snapshot_manifest import Manifest, ManifestPart, Unverified
from snavio.signed.snapshot_refusal import RefusalReason, SnapshotRefused

ROUTES, ACL, SUSPENSIONS, BANS, TERMS = "routes", "acl", "suspensions", "bans", "terms"
KEYSETS = "hmac"


@dataclass(frozen=True, slots=True)
class VerifyingKey:
    """A public key of the platform, and its times of validity; an end of 0 is none."""

    key_id: str
    public_key: bytes
    valid_from_unix_ns: int
    valid_until_unix_ns: int = 0

    def good_at(self, unix_ns: int) -> bool:
        """True if the key was valid then."""
        return self.valid_from_unix_ns <= unix_ns and not 0 < self.valid_until_unix_ns <= unix_ns


@dataclass(frozen=True, slots=True)
class VerifiedSnapshot:
    """A verified manifest with verified parts."""

    manifest: Manifest
    parts: Mapping[str, bytes]


def verify_manifest(
    found: Unverified, *, kind: str, keys: Sequence[VerifyingKey], now_unix_ns: int, max_bytes: int
) -> Manifest:
    """The manifest, verified at `now_unix_ns`; SnapshotRefused otherwise."""
    manifest = found.manifest
    known = [key for key in keys if key.key_id == manifest.key_id]
    if not known:
        raise SnapshotRefused(RefusalReason.UNKNOWN_KEY, "Nobody knows the key that signed the manifest.")
    # At both times: a key that has ended since may be stolen, and then the time in the manifest is forged too.
    good = [key for key in known if key.good_at(manifest.generated_unix_ns) and key.good_at(now_unix_ns)]
    if not good:
        raise SnapshotRefused(
            RefusalReason.KEY_NOT_VALID, "The key that signed the manifest is not good for its time."
        )
    if not any(ed25519_verify(key.public_key, found.signed, manifest.signature) for key in good):
        raise SnapshotRefused(RefusalReason.BAD_SIGNATURE, "The manifest's signature does not fit.")
    if manifest.kind != kind:
        raise SnapshotRefused(
            RefusalReason.WRONG_KIND, f"The manifest is one of {manifest.kind}, not of {kind}."
        )
    if manifest.generated_unix_ns > now_unix_ns:
        # Its age would be negative, and its rights would stay fresh longer than permitted.
        raise SnapshotRefused(RefusalReason.FUTURE_DATED, "The manifest is from the future.")
    if manifest.expires_unix_ns <= now_unix_ns:
        raise SnapshotRefused(RefusalReason.EXPIRED, "The snapshot has expired.")
    if manifest.total_bytes > max_bytes:
        raise SnapshotRefused(RefusalReason.OVERSIZED, f"The snapshot is larger than {max_bytes} bytes.")
    return manifest


def verify_part(part: ManifestPart, contents: bytes, *, of: Manifest) -> None:
    """Verify size and hash, and only then the part's own header."""
    if len(contents) != part.size:
        raise SnapshotRefused(
            RefusalReason.PART_TRUNCATED, f"The part {part.name} is not of the size it should be."
        )
    if blake3_hex(contents) != part.blake3:
        raise SnapshotRefused(
            RefusalReason.PART_TAMPERED, f"The part {part.name} is not the one that was signed."
        )
    try:
        says = _sealed_header(contents) if part.name == KEYSETS else snapshot_header(contents)
    except ValueError as error:
        raise SnapshotRefused(RefusalReason.PART_UNREADABLE, f"{part.name}: {error}.") from error
    if says != (part.name, of.version, of.epoch, part.rows):
        raise SnapshotRefused(RefusalReason.PART_UNREADABLE, f"The part {part.name} says it is another.")


def _sealed_header(contents: bytes) -> tuple[str, int, int, int]:
    header = read_header(contents)
    return KEYSETS, header.version, header.epoch, header.rows


def examine(snapshot: VerifiedSnapshot) -> None:
    """Parse everything as readers would: every present part, into tables that are discarded."""
    parts = snapshot.parts
    try:
        if ROUTES in parts and ACL in parts:
            Dispatch().load_snapshot(
                parts[ROUTES], parts[ACL], bans_part=parts.get(BANS), terms_part=parts.get(TERMS)
            )
        if SUSPENSIONS in parts:
            snapshot_suspensions(parts[SUSPENSIONS])
    except ValueError as error:
        raise SnapshotRefused(
            RefusalReason.PART_UNREADABLE, f"The snapshot cannot be read: {error}."
        ) from error
