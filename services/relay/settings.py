"""Settings of Relay."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

from pydantic import Field

from services.relay.export_plan import ExportSchedule
from snavio.config import InstanceName, MeshSettings, Section
from snavio.errors import StateError


class SmtpSecurity(StrEnum):
    """Protection of connections to the mail server."""

    STARTTLS = "starttls"
    TLS = "tls"
    NONE = "none"


class RelaySettings(Section):
    """Relay collects telemetry and archives it as Parquet: how much it holds, and how often it writes."""

    instance: InstanceName = Field(
        default="relay-0", description="Name of this process; there is one Relay per installation."
    )
    outbox_max_bytes: int = Field(
        default=4 << 30,
        ge=4 << 20,
        le=1 << 40,
        description="Telemetry that waits to be archived; beyond it services hold theirs back, each within its bound.",
    )
    export_events: int = Field(
        default=10_000, ge=1, le=1_000_000, description="Events of one process that are worth a file at once."
    )
    export_after_s: float = Field(
        default=30.0, gt=0, le=3600, description="Longest wait of events for their file, from a thousand on."
    )
    export_few_after_s: float = Field(
        default=60.0,
        gt=0,
        le=3600,
        description="Longest wait of fewer events: small files cost readers most.",
    )
    revocations_wait_s: float = Field(
        default=30.0,
        ge=0,
        le=3600,
        description="How long events wait for Registry to say which rights were taken away before them.",
    )
    compact: bool = Field(
        default=True, description="Rewrite the files of each hour that is over into few large ones."
    )
    compact_after_s: float = Field(
        default=300.0, ge=0, le=86_400, description="From the end of an hour to its compaction."
    )
    archive_keep_days: int = Field(
        default=0,
        ge=0,
        le=36_500,
        description="Days for which the archive is kept; older hours are deleted, and a signed note says what went."
        " 0: everything is kept.",
    )
    stream_events_per_s: int = Field(
        default=1000,
        ge=10,
        le=1_000_000,
        description="Events of one tenant and second that its stream has one by one; deliveries and refusals beyond it"
        " are counted, each kind for itself.",
    )
    stream_window_s: float = Field(
        default=86_400.0,
        ge=60,
        le=30 * 86_400,
        description="How long a tenant's envelopes can be read again.",
    )
    stream_max_bytes: int = Field(
        default=1 << 30,
        ge=1 << 20,
        le=1 << 40,
        description="Envelopes of one tenant that are kept; beyond it the oldest go before their time.",
    )
    stream_replicas: int = Field(
        default=1,
        ge=1,
        le=64,
        description="Relays that seal the streams; the store in a file allows one.",
    )
    alert_messages: int = Field(
        default=20_000, ge=100, le=1_000_000, description="Alerts that are kept; delivered ones make room."
    )
    alert_messages_per_tenant: int = Field(
        default=1_000, ge=10, le=100_000, description="Alerts of one tenant that are kept."
    )
    smtp_host: str = Field(default="", description="Mail server for alerts; empty: no alert is mailed.")
    smtp_port: int = Field(default=587, ge=1, le=65_535, description="Its port.")
    smtp_security: SmtpSecurity = Field(
        default=SmtpSecurity.STARTTLS,
        description="How the connection to it is protected; `none` is for one on this machine.",
    )
    smtp_user: str = Field(default="", description="User at the mail server; empty: none.")
    smtp_password_file: str = Field(default="", description="File with that user's password.")
    smtp_from: str = Field(default="", description="Sender of alerts, an email address.")
    smtp_ca_file: str = Field(
        default="", description="CA of the mail server; empty: those that the system trusts."
    )
    webhook_allow: str = Field(
        default="",
        description="Hosts, `*.domain`s and networks that webhooks may go to, separated by spaces; empty: every public"
        " address. Private addresses need a rule, loopback and link-local ones a rule for the network.",
    )
    webhook_deny: str = Field(default="", description="Those that they may not go to; looked at first.")
    webhook_ca_file: str = Field(
        default="", description="CA of webhooks' receivers; empty: those that the system trusts."
    )
    operator_email: str = Field(default="", description="Operators' alerts go to this address.")
    operator_webhook: str = Field(default="", description="Operators' alerts go to this https URL.")
    start_within_s: float = Field(
        default=30.0, gt=0, le=600, description="Give up when Signer is away this long at start."
    )

    def rhythm(self) -> ExportSchedule:
        """When events are due."""
        return ExportSchedule(
            events=self.export_events,
            after_ns=round(self.export_after_s * 1e9),
            few_after_ns=round(self.export_few_after_s * 1e9),
        )

    def require_one_owner(self) -> None:
        """StateError for more than one Relay on the store of streams that this installation has."""
        if self.stream_replicas > 1:
            raise StateError(
                f"[relay] stream_replicas = {self.stream_replicas}, but the streams are in a file that one Relay owns:"
                " set it to 1, and run one Relay; any number of gateways may read from it.",
                reason="stream-replicas",
            )

    def alerts_path(self, mesh: MeshSettings) -> Path:
        """The file of the alerts."""
        return mesh.state_dir / "relay" / "alerts.db"

    def streams_path(self, mesh: MeshSettings) -> Path:
        """The file of the tenants' streams."""
        return mesh.state_dir / "relay" / "streams.db"

    def outbox_path(self, mesh: MeshSettings) -> Path:
        """The outbox's file."""
        return mesh.state_dir / "relay" / "outbox.db"
