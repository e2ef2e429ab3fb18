"""The event of dispatching: a source that lost the warm path.

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
    """A source took so much of a route's warm path that it goes by Slow for a while. One for each ban."""

    name: ClassVar[str] = schema.WARM_PATH_BAN

    source: str
    target: str
    command_name: str
    source_share: float
    """Of the warm dispatches in the window."""
    competing_share: float
    """What others offered, as a share of all that was offered: another whole than that of `source_share`."""
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
