"""The effect that rules would have had on past traffic: limits, thresholds, rights, strict ids, whole policies."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from spark.jobs.arguments import open_session, parser, run, told
from spark.jobs.detect_abuse import counted, entries_of
from spark.policy import DetectionPolicy
from spark.read import read_events, read_routes
from spark.transforms.abuse import proposals
from spark.transforms.fairness import fairness
from spark.transforms.shadow import with_dedupe, with_limits, with_thresholds, without_rights
from spark.write import write_lines

ID_COLUMNS: Final = ("at", "count", "source", "target", "command_name", "verdict", "command_id")
MOST_VALUES: Final = 20
"""Of one question: each is a row for every row that it is asked of."""


def shadow(given: argparse.Namespace) -> None:
    """One question, for one or several values of it, in one pass over the events."""
    questions = {
        "limits": given.limit,
        "thresholds": given.dominant_share,
        "rights": given.without_right,
        "strict": [given.strict] if given.strict else None,
        "policies": given.against,
    }
    asked = [name for name, values in questions.items() if values]
    if len(asked) != 1:
        raise ValueError(
            "Ask one thing: --limit with --target and --command, --dominant-share, --without-right, "
            "--strict with --target and --command, or --against."
        )
    if len(questions[asked[0]] or ()) > MOST_VALUES:
        raise ValueError(f"Ask for at most {MOST_VALUES} values at once.")
    if asked[0] in ("limits", "strict") and not (given.target and given.command):
        raise ValueError("A limit and a strict route are named with --target and --command.")
    if given.limit and (min(given.limit) < 1 or given.interval_s < 1):
        raise ValueError("--limit and --interval-s have to be at least 1.")
    if given.dominant_share and not all(0 < share < 1 for share in given.dominant_share):
        raise ValueError("--dominant-share is a part of the whole: over 0 and below 1.")
    rights = [_right(words) for words in given.without_right or ()]
    policies = [DetectionPolicy.read(Path(name).read_text("utf-8")) for name in given.against or ()]
    if len({policy.window_seconds for policy in policies}) > 1:
        raise ValueError("Policies that are compared count in windows of the same length.")
    spark = open_session("snavio shadow", given)
    try:
        rows = _answer(spark, given, asked[0], rights, policies)
        number = write_lines(rows, given.out / "shadow.jsonl")
        told(step="done", rows=number)
    finally:
        spark.stop()


def _answer(
    spark: SparkSession,
    given: argparse.Namespace,
    question: str,
    rights: list[tuple[str, str, str]],
    policies: list[DetectionPolicy],
) -> Iterable[Mapping[str, Any]]:
    if question == "strict":
        events = read_events(
            spark, entries_of(given), columns=ID_COLUMNS, since=given.since, until=given.until
        )
        found = with_dedupe(events, target=given.target, command_name=given.command)
        return _rows(found.orderBy("refused", ascending=False))
    # Windows as long as the limit's interval: those of the policy would put ten seconds of every thirty into one.
    windows = given.interval_s if question == "limits" else policies[0].window_seconds if policies else 0
    counted(spark, given, window_seconds=windows)
    counts = spark.read.parquet(str(given.out / "base"))
    routes = read_routes(spark, given.routes)
    match question:
        case "limits":
            answer = with_limits(
                counts,
                target=given.target,
                command_name=given.command,
                limits=given.limit,
                interval_seconds=given.interval_s,
            )
            return _rows(answer.orderBy("limit", "refused", ascending=[True, False]))
        case "thresholds":
            answer = with_thresholds(fairness(counts, routes), given.dominant_share)
            return _rows(answer.orderBy("dominant_share", "dominant_then", ascending=[True, False]))
        case "rights":
            return _rows(without_rights(counts, rights).orderBy("refused", ascending=False))
    return [
        {
            "policy_version": policy.version,
            **{name: one[name] for name in ("source", "kind", "affected_targets")},
        }
        | {"total_violations": one["total_violations"], "window_start": one["window_start"]}
        for policy in policies
        for one in proposals(counts, routes, policy)
    ]


def _rows(answer: DataFrame) -> Iterable[Mapping[str, Any]]:
    return [row.asDict() for row in answer.collect()]


def _right(words: str) -> tuple[str, str, str]:
    """`acme/shop`, `acme/shop@bot` or `acme/shop@bot:say`."""
    source, _, route = words.partition("@")
    target, _, command = route.partition(":")
    if source.count("/") != 1 or (command and not target):
        raise ValueError(f"--without-right: {words!r} is no right such as acme/shop@bot:say.")
    return source, target, command


def options() -> argparse.ArgumentParser:
    """The shared options, and the question."""
    made = parser(__doc__ or "")
    made.add_argument("--target", default="")
    made.add_argument("--command", default="")
    made.add_argument("--limit", type=int, action="append", help="commands per interval; may be given again")
    made.add_argument("--interval-s", type=int, default=60)
    made.add_argument(
        "--dominant-share",
        type=float,
        action="append",
        help="another threshold, such as 0.6; may be given again",
    )
    made.add_argument(
        "--without-right", action="append", metavar="SOURCE[@TARGET[:COMMAND]]", help="may be given again"
    )
    made.add_argument("--strict", action="store_true", help="if the route delivered each id once")
    made.add_argument(
        "--against", action="append", metavar="FILE", help="a policy of thresholds; may be given again"
    )
    return made


if __name__ == "__main__":
    run(shadow, options())
