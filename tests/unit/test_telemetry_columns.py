"""Blocks become rows of the archive: every kind of event with its fields, of any writer."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime
from typing import Any

import pytest

from snavio import native
from snavio.domain.verdict import Verdict
from snavio.native import Tombstones, read_journal_page, telemetry_columns
from snavio.telemetry import parquet, schema
from snavio.v1.telemetry_pb2 import (
    CACHE_PHASE_STALE,
    EVENT_KIND_SKEW_NEAR_LIMIT,
    EVENT_KIND_SKEW_SAMPLE,
    EVENT_KIND_WARM_PATH_BAN,
    GRANT_KIND_PREFETCHED,
    TelemetryBlock,
)
from tests.support.telemetry import NAME, NOW, SOURCE, TARGET, block, page

AT = datetime.fromtimestamp(NOW // 1_000_000_000, UTC)


def archived(*blocks: TelemetryBlock, first_seq: int = 1) -> list[dict[str, Any]]:
    """Rows after a round trip through Parquet."""
    raw = b"".join(raw for _, raw in read_journal_page(page(*blocks))[3])
    encoded, _ = parquet.encode_pages(
        [(first_seq, raw)], instance="fast-0", epoch=7, service="fast", tombstones=Tombstones()
    )
    table = parquet.read(encoded.contents)
    assert table.schema.names == [column.name for column in schema.COLUMNS]
    assert encoded.rows == table.num_rows
    return list(table.to_pylist())


def fields(row: dict[str, Any]) -> dict[str, Any]:
    event = schema.BY_NAME[row["event"]]
    told = {name: row[column] for name, column in event.fields.items()}
    assert {name for name, value in told.items() if value is None} <= event.optional
    return {name: value for name, value in told.items() if value is not None}


def test_a_delivered_command() -> None:
    lane = {
        "topic": 4,
        "acl_age_ms": 1500,
        "acl_version": 9,
        "phase": CACHE_PHASE_STALE,
        "grant": GRANT_KIND_PREFETCHED,
    }
    (row,) = archived(block([Verdict.DELIVERED], lane=lane))
    assert fields(row) == {
        "command_id": bytes(15) + b"\x01",
        "source": SOURCE,
        "target": TARGET,
        "command.name": NAME,
        "timestamp": datetime.fromtimestamp((NOW - 6_000_000) / 1e9, UTC),
        "path": "fast",
        "dispatch_latency_ms": 5.0,
    }
    assert (row["event"], row["seq"], row["at"], row["count"]) == (schema.DELIVERED, 1, AT, 1)
    assert (row["topic"], row["acl_version"], row["acl_age_ms"]) == ("acme/discord-bot", 9, 1500)
    assert (row["cache_phase"], row["grant"], row["key_version"]) == ("stale", "prefetched", "hmac-v1")
    assert row["reason"] is None


def test_every_verdict_becomes_the_event_of_its_range_with_its_reason() -> None:
    verdicts = [verdict for verdict in Verdict if verdict]
    for verdict, row in zip(verdicts, archived(block(verdicts)), strict=True):
        expected = (
            schema.INVALID if verdict.invalid else schema.FAILED if verdict.failed else schema.DUPLICATE
        )
        own = {Verdict.DELIVERED: schema.DELIVERED, Verdict.CONFLICT: schema.CONFLICT}
        expected = own.get(verdict, expected)
        assert row["event"] == expected
        assert row["reason"] == (verdict.reason if verdict >= 16 else None)
        assert row["verdict"] == verdict
        fields(row)


def test_a_duplicate_says_that_its_route_is_strict() -> None:
    for row in archived(block([Verdict.DUPLICATE, Verdict.CONFLICT])):
        assert fields(row)["dedupe_mode"] == "strict"


def test_a_rate_limit_says_when_to_come_again_to_all_that_are_alike() -> None:
    told = {"row": 0, "alike": True, "retry_after_ms": 1200, "throttle_until_unix_ns": NOW + 1_200_000_000}
    limited, delivered, also = archived(
        block([Verdict.RATE_LIMIT_EXCEEDED, Verdict.DELIVERED, Verdict.RATE_LIMIT_EXCEEDED], details=[told])
    )
    for row in (limited, also):
        assert fields(row)["retry_after_ms"] == 1200
        assert (fields(row)["throttle_until"] - AT).total_seconds() == 1.2
    assert delivered["retry_after_ms"] is None


def test_a_warm_path_ban_has_both_shares() -> None:
    told = {
        "row": 0,
        "retry_after_ms": 30_000,
        "throttle_until_unix_ns": NOW + 30_000_000_000,
        "source_share": 0.91,
        "competing_share": 0.12,
        "dispatch_volume": 4000,
    }
    (row,) = archived(block([0], kinds=[EVENT_KIND_WARM_PATH_BAN], details=[told]))
    assert row["event"] == schema.WARM_PATH_BAN
    assert fields(row)["source_share"] == 0.91 and fields(row)["competing_share"] == 0.12
    assert row["dispatch_volume"] == 4000
    assert (row["verdict"], row["path"]) == (None, None)


@pytest.mark.parametrize(
    ("kind", "event"),
    [(EVENT_KIND_SKEW_NEAR_LIMIT, schema.SKEW_NEAR_LIMIT), (EVENT_KIND_SKEW_SAMPLE, schema.SKEW_SAMPLE)],
)
def test_skew_is_positive_where_the_sender_is_behind(kind: int, event: str) -> None:
    (row,) = archived(block([0], kinds=[kind], sent=NOW - 50_000_000_000, admitted=NOW))
    assert (row["event"], fields(row)["skew_seconds"]) == (event, 50.0)


@pytest.mark.parametrize("behind_s", [91.5, -3600.0])
def test_a_command_refused_for_its_clock_tells_how_far_that_is_off(behind_s: float) -> None:
    sent = NOW - round(behind_s * 1e9)
    refused = [Verdict.TIMESTAMP_OUTSIDE_WINDOW, Verdict.HMAC_MISMATCH]
    late, forged = archived(block(refused, service="shield", sent=sent, admitted=0))
    assert (late["skew_seconds"], late["received_at"], fields(late)["reason"]) == (
        *(behind_s, AT, "timestamp-outside-window"),
    )
    assert late["dispatch_latency_ms"] is None
    # A signature that does not fit says nothing about a clock.
    assert (forged["skew_seconds"], forged["received_at"]) == (None, None)


@pytest.mark.parametrize("verdict", [Verdict.HMAC_MISMATCH, Verdict.TIMESTAMP_OUTSIDE_WINDOW])
def test_a_counted_flood_is_one_row(verdict: Verdict) -> None:
    counted = block([verdict], details=[{"row": 0, "count": 98_000}], admitted=0, sent=0)
    counted.command_id = bytes(16)
    (row,) = archived(counted)
    assert row["count"] == 98_000
    unknown = ("command_id", "timestamp", "received_at", "skew_seconds")
    assert [row[name] for name in unknown] == [None] * 4


def test_seldom_events_keep_their_fields_and_their_place() -> None:
    until = "2026-11-16T02:15:00.000000000Z"
    rows = archived(
        block([Verdict.DELIVERED]),
        block(
            [],
            events=[
                (
                    schema.ABUSE_DETECTED,
                    {
                        "source": SOURCE,
                        "affected_targets": ["a", "b"],
                        "total_violations": 17,
                        "ban_applied_until": until,
                    },
                ),
                (
                    schema.LEGACY_KEY_USED,
                    {"version_id": "hmac-v1", "source": SOURCE, "time_of_last_config_poll": None},
                ),
                ("snavio.future.thing", {"source": SOURCE, "n": 3}),
            ],
        ),
        block([Verdict.DELIVERED]),
        first_seq=40,
    )
    assert [row["seq"] for row in rows] == [40, 41, 42, 43, 44]
    abuse, legacy, unknown = rows[1:4]
    assert fields(abuse) == {
        "source": SOURCE,
        "affected_targets": ["a", "b"],
        "total_violations": 17,
        "ban_applied_until": datetime(2026, 11, 16, 2, 15, tzinfo=UTC),
    }
    assert fields(legacy) == {"version_id": "hmac-v1", "source": SOURCE}
    # Kept for readers that know it.
    assert (unknown["event"], json.loads(unknown["extra"])) == (
        "snavio.future.thing",
        {"source": SOURCE, "n": 3},
    )


def test_a_field_of_another_kind_than_its_column_is_kept_beside() -> None:
    (row,) = archived(
        block([], events=[(schema.ABUSE_DETECTED, {"source": 5, "total_violations": "many", "count": True})])
    )
    assert (row["source"], row["total_violations"], row["count"]) == (None, None, 1)
    assert json.loads(row["extra"]) == {"source": 5, "total_violations": "many", "count": True}


def test_every_event_of_the_contract_can_be_told_as_a_seldom_one() -> None:
    values: dict[str, Any] = {
        "text": "x",
        "int32": 1,
        "int64": 2,
        "float64": 0.5,
        "bool": True,
        "time": "2026-11-16T02:15:00.000000000Z",
        "texts": ["x"],
    }
    kinds = {column.name: column.kind for column in schema.COLUMNS}
    for event in schema.EVENTS:
        told = {name: values[kinds[column]] for name, column in event.fields.items() if kinds[column] != "id"}
        told.pop("extra", None)
        (row,) = archived(block([], events=[(event.name, told)]))
        assert all(row[event.fields[name]] is not None for name in told)


def test_a_damaged_block_is_refused() -> None:
    good = page(block([Verdict.DELIVERED, Verdict.ACL_DENY], lane={"topic": 4}))
    for at in range(len(good)):
        damaged = bytearray(good)
        damaged[at] ^= 0x15
        try:
            blocks = native.read_journal_page(bytes(damaged))[3]
        except ValueError:
            continue
        telemetry_columns([(1, b"".join(raw for _, raw in blocks))], Tombstones())


@pytest.mark.parametrize(
    "wrong",
    [
        {"lane": [7]},
        {"run": [1]},
        {"verdict": b"\x01\x01"},
        {"command_id": b"short"},
        {"dictionary": []},
        {"kind": b"\x00\x00"},
        {"sent_unix_ns": []},
        {"details": [TelemetryBlock.Detail(row=1)]},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
def test_columns_that_do_not_fit_together_are_refused(wrong: dict[str, Any]) -> None:
    built = block([Verdict.DELIVERED], lane={"topic": 4})
    for name, value in wrong.items():
        built.ClearField(name)
        if isinstance(value, bytes):
            setattr(built, name, value)
        else:
            getattr(built, name).extend(value)
    with pytest.raises(ValueError, match="not a page"):
        read_journal_page(page(built))


@pytest.mark.parametrize("count", [2**64 - 1, 2**63, 2**32, 0, -1, "7", 1.5, True])
def test_a_count_that_cannot_be_one_stays_beside_the_row_and_the_others_are_archived(count: Any) -> None:
    odd, good = archived(block([], events=[("x", {"count": count}), ("y", {"count": 2**32 - 1})]))
    assert (odd["count"], json.loads(odd["extra"])) == (1, {"count": count})
    assert (good["count"], good["extra"]) == (2**32 - 1, None)


def test_rare_events_of_all_types_keep_their_values_beside_missing_ones() -> None:
    values: dict[str, list[Any]] = {
        "text": ["ä", None, "", "ä"],
        "texts": [["a", "bß"], None, [], ["c"]],
        "bool": [True, None, False, True] * 5,
        "int32": [-(1 << 31), None, 0, (1 << 31) - 1],
        "int64": [-(1 << 63), None, 0, (1 << 63) - 1],
        "float64": [0.5, None, 0.0, -1e300],
        "time": [1, None, 2],
    }
    for kind, given in values.items():
        made = parquet._made(kind, given)
        made.validate(full=True)
        assert made.null_count == given.count(None), kind
        assert (made.cast("int64") if kind == "time" else made).to_pylist() == given, kind
        assert parquet._made(kind, []).to_pylist() == []


def test_encoding_a_page_does_not_import_pandas() -> None:
    entry = TelemetryBlock.Event(at_unix_ns=NOW, name="snavio.telemetry.dropped", fields=b'{"reason":"x"}')
    pages = [block([Verdict.DELIVERED]), TelemetryBlock(service="fast", event=[entry])]
    raw = b"".join(raw for _, raw in read_journal_page(page(*pages))[3])
    code = f"""
import sys
class Watch:
    tried = False
    def find_spec(self, name, path=None, target=None):
        Watch.tried |= name.partition(".")[0] == "pandas"
sys.meta_path.insert(0, Watch())
from snavio.native import Tombstones
from snavio.telemetry import parquet
file, _ = parquet.encode_pages([(1, {raw!r})], instance="fast-0", epoch=7, service="fast", tombstones=Tombstones())
assert file.rows == 2, file.rows
assert parquet.read(file.contents).num_rows == 2
assert not Watch.tried
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
