"""What an operator may set for Shield."""

from __future__ import annotations

from pydantic import Field

from snavio.config import Section


class ShieldSettings(Section):
    """The `[shield]` section."""

    instance: str = Field(
        "shield-0", pattern=r"^[a-z0-9][a-z0-9-]{0,62}$", description="Name of this process."
    )
    window_ms: int = Field(60_000, ge=1_000, le=600_000, description="Accepted clock skew, either way.")
    nonce_capacity: int = Field(
        40_000_000, ge=1_000, description="Live nonces; when full, commands are refused as saturated."
    )
    nonce_share_per_source: int = Field(20_000_000, ge=1_000, description="Live nonces of one source.")
    batches_in_flight: int = Field(16, ge=1, le=64, description="Unanswered batches per stream.")
    keys_stale_ms: int = Field(
        180_000, ge=1_000, description="Refuse everything when keys and suspensions are older than this."
    )
    start_within_s: float = Field(
        30.0, gt=0, description="Give up when Signer or Registry is away for so long at start."
    )
