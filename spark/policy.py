"""From when on traffic is abuse, as one value with a version.

Never changes quietly: the version is part of every proposal's id, so that two policies never share one. An audit judges
the bans of its own version, so another threshold needs another version: else it would take back the default policy's.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, fields
from typing import Any, Final, Self

VERSION: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,31}", re.ASCII)
"""The carrier of proposals reads versions by the same form; a test holds the two together."""
DEFAULT_VERSION: Final = "2"
BURSTS: Final = {
    "burst-invalid-hmac": "hmac",
    "burst-replayed": "replayed",
    "burst-schema": "schema",
    "burst-misrouted": "misrouted",
}
"""Kinds of refusal, and what the policy's thresholds of each are called."""


@dataclass(frozen=True, slots=True)
class DetectionPolicy:
    """Thresholds. Periods are aligned to the epoch, so that a proposal's id does not depend on when a job ran."""

    version: str = DEFAULT_VERSION
    window_seconds: int = 30
    """In which shares are counted; Fast's own windows have as many."""
    period_minutes: int = 10
    """Length of an aligned period: a source is proposed once in it for each kind of abuse."""
    single_target_share: float = 0.7
    """X: share of a route's permits; a route whose own `dominant_share` is above 0.8 raises it by as much."""
    several_targets_share: float = 0.5
    """Y: the same, for a source that does it on several targets."""
    several_targets: int = 2
    rival_minimum: int = 5
    """Commands in a window from which on another source counts: a probe is no rival."""
    harm_share: float = 0.05
    """Of the rivals' offers, so many were limited or found the target saturated."""
    harm_minimum: int = 5
    """And at least so many."""
    hit_points: int = 8
    """For a window in which a source held most and others were harmed."""
    miss_points: int = 1
    """Taken away for every other window."""
    alarm_points: int = 25
    """Four such windows in a row, or more that come again and again."""
    burst_hmac: int = 200
    """Refused commands beyond the allowance."""
    burst_replayed: int = 200
    burst_schema: int = 500
    burst_misrouted: int = 500
    allowed_hmac: int = 5
    """Refused commands in a window that anybody may have, whatever else it sends."""
    allowed_replayed: int = 5
    allowed_schema: int = 20
    allowed_misrouted: int = 20
    tolerated_hmac_milli: int = 1
    """Of a thousand commands sent, so many more: large senders make more mistakes, but cannot hide many."""
    tolerated_replayed_milli: int = 1
    tolerated_schema_milli: int = 20
    tolerated_misrouted_milli: int = 20
    ban_minutes: int = 10
    """Counted from the end of the window of the alarm, never from now."""

    def burst_alarm(self, kind: str) -> int:
        """From how many refused commands beyond the allowance on a kind is abuse."""
        return int(getattr(self, f"burst_{BURSTS[kind]}"))

    def burst_allowance(self, kind: str) -> int:
        """Refused commands of a kind in a window that are nobody's business."""
        return int(getattr(self, f"allowed_{BURSTS[kind]}"))

    def burst_tolerance_milli(self, kind: str) -> int:
        """Of a thousand commands sent, so many more."""
        return int(getattr(self, f"tolerated_{BURSTS[kind]}_milli"))

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if name == "version":
                if not isinstance(value, str) or VERSION.fullmatch(value) is None:
                    raise ValueError(
                        "policy.version: must be a text of 1 to 32 letters, digits, '.', '_' and '-', such as \"2\"."
                    )
            elif name.endswith("_share"):
                if not isinstance(value, int | float) or not 0 < value <= 1:
                    raise ValueError(f"policy.{name}: must be over 0 and at most 1.")
            elif not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ValueError(f"policy.{name}: must be a whole number of at least 1.")
        if self.version == DEFAULT_VERSION:
            self._require_the_default()

    def _require_the_default(self) -> None:
        changed = [field.name for field in fields(self) if getattr(self, field.name) != field.default]
        if changed:
            raise ValueError(
                f"policy.version: {', '.join(changed)} differs from policy {DEFAULT_VERSION}; "
                "say a version of its own."
            )

    @classmethod
    def read(cls, text: str) -> Self:
        """From a JSON object; ValueError names a key that there is not."""
        given: Any = json.loads(text)
        known = {field.name for field in fields(cls)}
        if not isinstance(given, dict):
            raise ValueError("A policy is a JSON object.")
        for name in given:
            if name not in known:
                raise ValueError(
                    f"policy.{name}: there is no such threshold; there are {', '.join(sorted(known))}."
                )
        return cls(**given)
