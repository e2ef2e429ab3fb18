"""The event of a warm-path ban.

Never holds a secret: an event has the fields below and no others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from snavio.telemetry import schema
from snavio.telemetry.events import Event


@dataclass(frozen=True, slots=True)
class WarmPathBan(Event):
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
