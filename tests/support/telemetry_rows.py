"""Telemetry as the archive holds it, made up from plain rows or in bulk; for tests of what reads it."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from snavio.telemetry.schema import DELIVERED, FAILED, INVALID, arrow_schema

T0 = datetime(2026, 11, 16, 10, 0, tzinfo=UTC)
DELIVERED_CODE, HMAC_CODE, RATE_CODE, ACL_CODE = 1, 38, 64, 65


def row(**given: Any) -> dict[str, Any]:
    """A delivered command of `acme/shop` at T0, unless said otherwise; `after_s` moves its time."""
    after_s = given.pop("after_s", 0.0)
    at = datetime.fromtimestamp(T0.timestamp() + after_s, UTC)
    made: dict[str, Any] = dict.fromkeys(arrow_schema().names)
    made |= {
        "event": DELIVERED,
        "instance": "fast-0",
        "epoch": 1,
        "seq": 1,
        "service": "fast",
        "at": at,
        "count": 1,
        "command_id": uuid.uuid4().bytes,
        "source": "acme/shop",
        "target": "bot",
        "command_name": "say",
        "timestamp": at,
        "received_at": at,
        "path": "fast",
        "verdict": DELIVERED_CODE,
        "dispatch_latency_ms": 2.0,
        "key_version": "hmac-v1",
    }
    made |= given
    verdict = made["verdict"]
    if "event" not in given and verdict is not None and verdict >= 16:
        made["event"] = INVALID if verdict < 64 else FAILED
    return made


def table(rows: list[dict[str, Any]]) -> pa.Table:
    """The rows with the archive's types, numbered from 1."""
    numbered = [{**made, "seq": number} for number, made in enumerate(rows, 1)]
    return pa.Table.from_pylist(numbered, schema=arrow_schema())


def write(rows: pa.Table | list[dict[str, Any]], path: Path) -> Path:
    """A Parquet file as Relay writes it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    made = table(rows) if isinstance(rows, list) else rows
    pq.write_table(made, path, compression="zstd")
    return path


def bulk(
    rows: int,
    *,
    seed: int,
    minutes: float = 60,
    after_minutes: float = 0,
    sources: int = 500,
    routes: int = 60,
    abusers: int = 3,
) -> pa.Table:
    """Synthetic traffic: most of it honest, a few sources that take nearly all of a route of theirs."""
    rng = np.random.default_rng(seed)
    source = rng.zipf(1.4, rows) % sources
    route = rng.integers(0, routes, rows)
    abusive = rng.random(rows) < 0.25
    source = np.where(abusive, sources + rng.integers(0, max(1, abusers), rows), source)
    route = np.where(abusive, source % routes, route)
    start = int(T0.timestamp() * 1e6 + after_minutes * 60_000_000)
    at = np.sort(rng.integers(0, int(minutes * 60_000_000), rows)) + start
    draw = rng.random(rows)
    verdict = np.select(
        [draw < 0.95, draw < 0.97, draw < 0.98, draw < 0.99],
        [DELIVERED_CODE, RATE_CODE, ACL_CODE, HMAC_CODE],
        default=39,
    ).astype(np.int32)
    slow = rng.random(rows) < 0.1
    event = np.where(verdict == 1, 0, np.where(verdict < 64, 1, 2)).astype(np.int32)
    latency = np.exp(rng.normal(0.7, 0.6, rows))
    ids = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(16), rows, [None, pa.py_buffer(rng.bytes(16 * rows))]
    )
    one = np.zeros(rows, np.int32)

    def words(indices: Any, names: list[str]) -> pa.Array:
        return pa.DictionaryArray.from_arrays(pa.array(indices.astype(np.int32)), pa.array(names))

    columns: dict[str, Any] = {
        "event": words(event, [DELIVERED, INVALID, FAILED]),
        "instance": words(one, ["fast-0"]),
        "epoch": pa.array(np.ones(rows, np.int64)),
        "seq": pa.array(np.arange(1, rows + 1)),
        "service": words(slow, ["fast", "slow"]),
        "at": pa.array(at, pa.timestamp("us", "UTC")),
        "count": pa.array(np.ones(rows, np.int64)),
        "command_id": ids,
        "source": words(source, [f"t{n % 50}/s{n}" for n in range(sources + abusers)]),
        "target": words(route, [f"target-{n}" for n in range(routes)]),
        "command_name": words(route % 4, ["say", "go", "stop", "pay"]),
        "timestamp": pa.array(at - 2000, pa.timestamp("us", "UTC")),
        "received_at": pa.array(at - 1000, pa.timestamp("us", "UTC")),
        "path": words(slow, ["fast", "slow"]),
        "verdict": pa.array(verdict),
        "dispatch_latency_ms": pa.array(np.where(verdict == 1, latency, np.nan), mask=verdict != 1),
        "key_version": words(source % 2, ["hmac-v1", "hmac-v2"]),
        "cache_phase": words(one, ["fresh"]),
    }
    schema = arrow_schema()
    arrays = [
        columns[field.name].cast(field.type) if field.name in columns else pa.nulls(rows, field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(arrays, schema=schema)
