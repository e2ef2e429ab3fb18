"""The claim rule of strict delivery: one id of one source is dispatched by one owner at a time.

Pure, as `quota` is. Never ends a claim because of a missing answer: only its owner releases it, and another owner can
take it over only after its lease.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum


@dataclass(frozen=True, slots=True)
class Claim:
    """The record of one (source, id)."""

    payload: bytes
    """BLAKE3 of the payload of the first claim."""
    owner: str
    committed: bool
    lease_until_ms: int
    expires_ms: int


class Claimed(IntEnum):
    """The result of an attempt to claim."""

    NEW = 1
    """The caller owns the claim and may dispatch."""
    TAKEN_OVER = 2
    """As NEW, but the previous owner's lease ended: a dispatch of that owner may arrive as well."""
    DUPLICATE = 3
    """The id was delivered before."""
    CONFLICT = 4
    """The id belongs to another target, name or payload."""
    PENDING = 5
    """Another owner holds the claim."""
    UNKNOWN = 6
    """The store is younger than the dedupe time: the id may have been delivered before."""


@dataclass(frozen=True, slots=True)
class Terms:
    """Durations of a claim."""

    lease_ms: int
    keep_ms: int


def claim(
    found: Claim | None, *, payload: bytes, owner: str, now_ms: int, terms: Terms, born_ms: int
) -> tuple[Claim | None, Claimed, int]:
    """The record afterwards, the result for the caller, and the milliseconds after which a retry is useful."""
    # Stores expire lazily: the record found may be expired.
    if found is None or found.expires_ms <= now_ms:
        forgotten_ms = born_ms + terms.keep_ms if born_ms else 0
        if now_ms < forgotten_ms:
            return None, Claimed.UNKNOWN, forgotten_ms - now_ms
        return _owned(payload, owner, now_ms, terms), Claimed.NEW, 0
    if found.payload != payload:
        return found, Claimed.CONFLICT, 0
    if found.committed:
        return found, Claimed.DUPLICATE, 0
    if now_ms < found.lease_until_ms:
        # A lease from the future is no longer than a lease: a clock that was set back must not bar an id for hours.
        left_ms = min(found.lease_until_ms - now_ms, terms.lease_ms)
        kept = replace(found, lease_until_ms=now_ms + left_ms)
        return kept, Claimed.PENDING, left_ms
    return _owned(payload, owner, now_ms, terms), Claimed.TAKEN_OVER, 0


def look_up(found: Claim | None, *, now_ms: int, terms: Terms, born_ms: int) -> tuple[Claimed, int, int]:
    """The result that the same command would have now, its hint, and when it was delivered if it was."""
    payload = found.payload if found is not None else b""
    _, claimed, retry_after_ms = claim(
        found, payload=payload, owner="", now_ms=now_ms, terms=terms, born_ms=born_ms
    )
    return claimed, retry_after_ms, delivered_ms(found, claimed, terms)


def delivered_ms(found: Claim | None, claimed: Claimed, terms: Terms) -> int:
    """When the command of a claim was delivered; 0 where the claim does not say so."""
    return found.expires_ms - terms.keep_ms if found is not None and claimed is Claimed.DUPLICATE else 0


def commit(found: Claim | None, *, owner: str, now_ms: int, terms: Terms) -> Claim | None:
    """Mark as delivered. After a takeover the former owner changes nothing: its successor commits."""
    if found is None or found.owner != owner:
        return found
    return replace(found, committed=True, expires_ms=now_ms + terms.keep_ms)


def release(found: Claim | None, *, owner: str) -> Claim | None:
    """Free the id after a definite non-delivery, unless it was committed or taken over."""
    return None if found is not None and found.owner == owner and not found.committed else found


def _owned(payload: bytes, owner: str, now_ms: int, terms: Terms) -> Claim:
    return Claim(
        payload=payload,
        owner=owner,
        committed=False,
        lease_until_ms=now_ms + terms.lease_ms,
        expires_ms=now_ms + terms.keep_ms,
    )
