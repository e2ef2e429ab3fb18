"""Shares of a route's dispatches, window by window.

Never calls a source dominant without competition, and never counts refused traffic as competition.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from spark.transforms.base import counters

DEFAULTS: Final[dict[str, float]] = {
    "dominant_share": 0.8,
    "competing_share": 0.1,
    "competitors": 2,
    "minimum_volume": 50,
}
ROUTE: Final = ("target", "command_name")
COUNTED: Final = ("warm", "offered", "competing", "delivered")


def fairness(base: DataFrame, routes: DataFrame) -> DataFrame:
    """Per window, route and source: shares, Jain's index, volume, contention, whether the volume was enough
    to judge by, and whether it was dominant.

    `routes` has the route's own parameters as `min_<parameter>` columns; a route that is not in it has the defaults.
    """
    # Asked while summing and not as a filter, which Spark would take down to the events: then this base and the one
    # that others read would be two plans, and the events would be read twice.
    routed = F.col("target").isNotNull() & F.col("command_name").isNotNull()
    per_source = (
        counters(base, *COUNTED)
        .groupBy("window_start", *ROUTE, "source")
        .agg(*(F.sum(F.when(routed, F.col(name))).alias(name) for name in COUNTED))
        .where(F.col("offered") > 0)
    )
    route = Window.partitionBy("window_start", *ROUTE)
    warm, competing = F.col("warm"), F.col("competing")
    all_warm, all_competing = F.sum(warm).over(route), F.sum(competing).over(route)
    own = F.when(competing > 0, 1).otherwise(0)
    squares = F.sum(warm.cast("double") * warm).over(route)
    sources = F.sum(F.when(warm > 0, 1).otherwise(0)).over(route)
    shared = per_source.select(
        "*",
        # Two denominators: what was dispatched warm, and what was offered for the warm path.
        F.try_divide(warm, all_warm).alias("warm_share"),
        F.try_divide(all_competing - competing, all_competing).alias("competing_share"),
        (F.sum(own).over(route) - own).alias("competitors"),
        all_warm.alias("volume"),
        F.try_divide(all_warm.cast("double") * all_warm, sources * squares).alias("jain"),
    )
    given = [
        F.coalesce(F.col(f"min_{name}"), F.lit(value)).alias(f"min_{name}")
        for name, value in DEFAULTS.items()
    ]
    # A contract of a handful of rows per target: every executor has all of them.
    known = shared.join(F.broadcast(routes), [*ROUTE], "left").select(*shared.columns, *given)
    contention = (F.col("competing_share") >= F.col("min_competing_share")) | (
        F.col("competitors") >= F.col("min_competitors")
    )
    enough = F.col("volume") >= F.col("min_minimum_volume")
    dominant = (F.col("warm_share") > F.col("min_dominant_share")) & contention & enough
    return known.select(
        *shared.columns,
        contention.alias("contention"),
        enough.alias("enough"),
        F.coalesce(dominant, F.lit(False)).alias("dominant"),
    )
