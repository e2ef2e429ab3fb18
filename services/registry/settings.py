"""What an operator may set for Registry."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from snavio.config import Address, MeshSettings, Section


class RegistrySettings(Section):
    """Registry keeps tenants, services, routes and rights: how many of each there may be."""

    listen: Address | None = Field(
        default=None,
        description="Address to listen on, if it is not the one in [mesh] where the others call it.",
    )
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
    signer_timeout_s: float = Field(
        default=2.0, gt=0, le=30, description="How long Signer may take to make a key set."
    )
    start_within_s: float = Field(
        default=20.0, gt=0, le=300, description="Give up when Signer is away this long at start."
    )

    def store_path(self, mesh: MeshSettings) -> Path:
        """The directory."""
        return mesh.state_dir / "registry" / "directory.db"
