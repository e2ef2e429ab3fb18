"""Settings of Signer, with the lifetimes of everything it issues."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from pydantic import Field, model_validator

from snavio.config import Address, MeshSettings, Section, contradiction
from snavio.domain.identity import IdentityKind
from snavio.ports.key_wrapping import KmsKey

_DAY = 24 * 3600
# No certificate lives longer, whatever is configured; a revocation is forgotten after this long.
MAX_LIFETIME_S = 90 * _DAY
MAX_SERVICE_LIFETIME_S = _DAY


class SignerSettings(Section):
    """Signer holds the keys and issues certificates: how long they live and how a new key spreads."""

    enrol_listen: Address | None = Field(
        default=None,
        description="Address where newcomers without a certificate enrol; if empty, Signer's own host and ten ports "
        "above, which is 127.0.0.1:7414.",
    )
    sealing_key: Path | None = Field(
        default=None,
        description="File of the key that seals the key store, if it is not signer/sealing.key in the state folder. "
        "The variable SNAVIO_SEALING_KEY (hex) comes before it.",
    )
    sealing_kms_key: str | None = Field(
        default=None,
        max_length=2048,
        description="Key of AWS KMS (id, ARN or alias/name) that wraps the sealing key of a new key store; "
        "sealing_key, or signer/sealing.kms, then holds the wrapped one, which is of no use without KMS.",
    )
    sealing_kms_region: str | None = Field(
        default=None,
        max_length=64,
        description="Region of that key, if AWS's own configuration does not name it.",
    )
    sealing_kms_endpoint: str | None = Field(
        default=None, max_length=2048, description="Address of KMS, if it is not the region's own."
    )
    distribution_delay_s: float = Field(
        default=10.0,
        ge=0,
        le=3600,
        description="How long a rotated key spreads at least before it signs; an HMAC key also waits until every "
        "Shield has it.",
    )
    overlap_s: float = Field(
        default=7.0 * _DAY,
        ge=0,
        le=90 * _DAY,
        description="How long the previous key is accepted after a rotation.",
    )
    rotate_every_s: float = Field(
        default=30.0 * _DAY,
        ge=3600,
        le=400 * _DAY,
        description="How long after a key became primary the next is made; up to a tenth sooner, to spread them.",
    )
    poll_after_s: int = Field(
        default=12 * 3600, ge=1, le=_DAY, description="Pause after which producers ask for their keys again."
    )
    start_within_s: float = Field(
        default=30.0,
        gt=0,
        le=600,
        description="How long Signer waits for its key store at start before it gives up.",
    )
    write_snapshots: bool = Field(
        default=True,
        description="Publish key sets as a sealed snapshot, from which Shield starts while Signer is away.",
    )
    snapshot_interval_s: float = Field(
        default=30.0,
        ge=1,
        le=600,
        description="How often that snapshot is brought up to date; it is as old as this when Signer goes away. Well "
        "below [shield] keys_stale_ms, or it is of no use.",
    )
    snapshot_lifetime_s: float = Field(
        default=3600.0, ge=60, le=604_800, description="A snapshot of key sets older than this is refused."
    )
    mesh_ttl_s: int = Field(
        default=30 * _DAY, ge=60, le=MAX_LIFETIME_S, description="Life of a mesh service's certificate."
    )
    service_ttl_s: int = Field(
        default=3600,
        ge=60,
        le=MAX_SERVICE_LIFETIME_S,
        description="Life of a tenant service's certificate.",
    )
    principal_ttl_s: int = Field(
        default=30 * _DAY, ge=60, le=MAX_LIFETIME_S, description="Life of a tenant's principal's certificate."
    )
    operator_ttl_s: int = Field(
        default=12 * 3600,
        ge=60,
        le=MAX_LIFETIME_S,
        description="Life of an operator's certificate that is asked for by RPC.",
    )
    job_ttl_s: int = Field(
        default=_DAY, ge=60, le=MAX_LIFETIME_S, description="Life of a batch job's certificate."
    )
    bootstrap_operator_ttl_s: int = Field(
        default=30 * _DAY,
        ge=60,
        le=MAX_LIFETIME_S,
        # It lies next to the CA's own sealing key: a short life would protect nothing there.
        description="Life of the certificate of the operator `admin`, which `init` makes on this machine.",
    )

    max_certificates: int = Field(
        default=1_000_000,
        ge=100,
        le=10_000_000,
        description="Certificates that Signer knows of at once; what one tenant may have of them is set in [mesh].",
    )
    certificates_per_identity: int = Field(
        default=20_000,
        ge=10,
        le=10_000_000,
        description="Living certificates of one identity; each replica of a service has one or two.",
    )
    issue_burst: int = Field(
        default=2000,
        ge=1,
        le=1_000_000,
        description="Certificates that one identity gets at once, as when every replica of a service starts.",
    )
    issue_per_s: float = Field(
        default=10.0,
        gt=0,
        le=100_000,
        description="Certificates that one identity gets per second after that; a tenant gets four times as many.",
    )
    max_revocations: int = Field(
        default=50_000,
        ge=10,
        le=1_000_000,
        description="Entries of the denylist; where there are more, several of one identity or tenant become one.",
    )

    capability_ttl_s: int = Field(
        default=3600,
        ge=60,
        le=30 * _DAY,
        description="Life of a capability for the mailbox that is asked for without one.",
    )
    capability_max_ttl_s: int = Field(
        default=7 * _DAY, ge=60, le=30 * _DAY, description="The longest life of a capability."
    )

    def ttl_s(self, kind: IdentityKind) -> int:
        """Both the default and the cap for a kind of identity."""
        return {
            IdentityKind.MESH: self.mesh_ttl_s,
            IdentityKind.SERVICE: self.service_ttl_s,
            IdentityKind.PRINCIPAL: self.principal_ttl_s,
            IdentityKind.OPERATOR: self.operator_ttl_s,
            IdentityKind.JOB: self.job_ttl_s,
        }[kind]

    def enrol_address(self, mesh: MeshSettings) -> str:
        """Address of the enrolment server."""
        if self.enrol_listen is not None:
            return self.enrol_listen
        host, _, port = mesh.listens("signer").rpartition(":")
        # Port 0 means any free one. Beyond the last, below instead of above.
        number = int(port)
        return f"{host}:{0 if number == 0 else number + 10 if number <= 65_525 else number - 10}"

    def ledger_path(self, mesh: MeshSettings) -> Path:
        """The ledger of issued certificates."""
        return mesh.state_dir / "signer" / "certificates.db"

    def usage_path(self, mesh: MeshSettings) -> Path:
        """The counts of recent use of each key version; no secret."""
        return mesh.state_dir / "signer" / "key-use.json"

    def capabilities_path(self, mesh: MeshSettings) -> Path:
        """The ledger of issued capabilities."""
        return mesh.state_dir / "signer" / "capabilities.db"

    def store_path(self, mesh: MeshSettings) -> Path:
        """The sealed key store."""
        return mesh.state_dir / "signer" / "keys.sealed"

    def sealing_key_path(self, mesh: MeshSettings) -> Path:
        """Its key, wrapped if KMS keeps it; another disk than the store's is a good place for one in the clear."""
        name = "sealing.kms" if self.sealing_kms_key else "sealing.key"
        return self.sealing_key or mesh.state_dir / "signer" / name

    def kms(self, mesh: MeshSettings) -> KmsKey | None:
        """The KMS key that wraps the sealing key, if any."""
        if not self.sealing_kms_key:
            return None
        return KmsKey(
            self.sealing_kms_key,
            region=self.sealing_kms_region or "",
            endpoint=self.sealing_kms_endpoint or "",
            installation=mesh.trust_domain,
        )

    @model_validator(mode="after")
    def _kms_is_whole(self) -> Self:
        for name in ("sealing_kms_region", "sealing_kms_endpoint"):
            if getattr(self, name) and not self.sealing_kms_key:
                raise contradiction(name, f"{name} is set, and sealing_kms_key is not: which key shall wrap?")
        return self
