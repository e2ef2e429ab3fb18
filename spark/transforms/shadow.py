"""The effect of a rule on past traffic, before it is enforced.

Never exact about single commands: counts per window say how many would have been refused, not which. Never answers for
an interval that the windows of the base do not fill: commands of the next one would count in it.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from spark.transforms.base import counters


def with_limit(
    base: DataFrame, *, target: str, command_name: str, limit: int, interval_seconds: int
) -> DataFrame:
    """Per source: what it offered, and what a limit of so many commands per interval would have refused.

    Within an interval the excess falls on the sources by what they offered. The windows of the base have to be as
    long as the interval, or to divide it.
    """
    if limit < 1 or interval_seconds < 1:
        raise ValueError("A limit is at least 1 command in an interval of at least 1 second.")
    start = F.timestamp_seconds(
        F.floor(F.unix_timestamp("window_start") / interval_seconds) * interval_seconds
    )
    interval = Window.partitionBy("interval")
    shares = (
        counters(base, "offered")
        .where((F.col("target") == target) & (F.col("command_name") == command_name))
        .groupBy(start.alias("interval"), "source")
        .agg(F.sum("offered").alias("offered"))
        .withColumn("all", F.sum("offered").over(interval))
        .withColumn(
            "refused", F.greatest(F.col("all") - limit, F.lit(0)) * F.try_divide("offered", F.col("all"))
        )
    )
    return (
        shares.groupBy("source")
        .agg(
            F.sum("offered").alias("offered"),
            F.round(F.sum(F.coalesce("refused", F.lit(0.0)))).cast("long").alias("refused"),
            F.sum(F.when(F.col("refused") > 0, 1).otherwise(0)).alias("intervals_over"),
            F.count("interval").alias("intervals"),
        )
        .withColumn("refused_share", F.try_divide("refused", "offered"))
    )


def with_threshold(shares: DataFrame, *, dominant_share: float) -> DataFrame:
    """Per source and route: in how many windows another threshold would have called it dominant."""
    # The route's other conditions hold as they are: a quiet window would not be judged under any threshold.
    over = F.col("contention") & F.col("enough") & (F.col("warm_share") > dominant_share)
    return (
        shares.groupBy("source", "target", "command_name")
        .agg(
            F.count("window_start").alias("windows"),
            F.sum(F.when(F.col("dominant"), 1).otherwise(0)).alias("dominant_now"),
            F.sum(F.when(over, 1).otherwise(0)).alias("dominant_then"),
            F.sum(F.when(over, F.col("warm")).otherwise(0)).alias("commands_then"),
        )
        .where((F.col("dominant_then") > 0) | (F.col("dominant_now") > 0))
    )
