"""How long a right is still used after it was taken away: the bounds per profile, and measured times.

Never rounds in its own favour: a percentile is one of the times that were measured, and the next larger one in doubt.
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
"""How old a right may be when Fast uses it; older, it asks Slow, which asks Registry."""


@dataclass(frozen=True, slots=True)
class RevocationTimes:
    """From a revocation to the last command that was sent after it and still accepted, in seconds."""

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
        """What the profile promises."""
        return CEILING_S[self.profile]

    @property
    def kept(self) -> bool:
        """Whether the promise was kept every time."""
        return self.max <= self.bound_s


def percentile(times: Sequence[float], share: float) -> float:
    """The smallest of the times that at least `share` of them do not exceed; 0 for none."""
    ordered = sorted(times)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else 0.0


def last_accepted_s(sent: Sequence[tuple[int, bool]], revoked_mono_ns: int) -> float:
    """The time from a revocation to the last accepted command, given when each was sent and what became of it.

    Commands that were on their way when the right went are not counted: they were sent while it stood.
    """
    accepted = [at for at, was_accepted in sent if was_accepted and at >= revoked_mono_ns]
    return max(0, max(accepted, default=revoked_mono_ns) - revoked_mono_ns) / 1e9
