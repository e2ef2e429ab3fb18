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
DEFAULT_VERSION: Final = "1"


@dataclass(frozen=True, slots=True)
class DetectionPolicy:
    """Thresholds. Periods are aligned to the epoch, so that a proposal's id does not depend on when a job ran."""

    version: str = DEFAULT_VERSION
    window_seconds: int = 30
    """In which shares are counted; Fast's own windows have as many."""
    period_minutes: int = 10
    """Length of an aligned period in which violations are counted."""
    single_target_share: float = 0.8
    """X: share of a target's contended warm dispatches over the period."""
    single_target_windows: int = 3
    """Dominant windows of one target within a period."""
    several_targets_share: float = 0.6
    """Y: share over all targets that it dominated."""
    several_targets: int = 2
    several_targets_windows: int = 4
    """Dominant windows on all of them together."""
    burst_hmac: int = 200
    """Within a minute, and most of what the source sent."""
    burst_replayed: int = 200
    burst_schema: int = 500
    burst_misrouted: int = 500
    burst_share: float = 0.5
    ban_minutes: int = 10
    """Counted from the end of the violation's window, never from now."""

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
