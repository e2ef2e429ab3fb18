"""Rows for the judge: who held most of a route while others went without, who was kept off, who sent what was refused.

Spark counts; `spark/judging.py` judges. What leaves Spark is small: at most one source can hold most of a route in a
window, and only windows with harm, or with more refusals than anybody has by mistake, are rows at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark.judging import (
    MILLI,
    MOST_VICTIMS,
    Crowding,
    Judge,
    Refusals,
    WindowRows,
    by_window,
    fold,
    together,
)
from spark.policy import BURSTS, DetectionPolicy
from spark.transforms.base import counters
from spark.transforms.fairness import DEFAULTS

COUNTERS: Final = {
    "burst-invalid-hmac": "invalid_hmac",
    "burst-replayed": "replayed",
    "burst-schema": "invalid_schema",
    "burst-misrouted": "misrouted",
}
assert set(COUNTERS) == set(BURSTS)
MOST_NAMED: Final = 16
"""Targets of refused commands that a row names."""
NUMBERS: Final = ("competing", "taken", "hurt", "waited", "offered")


@dataclass(frozen=True, slots=True)
class AbuseTables:
    """The rows of a base, as three small tables."""

    crowding: DataFrame
    kept_off: DataFrame
    refusals: DataFrame

    def windows(self) -> dict[int, WindowRows]:
        """Taken out of Spark."""
        return by_window(
            (_crowding(row.asDict()) for row in self.crowding.collect()),
            ((int(row[0]), str(row[1]), str(row[2])) for row in self.kept_off.collect()),
            (_refusals(row.asDict()) for row in self.refusals.collect()),
        )


def evidence(base: DataFrame, routes: DataFrame, policy: DetectionPolicy) -> AbuseTables:
    """The tables of a base that the judge gets to see."""
    routed = F.col("target").isNotNull() & F.col("command_name").isNotNull()
    per_source = (
        counters(base, *NUMBERS)
        .where(routed)
        .groupBy(F.unix_timestamp("window_start").alias("window"), "target", "command_name", "source")
        .agg(*(F.sum(name).alias(name) for name in NUMBERS))
        .where(F.col("offered") > 0)
    )
    return AbuseTables(crowding(per_source, routes, policy), kept_off(per_source), refusals(base, policy))


def proposals(base: DataFrame, routes: DataFrame, policy: DetectionPolicy) -> list[dict[str, Any]]:
    """The abuse that the policy finds in a base, judged from its first window to its last, one per proposal id."""
    return together(fold(Judge(policy), evidence(base, routes, policy).windows()), policy)


def crowding(per_source: DataFrame, routes: DataFrame, policy: DetectionPolicy) -> DataFrame:
    """Windows in which one source held most of a route while rivals that count were harmed."""
    counts = F.col("competing") >= policy.rival_minimum

    def counted(name: str) -> Column:
        return F.sum(F.when(counts, F.col(name)).otherwise(0))

    hurt = F.when(counts & (F.col("hurt") > 0), F.struct("hurt", "source"))
    together = per_source.groupBy("window", "target", "command_name").agg(
        # Of two with as many permits the one whose name is later, on every run.
        F.max_by(F.struct("source", *NUMBERS), F.struct("taken", "source")).alias("top"),
        F.sum("taken").alias("all_taken"),
        F.sum(F.when(counts, 1).otherwise(0)).alias("heavy"),
        *(counted(name).alias(f"all_{name}") for name in ("competing", "hurt", "waited")),
        F.slice(F.sort_array(F.collect_list(hurt), asc=False), 1, MOST_VICTIMS + 1).alias("victims"),
    )
    top = {name: F.col(f"top.{name}") for name in ("source", *NUMBERS)}
    counts_itself = top["competing"] >= policy.rival_minimum

    def of_others(name: str) -> Column:
        return F.col(f"all_{name}") - F.when(counts_itself, top[name]).otherwise(0)

    own = F.col("min_dominant_share")
    default = DEFAULTS["dominant_share"]
    # A route says by its own share how much it lets one source have: what is more than usual there is allowed here.
    usual = F.lit(round(policy.single_target_share * MILLI))
    moved = usual + F.round((own - default) * MILLI).cast("long")
    # One that lets a source have all of it is never crowded.
    least = F.when(own.isNull(), usual).when(own >= 1.0, F.lit(MILLI)).otherwise(moved)
    known = together.join(F.broadcast(routes), ["target", "command_name"], "left").select(
        "window",
        top["source"].alias("source"),
        "target",
        "command_name",
        top["taken"].alias("taken"),
        # While a source was kept off, the others had the route for themselves: only the time it competed counts.
        (top["taken"] + F.expr("((all_taken - top.taken) * top.competing) div top.offered")).alias("volume"),
        (F.col("heavy") - F.when(counts_itself, 1).otherwise(0)).alias("rivals"),
        of_others("competing").alias("rivals_offered"),
        of_others("hurt").alias("rivals_hurt"),
        of_others("waited").alias("rivals_waited"),
        least.alias("least_milli"),
        F.coalesce("min_minimum_volume", F.lit(DEFAULTS["minimum_volume"])).alias("enough"),
        "victims",
    )
    several = round(policy.several_targets_share * MILLI)
    raised = F.greatest(F.col("least_milli") - round(policy.single_target_share * MILLI), F.lit(0))
    lower = F.least(F.col("least_milli"), raised + several)
    return known.where(
        (F.col("rivals") >= 1)
        & (F.col("rivals_hurt") >= policy.harm_minimum)
        & (F.col("rivals_hurt") * MILLI >= F.col("rivals_offered") * round(policy.harm_share * MILLI))
        & (F.col("volume") >= F.col("enough"))
        & (F.col("taken") * MILLI > lower * F.col("volume"))
    ).drop("enough")


def kept_off(per_source: DataFrame) -> DataFrame:
    """Windows in which a source was off the warm path for most of what it offered."""
    return (
        per_source.groupBy("window", "source", "target")
        .agg(F.sum("offered").alias("offered"), F.sum("competing").alias("competing"))
        .where(F.col("competing") * 2 < F.col("offered"))
        .select("window", "source", "target")
    )


def refusals(base: DataFrame, policy: DetectionPolicy) -> DataFrame:
    """Windows in which a source sent more that was refused than the policy lets anybody have."""
    bad = {kind: F.col(counter) for kind, counter in COUNTERS.items()}
    # Sums first, and by target only where something had to be refused: sets of names are slow, and most rows are good.
    some = sum(bad.values(), F.lit(0)) > 0
    by_target = (
        counters(base, "sent", *COUNTERS.values())
        .groupBy(
            F.unix_timestamp("window_start").alias("window"),
            "source",
            F.when(some, F.col("target")).alias("target"),
        )
        .agg(F.sum("sent").alias("sent"), *(F.sum(number).alias(kind) for kind, number in bad.items()))
    )
    windows = by_target.groupBy("window", "source").agg(
        F.sum("sent").alias("sent"),
        *(F.sum(kind).alias(kind) for kind in bad),
        *(F.collect_set(F.when(F.col(kind) > 0, F.col("target"))).alias(f"{kind} at") for kind in bad),
    )
    each = F.explode(
        F.array(
            *(
                F.struct(
                    F.lit(kind).alias("kind"),
                    F.col(kind).alias("bad"),
                    (
                        F.col(kind)
                        - policy.burst_allowance(kind)
                        - F.expr(f"(sent * {policy.burst_tolerance_milli(kind)}) div {MILLI}")
                    ).alias("excess"),
                    F.slice(F.sort_array(f"{kind} at"), 1, MOST_NAMED).alias("targets"),
                )
                for kind in BURSTS
            )
        )
    )
    return (
        windows.select("window", "source", "sent", each.alias("one"))
        .select("window", "source", "one.kind", "one.bad", "one.excess", "sent", "one.targets")
        .where(F.col("excess") > 0)
    )


def _crowding(row: dict[str, Any]) -> Crowding:
    victims = [(str(one["source"]), int(one["hurt"])) for one in row.pop("victims")]
    own = row["source"]
    numbers = {name: int(value) for name, value in row.items() if not isinstance(value, str)}
    names = {name: value for name, value in row.items() if isinstance(value, str)}
    return Crowding(
        **names,
        **numbers,
        victims=tuple((name, number) for name, number in victims if name != own)[:MOST_VICTIMS],
    )


def _refusals(row: dict[str, Any]) -> Refusals:
    return Refusals(
        int(row["window"]),
        str(row["source"]),
        str(row["kind"]),
        int(row["bad"]),
        int(row["excess"]),
        int(row["sent"]),
        tuple(row["targets"] or ()),
    )
