"""A source's HMAC keys: the signing version, the accepted versions, and the effects of rotation and revocation.

Pure: time and secrets come as arguments. Never shows a secret in a repr and never reuses a version number.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from enum import Enum

from snavio.errors import BadRequest, Conflict, NotFound

SECRET_BYTES = 32
# A producer whose clock is a little behind signs with the new key at a time before the key existed.
BACKDATE_NS = 5 * 60 * 1_000_000_000
# Ended versions are kept this long, so that late users get "expired" and not "unknown".
REMEMBER_NS = 7 * 24 * 3600 * 1_000_000_000
MAX_VERSIONS = 16
# Without it, sources that were registered in the same minute would always be rotated in the same minute.
SPREAD_FRACTION = 10
# `primary_from_ns` while a version spreads. Producers would keep to a planned time even if a Shield turned out to be
# late.
UNDECIDED_NS = (1 << 63) - 1


class KeyState(Enum):
    """State of a version at some time."""

    SPREADING = "spreading"
    PRIMARY = "primary"
    PREVIOUS = "previous"
    ENDED = "ended"
    REVOKED = "revoked"

    @property
    def accepted(self) -> bool:
        """True if Shield accepts commands signed with it."""
        return self not in (KeyState.ENDED, KeyState.REVOKED)


@dataclass(frozen=True, slots=True)
class KeyVersion:
    """One secret, and the range of signed times for which it is valid."""

    number: int
    secret: bytes = field(repr=False)
    not_before_ns: int
    primary_from_ns: int
    not_after_ns: int = 0
    """First signed time that is no longer accepted; 0 while no end is set."""
    revoked: bool = False

    def __post_init__(self) -> None:
        if len(self.secret) != SECRET_BYTES:
            raise BadRequest(f"An HMAC secret has {SECRET_BYTES} bytes.", reason="bad-secret")
        if self.number < 1:
            raise BadRequest("Key versions count from 1.", reason="bad-key-version")

    @property
    def name(self) -> str:
        """Such as `hmac-v3`."""
        return f"hmac-v{self.number}"

    @property
    def created_ns(self) -> int:
        """The time at which it was made."""
        return self.not_before_ns + BACKDATE_NS

    @property
    def undecided(self) -> bool:
        """True until it is known from when it signs."""
        return self.primary_from_ns == UNDECIDED_NS

    def accepts(self, signed_ns: int) -> bool:
        """True if a command signed at that time with this version is valid."""
        return not self.revoked and self.not_before_ns <= signed_ns and not self.ended(signed_ns)

    def ended(self, at_ns: int) -> bool:
        """True if its end is set and reached."""
        return self.not_after_ns != 0 and self.not_after_ns <= at_ns


@dataclass(frozen=True, slots=True)
class Keyset:
    """All versions of one source's key, oldest first."""

    source: str
    versions: tuple[KeyVersion, ...]
    minimum: int = 0
    """Versions with a smaller number are revoked, also ones that a mistake would bring back; 0 sets no minimum."""

    def __post_init__(self) -> None:
        numbers = [version.number for version in self.versions]
        if not numbers or numbers != sorted(set(numbers)):
            raise BadRequest("A key set has versions with rising numbers.", reason="bad-keyset")
        if any(version.number < self.minimum and not version.revoked for version in self.versions):
            raise BadRequest("A key version below the minimum must be revoked.", reason="bad-keyset")

    def version(self, name: str) -> KeyVersion:
        """The version called `name`; NotFound if there is none."""
        for version in self.versions:
            if version.name == name:
                return version
        raise NotFound(f"{self.source} has no key version {name}.", reason="unknown-key-version")

    def state(self, version: KeyVersion, now_ns: int) -> KeyState:
        """The state of one of its versions."""
        if version.revoked:
            return KeyState.REVOKED
        if version.ended(now_ns):
            return KeyState.ENDED
        if version.primary_from_ns > now_ns:
            return KeyState.SPREADING
        return KeyState.PRIMARY if version is self.primary(now_ns) else KeyState.PREVIOUS

    def accepted(self, now_ns: int) -> tuple[KeyVersion, ...]:
        """The versions that Shield accepts now."""
        return tuple(version for version in self.versions if self.state(version, now_ns).accepted)

    def replaced_ns(self, version: KeyVersion) -> int:
        """The time from which producers are given a newer version than `version`; 0 if there is none."""
        return min(
            (
                max(newer.created_ns, newer.primary_from_ns)
                for newer in self.versions
                if newer.number > version.number and not newer.undecided
            ),
            default=0,
        )

    def primary(self, now_ns: int) -> KeyVersion | None:
        """The version that producers sign with: the newest whose start has passed."""
        for version in reversed(self.versions):
            if version.primary_from_ns <= now_ns and not version.revoked and not version.ended(now_ns):
                return version
        return None

    def spreading(self, now_ns: int) -> KeyVersion | None:
        """The version that Shields are loading and producers do not sign with yet.

        Also one whose start is in the future again, after a clock was set back.
        """
        newest = self.versions[-1]
        return newest if newest.primary_from_ns > now_ns and not newest.revoked else None


def create(source: str, *, secret: bytes, now_ns: int) -> Keyset:
    """A key set with its first key, primary at once."""
    return Keyset(source, (_immediate((), secret=secret, now_ns=now_ns),))


def rotate(keyset: Keyset, *, secret: bytes, now_ns: int) -> Keyset:
    """Add a version that Shields accept and producers do not use until it is promoted.

    A producer that signs with a key before Shield has it would be refused.
    """
    if keyset.spreading(now_ns) is not None:
        raise Conflict(f"{keyset.source}: a new key version is still spreading.", reason="rotation-under-way")
    added = KeyVersion(
        keyset.versions[-1].number + 1,
        secret,
        not_before_ns=now_ns - BACKDATE_NS,
        primary_from_ns=UNDECIDED_NS,
    )
    return replace(keyset, versions=_recent((*keyset.versions, added), now_ns=now_ns))


def promote(keyset: Keyset, name: str, *, now_ns: int, overlap_ns: int) -> Keyset:
    """Make the spreading version primary; the one before it stays valid `overlap_ns` longer.

    Unchanged if `name` is not the spreading version: another caller promoted it first.
    """
    newest = keyset.versions[-1]
    if newest.name != name or not newest.undecided or newest.revoked:
        return keyset
    primary = keyset.primary(now_ns)
    # After every one before it, also when the clock was set back: producers sign with the latest.
    decided = [version.primary_from_ns + 1 for version in keyset.versions if not version.undecided]
    primary_from = max([now_ns, *decided])
    # Only the current and the previous version: once the new one is primary, the version before the previous one ends,
    # however much of its overlap is left.
    kept = tuple(
        _end(version, primary_from + overlap_ns if version is primary else primary_from)
        for version in keyset.versions[:-1]
    )
    promoted = replace(newest, primary_from_ns=primary_from)
    return replace(keyset, versions=_recent((*kept, promoted), now_ns=now_ns))


def revoke(keyset: Keyset, name: str, *, secret: bytes, now_ns: int) -> Keyset:
    """Revoke the version `name` at once; if it was the primary, a successor is primary at once.

    The successor is the spreading version, or a new one made of `secret`. Revoking the spreading version removes the
    end of the primary again. Revoking a revoked version changes nothing.
    """
    victim = keyset.version(name)
    if victim.revoked:
        return keyset
    primary, spreading = keyset.primary(now_ns), keyset.spreading(now_ns)
    changed = {victim.number: replace(victim, revoked=True)}
    if victim is spreading and primary is not None:
        changed[primary.number] = replace(primary, not_after_ns=0)
    elif victim is primary and spreading is not None:
        changed[spreading.number] = replace(
            spreading, primary_from_ns=_earliest_primary(keyset.versions, now_ns=now_ns)
        )
    versions = tuple(changed.get(version.number, version) for version in keyset.versions)
    if victim is primary and spreading is None:
        versions += (_immediate(versions, secret=secret, now_ns=now_ns),)
    return replace(keyset, versions=_recent(versions, now_ns=now_ns))


def raise_minimum(keyset: Keyset, name: str, *, now_ns: int) -> Keyset:
    """Refuse every version below `name`, at once and for good.

    They are revoked and not ended: an end is compared with the signed time, which the holder of an old secret chooses
    within Shield's window. Refused if no version could sign afterwards, and if it would lower the minimum.
    """
    lowest = keyset.version(name)
    if lowest.number == keyset.minimum:
        return keyset
    if lowest.number < keyset.minimum:
        raise Conflict(
            f"{keyset.source}: the minimum is hmac-v{keyset.minimum} and only rises.",
            reason="minimum-only-rises",
        )
    primary = keyset.primary(now_ns)
    if primary is None or lowest.number > primary.number:
        raise Conflict(
            f"{keyset.source}: producers do not sign with {name} yet, so they would all be refused.",
            reason="minimum-above-primary",
        )
    versions = tuple(
        replace(version, revoked=True) if version.number < lowest.number else version
        for version in keyset.versions
    )
    return replace(keyset, versions=versions, minimum=lowest.number)


def rotation_due_ns(keyset: Keyset, *, cadence_ns: int) -> int:
    """The time of the next scheduled rotation: one cadence after the newest key became primary, minus a jitter.

    It is computed from the key set alone. A rotation and its place in the schedule are therefore one write, and a clock
    that is set back finds the rotation done. The jitter is a constant of the source.
    """
    living = [
        version.created_ns if version.undecided else version.primary_from_ns
        for version in keyset.versions
        if not version.revoked
    ]
    share = int.from_bytes(hashlib.sha256(keyset.source.encode()).digest()[:4], "big")
    return max(living, default=0) + cadence_ns - (cadence_ns // SPREAD_FRACTION * share >> 32)


def _immediate(before: tuple[KeyVersion, ...], *, secret: bytes, now_ns: int) -> KeyVersion:
    number = before[-1].number + 1 if before else 1
    primary_from = _earliest_primary(before, now_ns=now_ns)
    return KeyVersion(number, secret, not_before_ns=now_ns - BACKDATE_NS, primary_from_ns=primary_from)


def _earliest_primary(before: tuple[KeyVersion, ...], *, now_ns: int) -> int:
    """A time in the past, for producers whose clock is behind, but after every earlier primary."""
    due = [version.primary_from_ns + 1 for version in before if version.primary_from_ns <= now_ns]
    return min(now_ns, max([now_ns - BACKDATE_NS, *due]))


def _end(version: KeyVersion, at_ns: int) -> KeyVersion:
    """The version with an end, which only moves earlier: a later end would bring a version back."""
    if version.not_after_ns and version.not_after_ns <= at_ns:
        return version
    return replace(version, not_after_ns=at_ns)


def _recent(versions: tuple[KeyVersion, ...], *, now_ns: int) -> tuple[KeyVersion, ...]:
    kept = [version for version in versions if not version.ended(now_ns - REMEMBER_NS)]
    if len(kept) > MAX_VERSIONS:
        # A source revokes in a loop. The oldest ended versions are dropped; there are never more than three others.
        dead = [version for version in kept if version.revoked or version.ended(now_ns)]
        dropped = {version.number for version in dead[: len(kept) - MAX_VERSIONS]}
        kept = [version for version in kept if version.number not in dropped]
    return tuple(kept)
