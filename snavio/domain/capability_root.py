"""The root keys of one realm by version: the current one, those still accepted, and those revoked.

Pure. The minimum only rises, and an end only moves earlier: a revoked version stays revoked.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from snavio.domain.caveat import require_pattern
from snavio.errors import BadRequest, Conflict

MAX_OVERLAPPING: Final = 8
MAX_VERSION: Final = 10**9 - 1


@dataclass(frozen=True, slots=True)
class RootLine:
    """The versions of one realm's root key. A realm that was never rotated is at version 1."""

    realm: str
    version: int = 1
    """The version that makes new capabilities."""
    minimum: int = 1
    """Capabilities of an older version are revoked."""
    ends: tuple[tuple[int, int], ...] = ()
    """Older versions that are still accepted, each with its end, nanoseconds since the epoch."""

    def __post_init__(self) -> None:
        require_pattern(self.realm)
        if not 1 <= self.minimum <= self.version <= MAX_VERSION:
            raise BadRequest("A root line's minimum is at most its version.", reason="bad-root-line")

    def accepts(self, version: int, now_ns: int) -> bool:
        """True if capabilities of that version are accepted now.

        A version newer than the known one is accepted: only Signer can have made it, and the update is on its way.
        """
        if version < self.minimum:
            return False
        return version >= self.version or any(old == version and now_ns < end for old, end in self.ends)


def rotate_line(line: RootLine, *, now_ns: int, overlap_ns: int) -> RootLine:
    """The line with the next version; the current one is accepted for `overlap_ns` longer."""
    kept = tuple((old, end) for old, end in line.ends if end > now_ns and old >= line.minimum)
    if len(kept) >= MAX_OVERLAPPING:
        raise Conflict(
            f"{line.realm}: {len(kept)} older root keys are still good; wait until one ends, or revoke.",
            reason="too-many-roots",
        )
    return replace(line, version=line.version + 1, ends=(*kept, (line.version, now_ns + overlap_ns)))


def revoke_through(line: RootLine, version: int) -> RootLine:
    """Revoke `version` and all before it at once; if it is the newest, the next one replaces it."""
    if not 1 <= version <= line.version:
        raise BadRequest(
            f"{line.realm} has root keys 1 to {line.version}, not {version}.", reason="unknown-root-version"
        )
    minimum = max(line.minimum, version + 1)
    return replace(
        line,
        version=max(line.version, minimum),
        minimum=minimum,
        ends=tuple((old, end) for old, end in line.ends if old >= minimum),
    )
