"""Statistics of figures by turns, and the worktree they are measured in."""

from __future__ import annotations

import random
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rich.console import Console

from bench import turns
from bench.pairs import ENOUGH, compare, interval, order
from bench.turns import compared, table

ROOT = Path(__file__).resolve().parents[2]


def test_interval_of_twenty_values_leaves_out_five_at_each_end() -> None:
    # Ranks 6 and 15 of 20: the textbook's for the median at 95 %.
    assert interval([float(value) for value in range(1, 21)]) == (6.0, 15.0)


@pytest.mark.parametrize(
    ("count", "found"), [(5, None), (6, (1.0, 6.0)), (9, (2.0, 8.0)), (30, (10.0, 21.0))]
)
def test_interval_by_the_number_of_values(count: int, found: tuple[float, float] | None) -> None:
    assert interval([float(value) for value in range(count, 0, -1)]) == found


def test_interval_holds_the_true_median_as_often_as_it_says() -> None:
    dice = random.Random(7)
    held = 0
    for _ in range(2000):
        # Skewed, as times are.
        low, high = interval([dice.lognormvariate(0.0, 0.5) for _ in range(ENOUGH)]) or (0.0, 0.0)
        held += low <= 1.0 <= high
    assert held / 2000 >= 0.95


def test_a_drift_of_the_machine_that_both_turns_of_a_pair_share_does_not_count() -> None:
    dice = random.Random(7)
    pairs = []
    for number in range(ENOUGH):
        drift = 1 + number / 5
        pairs.append((10 * drift * dice.uniform(0.99, 1.01), 10.5 * drift * dice.uniform(0.99, 1.01)))
    found = compare("CPU", pairs, unit="µs", kind="ratio", limit=1.03)
    assert found.change == pytest.approx(1.05, abs=0.01)
    assert found.holds == "no"
    assert found.low is not None
    assert found.high is not None
    assert found.low < 1.05 < found.high


def test_one_wild_turn_does_not_move_the_median() -> None:
    pairs = [(10.0, 10.1)] * 19 + [(10.0, 90.0)]
    assert compare("CPU", pairs, unit="µs", kind="ratio", limit=1.03).change == pytest.approx(1.01)


def test_a_limit_within_the_interval_is_not_decided() -> None:
    pairs = [(10.0, 10.0 + step / 10) for step in range(-9, 11)]
    assert compare("CPU", pairs, unit="µs", kind="ratio", limit=1.0).holds == "perhaps"
    assert compare("CPU", pairs, unit="µs", kind="ratio", limit=1.5).holds == "yes"
    assert compare("CPU", pairs[:3], unit="µs", kind="ratio", limit=1.5).holds == "perhaps"


def test_memory_is_compared_by_difference() -> None:
    found = compare("memory", [(80.0, 83.0)] * 20, unit="MB", kind="difference", limit=5.0)
    assert (found.change, found.holds) == (3.0, "yes")
    assert statistics.median([found.base, found.here]) == 81.5


def test_no_pair_is_an_error() -> None:
    with pytest.raises(ValueError, match="no pair"):
        compare("CPU", [], unit="µs", kind="ratio")


def test_who_goes_first_alternates() -> None:
    assert [order(pair)[0] for pair in range(4)] == ["base", "here", "base", "here"]
    assert {frozenset(order(pair)) for pair in range(4)} == {frozenset({"base", "here"})}


def test_every_figure_of_the_probe_is_compared_and_shown(capsys: pytest.CaptureFixture[str]) -> None:
    figures = dict.fromkeys(turns.RATIOS, 10.0) | {"idle_mb.shield": 80.0, "idle_mb.fast": 81.0}
    found = compared([(figures, figures)] * 20)
    assert len(found) == len(figures)
    assert {one.holds for one in found} == {"yes"}
    Console(width=160).print(table(found, title="a against b"))
    shown = capsys.readouterr().out
    assert "CPU per command over three hops" in shown
    assert "idle memory of shield" in shown


def test_an_unknown_commit_is_told_in_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert turns.main(["no-such-commit"]) == 2
    assert "no commit of this repository" in capsys.readouterr().err


INTERRUPTED = """
import signal, sys, time
from pathlib import Path
from rich.console import Console
from bench import turns

signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
turns._build = lambda folder: None
with turns.worktree("HEAD", Console(stderr=True)) as folder:
    print(folder, flush=True)
    time.sleep(600)
"""


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a clone")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_worktree_is_gone_after_an_interrupt(number: signal.Signals, tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", "--shared", str(ROOT), str(clone)], check=True, timeout=60)
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
            + INTERRUPTED.replace("turns._build", f"turns.ROOT = Path({str(clone)!r})\nturns._build"),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    folder = Path(process.stdout.readline().strip())
    assert (folder / "Makefile").is_file()
    process.send_signal(number)
    process.communicate(timeout=60)
    end = time.monotonic() + 30
    while folder.parent.exists() and time.monotonic() < end:
        time.sleep(0.05)
    assert not folder.parent.exists()
    listed = subprocess.run(
        ["git", "worktree", "list"], cwd=clone, capture_output=True, text=True, timeout=60, check=True
    )
    assert len(listed.stdout.splitlines()) == 1
