"""Why a snapshot is not used. Every reason leads to a cold load; none of them stops a service."""

from __future__ import annotations

from enum import StrEnum


class RefusalReason(StrEnum):
    """Stable names, as `Snavio.Cache.SnapshotLoadFailure` counts them."""

    ABSENT = "absent"
    """There is no manifest."""
    UNAVAILABLE = "unavailable"
    """The archive, or the list of keys, cannot be read."""
    MALFORMED = "malformed"
    """The manifest is not one."""
    UNKNOWN_FORMAT = "unknown-format"
    UNKNOWN_KEY = "unknown-key"
    KEY_NOT_VALID = "key-not-valid"
    """Known, but not good for the time at which the manifest was made."""
    BAD_SIGNATURE = "bad-signature"
    WRONG_KIND = "wrong-kind"
    """A good manifest in the place of another."""
    EXPIRED = "expired"
    FUTURE_DATED = "future-dated"
    ROLLED_BACK = "rolled-back"
    """Older than what this reader has accepted before."""
    WRONG_EPOCH = "wrong-epoch"
    """Of a directory that this reader has left behind."""
    WATERMARK_DAMAGED = "watermark-damaged"
    """What this reader has accepted before cannot be known."""
    OVERSIZED = "oversized"
    PART_MISSING = "part-missing"
    PART_TRUNCATED = "part-truncated"
    """Of another size than the manifest says."""
    PART_TAMPERED = "part-tampered"
    """Of another hash than the manifest says."""
    PART_UNREADABLE = "part-unreadable"
    """Verified, and still not what this program can read."""
    CANNOT_OPEN = "cannot-open"
    """Sealed, and this reader has not the key."""
    TOO_OLD = "too-old"
    """Good, and still older than what its reader may begin with."""


class SnapshotRefused(Exception):
    """Carries the reason out of the steps of a verification."""

    def __init__(self, refusal: RefusalReason, detail: str = "") -> None:
        super().__init__(detail or refusal.value)
        self.refusal = refusal
        self.detail = detail
