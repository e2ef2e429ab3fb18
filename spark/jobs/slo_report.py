"""The service report of a range: tables as Parquet, and one HTML page."""

from __future__ import annotations

import argparse

from pyspark.sql import DataFrame

from spark.jobs.arguments import open_session, parser, policy_of, run, told
from spark.jobs.detect_abuse import counted
from spark.read import read_routes
from spark.report import Findings, page
from spark.transforms import slo
from spark.transforms.abuse import proposals
from spark.transforms.fairness import fairness
from spark.write import write_lines, write_table, write_text


def report(given: argparse.Namespace) -> None:
    """base, then every table of the page, then the page."""
    policy = policy_of(given)
    spark = open_session("snavio slo", given)
    try:
        counted(spark, given)
        counts = spark.read.parquet(str(given.out / "base"))
        routes = read_routes(spark, given.routes)
        shares = fairness(counts, routes).localCheckpoint()
        tables: dict[str, DataFrame] = {
            "timeline": slo.timeline(counts),
            "latency": slo.latency(counts),
            "refusals": slo.refusals(counts),
            "escalations": slo.escalations(counts),
            "skew": slo.skew(counts),
            "keys": slo.keys(counts),
            "returned_keys": slo.returned_keys(counts),
            "budgets": slo.budgets(counts),
            "use": slo.use(counts),
            "demand": slo.demand(counts),
            "revoked": slo.revoked(counts),
            "shares": shares,
        }
        rows = {}
        for number, (name, table) in enumerate(tables.items(), 1):
            told(step="table", table=name, done=number, of=len(tables))
            write_table(table, given.out / name)
            kept = spark.read.parquet(str(given.out / name))
            # The page shows the dominant ones; the rest is in the table.
            chosen = kept.where("dominant") if name == "shares" else kept
            rows[name] = [row.asDict() for row in chosen.collect()]
        # Few, and judged here: a table of Spark's would have to be made of them.
        rows["proposals"] = proposals(counts, routes, policy)
        write_lines(rows["proposals"], given.out / "proposals.jsonl")
        found = Findings(since=given.since, until=given.until, window_seconds=policy.window_seconds, **rows)
        write_text(page(found), given.out / "report.html")
        told(step="done", report=given.out / "report.html")
    finally:
        spark.stop()


if __name__ == "__main__":
    run(report, parser(__doc__ or ""))
