"""The quota of one source on one route while it is banned from the warm path.

Never in place of the route's limit: a command needs a permit of both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from snavio.domain.directory.route import DAY_SECONDS, MAX_COUNT
from snavio.domain.directory.rules import require_command, require_number, require_target, split_source


@dataclass(frozen=True, slots=True)
class SourceQuota:
    """A quota of one source, beside the route's limit for all of them."""

    kind: ClassVar[str] = "source_quota"
    source: str
    target: str
    name: str
    max: int
    interval_seconds: int

    def __post_init__(self) -> None:
        split_source(self.source, "source_quota.source")
        require_target(self.target, "source_quota.target")
        require_command(self.name, "source_quota.name")
        require_number(self.max, "source_quota.max", 1, MAX_COUNT)
        require_number(self.interval_seconds, "source_quota.interval_seconds", 1, DAY_SECONDS)

    @property
    def key(self) -> tuple[str, ...]:
        return (self.source, self.target, self.name)

    @property
    def parent(self) -> str:
        return self.target
