"""Rare, important events: typed values under the catalogue's names, in a bounded, numbered journal.

Never waits, never grows, never repeats a number, and never holds a secret: an event has the fields below and no others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import ClassVar

from snavio.domain.identity import Identity, IdentityKind
from snavio.native import format_timestamp
from snavio.telemetry import schema

Value = str | int | float | None | tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Event:
    """A value of the event catalogue."""

    name: ClassVar[str]

    def fields(self) -> Mapping[str, Value]:
        """By their names in the catalogue."""
        told: dict[str, Value] = asdict(self)
        if "command_name" in told:
            told["command.name"] = told.pop("command_name")
        return told


@dataclass(frozen=True, slots=True)
class _Secret(Event):
    version_id: str
    source: str
    time_of_last_config_poll: str | None
    """RFC 3339; None if the source has never polled."""


@dataclass(frozen=True, slots=True)
class LegacyKeyUsed(_Secret):
    """A producer signs with the previous version, which is still accepted."""

    name: ClassVar[str] = "snavio.secret.legacy_key_used"


@dataclass(frozen=True, slots=True)
class KeyExpiryImminent(_Secret):
    """A producer signs with a version that ends soon and has not asked for a newer one."""

    name: ClassVar[str] = "snavio.secret.key_expiry_imminent"


@dataclass(frozen=True, slots=True)
class SigningKeyRotated(Event):
    """A scope has a new Ed25519 key; holders of its public keys must fetch them again."""

    name: ClassVar[str] = "signing_key_rotated"

    event_id: str
    occurred_at: str
    domain_id: str
    scope_kind: str
    scope_id: str
    old_key_id: str
    new_key_id: str
    new_public_key: str
    """32 bytes in base64."""
    valid_from: str
    opened_at: str
    closes_at: str
    """Time from which the old key verifies nothing."""


@dataclass(frozen=True, slots=True)
class BanNear(Event):
    """The auditor will propose a ban if a source goes on as it does; once for each kind and period."""

    name: ClassVar[str] = schema.BAN_NEAR

    source: str
    affected_targets: tuple[str, ...]
    total_violations: int
    reason: str
    """The kind of abuse that it would be."""


@dataclass(frozen=True, slots=True)
class AbuseDetected(Event):
    """The audit banned a source; once per ban window."""

    name: ClassVar[str] = schema.ABUSE_DETECTED

    source: str
    affected_targets: tuple[str, ...]
    total_violations: int
    ban_applied_until: str
    """RFC 3339."""


@dataclass(frozen=True, slots=True)
class ExecutedAfterRevocation(Event):
    """Commands were dispatched by a revoked ACL entry; `count` of them were settled together."""

    name: ClassVar[str] = schema.EXECUTED_AFTER_REVOCATION

    source: str
    target: str
    command_name: str
    stale_duration_seconds: float
    acl_revocation_timestamp: str
    """RFC 3339."""
    count: int = 1


@dataclass(frozen=True, slots=True)
class TelemetryDropped(Event):
    """Events about a tenant that were lost before they reached the archive."""

    name: ClassVar[str] = schema.DROPPED

    tenant: str
    dropped_events: int
    reason: str
    """`journal_overflow`: Relay did not accept them, and the process had no room left."""
    queue_age_seconds: float
    """Age of the oldest of them."""
    last_received_at: str | None
    """Time of the last accepted page; RFC 3339. None: never."""


@dataclass(frozen=True, slots=True)
class JournalGap(Event):
    """Events of a process that never reached Relay; `count` is None when unknown."""

    name: ClassVar[str] = schema.JOURNAL_GAP

    dropped_events: int | None
    reason: str
    """`crash`, `overflow`, `damaged` or `unknown`."""
    detail: str


@dataclass(frozen=True, slots=True)
class CacheRefreshed(Event):
    """A cache was read again from its authority."""

    name: ClassVar[str] = schema.CACHE_REFRESHED

    cache_type: str
    """`ACL`, `Routing` or `HMAC`."""
    age_seconds: float
    """Age before the refresh."""
    fresh_ttl: float
    stale_ttl: float
    reason: str
    """`due`, `recovered` after entries had gone stale, or `epoch-changed`."""
    detail: str = ""


@dataclass(frozen=True, slots=True)
class CacheExpired(Event):
    """Commands were refused because a cache is older than it may be; `count` of them."""

    name: ClassVar[str] = schema.CACHE_EXPIRED

    cache_type: str
    """`HMAC` for keys, `Suspensions`."""
    age_seconds: float | None
    """Its age; None when it was never read."""
    stale_ttl: float
    reason: str
    """`out-of-date`."""
    detail: str
    count: int = 1


@dataclass(frozen=True, slots=True)
class SnapshotWritten(Event):
    """Registry wrote a snapshot."""

    name: ClassVar[str] = schema.SNAPSHOT_WRITTEN

    detail: str


@dataclass(frozen=True, slots=True)
class SnapshotLoadFailed(Event):
    """A reader refused a snapshot."""

    name: ClassVar[str] = schema.SNAPSHOT_LOAD_FAILED

    reason: str
    detail: str


@dataclass(frozen=True, slots=True)
class SnapshotFailed(Event):
    """A snapshot could not be published; once while rounds fail for the same reason, and again every hour."""

    name: ClassVar[str] = schema.SNAPSHOT_FAILED

    reason: str
    """Such as `invalid-signature`, `conflict`, or the reason of an absent Signer or archive."""
    detail: str


@dataclass(frozen=True, slots=True)
class SnapshotTooLarge(Event):
    """A snapshot was not published because of its size; the one before stays."""

    name: ClassVar[str] = schema.SNAPSHOT_TOO_LARGE

    size_bytes: int
    max_bytes: int
    version: int
    """Version of the directory that no longer fits."""

    def fields(self) -> Mapping[str, Value]:
        return {"detail": f"version {self.version}: {self.size_bytes} bytes, at most {self.max_bytes}"}


@dataclass(frozen=True, slots=True)
class CertificateRefused(Event):
    """Calls or batches were refused for the certificate they came with; `count` of them."""

    name: ClassVar[str] = schema.CERTIFICATE_REFUSED

    reason: str
    """`certificate-expired`, `certificate-revoked`, `revocations-unknown` or `no-identity`."""
    source: str | None
    tenant: str | None
    detail: str
    """The certificate's identity; empty where it has none."""
    count: int = 1


@dataclass(frozen=True, slots=True)
class RouteHealthChanged(Event):
    """The queue of a route became healthy, or is not any more; `count` queues did, where many did at once."""

    name: ClassVar[str] = schema.ROUTE_HEALTH

    tenant: str
    target: str
    topic: str
    reason: str
    """The status."""
    detail: str
    """Status before it, and the evidence."""
    count: int = 1


@dataclass(frozen=True, slots=True)
class StreamOpened(Event):
    """A gateway began to serve a tenant's events to a reader."""

    name: ClassVar[str] = schema.STREAM_OPENED

    tenant: str
    detail: str
    """Reader, serial of its certificate, number after which it reads, and its filters."""


@dataclass(frozen=True, slots=True)
class PublishFailed(Event):
    """An envelope that its tenant's queue refused for good."""

    name: ClassVar[str] = schema.PUBLISH_FAILED

    tenant: str
    reason: str
    detail: str


@dataclass(frozen=True, slots=True)
class StreamVerificationFailed(Event):
    """A gateway read an envelope that could not be believed."""

    name: ClassVar[str] = schema.STREAM_VERIFICATION_FAILED

    tenant: str
    reason: str
    """Such as `bad_signature`."""
    detail: str


def certificate_refused(identity: Identity | None, reason: str, count: int) -> CertificateRefused:
    """The event about refusals of one caller."""
    return CertificateRefused(
        reason,
        source=identity.source if identity is not None and identity.kind is IdentityKind.SERVICE else None,
        tenant=identity.tenant or None if identity is not None else None,
        detail=str(identity or ""),
        count=count,
    )


def moment(unix_ns: int | None) -> str | None:
    """A time as events carry it, RFC 3339."""
    return None if unix_ns is None else format_timestamp(unix_ns)


Onward = Callable[[Event, int], None]
"""Sends an event and its time to the archive."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """An event with its place in the journal."""

    seq: int
    at_unix_ns: int
    event: Event


class EventJournal:
    """The last events of one process; `epoch` distinguishes its numbers from those of an earlier life."""

    def __init__(self, *, epoch: int, max_events: int = 4096, onward: Onward | None = None) -> None:
        self.epoch = epoch
        self._onward = onward
        self._kept: deque[Recorded] = deque(maxlen=max_events)
        self._last_seq = 0
        self._counts: dict[str, int] = {}

    def record(self, event: Event, *, at_unix_ns: int) -> None:
        """Add an event; the oldest is dropped when the journal is full. It also goes `onward`, durable from then on."""
        self._last_seq += 1
        self._kept.append(Recorded(self._last_seq, at_unix_ns, event))
        self._counts[event.name] = self._counts.get(event.name, 0) + 1
        if self._onward is not None:
            self._onward(event, at_unix_ns)

    def after(self, seq: int, *, limit: int) -> list[Recorded]:
        """Events numbered above `seq`, oldest first."""
        found = [recorded for recorded in self._kept if recorded.seq > seq]
        return found[:limit]

    def missed_since(self, seq: int) -> int:
        """The number of events after `seq` that were dropped."""
        oldest = self._kept[0].seq if self._kept else self._last_seq + 1
        return max(0, oldest - 1 - seq)

    @property
    def last_seq(self) -> int:
        """The number of the newest event; 0 before the first."""
        return self._last_seq

    def counters(self) -> dict[str, int]:
        """The number of events of each kind."""
        return dict(self._counts)
