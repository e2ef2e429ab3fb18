"""Settings of Slow."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, SecretStr, model_validator

from snavio.config import InstanceName, Section, contradiction
from snavio.config.sections import Form

StoreKind = Annotated[
    str, Field(pattern=r"^(embedded|redis|aws)$"), Form("kind of store", '"embedded", "redis" or "aws"')
]


class SlowSettings(Section):
    """Slow decides what Fast may not decide from memory: whom it asks, how long it waits, and how much may wait."""

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
    coordination: StoreKind = Field(
        default="embedded",
        description='Where limits and strict ids are counted: "embedded" in a file, for one Slow alone; "redis" or '
        '"aws" for several.',
    )
    coordination_url: SecretStr | None = Field(
        default=None,
        description='Redis server, such as "redis://127.0.0.1:6379/0"; for coordination "redis".',
    )
    coordination_table: str = Field(
        default="snavio-coordination", description='DynamoDB table; for coordination "aws".'
    )
    coordination_region: str | None = Field(
        default=None, description='Region of the table, such as "eu-central-1"; for coordination "aws".'
    )
    coordination_endpoint_url: str | None = Field(
        default=None, description="Another DynamoDB than AWS's own, such as a test server."
    )
    coordination_timeout_ms: int = Field(
        default=1000,
        ge=10,
        le=10_000,
        description="Longest wait for the coordination store; without an answer, the command is refused.",
    )
    coordination_replicas: int = Field(
        default=0,
        ge=0,
        le=16,
        description="Replicas that must confirm each call (`WAIT`) before it counts. With 0, a replica that takes over "
        'makes limits wait for their next interval, and strict ids for their time; for coordination "redis".',
    )
    prefetch_leases: int = Field(
        default=5,
        ge=1,
        le=1000,
        description="Instances of Fast that may prefetch permits of one route within one second.",
    )
    dedupe_ms: int = Field(
        default=300_000,
        ge=1000,
        le=86_400_000,
        description="How long an id of a strict route is remembered, by Slow or by the mailbox; a shorter replay "
        "window of the mailbox's does not count for strict routes.",
    )
    claim_lease_ms: int = Field(
        default=15_000,
        ge=1000,
        le=600_000,
        description="After this time, a strict command whose Slow died may be taken over; longer than the budget "
        "and the wait for the store.",
    )
    max_claims: int = Field(
        default=1_000_000,
        ge=1000,
        le=1_000_000_000,
        description="Strict ids that are remembered in the coordination store; beyond it, they are refused.",
    )
    max_claims_per_source: int = Field(
        default=100_000, ge=100, le=1_000_000_000, description="The same, of one source."
    )
    remembered_deliveries: int = Field(
        default=100_000,
        ge=0,
        le=10_000_000,
        description="Strict deliveries whose duplicates are answered from memory, before they cost a permit.",
    )
    rounds: int = Field(default=4, ge=1, le=64, description="Rounds that are decided at the same time.")
    round_commands: int = Field(
        default=1000, ge=1, le=10_000, description="Commands that one round takes, from all sources fairly."
    )
    quantum_commands: int = Field(
        default=100,
        ge=1,
        le=10_000,
        description="Commands of one source at a turn; a fifth of it while the source is banned.",
    )
    max_waiting_commands: int = Field(
        default=64_000, ge=1000, le=10_000_000, description="Commands that may wait for a round, in all."
    )
    max_waiting_per_source: int = Field(
        default=8000, ge=100, le=10_000_000, description="The same, of one source."
    )
    bans_to_escalate: int = Field(
        default=3, ge=1, le=100, description="Bans from the warm path that become a ban in the directory."
    )
    bans_within_ms: int = Field(
        default=600_000, ge=1000, le=86_400_000, description="The time within which they count."
    )
    escalated_ban_ms: int = Field(
        default=600_000, ge=300_000, le=900_000, description="Length of a ban in the directory."
    )

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.coordination == "redis" and self.coordination_url is None:
            raise contradiction("coordination_url", 'must be set when coordination is "redis".')
        if self.coordination == "aws" and self.coordination_region is None:
            raise contradiction("coordination_region", 'must be set when coordination is "aws".')
        return self
