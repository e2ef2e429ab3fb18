"""The telemetry contract holds together, and its copy for Spark is the same."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from snavio.signed.archive_manifest import ArchiveManifest, BadManifest, EventRange, FileEntry, read_manifest
from snavio.telemetry import schema

ROOT = Path(__file__).resolve().parents[2]
HOUR_NS = 1_794_794_400_000_000_000

# As tenants read them, hyphens and underscores included.
CATALOGUE = {
    "snavio.command.delivered": {
        *("command_id", "source", "target", "command.name", "timestamp", "path", "dispatch_latency_ms"),
        *("replay", "replay_reason", "replay_id"),
    },
    "snavio.command.invalid": {"command_id", "source", "target", "command.name", "timestamp", "reason"},
    "snavio.command.failed": {
        *("command_id", "source", "target", "command.name", "timestamp", "reason"),
        *("replay", "replay_reason", "replay_id", "retry_after_ms", "throttle_until"),
        # From its section C, where it shows a `fairness-violation`.
        *("source_share", "competing_share", "dispatch_volume"),
    },
    "snavio.command.duplicate": {
        *("command_id", "source", "target", "command.name", "timestamp", "dedupe_mode"),
    },
    "snavio.command.executed_after_acl_revoked": {
        *("source", "target", "command.name", "stale_duration_seconds", "acl_revocation_timestamp"),
    },
    "snavio.fairness.warm-path-ban": {
        *("source", "target", "command.name", "source_share", "competing_share"),
        *("retry_after_ms", "throttle_until"),
    },
    "snavio.fairness.abuse_detected": {
        *("source", "affected_targets", "total_violations", "ban_applied_until"),
    },
    "snavio.secret.legacy_key_used": {"version_id", "source", "time_of_last_config_poll"},
    "snavio.secret.key_expiry_imminent": {"version_id", "source", "time_of_last_config_poll"},
    "snavio.telemetry.skew_near_limit": {"command_id", "source", "sent_at", "received_at", "skew_seconds"},
    "snavio.telemetry.skew_sample": {"source", "skew_seconds", "sent_at", "received_at"},
    "snavio.telemetry.dropped": {
        *("tenant", "dropped_events", "reason", "queue_age_seconds", "last_received_at"),
    },
}
# For tenants too, and ours.
ADDED = {
    "snavio.route.health": {"tenant", "target", "topic", "reason", "detail"},
    "snavio.fairness.ban_near": {"source", "affected_targets", "total_violations", "reason"},
    "snavio.command.conflict": {
        *("command_id", "source", "target", "command.name", "timestamp", "reason", "dedupe_mode"),
    },
}


def test_every_event_of_the_catalogue_has_exactly_its_fields() -> None:
    assert {event.name: set(event.fields) for event in schema.EVENTS if not event.internal} == {
        **CATALOGUE,
        **ADDED,
    }


def test_every_field_has_a_column() -> None:
    columns = {column.name for column in schema.COLUMNS}
    assert len(columns) == len(schema.COLUMNS)
    for event in schema.EVENTS:
        assert {*event.fields.values(), *event.beyond.values()} <= columns
        assert event.optional <= set(event.fields)


def test_arrow_has_the_columns_in_order() -> None:
    arrow = schema.arrow_schema()
    assert arrow.names == [column.name for column in schema.COLUMNS]
    assert [field.nullable for field in arrow] == [not column.required for column in schema.COLUMNS]


def test_the_copy_for_spark_is_up_to_date() -> None:
    checked = subprocess.run(
        [sys.executable, "tools/generate_schema.py", "--check"], cwd=ROOT, check=False, capture_output=True
    )
    assert checked.returncode == 0, checked.stderr.decode()


def entry(first: int = 1, last: int = 10) -> FileEntry:
    return FileEntry(EventRange("fast-0", 7, first, last), HOUR_NS, HOUR_NS + 1, 4000, "ab" * 32)


def test_a_manifest_comes_back_as_it_was_written() -> None:
    written = ArchiveManifest(
        17,
        HOUR_NS,
        (entry(), entry(11, 12)),
        (EventRange("fast-0", 7, 1, 5).file_name,),
        key_id="platform-1",
        signature=b"s" * 64,
    )
    read, signed = read_manifest(written.encoded())
    assert (read, signed) == (written, written.signed_form())
    assert read.file_name == "_manifest-000000000017.json"


@pytest.mark.parametrize(
    ("good", "bad"),
    [
        (b'"format":1', b'"format":2'),
        (b'"rows":10', b'"rows":11'),
        (b'"rows":10', b'"rows":true'),
        (b"fast-0-7-1-10.parquet", b"../-0-7-1-10.parquet"),
        (b'"number":"17"', b'"number":"017"'),
        (b'"replaces":[]', b'"replaces":["../../x"]'),
        (b'"type"', b'"kind"'),
    ],
)
def test_a_manifest_is_read_strictly(good: bytes, bad: bytes) -> None:
    encoded = ArchiveManifest(17, HOUR_NS, (entry(),), key_id="k", signature=b"s" * 64).encoded()
    assert good in encoded
    with pytest.raises(BadManifest):
        read_manifest(encoded.replace(good, bad))
    for damaged in (b"", b"{}", b"[1]", encoded[:-1], encoded + encoded, b'{"a":1,"a":2}'):
        with pytest.raises(BadManifest):
            read_manifest(damaged)


def test_names_of_files_tell_what_is_in_them() -> None:
    stretch = EventRange("fast-0", 1_794_794_400_000_000_000, 10_001, 20_400)
    assert EventRange.of_file(stretch.file_name) == stretch
    assert (stretch.rows, EventRange.of_file("fast-0.parquet"), EventRange.of_file("_x.parquet")) == (
        10_400,
        None,
        None,
    )
