"""What an operator may set for Slow."""

from __future__ import annotations

from pydantic import Field

from snavio.config import Section


class SlowSettings(Section):
    """The `[slow]` section."""

    instance: str = Field("slow-0", pattern=r"^[a-z0-9][a-z0-9-]{0,62}$", description="Name of this process.")
    batches_in_flight: int = Field(16, ge=1, le=64, description="Unanswered batches per stream.")
    resolve_timeout_ms: int = Field(1000, ge=10, le=10_000, description="Longest wait for Registry's answer.")
    start_within_s: float = Field(30.0, gt=0, description="Give up when Signer is away for so long at start.")
