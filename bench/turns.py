"""Compares this tree with another commit by turns: `make bench-turns BASE=<commit> PAIRS=20`.

Never leaves its worktree behind, however it ends short of a kill; never calls fewer than twenty pairs a figure.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from bench.pairs import CONFIDENCE, ENOUGH, Comparison, Kind, compare, order

ROOT: Final = Path(__file__).resolve().parents[1]
PROBE: Final = Path(__file__).with_name("turns_probe.py")
TURN_SECONDS: Final = 180
WIDE: Final = 140
RATIOS: Final[dict[str, tuple[str, str, float]]] = {
    "command_cpu_us": ("CPU per command over three hops", "µs", 1.03),
    "unary_p50_ms": ("unary call, p50", "ms", 1.05),
    "unary_cpu_us": ("CPU per unary call", "µs", 1.05),
    "start_cpu_s": ("CPU of starting every service", "s", 1.05),
}
IDLE: Final = "idle_mb."
MOST_IDLE_MB: Final = 5.0


@contextmanager
def worktree(commit: str, console: Console) -> Iterator[Path]:
    """A worktree of another commit with its own build; removed at the end, also after Ctrl-C or SIGTERM."""
    folder = Path(tempfile.mkdtemp(prefix="snavio-turns-")) / "base"
    try:
        _git("worktree", "add", "--quiet", "--detach", str(folder), commit)
        console.print(f"building {commit} in {folder}")
        _build(folder)
        yield folder
    finally:
        subprocess.run(["git", "worktree", "remove", "--force", str(folder)], cwd=ROOT, check=False)
        shutil.rmtree(folder.parent, ignore_errors=True)


def _build(folder: Path) -> None:
    subprocess.run(["make", "--silent", "compiled"], cwd=folder, check=True, stdout=subprocess.DEVNULL)


def _git(*words: str) -> str:
    return subprocess.run(
        ["git", *words], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.strip()


def turn(folder: Path) -> dict[str, float]:
    """One turn of the code in `folder`."""
    ran = subprocess.run(
        [str(folder / ".venv" / "bin" / "python"), "-P", str(PROBE)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        stdout=subprocess.PIPE,
        timeout=TURN_SECONDS,
        check=True,
        text=True,
    )
    figures: dict[str, float] = json.loads(ran.stdout.splitlines()[-1])
    return figures


def compared(pairs: Sequence[tuple[dict[str, float], dict[str, float]]]) -> list[Comparison]:
    """Every figure of all pairs."""

    def of(key: str) -> list[tuple[float, float]]:
        return [(base[key], here[key]) for base, here in pairs]

    found = [
        compare(name, of(key), unit=unit, kind="ratio", limit=limit)
        for key, (name, unit, limit) in RATIOS.items()
    ]
    kind: Kind = "difference"
    for key in pairs[0][0]:
        if key.startswith(IDLE):
            name = f"idle memory of {key.removeprefix(IDLE)}"
            found.append(compare(name, of(key), unit="MB", kind=kind, limit=MOST_IDLE_MB))
    return found


def table(found: Sequence[Comparison], *, title: str) -> Table:
    """For people."""
    made = Table(title=title)
    for column in ("figure", "base", "here", "change", f"{CONFIDENCE:.0%} interval", "limit", "holds"):
        made.add_column(column, justify="left" if column == "figure" else "right")
    for one in found:
        sign, digits = ("x", 3) if one.kind == "ratio" else (f" {one.unit}", 2)

        def told(value: float | None, sign: str = sign, digits: int = digits) -> str:
            return "-" if value is None else f"{value:.{digits}f}{sign}"

        between = "-" if one.low is None else f"{told(one.low)} to {told(one.high)}"
        made.add_row(
            one.name,
            f"{one.base:.2f} {one.unit}",
            f"{one.here:.2f} {one.unit}",
            told(one.change),
            between,
            told(one.limit),
            one.holds,
        )
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Zero when it could measure; the result is for the reader to judge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("base", help="the commit to compare with")
    parser.add_argument("--pairs", type=int, default=ENOUGH)
    parser.add_argument("--json", type=Path, default=None, help="write all turns and comparisons there")
    given = parser.parse_args(arguments)
    if given.pairs < 1:
        parser.error("--pairs: at least one")
    console = Console(stderr=True)
    # A polite end is one with tidying up.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        commit, here = _git("rev-parse", "--verify", f"{given.base}^{{commit}}"), _git("rev-parse", "HEAD")
    except subprocess.CalledProcessError:
        console.print(f"{given.base} is no commit of this repository.")
        return 2
    dirty = " and changes" if _git("status", "--porcelain") else ""
    pairs: list[tuple[dict[str, float], dict[str, float]]] = []
    with worktree(commit, console) as base:
        places, begun = {"base": base, "here": ROOT}, time.monotonic()
        for number in range(given.pairs):
            turns = {side: turn(places[side]) for side in order(number)}
            pairs.append((turns["base"], turns["here"]))
            console.print(f"pair {number + 1} of {given.pairs}, {time.monotonic() - begun:.0f} s")
    found = compared(pairs)
    few = f" (fewer than {ENOUGH}: a look, not a figure)" if given.pairs < ENOUGH else ""
    title = f"{here[:10]}{dirty} against {commit[:10]}, {given.pairs} pairs{few}"
    # Wide enough for every figure on one line, also in a file.
    Console(width=None if sys.stdout.isatty() else WIDE).print(table(found, title=title))
    if given.json is not None:
        told: dict[str, Any] = {"base": commit, "here": here, "dirty": bool(dirty), "pairs": given.pairs}
        told |= {
            "comparisons": [{**asdict(one), "holds": one.holds} for one in found],
            "turns": [{"base": base_turn, "here": here_turn} for base_turn, here_turn in pairs],
        }
        given.json.write_text(json.dumps(told, indent=1) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
