"""Settings of Fast."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from snavio.config import InstanceName, Section, contradiction
from snavio.config.sections import Form

DispatchMode = Annotated[
    str, Field(pattern="^(adaptive|cold-only)$"), Form("text", '"adaptive" or "cold-only"')
]


class FastSettings(Section):
    """Fast decides from memory: how old that may get, how much it holds, and how it keeps sources apart."""

    instance: InstanceName = Field(
        default="fast-0", description="Name of this process; each Fast of an installation needs its own."
    )
    dispatch_mode: DispatchMode = Field(
        default="adaptive",
        description="Adaptive decides from memory where that is safe; cold-only has Slow decide every command.",
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
    unknown_route_ms: int = Field(
        default=2000,
        ge=1,
        le=2000,
        description="How long Fast refuses a route by itself after Slow has said that there is none.",
    )
    unknown_routes: int = Field(
        default=65_536,
        ge=1,
        le=10_000_000,
        description="Routes of that kind that are remembered; more are asked of Slow each time.",
    )
    unknown_routes_per_source: int = Field(
        default=1024,
        ge=1,
        le=1_000_000,
        description="The part of unknown_routes that one source may use; a source that names more is refused as "
        "saturated for a while.",
    )
    remembered_deliveries: int = Field(
        default=65_536,
        ge=0,
        le=100_000_000,
        description="Deliveries on strict routes whose duplicates Fast answers by itself, about 180 bytes each.",
    )
    counted_sources: int = Field(
        default=262_144,
        ge=0,
        le=100_000_000,
        description="Sources that all fairness windows together count one by one, about 100 bytes each.",
    )
    escalation_bytes: int = Field(
        default=64 << 20,
        ge=1 << 20,
        le=4 << 30,
        description="Bytes that may wait for Slow, half of them one tenant's; more are refused as saturated.",
    )
    escalation_bytes_per_source: int = Field(
        default=8 << 20,
        ge=1 << 16,
        le=4 << 30,
        description="The part of escalation_bytes that one source may use.",
    )
    escalations_per_source: int = Field(
        default=20_000,
        ge=1,
        le=10_000_000,
        description="Commands of one source that may wait for Slow.",
    )
    grant_pause_ms: int = Field(
        default=50,
        ge=1,
        le=10_000,
        description="Pause between two requests for permits of limited routes.",
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
