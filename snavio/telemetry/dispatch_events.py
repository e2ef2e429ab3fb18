"""The event of a warm-path ban.

Never holds a secret: an event has the fields below and no others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from snavio.telemetry import schema
from snavio.telemetry.events import Value


@dataclass(frozen=True, slots=True)
class WarmPathBan:
    """A source dominated a route's warm path and goes by Slow for a while. One event for each ban."""

    name: ClassVar[str] = schema.WARM_PATH_BAN

    source: str
    target: str
    command_name: str
    source_share: float
    """Share of the warm dispatches in the window."""
    competing_share: float
    """The others' share of all commands offered in the window; not a share of the same total as `source_share`."""
    dispatch_volume: int
    retry_after_ms: int
    throttle_until: str
    """RFC 3339."""

    def fields(self) -> Mapping[str, Value]:
        """By their names in the catalogue."""
        return {
            "source": self.source,
            "target": self.target,
            "command.name": self.command_name,
            "source_share": self.source_share,
            "competing_share": self.competing_share,
            "dispatch_volume": self.dispatch_volume,
            "retry_after_ms": self.retry_after_ms,
            "throttle_until": self.throttle_until,
        }
