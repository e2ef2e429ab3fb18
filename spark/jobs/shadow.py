"""The effect that a limit or another dominance threshold would have had on past traffic."""

from __future__ import annotations

import argparse

from spark.jobs.arguments import open_session, parser, run, told
from spark.jobs.detect_abuse import counted
from spark.read import read_routes
from spark.transforms.fairness import fairness
from spark.transforms.shadow import with_limit, with_threshold
from spark.write import write_lines


def shadow(given: argparse.Namespace) -> None:
    """One of the two questions, over a range."""
    if (given.limit is None) == (given.dominant_share is None):
        raise ValueError("Ask one thing: --limit with --target and --command, or --dominant-share.")
    if given.limit is not None and not (given.target and given.command):
        raise ValueError("A limit belongs to a route: name it with --target and --command.")
    if given.limit is not None and (given.limit < 1 or given.interval_s < 1):
        raise ValueError("--limit and --interval-s have to be at least 1.")
    if given.dominant_share is not None and not 0 < given.dominant_share < 1:
        raise ValueError("--dominant-share is a part of the whole: over 0 and below 1.")
    spark = open_session("snavio shadow", given)
    try:
        # Windows as long as the limit's interval: those of the policy would put ten seconds of every thirty into one.
        counted(spark, given, window_seconds=given.interval_s if given.limit is not None else 0)
        counts = spark.read.parquet(str(given.out / "base"))
        if given.limit is not None:
            answer = with_limit(
                counts,
                target=given.target,
                command_name=given.command,
                limit=given.limit,
                interval_seconds=given.interval_s,
            ).orderBy("refused", ascending=False)
        else:
            shares = fairness(counts, read_routes(spark, given.routes))
            answer = with_threshold(shares, dominant_share=given.dominant_share).orderBy(
                "dominant_then", ascending=False
            )
        number = write_lines((row.asDict() for row in answer.collect()), given.out / "shadow.jsonl")
        told(step="done", rows=number)
    finally:
        spark.stop()


def options() -> argparse.ArgumentParser:
    """The shared options, and the question."""
    made = parser(__doc__ or "")
    made.add_argument("--target", default="")
    made.add_argument("--command", default="")
    made.add_argument("--limit", type=int, help="commands per interval")
    made.add_argument("--interval-s", type=int, default=60)
    made.add_argument("--dominant-share", type=float, help="another threshold, such as 0.6")
    return made


if __name__ == "__main__":
    run(shadow, options())
