"""The effect of a rule on past traffic, before it is enforced.

Never exact about single commands: counts per window say how many would have been refused, not which. Never answers for
an interval that the windows of the base do not fill: commands of the next one would count in it.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from spark import verdicts as V
from spark.transforms.base import counters


def with_limits(
    base: DataFrame, *, target: str, command_name: str, limits: Sequence[int], interval_seconds: int
) -> DataFrame:
    """Per limit and source: what it offered, and what a limit of so many commands per interval would have refused.

    Within an interval the excess falls on the sources by what they offered. The windows of the base have to be as
    long as the interval, or to divide it. All limits are answered in one pass.
    """
    if min(limits, default=0) < 1 or interval_seconds < 1:
        raise ValueError("A limit is at least 1 command in an interval of at least 1 second.")
    start = F.timestamp_seconds(
        F.floor(F.unix_timestamp("window_start") / interval_seconds) * interval_seconds
    )
    interval = Window.partitionBy("interval")
    offers = (
        counters(base, "offered")
        .where((F.col("target") == target) & (F.col("command_name") == command_name))
        .groupBy(start.alias("interval"), "source")
        .agg(F.sum("offered").alias("offered"))
        .withColumn("all", F.sum("offered").over(interval))
    )
    asked = F.explode(F.array(*(F.lit(limit).cast("long") for limit in sorted(set(limits)))))
    shares = offers.withColumn("limit", asked).withColumn(
        "refused", F.greatest(F.col("all") - F.col("limit"), F.lit(0)) * F.try_divide("offered", F.col("all"))
    )
    return (
        shares.groupBy("limit", "source")
        .agg(
            F.sum("offered").alias("offered"),
            F.round(F.sum(F.coalesce("refused", F.lit(0.0)))).cast("long").alias("refused"),
            F.sum(F.when(F.col("refused") > 0, 1).otherwise(0)).alias("intervals_over"),
            F.count("interval").alias("intervals"),
        )
        .withColumn("refused_share", F.try_divide("refused", "offered"))
    )


def with_thresholds(shares: DataFrame, thresholds: Sequence[float]) -> DataFrame:
    """Per threshold, source and route: in how many windows it would have called the source dominant."""
    # The route's other conditions hold as they are: a quiet window would not be judged under any threshold.
    asked = F.explode(F.array(*(F.lit(share) for share in sorted(set(thresholds)))))
    over = F.col("contention") & F.col("enough") & (F.col("warm_share") > F.col("dominant_share"))
    return (
        shares.withColumn("dominant_share", asked)
        .groupBy("dominant_share", "source", "target", "command_name")
        .agg(
            F.count("window_start").alias("windows"),
            F.sum(F.when(F.col("dominant"), 1).otherwise(0)).alias("dominant_now"),
            F.sum(F.when(over, 1).otherwise(0)).alias("dominant_then"),
            F.sum(F.when(over, F.col("warm")).otherwise(0)).alias("commands_then"),
        )
        .where((F.col("dominant_then") > 0) | (F.col("dominant_now") > 0))
    )


def without_rights(base: DataFrame, rights: Sequence[tuple[str, str, str]]) -> DataFrame:
    """Per right: what its source would have been denied without it, and what it is denied already.

    A right is (source, target, command); an empty target or command is every one. Rights that nobody used are rows
    too, with zeros: those can go.
    """
    if not rights:
        raise ValueError("Name at least one right.")
    asked = F.array(
        *(
            F.struct(
                F.lit(number).alias("number"),
                *(F.lit(part).alias(name) for name, part in zip(("of", "at", "named"), right, strict=True)),
            )
            for number, right in enumerate(rights)
        )
    )
    used = (
        counters(base, "offered", "acl_denied")
        .select("window_start", "source", "target", "command_name", "offered", "acl_denied")
        .withColumn("right", F.explode(asked))
        .where(
            (F.col("source") == F.col("right.of"))
            & ((F.col("right.at") == "") | (F.col("target") == F.col("right.at")))
            & ((F.col("right.named") == "") | (F.col("command_name") == F.col("right.named")))
        )
        .groupBy(F.col("right.number").alias("number"))
        .agg(
            F.sum("offered").alias("refused"),
            F.sum("acl_denied").alias("denied_already"),
            F.max(F.when(F.col("offered") > 0, F.col("window_start"))).alias("last_used"),
        )
    )
    every = base.sparkSession.createDataFrame(
        [(number, *right) for number, right in enumerate(rights)],
        "number int, source string, target string, command_name string",
    )
    return every.join(F.broadcast(used), "number", "left").select(
        "source",
        "target",
        "command_name",
        F.coalesce("refused", F.lit(0)).alias("refused"),
        F.coalesce("denied_already", F.lit(0)).alias("denied_already"),
        "last_used",
    )


def with_dedupe(events: DataFrame, *, target: str, command_name: str) -> DataFrame:
    """Per source of a route: deliveries, and those of an id that had been delivered before: strict would refuse them.

    Of the events themselves: a base has no ids. Ids without a time to live, so longer than a route keeps them.
    """
    delivered = events.where(
        (F.col("target") == target)
        & (F.col("command_name") == command_name)
        & (F.col("verdict") == V.DELIVERED)
        & F.col("command_id").isNotNull()
    )
    each = delivered.groupBy("source", "command_id").agg(F.sum("count").alias("times"))
    return each.groupBy("source").agg(
        F.sum("times").alias("delivered"),
        F.sum(F.col("times") - 1).alias("refused"),
        F.sum(F.when(F.col("times") > 1, 1).otherwise(0)).alias("ids_again"),
    )
