"""Registry's settings."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from snavio.config import MeshSettings, Section


class RegistrySettings(Section):
    """The `[registry]` section."""

    listen: str = Field(default="", description="Address to serve on; empty means the one in [mesh].")
    max_tenants: int = Field(default=10_000, ge=1, description="Tenants in the directory.")
    max_services_per_tenant: int = Field(default=1_000, ge=1, description="Services of one tenant.")
    max_targets_per_tenant: int = Field(default=1_000, ge=1, description="Targets that one tenant may claim.")
    max_routes_per_target: int = Field(default=1_000, ge=1, description="Commands of one target.")
    max_acl_per_target: int = Field(default=50_000, ge=1, description="ACL entries of one target.")
    signer_timeout_s: float = Field(
        default=2.0, gt=0, le=30, description="How long Signer may take to make a key set."
    )
    start_within_s: float = Field(
        default=20.0, gt=0, le=300, description="How long to wait for Signer at start."
    )

    def store_path(self, mesh: MeshSettings) -> Path:
        """The directory."""
        return mesh.state_dir / "registry" / "directory.db"
