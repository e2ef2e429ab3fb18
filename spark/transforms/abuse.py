"""Abusive sources: proposals with their evidence, for Registry to decide on.

Never proposes on what could be honest in a quiet system: dominance counts only where others compete. A proposal's id
comes from policy, kind, source and period, never from counts, which late events change.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark.policy import DetectionPolicy
from spark.transforms.base import counters

DOMINANCE_ONE: Final = "dominance-single-target"
DOMINANCE_MANY: Final = "dominance-several-targets"
# What is counted, and from how many a minute on it is too much.
BURSTS: Final = {
    "burst-invalid-hmac": ("invalid_hmac", "burst_hmac"),
    "burst-replayed": ("replayed", "burst_replayed"),
    "burst-schema": ("invalid_schema", "burst_schema"),
    "burst-misrouted": ("misrouted", "burst_misrouted"),
}
COLUMNS: Final = (
    "proposal_id",
    "policy_version",
    "kind",
    "source",
    "affected_targets",
    "total_violations",
    "window_start",
    "window_end",
    "ban_applied_until",
    "evidence",
)


def proposals(shares: DataFrame, base: DataFrame, policy: DetectionPolicy) -> DataFrame:
    """One row per (kind, source, period) that the policy calls abuse."""
    return dominance(shares, policy).unionByName(bursts(base, policy))


def dominance(shares: DataFrame, policy: DetectionPolicy) -> DataFrame:
    """Recurring dominance: on one target, or on several together."""
    seconds = policy.period_minutes * 60
    placed = shares.where(F.col("contention")).withColumn("period", _aligned(F.col("window_start"), seconds))
    by_target = placed.groupBy("period", "source", "target").agg(
        F.sum("warm").alias("warm"),
        F.sum(_volume_while_it_competed()).alias("volume"),
        F.sum(F.when(F.col("dominant"), 1).otherwise(0)).alias("windows"),
        F.max(F.when(F.col("dominant"), F.col("window_start"))).alias("last"),
        F.max(F.when(F.col("dominant"), F.col("competing_share"))).alias("competing_share"),
    )
    dominated = by_target.where(F.col("windows") > 0).withColumn("share", F.try_divide("warm", "volume"))
    alone = (F.col("windows") >= policy.single_target_windows) & (F.col("share") > policy.single_target_share)
    # Both rules in one pass: asked apart, each would read and sum all of the shares again.
    both = dominated.groupBy("period", "source").agg(
        _dominance_of(alone, F.max(F.when(alone, F.col("share")))).alias("one"),
        _dominance_of(F.lit(True), F.try_divide(F.sum("warm"), F.sum("volume"))).alias("many"),
    )
    many = (
        (F.size("many.targets") >= policy.several_targets)
        & (F.col("many.windows") >= policy.several_targets_windows)
        & (F.col("many.share") > policy.several_targets_share)
    )
    each = F.explode(
        F.array(
            F.struct(F.lit(DOMINANCE_ONE).alias("kind"), (F.size("one.targets") > 0).alias("is"), "one.*"),
            F.struct(F.lit(DOMINANCE_MANY).alias("kind"), many.alias("is"), "many.*"),
        )
    )
    found = (
        both.select("period", "source", each.alias("each"))
        .select("period", "source", "each.*")
        .where(F.col("is"))
    )
    evidence = F.to_json(
        F.struct(
            F.round("share", 4).alias("source_share"),
            F.round("competing_share", 4).alias("competing_share"),
            F.col("warm").alias("warm_dispatches"),
            F.col("volume").alias("dispatch_volume"),
            F.col("windows").alias("dominant_windows"),
        )
    )
    end = F.timestamp_seconds(F.unix_timestamp("last") + policy.window_seconds)
    return _told(found, F.col("kind"), policy, end, evidence)


def _volume_while_it_competed() -> Column:
    """The window's warm dispatches, and of the others' only those of the time in which the source competed.

    While it is banned the others have the warm path for themselves. Counted against it, that would clear every source
    whose ban works. A ban begins and ends within a window: how much of its own traffic competed tells how much of it.
    """
    others = (F.col("volume") - F.col("warm")) * F.try_divide(F.col("competing"), F.col("offered"))
    # Whole numbers: sums of fractions differ with the order of rows, and a run that is repeated must say the same.
    return F.col("warm") + F.round(others).cast("long")


def _dominance_of(counts: Column, share: Column) -> Column:
    """The violations of a source on those of its targets for which `counts` is true."""
    return F.struct(
        F.sort_array(F.collect_set(F.when(counts, F.col("target")))).alias("targets"),
        *(F.sum(F.when(counts, F.col(name))).alias(name) for name in ("warm", "volume", "windows")),
        *(F.max(F.when(counts, F.col(name))).alias(name) for name in ("last", "competing_share")),
        share.alias("share"),
    )


def bursts(base: DataFrame, policy: DetectionPolicy) -> DataFrame:
    """Minutes in which a source sent mostly what had to be refused."""
    bad = {kind: F.col(counter) for kind, (counter, _) in BURSTS.items()}
    # Sums first, and by target only where something had to be refused: sets of names are slow, and most rows are good.
    refused = sum(bad.values(), F.lit(0)) > 0
    by_target = (
        counters(base, "sent", *(counter for counter, _ in BURSTS.values()))
        .groupBy(
            _aligned(F.col("window_start"), 60).alias("minute"),
            "source",
            F.when(refused, F.col("target")).alias("target"),
            # Says nothing here, but without it Spark would leave the column out of these rows and not out of those
            # of `fairness`: two different moves of the base in place of one.
            F.when(refused, F.col("command_name")).alias("command_name"),
        )
        .agg(F.sum("sent").alias("sent"), *(F.sum(number).alias(kind) for kind, number in bad.items()))
    )
    minutes = by_target.groupBy("minute", "source").agg(
        F.sum("sent").alias("sent"),
        *(F.sum(kind).alias(kind) for kind in bad),
        *(F.collect_set(F.when(F.col(kind) > 0, F.col("target"))).alias(f"{kind} at") for kind in bad),
    )
    # All kinds in one pass: each minute becomes a row per kind, and most of them go at once.
    each = F.explode(
        F.array(
            *(
                F.struct(
                    F.lit(kind).alias("kind"),
                    F.col(kind).alias("bad"),
                    F.lit(getattr(policy, threshold)).alias("least"),
                    F.col(f"{kind} at").alias("names"),
                )
                for kind, (_, threshold) in BURSTS.items()
            )
        )
    )
    found = (
        minutes.select("minute", "source", "sent", each.alias("one"))
        .select("minute", "source", "sent", "one.*")
        .where((F.col("bad") >= F.col("least")) & (F.col("bad") >= F.col("sent") * policy.burst_share))
        .groupBy(_aligned(F.col("minute"), policy.period_minutes * 60).alias("period"), "source", "kind")
        .agg(
            F.slice(F.sort_array(F.array_distinct(F.flatten(F.collect_list("names")))), 1, 16).alias(
                "targets"
            ),
            F.sum("bad").alias("windows"),
            F.sum("sent").alias("sent"),
            F.max("minute").alias("last"),
            F.count("minute").alias("minutes"),
        )
    )
    evidence = F.to_json(
        F.struct(
            F.col("windows").alias("refused"), F.col("sent").alias("sent"), F.col("minutes").alias("minutes")
        )
    )
    return _told(found, F.col("kind"), policy, F.timestamp_seconds(F.unix_timestamp("last") + 60), evidence)


def _aligned(time: Column, seconds: int) -> Column:
    return F.timestamp_seconds(F.floor(F.unix_timestamp(time) / seconds) * seconds)


def _told(
    found: DataFrame, kind: Column, policy: DetectionPolicy, end: Column, evidence: Column
) -> DataFrame:
    key = F.concat_ws(
        "|",
        F.lit(policy.version),
        kind,
        F.col("source"),
        F.unix_timestamp("period").cast("string"),
    )
    return found.select(
        F.sha2(key, 256).alias("proposal_id"),
        F.lit(policy.version).alias("policy_version"),
        kind.alias("kind"),
        "source",
        F.col("targets").alias("affected_targets"),
        F.col("windows").cast("long").alias("total_violations"),
        F.col("period").alias("window_start"),
        end.alias("window_end"),
        F.timestamp_seconds(F.unix_timestamp(end) + policy.ban_minutes * 60).alias("ban_applied_until"),
        evidence.alias("evidence"),
    )
