"""The telemetry contract: every event of the catalogue with its fields, and the archive's columns; versioned.

Never renames or retypes a column and never gives a name another meaning: archives outlive programs. A new column or
event is added at the end of its list, with a new version; readers take a missing column for nulls.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from snavio.signed.archive_manifest import MANIFEST_TYPE, SCHEMA_VERSION

if TYPE_CHECKING:
    import pyarrow

Kind = Literal["text", "int32", "int64", "float64", "bool", "time", "id", "texts"]


@dataclass(frozen=True, slots=True)
class Column:
    """One column of the archive. All may be null, except those that are `required`."""

    name: str
    kind: Kind
    """`text` repeats and is dictionary-encoded; `time` is in microseconds, UTC; `id` has 16 bytes."""
    about: str
    required: bool = False


@dataclass(frozen=True, slots=True)
class EventType:
    """One event of the catalogue: its fields by the catalogue's names, each with the column that holds it."""

    name: str
    about: str
    fields: Mapping[str, str]
    optional: frozenset[str] = field(default_factory=frozenset)
    """Fields that an event may lack."""
    beyond: Mapping[str, str] = field(default_factory=dict)
    """Additional fields that the mesh adds where it knows them."""
    internal: bool = False
    """For operators; not part of the tenants' catalogue."""


COLUMNS: Final = (
    Column("event", "text", "Name of the event; one that this version does not know is kept.", required=True),
    Column("instance", "text", "Process that wrote it, such as `fast-0`.", required=True),
    Column("epoch", "int64", "Boot epoch of that process; larger after every restart.", required=True),
    Column("seq", "int64", "Number of the event in that epoch, from 1; gaps are reported.", required=True),
    Column("service", "text", "Service of that process.", required=True),
    Column("at", "time", "When it happened; for a command, when it was settled.", required=True),
    Column(
        "count",
        "int64",
        "Commands that the row stands for; above 1 where a flood was counted.",
        required=True,
    ),
    Column("command_id", "id", "The command's UUID."),
    Column("source", "text", "`<tenant>/<service>` of the sender, from its certificate."),
    Column("target", "text", "Target of the command."),
    Column("command_name", "text", "The catalogue's `command.name`."),
    Column("timestamp", "time", "Time that the sender signed; also `sent_at`."),
    Column("received_at", "time", "Shield's clock at admission."),
    Column("path", "text", "`fast` or `slow`: who dispatched it."),
    Column("verdict", "int32", "Number of the verdict."),
    Column("reason", "text", "Why it is invalid or failed, such as `acl-deny`."),
    Column("dispatch_latency_ms", "float64", "From admission to settlement."),
    Column("replay", "bool", "Delivered by a replay operation."),
    Column("replay_reason", "text", "Reason of the replay."),
    Column("replay_id", "text", "Id of the replay."),
    Column("retry_after_ms", "int64", "Least time to wait before trying again."),
    Column("throttle_until", "time", "When it will likely be accepted again."),
    Column("dedupe_mode", "text", "`strict`."),
    Column("stale_duration_seconds", "float64", "From revocation to dispatch."),
    Column("acl_revocation_timestamp", "time", "When the right was taken away."),
    Column("source_share", "float64", "Share of the source in the route's dispatches."),
    Column("competing_share", "float64", "What others offered, as a share of all that was offered."),
    Column("dispatch_volume", "int64", "Dispatches of the route in the fairness window."),
    Column("affected_targets", "texts", "Targets on which a source was abusive."),
    Column("total_violations", "int64", "Violations that led to a ban."),
    Column("ban_applied_until", "time", "End of a ban."),
    Column("version_id", "text", "Version of a key, in events about keys."),
    Column("time_of_last_config_poll", "time", "When the source last asked for its keys."),
    Column("skew_seconds", "float64", "Received minus sent; positive where the sender's clock is behind."),
    Column("tenant", "text", "Tenant that an event is about."),
    Column("dropped_events", "int64", "Events that were lost."),
    Column("queue_age_seconds", "float64", "Age of what was dropped."),
    Column("last_received_at", "time", "When the tenant last received anything."),
    Column("key_version", "text", "Key version under which the command was verified."),
    Column("escalation", "text", "Why Fast handed the command to Slow, such as `cache_miss`."),
    Column("cache_phase", "text", "`fresh`, `stale` or `expired`: the entries that the decision relied on."),
    Column("acl_version", "int64", "Version of the ACL entry that allowed it."),
    Column("acl_age_ms", "int32", "Time since that entry was read from Registry."),
    Column("grant", "text", "`unlimited`, `prefetched`, `arbitrated` or `shadow`: the permit it went by."),
    Column("topic", "text", "Topic of the queue that it was sent to."),
    Column("detail", "text", "One sentence or value for people."),
    Column("extra", "text", "Fields without a column of their own, as a JSON object."),
    # Since version 2.
    Column("cache_type", "text", "`ACL`, `Routing` or `HMAC`."),
    Column("age_seconds", "float64", "How old a cache had become when it was read again."),
    Column("fresh_ttl", "float64", "Age in seconds from which on a cache is stale."),
    Column("stale_ttl", "float64", "Age in seconds from which on a cache is not used."),
    Column("state", "text", "`dead` or `canceled`: the state of messages that an event is about."),
    Column("messages", "int64", "Messages that an event is about."),
)


def _same(*names: str) -> dict[str, str]:
    """Fields whose column has the field's own name."""
    return {name: name for name in names}


_ROUTE: Final = {**_same("source", "target"), "command.name": "command_name"}
_COMMAND: Final = {**_same("command_id"), **_ROUTE, **_same("timestamp")}
_REPLAY: Final = _same("replay", "replay_reason", "replay_id")
_SKEW: Final = {**_same("source"), "sent_at": "timestamp", **_same("received_at", "skew_seconds")}
_SECRET: Final = _same("version_id", "source", "time_of_last_config_poll")
_THROTTLE: Final = _same("retry_after_ms", "throttle_until")
# Only with the reason `fairness-violation`.
_SHARES: Final = _same("source_share", "competing_share", "dispatch_volume")
_POLL: Final = frozenset({"time_of_last_config_poll"})

DELIVERED: Final = "snavio.command.delivered"
INVALID: Final = "snavio.command.invalid"
FAILED: Final = "snavio.command.failed"
DUPLICATE: Final = "snavio.command.duplicate"
CONFLICT: Final = "snavio.command.conflict"
EXECUTED_AFTER_REVOCATION: Final = "snavio.command.executed_after_acl_revoked"
WARM_PATH_BAN: Final = "snavio.fairness.warm-path-ban"
ABUSE_DETECTED: Final = "snavio.fairness.abuse_detected"
BAN_NEAR: Final = "snavio.fairness.ban_near"
LEGACY_KEY_USED: Final = "snavio.secret.legacy_key_used"
KEY_EXPIRY_IMMINENT: Final = "snavio.secret.key_expiry_imminent"
SKEW_NEAR_LIMIT: Final = "snavio.telemetry.skew_near_limit"
SKEW_SAMPLE: Final = "snavio.telemetry.skew_sample"
DROPPED: Final = "snavio.telemetry.dropped"
JOURNAL_GAP: Final = "snavio.telemetry.journal_gap"
CACHE_REFRESHED: Final = "snavio.cache.refreshed"
SNAPSHOT_WRITTEN: Final = "snavio.snapshot.written"
SNAPSHOT_TOO_LARGE: Final = "snavio.snapshot.too_large"
SNAPSHOT_FAILED: Final = "snavio.snapshot.failed"
SNAPSHOT_LOAD_FAILED: Final = "snavio.snapshot.load_failed"
SIGNING_KEY_ROTATED: Final = "signing_key_rotated"
DLQ_PRUNED: Final = "snavio.mailbox.dlq-pruned"
CERTIFICATE_REFUSED: Final = "snavio.certificate.refused"
CACHE_EXPIRED: Final = "snavio.cache.expired"
STREAM_OPENED: Final = "snavio.stream.opened"
STREAM_VERIFICATION_FAILED: Final = "snavio.stream.verification_failed"
PUBLISH_FAILED: Final = "snavio.telemetry.publish_failed"
ROUTE_HEALTH: Final = "snavio.route.health"

EVENTS: Final = (
    EventType(
        DELIVERED,
        "A valid command is durable in its target queue.",
        {**_COMMAND, **_same("path", "dispatch_latency_ms"), **_REPLAY},
        frozenset(_REPLAY),
    ),
    EventType(
        INVALID,
        "Shield refused a command.",
        {**_COMMAND, **_same("reason")},
        frozenset(_COMMAND),
        # With the reason `timestamp-outside-window`.
        beyond=_same("received_at", "skew_seconds"),
    ),
    EventType(
        FAILED,
        "A valid command could not be dispatched.",
        {**_COMMAND, **_same("reason"), **_REPLAY, **_THROTTLE, **_SHARES},
        frozenset({*_COMMAND, *_REPLAY, *_THROTTLE, *_SHARES}),
    ),
    EventType(
        DUPLICATE,
        "A strict route had this command before.",
        {**_COMMAND, **_same("dedupe_mode")},
    ),
    EventType(
        EXECUTED_AFTER_REVOCATION,
        "A command went by an ACL entry that had been revoked.",
        {**_ROUTE, **_same("stale_duration_seconds", "acl_revocation_timestamp")},
    ),
    EventType(
        WARM_PATH_BAN,
        "A source dominates a route and goes by Slow for a while; once per ban.",
        {**_ROUTE, **_same("source_share", "competing_share"), **_THROTTLE},
        beyond=_same("dispatch_volume"),
    ),
    EventType(
        ABUSE_DETECTED,
        "The auditor banned a source; once per ban.",
        _same("source", "affected_targets", "total_violations", "ban_applied_until"),
    ),
    EventType(
        BAN_NEAR,
        "A source will be banned if it goes on like this; `reason` is the kind of abuse. Once per kind and period.",
        _same("source", "affected_targets", "total_violations", "reason"),
    ),
    EventType(LEGACY_KEY_USED, "A source signs with its previous key version.", _SECRET, _POLL),
    EventType(KEY_EXPIRY_IMMINENT, "A source signs with a version that ends soon.", _SECRET, _POLL),
    EventType(
        SKEW_NEAR_LIMIT,
        "A sender's clock is off by at least 0.8 of the window.",
        {**_same("command_id"), **_SKEW},
    ),
    EventType(SKEW_SAMPLE, "One admitted command in a hundred.", _SKEW),
    EventType(
        DROPPED,
        "Events about a tenant were lost before anybody could read them.",
        _same("tenant", "dropped_events", "reason", "queue_age_seconds", "last_received_at"),
        frozenset({"last_received_at"}),
    ),
    EventType(
        JOURNAL_GAP,
        "Events of a process that never reached the archive; `detail` names the process and the numbers.",
        _same("dropped_events", "reason", "detail"),
        frozenset({"dropped_events"}),
        internal=True,
    ),
    EventType(
        CACHE_REFRESHED,
        "A cache was read again after entries had gone stale, or took another directory's word.",
        _same("cache_type", "age_seconds", "fresh_ttl", "stale_ttl", "reason", "detail"),
        internal=True,
    ),
    EventType(SNAPSHOT_WRITTEN, "Registry wrote a snapshot.", _same("detail"), internal=True),
    EventType(
        SNAPSHOT_TOO_LARGE,
        "A snapshot was too large and was not written.",
        _same("detail"),
        internal=True,
    ),
    EventType(
        SNAPSHOT_LOAD_FAILED,
        "A snapshot was not believed.",
        _same("reason", "detail"),
        internal=True,
    ),
    EventType(SIGNING_KEY_ROTATED, "A scope has a new Ed25519 key.", _same("extra"), internal=True),
    EventType(
        DLQ_PRUNED,
        "A mailbox removed dead or canceled messages that were too old or too many.",
        {**_same("topic", "state"), "cause": "reason", **_same("messages")},
        internal=True,
    ),
    # Since version 3.
    EventType(
        CACHE_EXPIRED,
        "Commands were refused because keys or suspensions are out of date; `count` says how many.",
        _same("cache_type", "age_seconds", "stale_ttl", "reason", "detail"),
        frozenset({"age_seconds"}),
        internal=True,
    ),
    EventType(
        CERTIFICATE_REFUSED,
        "A service refused calls or batches for their certificate; `count` says how many.",
        _same("reason", "source", "tenant", "detail"),
        frozenset({"source", "tenant"}),
        internal=True,
    ),
    # Since version 4; `snavio.command.failed` with the reason `conflict` before.
    EventType(
        CONFLICT,
        "A strict route holds this id with another name or payload.",
        {**_COMMAND, **_same("reason", "dedupe_mode")},
    ),
    EventType(
        STREAM_OPENED,
        "A gateway began to serve a tenant's events to a reader; `detail` names the reader.",
        {"tenant": "tenant", "detail": "detail"},
        internal=True,
    ),
    EventType(
        STREAM_VERIFICATION_FAILED,
        "A gateway read an envelope that could not be believed, and handed it to nobody.",
        {"tenant": "tenant", "reason": "reason", "detail": "detail"},
        internal=True,
    ),
    EventType(
        PUBLISH_FAILED,
        "A tenant's queue refused an envelope for good; `detail` names it and where it is kept.",
        {"tenant": "tenant", "reason": "reason", "detail": "detail"},
        internal=True,
    ),
    EventType(
        ROUTE_HEALTH,
        "The queue of a route became healthy, slow, growing, stalled, unreachable or unpolled.",
        _same("tenant", "target", "topic", "reason", "detail"),
    ),
    EventType(
        SNAPSHOT_FAILED,
        "Registry or Signer could not publish a snapshot; the one before stays in force.",
        _same("reason", "detail"),
        internal=True,
    ),
)

AUDIT: Final = frozenset({ABUSE_DETECTED, SIGNING_KEY_ROTATED, STREAM_OPENED, STREAM_VERIFICATION_FAILED})
"""Events that their writer makes durable before anything relies on them."""

BY_NAME: Final[Mapping[str, EventType]] = {event.name: event for event in EVENTS}

# The archive's layout. Dates and hours are those of the export, in UTC; a closed hour changes only by compaction.
FOLDER: Final = "telemetry/date={date}/hour={hour}"
FILE: Final = "{instance}-{epoch}-{first_seq}-{last_seq}.parquet"
MANIFEST: Final = "_manifest-{number}.json"


def document() -> dict[str, Any]:
    """The whole contract as plain values, for readers that do not import this module."""
    return {
        "version": SCHEMA_VERSION,
        "columns": [
            {"name": column.name, "kind": column.kind, "required": column.required, "about": column.about}
            for column in COLUMNS
        ],
        "events": [
            {
                "name": event.name,
                "fields": dict(event.fields),
                "optional": sorted(event.optional),
                "beyond": dict(event.beyond),
                "internal": event.internal,
                "about": event.about,
            }
            for event in EVENTS
        ],
        "layout": {"folder": FOLDER, "file": FILE, "manifest": MANIFEST, "manifest_type": MANIFEST_TYPE},
    }


def arrow_schema() -> pyarrow.Schema:
    """The archive's columns as a pyarrow schema."""
    import pyarrow as pa

    kinds = {
        "text": pa.dictionary(pa.int32(), pa.string()),
        "int32": pa.int32(),
        "int64": pa.int64(),
        "float64": pa.float64(),
        "bool": pa.bool_(),
        "time": pa.timestamp("us", tz="UTC"),
        "id": pa.binary(16),
        "texts": pa.list_(pa.string()),
    }
    return pa.schema(
        [pa.field(column.name, kinds[column.kind], nullable=not column.required) for column in COLUMNS],
        metadata={"snavio.schema_version": str(SCHEMA_VERSION)},
    )
