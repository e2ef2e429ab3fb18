"""Counts raw events once: per window, route, source, path and key version. Everything else reads these counts.

Never keeps an event: the base is some fifteen times smaller than what it was made of.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark import verdicts as V

WINDOW_SECONDS: Final = 30
KEYS: Final = ("window_start", "target", "command_name", "source", "path", "key_version")
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
)
EXECUTED_AFTER_REVOCATION: Final = "snavio.command.executed_after_acl_revoked"
SKEW_SAMPLE: Final = "snavio.telemetry.skew_sample"


def base(events: DataFrame, *, window_seconds: int = WINDOW_SECONDS) -> DataFrame:
    """Counters per key. Rows without a source (journal gaps and the like) are not about commands and left out."""
    verdict, count = F.col("verdict"), F.col("count")

    def number(condition: Column) -> Column:
        return F.sum(F.when(condition, count).otherwise(0))

    window = F.timestamp_seconds(F.floor(F.unix_timestamp("at") / window_seconds) * window_seconds)
    bucket = F.least(
        F.greatest(F.ceil(F.log2("dispatch_latency_ms")) + 2, F.lit(0)), F.lit(BUCKETS - 1)
    ).cast("int")
    placed = events.where(F.col("source").isNotNull()).select(
        window.alias("window_start"),
        "target",
        "command_name",
        "source",
        "path",
        "key_version",
        "event",
        "verdict",
        "count",
        "escalation",
        "cache_phase",
        "skew_seconds",
        F.when((verdict == V.DELIVERED) & (F.col("dispatch_latency_ms") > 0), bucket)
        .otherwise(F.when(verdict == V.DELIVERED, 0))
        .alias("bucket"),
    )
    delivered = verdict == V.DELIVERED
    # Only what got past the ACL competes: refused traffic would let a source frame its rival.
    offered = delivered | ((verdict >= V.VALID_FROM) & ~verdict.isin(V.ACL_DENY, V.ROUTE_MISSING))
    # Nor does a source that is kept off the warm path compete for it: it would make a dominant one of its victim.
    kept_off = F.coalesce(F.col("escalation").isin("warm_banned", "cold_only"), F.lit(False))
    skewed = F.col("event") == SKEW_SAMPLE
    counters = {
        "offered": number(offered),
        "competing": number(offered & ~kept_off),
        "warm": number(delivered & (F.col("path") == "fast")),
        "delivered": number(delivered),
        "duplicates": number(verdict == V.DUPLICATE),
        "rate_limited": number(verdict == V.RATE_LIMIT_EXCEEDED),
        "acl_denied": number(verdict == V.ACL_DENY),
        "route_missing": number(verdict == V.ROUTE_MISSING),
        "delivery_failed": number(verdict == V.DELIVERY_FAILURE),
        "fairness_refused": number(verdict == V.FAIRNESS_VIOLATION),
        "outcome_unknown": number(verdict == V.OUTCOME_UNKNOWN),
        "saturated": number(verdict == V.SATURATED),
        "conflicts": number(verdict == V.CONFLICT),
        "invalid_schema": number(verdict.between(V.SCHEMA_FIRST, V.SCHEMA_LAST)),
        "invalid_hmac": number(verdict == V.HMAC_MISMATCH),
        "invalid_timestamp": number(verdict == V.TIMESTAMP_OUTSIDE_WINDOW),
        "invalid_key": number(verdict.isin(*V.KEYS)),
        "replayed": number(verdict == V.REPLAYED),
        "suspended": number(verdict == V.SUSPENDED),
        "executed_after_revocation": number(F.col("event") == EXECUTED_AFTER_REVOCATION),
        "skew_samples": number(skewed),
        "skew_sum": F.sum(F.when(skewed, F.col("skew_seconds"))),
        "skew_max": F.max(F.when(skewed, F.abs("skew_seconds"))),
    }
    counters |= {f"escalated_{reason}": number(F.col("escalation") == reason) for reason in ESCALATIONS}
    counters |= {f"phase_{phase}": number(F.col("cache_phase") == phase) for phase in PHASES}
    counters |= {f"latency_{at:02d}": number(F.col("bucket") == at) for at in range(BUCKETS)}
    return placed.groupBy(*KEYS).agg(*(value.alias(name) for name, value in counters.items()))


def merged(bases: DataFrame) -> DataFrame:
    """Several bases as one: counts of the same key add up."""
    sums = [name for name in bases.columns if name not in (*KEYS, "skew_max")]
    return (
        bases.groupBy(*KEYS)
        .agg(*(F.sum(name).alias(name) for name in sums), F.max("skew_max").alias("skew_max"))
        .select(*bases.columns)
    )
