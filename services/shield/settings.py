"""Settings of Shield."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from snavio.config import InstanceName, Section, contradiction


class ShieldSettings(Section):
    """Shield lets commands in: how late they may be, how many it remembers, how old its keys may get."""

    instance: InstanceName = Field(
        default="shield-0", description="Name of this process; each Shield of an installation needs its own."
    )
    window_ms: int = Field(
        default=60_000,
        ge=1_000,
        le=600_000,
        description="How far a command's timestamp may be from Shield's clock, before or after, ends included.",
    )
    i_accept_a_long_replay_window: bool = Field(
        default=False, description="The second word for a window_ms above 300000."
    )
    nonce_capacity: int = Field(
        default=80_000_000,
        ge=1_000,
        le=4_000_000_000,
        description="Commands remembered against replay, 10 to 15 bytes each; when it is full, or a tenant has its "
        "share of it, commands are refused as saturated.",
    )
    batches_in_flight: int = Field(
        default=16, ge=1, le=64, description="Batches that may wait for their answer on one stream."
    )
    keys_fresh_ms: int = Field(
        default=60_000,
        ge=100,
        le=86_400_000,
        description="Keys and suspensions younger than this are used as they are; older ones are asked for again "
        "with every batch, until they are younger.",
    )
    keys_stale_ms: int = Field(
        default=180_000,
        ge=1_000,
        le=86_400_000,
        description="Refuse everything when keys and suspensions are older. A key that is revoked while Signer "
        "cannot be reached is accepted this long; keys from a snapshot are as old as the snapshot.",
    )
    use_snapshots: bool = Field(
        default=True,
        description="Start from the newest snapshots of Signer (keys) and Registry (suspensions) that can be verified.",
    )
    start_within_s: float = Field(
        default=30.0, gt=0, le=600, description="Give up when Signer or Registry is away this long at start."
    )

    @model_validator(mode="after")
    def _fresh_before_stale(self) -> Self:
        # A fresh time of its own default does not stand in the way of a shorter stale limit.
        if self.keys_fresh_ms > self.keys_stale_ms and "keys_fresh_ms" in self.model_fields_set:
            raise contradiction(
                "keys_fresh_ms",
                f"keys_fresh_ms ({self.keys_fresh_ms}) is longer than keys_stale_ms ({self.keys_stale_ms}); "
                "keys are fresh first and stale later.",
            )
        return self
