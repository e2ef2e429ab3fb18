"""Settings of the gateway."""

from __future__ import annotations

from pydantic import Field

from snavio.config import InstanceName, Section
from snavio.http.limits import HttpLimits


class GatewaySettings(Section):
    """The gateway serves tenants over HTTPS: where it listens, and how much each of them may have open."""

    instance: InstanceName = Field(
        default="gateway-0", description="Name of this process; each gateway of an installation has its own."
    )
    connections: int = Field(default=4096, ge=16, le=65_536, description="Open connections.")
    connections_per_address: int = Field(
        default=1024, ge=1, le=65_536, description="Open connections from one address."
    )
    streams: int = Field(default=2048, ge=1, le=65_536, description="Event streams that are open at once.")
    streams_per_tenant: int = Field(
        default=16, ge=1, le=65_536, description="Event streams that one tenant may have open."
    )
    opens_per_minute: int = Field(
        default=120, ge=1, le=100_000, description="Event streams that one tenant may open in a minute."
    )
    heartbeat_s: float = Field(
        default=15.0, gt=0, le=300, description="Pause between comments on a stream without events."
    )
    write_limit_s: float = Field(
        default=10.0,
        gt=0,
        le=300,
        description="A reader that takes nothing for so long is cut off; it goes on from its last event.",
    )
    stream_age_s: float = Field(
        default=3600.0, ge=1, le=86_400, description="Longest life of a stream; its reader connects again."
    )
    audit_within_s: float = Field(
        default=5.0,
        gt=0,
        le=60,
        description="How long opening a stream waits for Relay to record it; after that it is refused.",
    )
    tail_bytes: int = Field(
        default=64 << 20,
        ge=1 << 20,
        le=4 << 30,
        description="Memory for the newest verified envelopes of tenants with readers.",
    )
    tail_bytes_per_tenant: int = Field(
        default=1 << 20, ge=256 << 10, le=1 << 30, description="The part of it that one tenant may have."
    )
    start_within_s: float = Field(
        default=30.0, gt=0, le=600, description="Give up when Signer or Registry is away this long at start."
    )

    def limits(self) -> HttpLimits:
        """The bounds of its listener."""
        return HttpLimits(connections=self.connections, connections_per_address=self.connections_per_address)
