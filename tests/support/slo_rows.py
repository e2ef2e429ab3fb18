"""A small archive, counted by hand: what each table of the SLO report has to say about it, to the last row."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any, Final

from tests.support.telemetry_rows import T0, row

REVOKED: Final = "snavio.command.executed_after_acl_revoked"
SKEW: Final = "snavio.telemetry.skew_sample"
SHOP, BULK, FORGER = "acme/shop", "acme/bulk", "evil/forger"
FIRST, SECOND, THIRD = (T0.replace(tzinfo=None) + timedelta(seconds=30 * number) for number in range(3))
Table = list[dict[str, Any]]


def refused(verdict: int, count: int, **given: Any) -> dict[str, Any]:
    return row(verdict=verdict, count=count, **{"path": None, "dispatch_latency_ms": None, **given})


def rows() -> Table:
    """Three windows, two routes, three sources; every verdict that a table speaks of, each with another number."""
    return [
        # First window: the fast path, with fresh caches.
        row(count=90, dispatch_latency_ms=1.0, cache_phase="fresh"),
        row(count=8, dispatch_latency_ms=7.0, cache_phase="fresh"),
        row(count=2, dispatch_latency_ms=100.0, cache_phase="stale"),
        row(source=BULK, target="pay", command_name="go", count=5, cache_phase="fresh"),
        # Second window: Slow, for every reason that there is.
        *(
            row(
                count=number,
                path="slow",
                service="slow",
                escalation=reason,
                cache_phase="expired",
                key_version="hmac-v2",
                dispatch_latency_ms=20.0,
                after_s=31,
            )
            for number, reason in enumerate(
                (
                    "cache_miss",
                    "acl_expired",
                    "route_expired",
                    "dedupe_required",
                    "token_required",
                    "warm_banned",
                    "cold_only",
                    "sync",
                ),
                1,
            )
        ),
        row(verdict=2, count=4, path=None, dispatch_latency_ms=None, after_s=31),
        # Third window: valid and failed ...
        *(
            refused(verdict, number, source=BULK, target="pay", command_name="go", path="slow", after_s=60)
            for number, verdict in enumerate(range(64, 72), 11)
        ),
        # ... and what Shield turned away, under a key version that nothing good came under.
        *(
            refused(verdict, number, source=FORGER, key_version="hmac-v9", after_s=89)
            for verdict, number in (
                (16, 1),
                (28, 2),
                (32, 16),
                (33, 21),
                (34, 22),
                (35, 23),
                (36, 24),
                (37, 14),
                (38, 13),
                (39, 15),
                (40, 25),
                (41, 26),
            )
        ),
        refused(17, 6, source=FORGER, target=None, command_name=None, key_version=None, after_s=89),
        # Shop's old key is tried once more, by somebody who has not got it.
        refused(38, 1, after_s=60),
        # What is told of commands is not told twice: these are no commands.
        *(
            row(event=REVOKED, verdict=None, path=None, key_version=None, after_s=31, **given)
            for given in (
                {"count": 3},
                {"count": 4},
                {"source": BULK, "target": "pay", "command_name": "go", "count": 2},
            )
        ),
        row(event="snavio.telemetry.journal_gap", source=None, verdict=None, count=1000),
    ]


LATENCY: Final[Table] = [
    {"target": "bot", "command_name": "say", "path": "fast", "delivered": 100, "p50_ms": 1.0, "p95_ms": 8.0}
    | {"p99_ms": 128.0, "latency_02": 90, "latency_05": 8, "latency_09": 2},
    {"target": "bot", "command_name": "say", "path": "slow", "delivered": 36, "p50_ms": 32.0, "p95_ms": 32.0}
    | {"p99_ms": 32.0, "latency_07": 36},
    {"target": "pay", "command_name": "go", "path": "fast", "delivered": 5, "p50_ms": 2.0, "p95_ms": 2.0}
    | {"p99_ms": 2.0, "latency_03": 5},
]
REFUSALS: Final[Table] = [
    {"target": None, "command_name": None, "invalid_schema": 6},
    {"target": "bot", "command_name": "say", "delivered": 136, "duplicates": 4}
    | {"invalid_schema": 3, "invalid_hmac": 14, "invalid_timestamp": 14, "invalid_key": 66}
    | {"invalid_certificate": 51, "wrong_audience": 24, "replayed": 15, "suspended": 16},
    {"target": "pay", "command_name": "go", "delivered": 5}
    | {"rate_limited": 11, "acl_denied": 12, "route_missing": 13, "delivery_failed": 14}
    | {"fairness_refused": 15, "outcome_unknown": 16, "saturated": 17, "conflicts": 18},
]
ESCALATIONS: Final[Table] = [
    {"target": "bot", "command_name": "say", "phase_fresh": 98, "phase_stale": 2, "phase_expired": 36}
    | {"escalated_cache_miss": 1, "escalated_acl_expired": 2, "escalated_route_expired": 3}
    | {"escalated_dedupe_required": 4, "escalated_token_required": 5, "escalated_warm_banned": 6}
    | {"escalated_cold_only": 7, "escalated_sync": 8},
    {"target": "pay", "command_name": "go", "phase_fresh": 5},
]
# Whoever got past Shield has signed, whatever became of the command: 11 to 18 are 116. Nothing of the forger did, and
# what was forged in Shop's name does not make its old key any newer.
KEYS: Final[Table] = [
    {"source": BULK, "key_version": "hmac-v1", "commands": 5 + 116, "last_used": THIRD},
    {"source": SHOP, "key_version": "hmac-v1", "commands": 100 + 4, "last_used": SECOND},
    {"source": SHOP, "key_version": "hmac-v2", "commands": 36, "last_used": SECOND},
]
REVOCATIONS: Final[Table] = [
    {"target": "bot", "command_name": "say", "source": SHOP, "commands": 7},
    {"target": "pay", "command_name": "go", "source": BULK, "commands": 2},
]
TIMELINE: Final[Table] = [
    {"window_start": FIRST, "fast": 105},
    {"window_start": SECOND, "slow": 36},
    {"window_start": THIRD, "failed": 116, "invalid": 203 + 6},
]
EXPECTED: Final[dict[str, Table]] = {
    "latency": LATENCY,
    "refusals": REFUSALS,
    "escalations": ESCALATIONS,
    "keys": KEYS,
    "revoked": REVOCATIONS,
    "timeline": TIMELINE,
}


def in_order(found: Iterable[dict[str, Any]]) -> Table:
    """Rows without their zeros, ordered by what they are about: a counter that is not named has to be zero."""
    told = [{name: value for name, value in one.items() if value != 0} for one in found]
    names = ("window_start", "target", "command_name", "source", "path", "key_version")
    return sorted(told, key=lambda one: [str(one.get(name) or "") for name in names])
