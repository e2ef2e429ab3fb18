"""Reasons to refuse a snapshot. Every one leads to a cold load; none stops a service."""

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
    """The key is known, but was not valid when the manifest was made."""
    BAD_SIGNATURE = "bad-signature"
    WRONG_KIND = "wrong-kind"
    """A valid manifest of another kind."""
    EXPIRED = "expired"
    FUTURE_DATED = "future-dated"
    ROLLED_BACK = "rolled-back"
    """Older than a snapshot that this reader has accepted."""
    WRONG_EPOCH = "wrong-epoch"
    """Of an epoch that this reader has left."""
    WATERMARK_DAMAGED = "watermark-damaged"
    """The newest accepted snapshot cannot be known."""
    OVERSIZED = "oversized"
    PART_MISSING = "part-missing"
    PART_TRUNCATED = "part-truncated"
    """The size differs from the manifest's."""
    PART_TAMPERED = "part-tampered"
    """The hash differs from the manifest's."""
    PART_UNREADABLE = "part-unreadable"
    """Verified, but in a form that this program cannot read."""
    CANNOT_OPEN = "cannot-open"
    """Sealed with a key that this reader does not have."""
    TOO_OLD = "too-old"
    """Valid, but older than its reader may start with."""


class SnapshotRefused(Exception):
    """Carries the reason out of a verification."""

    def __init__(self, refusal: RefusalReason, detail: str = "") -> None:
        super().__init__(detail or refusal.value)
        self.refusal = refusal
        self.detail = detail
