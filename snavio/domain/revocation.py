"""Bounds per profile on the use of a right after its revocation, and measured times.

Never rounds in its own favour: a percentile is one of the measured times, and the next larger one in doubt.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from snavio.domain.directory.route import Profile

CEILING_S: Final[Mapping[Profile, float]] = {
    Profile.CRITICAL: 5.0,
    Profile.MODERATE: 30.0,
    Profile.LOW: 120.0,
    Profile.SYNC: 0.0,
}
"""The age up to which Fast uses a cached right; beyond it Fast asks Slow, which asks Registry."""


@dataclass(frozen=True, slots=True)
class RevocationTimes:
    """Seconds from a revocation to the last command that was sent after it and still accepted."""

    profile: Profile
    seconds: tuple[float, ...]

    @property
    def p50(self) -> float:
        """Half of them took at most this long."""
        return percentile(self.seconds, 0.50)

    @property
    def p99(self) -> float:
        """99 of 100 took at most this long."""
        return percentile(self.seconds, 0.99)

    @property
    def max(self) -> float:
        """The longest."""
        return max(self.seconds, default=0.0)

    @property
    def bound_s(self) -> float:
        """The bound that the profile promises."""
        return CEILING_S[self.profile]

    @property
    def kept(self) -> bool:
        """True if every measured time is within the bound."""
        return self.max <= self.bound_s


def percentile(times: Sequence[float], share: float) -> float:
    """The smallest of the times that at least `share` of them do not exceed; 0 for no times."""
    ordered = sorted(times)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else 0.0


def last_accepted_s(sent: Sequence[tuple[int, bool]], revoked_mono_ns: int) -> float:
    """The time from a revocation to the last accepted command, given when each was sent and its result.

    Commands sent before the revocation are not counted.
    """
    accepted = [at for at, was_accepted in sent if was_accepted and at >= revoked_mono_ns]
    return max(0, max(accepted, default=revoked_mono_ns) - revoked_mono_ns) / 1e9
