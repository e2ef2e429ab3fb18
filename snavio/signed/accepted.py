"""The newest snapshot that a reader has accepted, so that an older one is refused.

Versions of one directory only rise. A restored directory has another epoch; it is followed once, if it is newer than
all before, and an epoch that was left is never accepted again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import orjson

from snavio.native import blake3_hex
from snavio.signed.snapshot_manifest import Manifest
from snavio.signed.snapshot_refusal import RefusalReason, SnapshotRefused

# Restores are rare; the oldest are dropped, and the rule about times still holds for them.
MAX_LEFT: Final = 64


@dataclass(frozen=True, slots=True)
class AcceptedSnapshot:
    """The newest snapshot accepted; all zero before the first."""

    epoch: int = 0
    version: int = 0
    generated_unix_ns: int = 0
    left: tuple[int, ...] = ()

    def after(self, manifest: Manifest) -> AcceptedSnapshot:
        """The state after accepting `manifest`; SnapshotRefused when it must not be accepted."""
        newest = max(self.generated_unix_ns, manifest.generated_unix_ns)
        if self.epoch in (manifest.epoch, 0):
            if manifest.version < self.version:
                raise SnapshotRefused(
                    RefusalReason.ROLLED_BACK,
                    f"Version {self.version} was accepted before, this is {manifest.version}.",
                )
            return replace(self, epoch=manifest.epoch, version=manifest.version, generated_unix_ns=newest)
        if manifest.epoch in self.left or manifest.generated_unix_ns <= self.generated_unix_ns:
            raise SnapshotRefused(
                RefusalReason.WRONG_EPOCH, "The snapshot is of a directory that was left behind."
            )
        left = (*self.left, self.epoch)[-MAX_LEFT:]
        return AcceptedSnapshot(manifest.epoch, manifest.version, newest, left)

    def encoded(self) -> bytes:
        """The state as bytes, with a checksum: a torn or damaged file must not read as a lower mark."""
        body = orjson.dumps([self.epoch, self.version, self.generated_unix_ns, list(self.left)])
        return blake3_hex(body).encode() + b"\n" + body


def read_seen(encoded: bytes | None) -> AcceptedSnapshot:
    """The inverse of `AcceptedSnapshot.encoded`; the initial state when there is no file."""
    if encoded is None:
        return AcceptedSnapshot()
    checksum, _, body = encoded.partition(b"\n")
    try:
        if checksum != blake3_hex(body).encode():
            raise ValueError("checksum")
        epoch, version, generated_unix_ns, left = orjson.loads(body)
        return AcceptedSnapshot(
            int(epoch), int(version), int(generated_unix_ns), tuple(int(one) for one in left)
        )
    except (ValueError, TypeError) as error:
        raise SnapshotRefused(
            RefusalReason.WATERMARK_DAMAGED, "What was accepted before cannot be read."
        ) from error


class NoWatermark:
    """A `Watermark` for inspection: it stores nothing, so that looking changes nothing."""

    def read(self) -> bytes | None:
        return None

    def keep(self, contents: bytes) -> None:
        """Stores nothing."""
