"""Counts and judges a past range hour by hour; hours that were done before are left as they are."""

from __future__ import annotations

import argparse
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

from spark.jobs.arguments import open_session, parser, policy_of, run, told
from spark.jobs.detect_abuse import detect_range, entries_of
from spark.read import within
from spark.write import write_lines, write_text

HOUR = timedelta(hours=1)
LATENESS = timedelta(minutes=15)
"""Events may come as late as that: an hour is not whole before."""
DONE = "_done"


def hours(since: datetime, until: datetime) -> list[datetime]:
    """The begin of every hour that the range touches."""
    start = since.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    found = []
    while start < until:
        found.append(start)
        start += HOUR
    return found


def backfill(given: argparse.Namespace) -> None:
    """One folder per hour, with what the hourly run leaves."""
    if given.since is None or given.until is None:
        raise ValueError("A backfill has a begin and an end: say --since and --until.")
    if given.until <= given.since:
        raise ValueError("--until has to be after --since.")
    policy = policy_of(given)
    doubtful = set(json.loads(given.doubts.read_text("utf-8"))) if given.doubts else set()
    closed = datetime.now(UTC) - LATENESS
    entries = entries_of(given)
    wanted = hours(given.since, given.until)
    spark = open_session("snavio backfill", given)
    try:
        total = skipped = empty = open_still = 0
        for number, start in enumerate(wanted, 1):
            out = given.out / start.strftime("%Y-%m-%dT%H")
            if not within(entries, start, start + HOUR):
                # Most hours of a long range, and Spark would take seconds to find nothing in each.
                write_lines([], out / "proposals.jsonl")
                empty += 1
            elif given.again or not (out / DONE).exists():
                found = detect_range(spark, given, policy, since=start, until=start + HOUR, out=out)
                total += found
                # Done for good is an hour of which all evidence was there, and of the hour that it begins from.
                near = {f"{hour:%Y-%m-%dT%H}" for hour in (start, start - HOUR)}
                if start + HOUR <= closed and not near & doubtful:
                    write_text(f"{found}\n", out / DONE)
                else:
                    open_still += 1
                    (out / DONE).unlink(missing_ok=True)
            else:
                skipped += 1
            told(step="hour", hour=start, done=number, of=len(wanted))
        told(
            step="done",
            proposals=total,
            hours=len(wanted),
            skipped=skipped,
            empty=empty,
            open=open_still,
        )
    finally:
        spark.stop()


def options() -> argparse.ArgumentParser:
    """The shared options, and whether to do hours again."""
    made = parser(__doc__ or "")
    made.add_argument("--doubts", type=Path, help="JSON list of hours that may lack events, as 2026-11-16T10")
    made.add_argument("--again", action="store_true", help="also hours that were done before")
    return made


if __name__ == "__main__":
    run(backfill, options())
