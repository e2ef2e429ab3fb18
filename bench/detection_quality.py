"""Measures abuse detection on traffic with known truth, and writes the table of docs/fairness.md.

    make detection-report                     200 seeds a scenario, from a tree without changes
    python -m bench.detection_quality --seeds 20 --entropy 7 --set alarm_points=33       to try something

The seeds follow from the last commit that changed a rule or a scenario, so that nobody can tune one to the other: a
change of either is another commit, and other seeds. `--entropy` is for trying, and never writes.

What judges here is what bans: the same judge on the same rows, which `tests/spark/test_detection.py` holds to what
Spark and `watch` make of the same traffic, to the last character. Never a claim about real traffic: it says how the
policy does on these scenarios.
"""

from __future__ import annotations

import argparse
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from spark.judging import Judge, fold
from spark.policy import DetectionPolicy
from tests.support.abuse_scenarios import (
    ABUSIVE_SCENARIOS,
    HONEST_SCENARIOS,
    SCENARIOS,
    STUBBORN,
    WINDOW_S,
    rows,
    simulated,
)

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "fairness.md"
BEGIN, END = "<!-- detection: begin -->", "<!-- detection: end -->"
WATCHED = (
    "spark/judging.py",
    "spark/policy.py",
    "spark/transforms/abuse.py",
    "spark/transforms/base.py",
    "tests/support/abuse_scenarios.py",
    "bench/detection_quality.py",
)
"""The inputs on which a figure of the table depends."""
SETTLING_S, LOOK_S = 45, 5
"""Until `watch` takes a window for heard, and its longest pause between two looks; a test holds the first to it."""
Z = 1.96


@dataclass(slots=True)
class Score:
    """The result of one scenario, over all seeds."""

    abusers: int = 0
    found: int = 0
    honest: int = 0
    wrong: int = 0
    delays_s: list[int] = field(default_factory=list)


def measure(seeds: int, entropy: int, policy: DetectionPolicy) -> dict[str, Score]:
    """Every scenario, all of its seeds in one stream."""
    told = {}
    for name in SCENARIOS:
        traffic = simulated(name, seeds, entropy)
        first: dict[str, int] = {}
        for alarm in fold(Judge(policy), rows(traffic, policy)):
            first.setdefault(alarm.source, alarm.window)
        abusers = traffic.abusers()
        honest = traffic.sources() - abusers
        found = first.keys() & abusers
        delays = [first[one] + WINDOW_S + SETTLING_S + LOOK_S - traffic.began(one) for one in found]
        told[name] = Score(len(abusers), len(found), len(honest), len(first.keys() & honest), sorted(delays))
    return told


def wilson(part: int, whole: int) -> tuple[float, float]:
    """95 % interval of a share; one of none says nothing."""
    if not whole:
        return 0.0, 1.0
    share, spread = part / whole, Z * Z / whole
    middle = (share + spread / 2) / (1 + spread)
    reach = Z * math.sqrt(share * (1 - share) / whole + spread / whole / 4) / (1 + spread)
    return max(0.0, middle - reach), min(1.0, middle + reach)


def median_interval(values: Sequence[int]) -> tuple[int, int]:
    """95 % interval of the median, by the order of the values."""
    reach = Z * math.sqrt(len(values)) / 2
    low = max(0, math.floor(len(values) / 2 - reach))
    return values[low], values[min(len(values) - 1, math.ceil(len(values) / 2 + reach))]


def table(told: dict[str, Score], seeds: int, origin: str) -> str:
    """The table of the page."""
    lines = [
        f"{seeds} seeds a scenario, an hour each, from {origin}. Brackets: 95 % intervals. The delay is from the first",
        "command of the abuse to the proposal, in minutes. A source-hour is one honest source that sends for an hour.",
        "",
        "| scenario | abusers | recall | median delay | honest source-hours | wrongly proposed |",
        "|---|---|---|---|---|---|",
    ]
    for name in (*HONEST_SCENARIOS, *ABUSIVE_SCENARIOS, STUBBORN):
        score = told[name]
        recall = delay = "-"
        if score.abusers:
            low, high = wilson(score.found, score.abusers)
            recall = f"{score.found / score.abusers:.3f} ({low:.3f} to {high:.3f})"
        if score.delays_s:
            first, last = median_interval(score.delays_s)
            delay = f"{statistics.median(score.delays_s) / 60:.1f} ({first / 60:.1f} to {last / 60:.1f})"
        low, high = wilson(score.wrong, score.honest)
        wrong = (
            f"{score.wrong}: {100 * score.wrong / score.honest:.2f} % ({100 * low:.2f} to {100 * high:.2f})"
        )
        lines.append(f"| {name} | {score.abusers} | {recall} | {delay} | {score.honest:,} | {wrong} |")
    gated = [score for name, score in told.items() if name != STUBBORN]
    mistakes, honest = sum(score.wrong for score in gated), sum(score.honest for score in gated)
    low, high = wilson(mistakes, honest)
    lines += [
        "",
        f"All but `{STUBBORN}` together: {mistakes} of {honest:,} honest source-hours wrongly proposed, "
        f"{100 * mistakes / honest:.3f} % ({100 * low:.3f} to {100 * high:.3f}).",
    ]
    return "\n".join(lines)


def origin() -> tuple[str, int]:
    """The last commit that changed what the figures depend on, and the seeds that follow from it."""
    changed = _git("status", "--porcelain", "--", *WATCHED)
    if changed:
        names = ", ".join(line[3:] for line in changed.splitlines())
        raise SystemExit(
            f"Not measured: {names} changed since the last commit, and seeds follow from a commit. Commit first."
        )
    commit = _git("log", "-1", "--format=%H", "--", *WATCHED)
    if not commit:
        raise SystemExit("Not measured: this is no repository, and seeds follow from a commit.")
    return commit, int(commit[:15], 16)


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"Not measured: git {words[0]} failed: {done.stderr.strip()}")
    return done.stdout.rstrip()


def _policy(settings: Sequence[str]) -> DetectionPolicy:
    if not settings:
        return DetectionPolicy()
    given: dict[str, float | str] = {"version": "tried"}
    for setting in settings:
        name, _, value = setting.partition("=")
        given[name] = float(value) if "." in value else int(value)
    return DetectionPolicy(**given)  # type: ignore[arg-type]


def main() -> None:
    """Measure, print, and write if requested."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--seeds", type=int, default=200)
    options.add_argument("--entropy", type=int, help="other seeds than those of the commit; to try")
    options.add_argument(
        "--set", action="append", default=[], metavar="NAME=NUMBER", help="of the policy; to try"
    )
    options.add_argument("--write", action="store_true", help="into docs/fairness.md")
    given = options.parse_args()
    tried = given.entropy is not None or given.set
    if tried and given.write:
        raise SystemExit("--write is for the seeds of the commit and the policy as it is.")
    commit, entropy = ("", given.entropy or 0) if tried else origin()
    began = time.monotonic()
    told = measure(given.seeds, entropy, _policy(given.set))
    text = table(told, given.seeds, f"commit `{commit[:12]}`" if commit else f"entropy {entropy}")
    sys.stdout.write(f"{text}\n\n{time.monotonic() - began:.0f} s\n")
    if given.write:
        page = PAGE.read_text("utf-8")
        start, end = page.index(BEGIN) + len(BEGIN), page.index(END)
        PAGE.write_text(f"{page[:start]}\n{text}\n{page[end:]}", "utf-8")


if __name__ == "__main__":
    main()
