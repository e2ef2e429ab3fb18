"""The signed manifest of a snapshot: its parts, its version and time, and its lifetime.

Valid once built. Never reads a manifest leniently: a missing, extra or doubled field makes it malformed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from snavio.native import format_timestamp, parse_timestamp
from snavio.signed.signed_document import (
    KEY_ID,
    TIME,
    SignedDocument,
    UnknownFormat,
    read_signed,
    text_in,
)
from snavio.signed.snapshot_refusal import RefusalReason, SnapshotRefused

TYPE: Final = "snavio.snapshot"
FORMAT: Final = 1
MAX_MANIFEST_BYTES: Final = 64 << 10
MAX_PARTS: Final = 16
SNAPSHOT, ACL, HMAC = "snapshot", "acl", "hmac"
PLACES: Final[Mapping[str, str]] = {kind: f"registry/{kind}/latest.json" for kind in (SNAPSHOT, ACL, HMAC)}
"""The place of each manifest."""

# The ages that readers of this version apply; published so that operators can compare.
TTL_POLICY: Final[Mapping[str, Mapping[str, int]]] = {
    "critical": {"fresh_seconds": 2, "stale_seconds": 4, "ceiling_seconds": 5},
    "moderate": {"fresh_seconds": 10, "stale_seconds": 20, "ceiling_seconds": 30},
    "low": {"fresh_seconds": 30, "stale_seconds": 90, "ceiling_seconds": 120},
    "sync": {"fresh_seconds": 0, "stale_seconds": 0, "ceiling_seconds": 0},
}

_FIELDS = {
    "type",
    "format",
    "kind",
    "version_id",
    "directory_epoch",
    "generated_at",
    "expires_at",
    "ttl_policy",
    "parts",
    "key_id",
    "signature",
}
_PART_FIELDS = {"name", "path", "size", "rows", "blake3"}
_NUMBER = re.compile(r"0|[1-9][0-9]{0,18}")
_PART_NAME = re.compile(r"[a-z]{1,16}")
_HASH = re.compile(r"b3:[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class ManifestPart:
    """One part, by its place, size and hash."""

    name: str
    path: str
    size: int
    rows: int
    blake3: str

    def document(self) -> dict[str, Any]:
        """The JSON object of the part."""
        return {
            "name": self.name,
            "path": self.path,
            "size": self.size,
            "rows": self.rows,
            "blake3": f"b3:{self.blake3}",
        }


@dataclass(frozen=True, slots=True)
class Manifest(SignedDocument):
    """See the module."""

    kind: str
    version: int
    epoch: int
    generated_unix_ns: int
    expires_unix_ns: int
    parts: tuple[ManifestPart, ...]

    def part(self, name: str) -> ManifestPart:
        """The part of that name; a manifest without it is malformed."""
        for part in self.parts:
            if part.name == name:
                return part
        raise SnapshotRefused(RefusalReason.MALFORMED, f"The manifest has no part {name}.")

    @property
    def total_bytes(self) -> int:
        """All parts together."""
        return sum(part.size for part in self.parts)

    def document(self) -> dict[str, Any]:
        """The JSON object without the signature. Numbers that may exceed 2^53 are texts."""
        return {
            "type": TYPE,
            "format": FORMAT,
            "kind": self.kind,
            "version_id": str(self.version),
            "directory_epoch": str(self.epoch),
            "generated_at": format_timestamp(self.generated_unix_ns),
            "expires_at": format_timestamp(self.expires_unix_ns),
            "ttl_policy": TTL_POLICY,
            "parts": [part.document() for part in self.parts],
            "key_id": self.key_id,
        }


def part_path(name: str, *, version: int, epoch: int) -> str:
    """The place of a part: each version of each directory has its own, so that none is ever replaced."""
    return f"registry/{name}/{version:020d}-{epoch:016x}.bin"


@dataclass(frozen=True, slots=True)
class Unverified:
    """A well-formed manifest that is not verified."""

    manifest: Manifest
    signed: bytes


def read_manifest(encoded: bytes) -> Unverified:
    """The manifest and the bytes that its signature must cover. SnapshotRefused when it is malformed."""
    if len(encoded) > MAX_MANIFEST_BYTES:
        raise SnapshotRefused(RefusalReason.OVERSIZED, "The manifest is too large.")
    try:
        found, signature, signed = read_signed(encoded, kind=TYPE, form=FORMAT, fields=_FIELDS)
        return Unverified(_manifest(found, signature), signed)
    except UnknownFormat:
        raise SnapshotRefused(RefusalReason.UNKNOWN_FORMAT, "The manifest is of another format.") from None
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise SnapshotRefused(RefusalReason.MALFORMED, f"Not a manifest: {error}.") from error


def _manifest(found: dict[str, Any], signature: bytes) -> Manifest:
    if found["kind"] not in PLACES:
        raise ValueError("its kind is unknown")
    version = int(text_in(found, "version_id", _NUMBER))
    epoch = int(text_in(found, "directory_epoch", _NUMBER))
    parts = found["parts"]
    if not isinstance(parts, list) or not 1 <= len(parts) <= MAX_PARTS:
        raise ValueError("it has no parts")
    read = tuple(_part(part, version=version, epoch=epoch) for part in parts)
    if len({part.name for part in read}) != len(read):
        raise ValueError("two parts have one name")
    if not isinstance(found["ttl_policy"], dict):
        raise ValueError("it has no ttl_policy")
    return Manifest(
        kind=found["kind"],
        version=version,
        epoch=epoch,
        generated_unix_ns=parse_timestamp(text_in(found, "generated_at", TIME)),
        expires_unix_ns=parse_timestamp(text_in(found, "expires_at", TIME)),
        parts=read,
        key_id=text_in(found, "key_id", KEY_ID),
        signature=signature,
    )


def _part(found: Any, *, version: int, epoch: int) -> ManifestPart:
    if not isinstance(found, dict) or set(found) != _PART_FIELDS:
        raise ValueError("a part's fields are not those of a part")
    name = text_in(found, "name", _PART_NAME)
    # Derived, not trusted: a manifest cannot point a reader at some other file.
    if found["path"] != part_path(name, version=version, epoch=epoch):
        raise ValueError("a part lies somewhere else")
    size, rows = found["size"], found["rows"]
    if type(size) is not int or type(rows) is not int or size < 0 or rows < 0:
        raise ValueError("a part's size is not a number")
    return ManifestPart(name, found["path"], size, rows, text_in(found, "blake3", _HASH).removeprefix("b3:"))
