"""What an operator may set for Fast."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from snavio.config import InstanceName, Section, contradiction


class FastSettings(Section):
    """Fast decides from a copy of routes and rights: how old the copy may get."""

    instance: InstanceName = Field(
        default="fast-0", description="Name of this process; each Fast of an installation needs its own."
    )
    route_fresh_ms: int = Field(
        default=60_000, ge=100, le=86_400_000, description="Routes younger than this are used as they are."
    )
    route_stale_ms: int = Field(
        default=180_000,
        ge=100,
        le=86_400_000,
        description="Routes older than this are not used, and Slow decides. At least route_fresh_ms.",
    )
    batches_in_flight: int = Field(
        default=16, ge=1, le=64, description="Batches that may wait for their answer on one stream."
    )
    use_snapshots: bool = Field(
        default=True,
        description="Start from Registry's newest snapshot if it can be verified, instead of asking for everything.",
    )
    start_within_s: float = Field(
        default=30.0, gt=0, le=600, description="Give up when Signer or Registry is away this long at start."
    )

    @model_validator(mode="after")
    def _fresh_before_stale(self) -> Self:
        if self.route_fresh_ms > self.route_stale_ms:
            raise contradiction(
                "route_fresh_ms",
                f"route_fresh_ms ({self.route_fresh_ms}) is longer than route_stale_ms "
                f"({self.route_stale_ms}); a route is fresh first and stale later.",
            )
        return self
