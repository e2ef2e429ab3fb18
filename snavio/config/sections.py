"""The base of every configuration section, the `[mesh]` section, and the names of all others.

Never imports a service: each passes its own section to `load`, and `installed` looks them up by name on demand.
"""

from __future__ import annotations

import importlib
import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from snavio.domain.identity import DEFAULT_TRUST_DOMAIN
from snavio.host.shares import BOUNDS, RESERVE_PERCENT, TENANT_PERCENT, ShareLimit

if TYPE_CHECKING:
    from snavio.domain.directory.route import QueueKind

# In the order of the manual: the shared section, then the path of a command, then the services beside it.
SERVICES = ("shield", "fast", "slow", "mailbox", "registry", "signer", "relay", "gateway")
SECTIONS = ("mesh", *SERVICES)

_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")


@dataclass(frozen=True, slots=True)
class Form:
    """The required form of a text, in words that complete "must be …"; `kind` is the short name."""

    kind: str
    words: str


class Section(BaseModel):
    """Base of every section: unknown keys are refused, values do not change after start.

    TOML has no null, so an empty text stands for "not set" where a key may be without a value.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _empty_is_not_set(cls, value: Any, info: ValidationInfo) -> Any:
        field = cls.model_fields.get(info.field_name or "")
        return None if value == "" and field is not None and field.default is None else value


S = TypeVar("S", bound=Section)


def contradiction(key: str, sentence: str) -> PydanticCustomError:
    """Raised by a section's own validator: `key` contradicts another key, and why."""
    return PydanticCustomError("contradiction", "{sentence}", {"key": key, "sentence": sentence})


def split_address(address: str) -> tuple[str, int]:
    """Host and port of `host:port` or `[v6]:port`; ValueError for anything else."""
    host, colon, port = address.rpartition(":")
    if not colon or not re.fullmatch(r"[0-9]{1,5}", port) or int(port) > 65_535:
        raise ValueError("not host:port")
    if host.startswith("[") and host.endswith("]"):
        return str(ipaddress.IPv6Address(host[1:-1])), int(port)
    if not _HOST.fullmatch(host):
        raise ValueError("not a host")
    return host, int(port)


def _address(address: str) -> str:
    split_address(address)
    return address


Address = Annotated[
    str,
    AfterValidator(_address),
    Form("address", 'an address such as "127.0.0.1:7401", "[::1]:7401" or "shield.internal:7401"'),
]
InstanceName = Annotated[
    str,
    Field(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$"),
    Form(
        "name", "a name of 1 to 63 lower-case letters, digits and hyphens that does not begin with a hyphen"
    ),
]
TrustDomain = Annotated[
    str,
    Field(pattern=r"^[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?$"),
    Form("domain name", 'a domain name in lower case, such as "snavio.local"'),
]

Region = Annotated[
    str,
    Field(pattern=r"^[a-z]{2}(?:-[a-z]+)+-[0-9]$"),
    Form("AWS region", 'an AWS region such as "eu-central-1"'),
]


_LISTEN = (
    "Address on which {} listens, such as 0.0.0.0:7401, where it is called at another one: behind a name, a "
    "balancer or a translated address. Certificates name the service and not its host, so both work."
)


_HEALTH = (
    "Address of {}'s health port; on 127.0.0.1, 60 ports above its own, if not set. Beyond loopback it speaks TLS, and "
    "/metrics wants the certificate of an operator or a scraper."
)
_HEALTH_ABOVE = 60


class MeshSettings(Section):
    """Settings that every process of one installation shares.

    Each service is called at its address, and listens there unless it has another address to listen on.
    """

    trust_domain: TrustDomain = Field(
        default=DEFAULT_TRUST_DOMAIN,
        description="Name of the installation in every certificate. Changing it makes every certificate useless.",
    )
    state_dir: Path = Field(
        default=Path(".snavio"),
        description="Folder of certificates and embedded stores; if relative, from where the process is started.",
    )
    shield: Address = Field(default="127.0.0.1:7401", description="Shield, where producers send to.")
    fast: Address = Field(default="127.0.0.1:7402", description="Fast, which Shield calls.")
    slow: Address = Field(default="127.0.0.1:7403", description="Slow, which Fast calls.")
    signer: Address = Field(
        default="127.0.0.1:7404", description="Signer, where producers fetch their keys and certificates."
    )
    registry: Address = Field(default="127.0.0.1:7405", description="Registry, where operators work.")
    mailbox: Address = Field(default="127.0.0.1:7406", description="The mailbox, where consumers receive.")
    relay: Address = Field(
        default="127.0.0.1:7407", description="Relay, which every service sends its telemetry to."
    )
    gateway: Address = Field(
        default="127.0.0.1:7408",
        description="The gateway's health and status, for operators.",
    )
    https: Address = Field(
        default="127.0.0.1:7443",
        description="The gateway's HTTPS, where tenants read their events with a certificate of this installation.",
    )
    enrolment: Address | None = Field(
        default=None,
        description="Where newcomers without a certificate enrol, as invitations tell it; where Signer lets "
        "them in, if not set.",
    )
    join_token: Path | None = Field(
        default=None,
        description="File of a join token, which Signer's machine makes. A service that has no certificate yet gets "
        "its first with it, at the address `enrolment`; it is not read again.",
    )
    shield_listen: Address | None = Field(default=None, description=_LISTEN.format("Shield"))
    fast_listen: Address | None = Field(default=None, description=_LISTEN.format("Fast"))
    slow_listen: Address | None = Field(default=None, description=_LISTEN.format("Slow"))
    signer_listen: Address | None = Field(default=None, description=_LISTEN.format("Signer"))
    registry_listen: Address | None = Field(default=None, description=_LISTEN.format("Registry"))
    mailbox_listen: Address | None = Field(default=None, description=_LISTEN.format("the mailbox"))
    relay_listen: Address | None = Field(default=None, description=_LISTEN.format("Relay"))
    gateway_listen: Address | None = Field(default=None, description=_LISTEN.format("the gateway"))
    https_listen: Address | None = Field(default=None, description=_LISTEN.format("the gateway's HTTPS"))
    health: bool = Field(
        default=True,
        description="Whether each service answers /livez, /readyz and /metrics over HTTP, for probes and Prometheus.",
    )
    shield_health: Address | None = Field(default=None, description=_HEALTH.format("Shield"))
    fast_health: Address | None = Field(default=None, description=_HEALTH.format("Fast"))
    slow_health: Address | None = Field(default=None, description=_HEALTH.format("Slow"))
    signer_health: Address | None = Field(default=None, description=_HEALTH.format("Signer"))
    registry_health: Address | None = Field(default=None, description=_HEALTH.format("Registry"))
    mailbox_health: Address | None = Field(default=None, description=_HEALTH.format("the mailbox"))
    relay_health: Address | None = Field(default=None, description=_HEALTH.format("Relay"))
    gateway_health: Address | None = Field(default=None, description=_HEALTH.format("the gateway"))
    public_bind: bool = Field(
        default=False, description="The second word for a service that other machines can reach."
    )
    budget_ms: int = Field(
        default=5000,
        ge=100,
        le=60_000,
        description="Time for a command's whole journey; each hop subtracts what it used.",
    )
    pull_interval_ms: int = Field(
        default=1000,
        ge=50,
        le=60_000,
        description="Pause between pulls of changed routes, keys and revocations. A change is noticed this late.",
    )
    acl_critical_fresh_ms: int = Field(
        default=2_000, ge=100, le=3_600_000, description="Age at which a right of profile critical is stale."
    )
    acl_critical_stale_ms: int = Field(
        default=4_000,
        ge=100,
        le=3_600_000,
        description="Age at which a right of profile critical is not used any more: while Registry is away, a revoked "
        "right works so long.",
    )
    acl_moderate_fresh_ms: int = Field(
        default=10_000, ge=100, le=3_600_000, description="Age at which a right of profile moderate is stale."
    )
    acl_moderate_stale_ms: int = Field(
        default=20_000,
        ge=100,
        le=3_600_000,
        description="Age at which a right of profile moderate is not used any more.",
    )
    acl_low_fresh_ms: int = Field(
        default=30_000, ge=100, le=3_600_000, description="Age at which a right of profile low is stale."
    )
    acl_low_stale_ms: int = Field(
        default=90_000,
        ge=100,
        le=3_600_000,
        description="Age at which a right of profile low is not used any more.",
    )
    i_accept_late_revocations: bool = Field(
        default=False,
        description="The second word for rights that are used longer than their profile promises.",
    )
    denylist_stale_s: float = Field(
        default=3600.0,
        ge=60,
        le=2_592_000,
        description="How old the list of revoked certificates may get while Signer is away; then nobody is let in from "
        "outside the mesh. The life of a service's certificate is a good value: none outlives it without Signer.",
    )
    explain_max_mb: int = Field(
        default=16,
        ge=0,
        le=4096,
        description="Memory of Shield, Fast and Slow for the last commands, which `snavio explain` looks up; a command "
        "takes about 30 bytes in large batches and 300 alone. 0 keeps none.",
    )
    snapshot_dir: Path | None = Field(
        default=None,
        description="Folder of Registry's snapshots, which Fast and Shield start from; snapshots in state_dir if "
        "not set.",
    )

    archive_dir: Path | None = Field(
        default=None,
        description="Folder of the telemetry archive, which Relay writes and Spark reads; archive in state_dir if "
        "not set.",
    )
    telemetry: bool = Field(
        default=True,
        description="Tell Relay what became of commands. Without it there is no archive, and nobody is found out.",
    )
    journal_max_bytes: int = Field(
        default=32 << 20,
        ge=1 << 20,
        le=1 << 30,
        description="Telemetry that each service holds while Relay is away; beyond it the oldest is lost and counted.",
    )

    metrics_exporter: str | None = Field(
        default=None,
        pattern=r"^[a-z0-9_-]{1,64}$",
        description="Name of an installed exporter of OpenTelemetry to which every service tells its metrics, such as "
        "otlp or console; where to and how often, OpenTelemetry's own variables say (OTEL_EXPORTER_OTLP_ENDPOINT, "
        "OTEL_METRIC_EXPORT_INTERVAL). None of them if not set.",
    )

    traces_exporter: str | None = Field(
        default=None,
        pattern=r"^[a-z0-9_-]{1,64}$",
        description="The same for the spans of sampled commands; where to, OTEL_EXPORTER_OTLP_ENDPOINT says.",
    )
    traces_per_second: int = Field(
        default=20,
        ge=1,
        le=1000,
        description="Sampled commands that each process tells in a second; a span costs about 70 µs.",
    )

    redis_url: SecretStr | None = Field(
        default=None,
        description="Redis for routes whose queue is a Redis stream, such as redis://queues.internal:6379/0; it may "
        "hold a password. Such routes are refused while it is not set.",
    )
    redis_fsync: bool = Field(
        default=True,
        description="Answer a command only when Redis has it on disk; false leaves that to Redis, which may lose "
        "what it acknowledged.",
    )
    redis_stream_length: int = Field(
        default=1_000_000,
        ge=1,
        le=1_000_000_000,
        description="Entries of one stream; beyond it, senders are refused as saturated.",
    )
    sqs_region: Region | None = Field(
        default=None,
        description="AWS region of routes whose queue is an SQS queue. Such routes are refused while it is not set.",
    )
    aws_endpoint_url: str | None = Field(
        default=None, description="Where AWS answers; AWS's own addresses if not set."
    )

    tenant_share_percent: float = Field(
        default=TENANT_PERCENT,
        gt=0,
        le=100,
        description="The part of every bound that one tenant may fill: calls, bytes, streams, topics, certificates and "
        "the like. `snavio status --tenants` shows what each uses.",
    )
    reserve_percent: float = Field(
        default=RESERVE_PERCENT,
        ge=0,
        le=50,
        description="The part of every bound that is kept for the mesh itself and for operators.",
    )
    tenant_shares: str = Field(
        default="",
        description="Parts of single bounds in percent where they differ, such as `topics=50; calls=10`. Bounds: "
        + ", ".join(BOUNDS)
        + ".",
    )

    @field_validator("tenant_shares")
    @classmethod
    def _shares_can_be_read(cls, text: str) -> str:
        try:
            _percentages(text)
        except ValueError as error:
            raise contradiction("tenant_shares", f"tenant_shares cannot be read: {error}.") from None
        return text

    @field_validator("redis_url")
    @classmethod
    def _is_a_redis_url(cls, url: SecretStr | None) -> SecretStr | None:
        if url is not None and not url.get_secret_value().startswith(("redis://", "rediss://", "unix://")):
            raise contradiction("redis_url", "redis_url must begin with redis://, rediss:// or unix://.")
        return url

    @model_validator(mode="after")
    def _rights_are_fresh_before_stale(self) -> Self:
        for profile, (fresh_ms, stale_ms) in self.acl_ages_ms().items():
            if fresh_ms > stale_ms:
                raise contradiction(
                    f"acl_{profile}_fresh_ms",
                    f"acl_{profile}_fresh_ms ({fresh_ms}) is longer than acl_{profile}_stale_ms ({stale_ms}); a right "
                    "is fresh first and stale later.",
                )
        return self

    def acl_ages_ms(self) -> Mapping[str, tuple[int, int]]:
        """The ages at which a right is stale and expired, by profile."""
        return {
            "critical": (self.acl_critical_fresh_ms, self.acl_critical_stale_ms),
            "moderate": (self.acl_moderate_fresh_ms, self.acl_moderate_stale_ms),
            "low": (self.acl_low_fresh_ms, self.acl_low_stale_ms),
        }

    def listens(self, service: str) -> str:
        """The address on which a service listens."""
        return str(getattr(self, f"{service}_listen") or getattr(self, service))

    def health_address(self, service: str) -> str | None:
        """The address of a service's health port; None where there is none."""
        if not self.health:
            return None
        if chosen := getattr(self, f"{service}_health"):
            return str(chosen)
        _, port = split_address(self.listens(service))
        # 0 is any port, and stays so.
        above = port + _HEALTH_ABOVE if port + _HEALTH_ABOVE <= 65_535 else port - _HEALTH_ABOVE
        return f"127.0.0.1:{above if port else 0}"

    def health_chosen(self, service: str) -> bool:
        """True if somebody has set that address."""
        return getattr(self, f"{service}_health") is not None

    def queue_kinds(self) -> frozenset[QueueKind]:
        """The kinds of target queue that routes may name."""
        from snavio.domain.directory.route import QueueKind

        kinds = {QueueKind.MAILBOX}
        if self.redis_url is not None:
            kinds.add(QueueKind.REDIS)
        if self.sqs_region is not None:
            kinds.add(QueueKind.SQS)
        return frozenset(kinds)

    def share(self, bound: str, total: int) -> ShareLimit:
        """The division of `total`, one of the shared bounds."""
        return ShareLimit.of(
            total,
            tenant_percent=_percentages(self.tenant_shares).get(bound, self.tenant_share_percent),
            reserve_percent=self.reserve_percent,
        )

    def archive(self) -> Path:
        """The folder to which Relay writes telemetry."""
        return self.archive_dir or self.state_dir / "archive"

    def snapshots(self) -> Path:
        """The folder of snapshots."""
        return self.snapshot_dir or self.state_dir / "snapshots"

    def certificates(self, name: str) -> Path:
        """The folder of one identity's certificate files."""
        return self.state_dir / "certs" / name


def _percentages(text: str) -> dict[str, int]:
    """Parses `<bound>=<percent>; …`; ValueError with a clause that names the mistake."""
    found: dict[str, int] = {}
    for part in filter(None, map(str.strip, text.split(";"))):
        bound, _, percent = part.partition("=")
        if bound not in BOUNDS or bound in found:
            raise ValueError(f"{bound!r} is not a bound, or stands twice")
        if not re.fullmatch(r"[0-9]{1,3}", percent) or not 1 <= int(percent) <= 100:
            raise ValueError(f"{part!r} must give 1 to 100 percent")
        found[bound] = int(percent)
    return found


def installed() -> dict[str, type[Section]]:
    """Every section of this installation by name, in the order of the manual; for the CLI and the manual.

    A service's section is the one `Section` that its `settings` module defines.
    """
    found: dict[str, type[Section]] = {"mesh": MeshSettings}
    for name in SERVICES:
        module = importlib.import_module(f"services.{name}.settings")
        (found[name],) = (
            kind
            for kind in vars(module).values()
            if isinstance(kind, type) and issubclass(kind, Section) and kind.__module__ == module.__name__
        )
    return found
