"""Counts raw events once: per window, route, source, key version and outcome. Everything else reads these counts.

Never keeps an event: the base is many times smaller than what it was made of. What became of a command is one number
in the key and not thirty counters beside it, so that an event updates few of them and rows stay narrow on their way.
Latencies are the exception: in the key they would make half as many rows again. `counters` tells them all apart.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark import verdicts as V

WINDOW_SECONDS: Final = 30
KEYS: Final = ("window_start", "target", "command_name", "source", "key_version")
PATHS: Final = ("fast", "slow")
BUCKETS: Final = 16
"""Of latency: bucket i holds up to 2^(i-2) ms, the first everything up to a quarter, the last all the rest."""
ESCALATIONS: Final = (
    "cache_miss",
    "acl_expired",
    "route_expired",
    "dedupe_required",
    "token_required",
    "warm_banned",
    "cold_only",
    "sync",
)
PHASES: Final = ("fresh", "stale", "expired")
LATENCIES: Final = tuple(f"latency_{at:02d}" for at in range(BUCKETS))
RAW_COLUMNS: Final = (
    "event",
    "at",
    "count",
    "source",
    "target",
    "command_name",
    "path",
    "key_version",
    "verdict",
    "dispatch_latency_ms",
    "escalation",
    "cache_phase",
    "skew_seconds",
    "detail",
)
OWN_LIMIT: Final = "source-quota"
"""The detail of a refusal by the source's own limit, as Slow tells it; a test holds the two together."""
EXECUTED_AFTER_REVOCATION: Final = "snavio.command.executed_after_acl_revoked"
SKEW_SAMPLE: Final = "snavio.telemetry.skew_sample"
# Where an outcome keeps what: verdict, escalation, phase, path, kind of event; zero is "none". An outcome never leaves
# a run's own files, so these may change, and FORM with them.
_VERDICT, _ESCALATION, _PHASE, _PATH, _KIND, _OWN = (0, 8), (8, 4), (12, 3), (15, 2), (17, 2), (19, 1)
FORM: Final = 3
"""Of a base that is kept: another form is another folder, and never misread."""
# Two buckets share a column, 32 bits each: no source has four thousand million commands in a window.
_HALF: Final = 32
_PAIRS: Final = tuple(f"latencies_{pair}" for pair in range(BUCKETS // 2))
_KINDS: Final = (EXECUTED_AFTER_REVOCATION, SKEW_SAMPLE)

Condition = Callable[[], Column]


def base(events: DataFrame, *, window_seconds: int = WINDOW_SECONDS) -> DataFrame:
    """Counts per key and outcome. Rows without a source (journal gaps and the like) are not about commands."""
    seconds = F.unix_seconds("at")
    verdict, latency = F.col("verdict"), F.col("dispatch_latency_ms")
    # Comparisons instead of a logarithm, and most commands are fast: few of them are made.
    bucket = F.when(latency.isNull() | (latency <= 0.25), 0)
    for at in range(1, BUCKETS - 1):
        bucket = bucket.when(latency <= 2.0 ** (at - 2), at)
    outcome = _packed(
        (_VERDICT, F.coalesce(verdict.bitwiseAND(0xFF), F.lit(0))),
        (_ESCALATION, _place(F.col("escalation"), ESCALATIONS)),
        (_PHASE, _place(F.col("cache_phase"), PHASES)),
        (_PATH, _place(F.col("path"), PATHS)),
        (_KIND, _place(F.col("event"), _KINDS)),
        (_OWN, F.when(F.col("detail") == OWN_LIMIT, 1).otherwise(0)),
    )
    skew = F.when(F.col("event") == SKEW_SAMPLE, F.col("skew_seconds"))
    return (
        events.where(F.col("source").isNotNull())
        .select(
            F.timestamp_seconds(seconds - F.pmod(seconds, F.lit(window_seconds))).alias("window_start"),
            *KEYS[1:],
            outcome.alias("outcome"),
            "count",
            F.when(verdict == V.DELIVERED, bucket.otherwise(BUCKETS - 1)).otherwise(-1).alias("bucket"),
            skew.alias("skew"),
        )
        .groupBy(*KEYS, "outcome")
        .agg(
            F.sum("count").alias("number"),
            *(F.sum(_paired(pair)).alias(name) for pair, name in enumerate(_PAIRS)),
            F.sum("skew").alias("skew_sum"),
            F.max(F.abs("skew")).alias("skew_max"),
        )
    )


def by_route(base: DataFrame) -> DataFrame:
    """The base with all rows of a target in one place: sums per source, shares and dominance are all taken there.

    Who gives the same to `fairness` and to `proposals` has the rows moved once, and the events counted once. The
    price: a target is one task's work, so an archive of a single target is judged by one core.
    """
    return base.repartition("target")


def merged(bases: DataFrame) -> DataFrame:
    """Several bases as one, as far as judging needs it: numbers of the same key and outcome add up."""
    return bases.groupBy(*KEYS, "outcome").agg(F.sum("number").alias("number"))


def counters(base: DataFrame, *names: str) -> DataFrame:
    """The rows of a base with a column per named counter, or with all of them, to be summed by whoever groups them.

    Name what you need: a plan of fifty columns takes Spark longer to make than a micro-batch takes to run.
    """
    path = F.when(_has(_PATH, _code("fast", PATHS))(), "fast").when(
        _has(_PATH, _code("slow", PATHS))(), "slow"
    )
    return base.select(
        *KEYS,
        path.alias("path"),
        *(_counter(name).alias(name) for name in names or (*_CONDITIONS, *LATENCIES)),
        *(name for name in ("skew_sum", "skew_max") if name in base.columns),
    )


def _counter(name: str) -> Column:
    if name in LATENCIES:
        pair, half = divmod(LATENCIES.index(name), 2)
        return F.shiftrightunsigned(F.col(_PAIRS[pair]), half * _HALF).bitwiseAND((1 << _HALF) - 1)
    return F.when(_CONDITIONS[name](), F.col("number")).otherwise(F.lit(0).cast("long"))


def _paired(pair: int) -> Column:
    """The addition of an event to the column of two buckets."""
    bucket, number = F.col("bucket"), F.col("count")
    low = F.when(bucket == 2 * pair, number)
    return low.when(bucket == 2 * pair + 1, F.shiftleft(number, _HALF)).otherwise(F.lit(0).cast("long"))


def _code(name: str, names: tuple[str, ...]) -> int:
    return names.index(name) + 1


def _place(column: Column, names: tuple[str, ...]) -> Column:
    """The place of a text among known ones, from 1; a text that we do not know counts as none."""
    found = F.when(column.isNull(), 0)
    for name in names:
        found = found.when(column == name, _code(name, names))
    return found.otherwise(0)


def _packed(*parts: tuple[tuple[int, int], Column]) -> Column:
    found = F.lit(0)
    for (shift, _), value in parts:
        found = found.bitwiseOR(F.shiftleft(value, shift))
    return found


def _part(place: tuple[int, int]) -> Column:
    shift, width = place
    return F.shiftright(F.col("outcome"), shift).bitwiseAND((1 << width) - 1)


def _is(verdict: int) -> Condition:
    return lambda: _part(_VERDICT) == verdict


def _has(place: tuple[int, int], code: int) -> Condition:
    return lambda: _part(place) == code


def _offered() -> Column:
    """Only what got past the ACL competes: refused traffic would let a source frame its rival."""
    verdict = _part(_VERDICT)
    # What an operator has stopped for everybody competes for nothing either.
    stopped = (V.ACL_DENY, V.ROUTE_MISSING, V.FROZEN)
    return (verdict == V.DELIVERED) | ((verdict >= V.VALID_FROM) & ~verdict.isin(*stopped))


def _sent() -> Column:
    """All that a source sent, whatever became of it, but for what it sent while it was suspended."""
    refused = (
        V.DUPLICATE,
        V.ACL_DENY,
        V.ROUTE_MISSING,
        V.FROZEN,
        V.HMAC_MISMATCH,
        V.TIMESTAMP_OUTSIDE_WINDOW,
        V.REPLAYED,
    )
    verdict = _part(_VERDICT)
    return _offered() | verdict.isin(*refused, *V.KEYS) | verdict.between(V.SCHEMA_FIRST, V.SCHEMA_LAST)


def _competing() -> Column:
    """Nor does a source that is kept off the warm path compete for it: it would make a dominant one of its victim."""
    kept_off = (_code("warm_banned", ESCALATIONS), _code("cold_only", ESCALATIONS))
    return _offered() & ~_part(_ESCALATION).isin(*kept_off)


_CONDITIONS: Final[dict[str, Condition]] = {
    "sent": _sent,
    "offered": _offered,
    "competing": _competing,
    # Permits of those who compete for them, and what became of their other offers.
    "taken": lambda: (_part(_VERDICT) == V.DELIVERED) & _competing(),
    # What a source's own limit refuses is nobody else's doing: it could frame whoever holds most of the route.
    "hurt": lambda: (
        _part(_VERDICT).isin(V.RATE_LIMIT_EXCEEDED, V.SATURATED) & _competing() & (_part(_OWN) == 0)
    ),
    "waited": lambda: _competing() & _has(_ESCALATION, _code("token_required", ESCALATIONS))(),
    "warm": lambda: (_part(_VERDICT) == V.DELIVERED) & (_part(_PATH) == _code("fast", PATHS)),
    "delivered": _is(V.DELIVERED),
    "duplicates": _is(V.DUPLICATE),
    "rate_limited": _is(V.RATE_LIMIT_EXCEEDED),
    "acl_denied": _is(V.ACL_DENY),
    "route_missing": _is(V.ROUTE_MISSING),
    "misrouted": lambda: _part(_VERDICT).isin(V.ACL_DENY, V.ROUTE_MISSING),
    "delivery_failed": _is(V.DELIVERY_FAILURE),
    "fairness_refused": _is(V.FAIRNESS_VIOLATION),
    "outcome_unknown": _is(V.OUTCOME_UNKNOWN),
    "saturated": _is(V.SATURATED),
    "conflicts": _is(V.CONFLICT),
    "invalid_schema": lambda: _part(_VERDICT).between(V.SCHEMA_FIRST, V.SCHEMA_LAST),
    "invalid_hmac": _is(V.HMAC_MISMATCH),
    "invalid_timestamp": _is(V.TIMESTAMP_OUTSIDE_WINDOW),
    "invalid_key": lambda: _part(_VERDICT).isin(*V.KEYS),
    "invalid_certificate": lambda: _part(_VERDICT).isin(*V.CERTIFICATES),
    "wrong_audience": _is(V.WRONG_AUDIENCE),
    "replayed": _is(V.REPLAYED),
    "suspended": _is(V.SUSPENDED),
    "executed_after_revocation": _has(_KIND, _code(EXECUTED_AFTER_REVOCATION, _KINDS)),
    "skew_samples": _has(_KIND, _code(SKEW_SAMPLE, _KINDS)),
    **{f"escalated_{reason}": _has(_ESCALATION, _code(reason, ESCALATIONS)) for reason in ESCALATIONS},
    **{f"phase_{phase}": _has(_PHASE, _code(phase, PHASES)) for phase in PHASES},
}
