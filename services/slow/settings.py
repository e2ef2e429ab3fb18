"""What an operator may set for Slow."""

from __future__ import annotations

from pydantic import Field

from snavio.config import InstanceName, Section


class SlowSettings(Section):
    """Slow asks Registry about each command that Fast is not sure of: how long it waits for the answer."""

    instance: InstanceName = Field(
        default="slow-0", description="Name of this process; each Slow of an installation needs its own."
    )
    batches_in_flight: int = Field(
        default=16, ge=1, le=64, description="Batches that may wait for their answer on one stream."
    )
    resolve_timeout_ms: int = Field(
        default=1000,
        ge=10,
        le=10_000,
        description="Longest wait for Registry's answer; without one, the command is refused.",
    )
    start_within_s: float = Field(
        default=30.0, gt=0, le=600, description="Give up when Signer is away this long at start."
    )
