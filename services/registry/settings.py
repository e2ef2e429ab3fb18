"""Settings of Registry."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, field_validator

from services.registry.snapshots import SnapshotPlan
from services.registry.writes.bans import BanPolicy
from services.registry.writes.entry_limits import EntryLimits
from snavio.config import MeshSettings, Section
from snavio.domain.identity import valid_name


class RegistrySettings(Section):
    """Registry keeps tenants, services, routes and rights: how many of each there may be."""

    max_tenants: int = Field(default=10_000, ge=1, le=10_000_000, description="Tenants in the directory.")
    max_services_per_tenant: int = Field(
        default=1_000, ge=1, le=1_000_000, description="Services of one tenant."
    )
    max_targets_per_tenant: int = Field(
        default=1_000, ge=1, le=1_000_000, description="Targets that one tenant may claim."
    )
    max_routes_per_target: int = Field(
        default=1_000, ge=1, le=1_000_000, description="Commands of one target."
    )
    max_acl_per_target: int = Field(
        default=50_000, ge=1, le=10_000_000, description="ACL entries of one target."
    )
    max_principals_per_tenant: int = Field(
        default=1_000, ge=1, le=1_000_000, description="Principals of one tenant."
    )
    max_requests_per_tenant: int = Field(
        default=1_000, ge=1, le=1_000_000, description="Access requests that one tenant may have made."
    )
    max_quotas_per_target: int = Field(
        default=10_000, ge=1, le=10_000_000, description="Source quotas of one target."
    )
    max_channels_per_tenant: int = Field(
        default=20, ge=1, le=1_000, description="Alert channels of one tenant."
    )
    max_bans_per_source: int = Field(
        default=1_000, ge=1, le=1_000_000, description="Bans of one source, over all routes."
    )
    never_banned: str = Field(
        default="",
        max_length=100_000,
        description="Sources that no proposal bans from the warm path: `<tenant>/<service>`, or `<tenant>/*`, with "
        "commas between them.",
    )
    max_bans_per_hour: int = Field(
        default=100, ge=0, le=10_000, description="Proposals that are applied within an hour; 0 applies none."
    )
    max_ban_s: int = Field(
        default=3600, ge=1, le=604_800, description="A proposed ban that is longer is shortened to this."
    )
    proposals_kept_s: int = Field(
        default=86_400,
        ge=3600,
        le=2_592_000,
        description="How long after its ban a proposal is remembered; its audit must come before.",
    )
    max_proposals_per_source: int = Field(
        default=1_000, ge=1, le=1_000_000, description="Proposals about one source that are remembered."
    )
    sweep_interval_s: float = Field(
        default=1.0,
        gt=0,
        le=60,
        description="How often the end of ephemeral routes, bans and suspensions is written down.",
    )
    write_snapshots: bool = Field(
        default=True, description="Publish signed snapshots, which Fast and Shield start from."
    )
    snapshot_interval_s: float = Field(
        default=30.0, ge=1, le=600, description="How often the directory is looked at for a new snapshot."
    )
    snapshot_lifetime_s: float = Field(
        default=3600.0,
        ge=60,
        le=604_800,
        description="A snapshot older than this is refused by its readers; it is renewed after half of it.",
    )
    snapshot_max_mb: int = Field(
        default=128,
        ge=1,
        le=256,
        description="A larger snapshot is not published; the one before stays, and an error is logged.",
    )
    signer_timeout_s: float = Field(
        default=2.0, gt=0, le=30, description="How long Signer may take to make a key set."
    )
    route_look_s: float = Field(
        default=15.0,
        ge=0.1,
        le=3600,
        description="How often the queue of every route is looked at; growth and standstill take four looks.",
    )
    start_within_s: float = Field(
        default=20.0, gt=0, le=300, description="Give up when Signer is away this long at start."
    )

    def store_path(self, mesh: MeshSettings) -> Path:
        """The directory."""
        return mesh.state_dir / "registry" / "directory.db"

    def snapshot_plan(self) -> SnapshotPlan:
        """The plan by which snapshots are published."""
        return SnapshotPlan(
            interval_s=self.snapshot_interval_s,
            lifetime_s=self.snapshot_lifetime_s,
            max_bytes=self.snapshot_max_mb << 20,
        )

    @field_validator("never_banned")
    @classmethod
    def _are_sources(cls, listed: str) -> str:
        for source in _sources(listed):
            tenant, slash, service = source.partition("/")
            if not (slash and valid_name(tenant) and (service == "*" or valid_name(service))):
                raise ValueError("each must be <tenant>/<service> or <tenant>/*")
        return listed

    def ban_policy(self) -> BanPolicy:
        """The bounds of what auditors may do."""
        return BanPolicy(
            never_banned=_sources(self.never_banned),
            per_hour=self.max_bans_per_hour,
            max_ban_ns=self.max_ban_s * 1_000_000_000,
            kept_ns=self.proposals_kept_s * 1_000_000_000,
        )

    def bounds(self) -> EntryLimits:
        """Bounds on the number of entries of each kind."""
        return EntryLimits(
            tenants=self.max_tenants,
            principals_per_tenant=self.max_principals_per_tenant,
            services_per_tenant=self.max_services_per_tenant,
            targets_per_tenant=self.max_targets_per_tenant,
            routes_per_target=self.max_routes_per_target,
            acl_per_target=self.max_acl_per_target,
            requests_per_tenant=self.max_requests_per_tenant,
            quotas_per_target=self.max_quotas_per_target,
            channels_per_tenant=self.max_channels_per_tenant,
            bans_per_source=self.max_bans_per_source,
            proposals_per_source=self.max_proposals_per_source,
        )


def _sources(listed: str) -> frozenset[str]:
    return frozenset(source.strip() for source in listed.split(",") if source.strip())
