"""Measures abuse detection on traffic with known truth, and writes the table of docs/fairness.md.

    python -m bench.detection_quality [--seeds 30] [--write]

Never a claim about real traffic: it says how the policy does on these scenarios, with these seeds.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import pyarrow.parquet as pq

from spark.policy import DetectionPolicy
from spark.read import read_routes
from spark.schema import event_schema
from spark.session import session
from spark.transforms.abuse import proposals
from spark.transforms.base import base
from spark.transforms.fairness import fairness
from tests.support.abuse_scenarios import SCENARIOS, Score, as_table, scenarios, scores

PAGE = Path(__file__).resolve().parents[1] / "docs" / "fairness.md"
BEGIN, END = "<!-- detection: begin -->", "<!-- detection: end -->"
# Away from those that tests use, and that scenarios were tried on while they were written.
FIRST_SEED = 1000


def measure(seeds: range) -> dict[str, Score]:
    """Every scenario with every seed, through the same steps as the hourly job."""
    found = list(scenarios(seeds))
    with tempfile.TemporaryDirectory(prefix="snavio-") as folder:
        path = Path(folder) / "events.parquet"
        pq.write_table(as_table(found), path)
        spark = session("detection quality", master="local[2]", driver_memory="1g", short=True)
        try:
            counts = base(spark.read.schema(event_schema()).parquet(str(path))).localCheckpoint()
            made = proposals(fairness(counts, read_routes(spark, None)), counts, DetectionPolicy())
            proposed = {row["source"] for row in made.select("source").distinct().collect()}
        finally:
            spark.stop()
    return scores(found, proposed)


def table(told: dict[str, Score], seeds: range) -> str:
    """The table of the page."""
    lines = [
        f"Seeds: {len(seeds)} per scenario ({seeds[0]} to {seeds[-1]}), an hour of traffic each.",
        "",
        "| scenario | abusers | found | honest sources | of them proposed | precision | recall |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, score in told.items():
        precision = "-" if score.precision is None else f"{score.precision:.2f}"
        recall = "-" if score.recall is None else f"{score.recall:.2f}"
        there = score.found + score.missed
        lines.append(
            f"| {name} | {there} | {score.found} | {score.honest} | {score.wrong} | {precision} | {recall} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Measure, print, and write if requested."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seeds", type=int, default=30)
    options.add_argument("--write", action="store_true", help="into docs/fairness.md")
    given = options.parse_args()
    assert set(SCENARIOS)
    seeds = range(FIRST_SEED, FIRST_SEED + given.seeds)
    text = table(measure(seeds), seeds)
    sys.stdout.write(text + "\n")
    if given.write:
        page = PAGE.read_text("utf-8")
        start, end = page.index(BEGIN) + len(BEGIN), page.index(END)
        PAGE.write_text(f"{page[:start]}\n{text}\n{page[end:]}", "utf-8")


if __name__ == "__main__":
    main()
