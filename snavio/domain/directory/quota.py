"""The quota of one source on one route: always, or while the source is banned from the warm path.

Never in place of the route's limit: a command needs a permit of both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from snavio.domain.directory.route import DAY_SECONDS, MAX_COUNT
from snavio.domain.directory.rules import (
    require,
    require_command,
    require_number,
    require_target,
    split_source,
)


@dataclass(frozen=True, slots=True)
class SourceQuota:
    """A quota of one source, beside the route's limit for all of them."""

    kind: ClassVar[str] = "source_quota"
    source: str
    target: str
    name: str
    max: int
    interval_seconds: int
    always: bool = False
    """Counts whether the source is banned or not."""
    burst: int = 0
    """Most commands in any one second; 0 for no bound but `max`."""
    cooldown_seconds: int = 0
    """Pause after the quota was reached."""
    shadow: bool = False
    """Counts and reports without refusing."""

    def __post_init__(self) -> None:
        split_source(self.source, "source_quota.source")
        require_target(self.target, "source_quota.target")
        require_command(self.name, "source_quota.name")
        require_number(self.max, "source_quota.max", 1, MAX_COUNT)
        require_number(self.interval_seconds, "source_quota.interval_seconds", 1, DAY_SECONDS)
        require_number(self.burst, "source_quota.burst", 0, self.max)
        require_number(self.cooldown_seconds, "source_quota.cooldown_seconds", 0, DAY_SECONDS)
        only_always = not (self.burst or self.cooldown_seconds or self.shadow)
        require(
            self.always or only_always,
            "source_quota.always",
            "true for a burst, a cooldown or a shadow: a quota of banned sources has none",
        )

    @property
    def key(self) -> tuple[str, ...]:
        return (self.source, self.target, self.name)

    @property
    def parent(self) -> str:
        return self.target
