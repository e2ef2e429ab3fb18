"""What an operator may set for Fast."""

from __future__ import annotations

from pydantic import Field

from snavio.config import Section


class FastSettings(Section):
    """The `[fast]` section."""

    instance: str = Field("fast-0", pattern=r"^[a-z0-9][a-z0-9-]{0,62}$", description="Name of this process.")
    route_fresh_ms: int = Field(60_000, ge=100, description="Routes younger than this are used as they are.")
    route_stale_ms: int = Field(180_000, ge=100, description="Routes older than this are not used: escalate.")
    batches_in_flight: int = Field(16, ge=1, le=64, description="Unanswered batches per stream.")
    start_within_s: float = Field(
        30.0, gt=0, description="Give up when Registry is away for so long at start."
    )
