"""Service figures: latency, refusals, escalations, caches, clocks and keys, all from the base.

Never sorts latencies: percentiles come from power-of-two buckets, exact to the bucket.
"""

from __future__ import annotations

import math
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from spark.transforms.base import BUCKETS, ESCALATIONS, LATENCIES, PHASES, counters

SKEW_WINDOW_S: Final = 60.0
"""A clock that is further off has its commands refused."""
NEAR: Final = 0.8
"""Of it: from here on the mesh warns a sender, and so do we."""
LEAST_WINDOWS: Final = 3
"""Of skew samples, before a trend is one: through two points there is always a line."""
FARTHEST_HOURS: Final = 168.0
"""A forecast beyond a week says nothing about a clock."""
AWAY_S: Final = 3600
"""For so long a key version is not used before its next use is a return; replicas that change over overlap for less."""
OBJECTIVE: Final = 0.999
"""Of the commands that a route took on, so many are to arrive."""
OURS: Final = ("delivery_failed", "outcome_unknown", "saturated")
"""Failures that use up the error budget; what a limit or a missing right refuses is as agreed."""
QUANTILES: Final = (0.5, 0.95, 0.99)
FAILURES: Final = (
    "rate_limited",
    "acl_denied",
    "route_missing",
    "delivery_failed",
    "fairness_refused",
    "outcome_unknown",
    "saturated",
    "conflicts",
)
INVALID: Final = (
    "invalid_schema",
    "invalid_hmac",
    "invalid_timestamp",
    "invalid_key",
    "invalid_certificate",
    "wrong_audience",
    "replayed",
    "suspended",
)


def upper_ms(bucket: int) -> float:
    """Where a bucket ends; the last one has no end."""
    return float(2.0 ** (bucket - 2)) if bucket < BUCKETS - 1 else math.inf


def latency(base: DataFrame) -> DataFrame:
    """Percentiles of delivered commands per route and path: the end of the bucket that holds them."""
    names = list(LATENCIES)
    summed = (
        counters(base, *names)
        .where(F.col("path").isNotNull() & F.col("target").isNotNull())
        .groupBy("target", "command_name", "path")
        .agg(*(F.sum(name).alias(name) for name in names))
        .withColumn("delivered", sum((F.col(name) for name in names), F.lit(0)))
        .where(F.col("delivered") > 0)
    )
    return summed.select(
        "target",
        "command_name",
        "path",
        "delivered",
        *(_quantile(names, quantile).alias(f"p{quantile * 100:g}_ms") for quantile in QUANTILES),
        *names,
    )


def _quantile(names: list[str], quantile: float) -> Column:
    total, rank = F.lit(0), F.col("delivered") * quantile
    found = F.lit(None).cast("double")
    arms: list[tuple[Column, float]] = []
    for at, name in enumerate(names):
        total = total + F.col(name)
        arms.append((total >= rank, upper_ms(at)))
    for reached, upper in reversed(arms):
        found = F.when(reached, F.lit(upper)).otherwise(found)
    return found


def refusals(base: DataFrame) -> DataFrame:
    """Per route: what was delivered, and how many commands failed for which reason."""
    counted = ("delivered", "duplicates", *FAILURES, *INVALID)
    return (
        counters(base, *counted)
        .groupBy("target", "command_name")
        .agg(*(F.sum(name).alias(name) for name in counted))
    )


def escalations(base: DataFrame) -> DataFrame:
    """Per route: why commands went to Slow, and in which phase the caches were."""
    counted = (*(f"escalated_{reason}" for reason in ESCALATIONS), *(f"phase_{phase}" for phase in PHASES))
    return (
        counters(base, *counted)
        .where(F.col("target").isNotNull())
        .groupBy("target", "command_name")
        .agg(*(F.sum(name).alias(name) for name in counted))
    )


def skew(base: DataFrame, *, window_s: float = SKEW_WINDOW_S) -> DataFrame:
    """Per source: how far its clock is off, how fast that grows, and when its commands would be refused."""
    means = (
        counters(base, "skew_samples")
        .where(F.col("skew_samples") > 0)
        .groupBy("source", "window_start")
        .agg(
            F.sum("skew_samples").alias("samples"),
            F.try_divide(F.sum("skew_sum"), F.sum("skew_samples")).alias("mean"),
            F.max("skew_max").alias("worst"),
        )
        .withColumn("hours", F.unix_timestamp("window_start") / 3600.0)
    )
    trend = means.groupBy("source").agg(
        F.sum("samples").alias("samples"),
        F.max_by("mean", "window_start").alias("skew_seconds"),
        F.max("worst").alias("worst_seconds"),
        F.when(F.count("mean") >= LEAST_WINDOWS, F.regr_slope("mean", "hours")).alias("seconds_per_hour"),
    )
    growing = F.col("seconds_per_hour") * F.signum("skew_seconds") > 0.01
    left = F.try_divide(window_s - F.abs("skew_seconds"), F.abs("seconds_per_hour"))
    soon = growing & (left <= FARTHEST_HOURS)
    return trend.withColumn("hours_to_rejection", F.when(soon, F.greatest(left, F.lit(0.0))))


def budgets(base: DataFrame, *, objective: float = OBJECTIVE) -> DataFrame:
    """Per tenant and route: how much of what was to arrive did, and how much of the error budget is used up."""
    counted = ("delivered", *OURS)
    summed = (
        counters(base, *counted)
        .where(F.col("target").isNotNull())
        .groupBy(F.split_part("source", F.lit("/"), F.lit(1)).alias("tenant"), "target", "command_name")
        .agg(*(F.sum(name).alias(name) for name in counted))
        .withColumn("failed", sum((F.col(name) for name in OURS), F.lit(0)))
        .withColumn("taken_on", F.col("delivered") + F.col("failed"))
        .where(F.col("taken_on") > 0)
    )
    allowed = F.col("taken_on") * (1 - objective)
    return summed.select(
        "tenant",
        "target",
        "command_name",
        "taken_on",
        "failed",
        F.try_divide("delivered", "taken_on").alias("arrived"),
        F.try_divide("failed", allowed).alias("budget_used"),
    )


def demand(base: DataFrame) -> DataFrame:
    """Per route that was full at some time: what it can deliver in a window, and the line of what was asked of it."""
    windows = (
        counters(base, "offered", "delivered", "hurt")
        .where(F.col("target").isNotNull())
        .groupBy("target", "command_name", "window_start")
        .agg(*(F.sum(name).alias(name) for name in ("offered", "delivered", "hurt")))
        .where(F.col("offered") > 0)
        .withColumn("hours", F.unix_timestamp("window_start") / 3600.0)
        .withColumn("asked", F.col("offered").cast("double"))
    )
    return (
        windows.groupBy("target", "command_name")
        .agg(
            # Nobody tells a capacity: it is what went through while others were turned away.
            F.max(F.when(F.col("hurt") > 0, F.col("delivered"))).alias("capacity"),
            F.count("asked").alias("windows"),
            F.min("hours").alias("first"),
            F.max("hours").alias("last"),
            F.avg("hours").alias("mean_x"),
            F.avg("asked").alias("mean_y"),
            F.regr_sxx("asked", "hours").alias("sxx"),
            F.regr_sxy("asked", "hours").alias("sxy"),
            F.regr_syy("asked", "hours").alias("syy"),
        )
        .where(F.col("capacity") > 0)
    )


def use(base: DataFrame) -> DataFrame:
    """Per tenant: what it cost the mesh. Commands that Slow decides and commands that are refused cost, too."""
    counted = ("sent", "delivered", "warm", *FAILURES, *INVALID)
    summed = (
        counters(base, *counted)
        .groupBy(F.split_part("source", F.lit("/"), F.lit(1)).alias("tenant"))
        .agg(*(F.sum(name).alias(name) for name in counted))
    )
    return summed.select(
        "tenant",
        "sent",
        F.col("warm").alias("fast"),
        (F.col("delivered") - F.col("warm")).alias("slow"),
        sum((F.col(name) for name in FAILURES), F.lit(0)).alias("failed"),
        sum((F.col(name) for name in INVALID), F.lit(0)).alias("invalid"),
    ).where(F.col("sent") > 0)


def keys(base: DataFrame) -> DataFrame:
    """Per source and key version: commands that got past Shield under it, and when the last one did."""
    return (
        _signed_with(base)
        .groupBy("source", "key_version")
        .agg(F.sum("past").alias("commands"), F.max("window_start").alias("last_used"))
    )


def returned_keys(base: DataFrame) -> DataFrame:
    """Per source and key version: how often it came back, after an hour or more in which a newer one was used.

    A rotation takes an old version away once. One that comes back is a replica that was restored with its old secret,
    or somebody who kept a copy.
    """
    by_window = (
        _signed_with(base).groupBy("source", "key_version", "window_start").agg(F.sum("past").alias("past"))
    )
    version = Window.partitionBy("source", "key_version")
    seen = by_window.select(
        "source",
        "key_version",
        "window_start",
        F.min("window_start").over(version).alias("first"),
        F.lag("window_start").over(version.orderBy("window_start")).alias("before"),
    )
    away = F.unix_timestamp("window_start") - F.unix_timestamp("before")
    # Few rows, joined with many: a version that goes on has no row here.
    gaps = seen.withColumn("away", away).where(F.col("away") >= AWAY_S).alias("gap")
    newer = seen.select("source", "window_start", "first").alias("newer")
    returns = gaps.join(
        newer,
        (F.col("gap.source") == F.col("newer.source"))
        & (F.col("newer.first") > F.col("gap.first"))
        & (F.col("newer.window_start") > F.col("gap.before"))
        & (F.col("newer.window_start") < F.col("gap.window_start")),
        "left_semi",
    )
    return returns.groupBy("source", "key_version").agg(
        F.count("away").alias("returns"),
        F.max("window_start").alias("last_return"),
        (F.max("away") / 3600.0).alias("hours_away"),
    )


def _signed_with(base: DataFrame) -> DataFrame:
    # Past Shield is more than offered: who was not allowed, or came twice, has signed with the key all the same. And
    # what Shield refused is no use of a key: whoever forges would keep an old one in use for ever.
    past = ("offered", "misrouted", "duplicates")
    return (
        counters(base, *past)
        .withColumn("past", sum((F.col(name) for name in past), F.lit(0)))
        .where(F.col("key_version").isNotNull() & (F.col("past") > 0))
    )


def revoked(base: DataFrame) -> DataFrame:
    """Commands that went by a right that had been taken away, per route and source."""
    return (
        counters(base, "executed_after_revocation")
        .groupBy("target", "command_name", "source")
        .agg(F.sum("executed_after_revocation").alias("commands"))
        .where(F.col("commands") > 0)
    )


def timeline(base: DataFrame) -> DataFrame:
    """Per window: delivered by path, failed, invalid; for plots."""
    failed = sum((F.col(name) for name in FAILURES), F.lit(0))
    invalid = sum((F.col(name) for name in INVALID), F.lit(0))
    return (
        counters(base, "warm", "delivered", *FAILURES, *INVALID)
        .groupBy("window_start")
        .agg(
            F.sum("warm").alias("fast"),
            (F.sum("delivered") - F.sum("warm")).alias("slow"),
            F.sum(failed).alias("failed"),
            F.sum(invalid).alias("invalid"),
        )
    )
