"""Runs every test in workers side by side; those that fail run once more, alone, and the verdict is the gate's.

A test that passes only alone is flaky, and a flaky test fails the run: its next failure would be somebody else's lost
hour. The one excuse is a machine of which others measurably took what the test needed; the figure is printed with it.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

if __package__ in (None, ""):  # Run as a file: the repository is not on the path yet.
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.support.reaper import watch_over
from tools.starvation import Sample, Starvation, Watch, adopt_orphans, judge
from tools.suite import RECORD

MOST: Final = 8
"""More failures than this are no accident of a busy machine: something is wrong that a second try would hide."""
WORKERS: Final = "SNAVIO_TEST_WORKERS"
SOME_FAILED: Final = 1


@dataclass(frozen=True, slots=True)
class SuiteRun:
    """The end of one run of pytest: exit code, tests by outcome, and the time span of each failed test."""

    code: int
    counts: Mapping[str, int] = field(default_factory=dict)
    failed: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    @property
    def worth_another(self) -> bool:
        """True if its failures can be those of a busy machine."""
        return self.code == SOME_FAILED and 0 < len(self.failed) <= MOST


@dataclass(frozen=True, slots=True)
class SuiteVerdict:
    """One test that failed beside others."""

    test: str
    passed_alone: bool
    machine: Starvation

    @property
    def fails(self) -> bool:
        """True if the run fails for it."""
        return not (self.passed_alone and self.machine.starved)

    def __str__(self) -> str:
        if not self.passed_alone:
            return f"failed twice: {self.test}"
        how = (
            "excused, the machine was starved"
            if self.machine.starved
            else "FLAKY, and the machine was not starved"
        )
        return f"passed only alone: {self.test}\n    {how}: {self.machine}"


def judged(first: SuiteRun, again: SuiteRun, samples: Sequence[Sample]) -> list[SuiteVerdict]:
    """Each failure of the first run in the light of the second, which ran these tests and no others."""
    # A second run that did not run them all proves nothing.
    ran = again.code in (0, SOME_FAILED) and sum(again.counts.values()) == len(first.failed)
    return [
        SuiteVerdict(test, ran and test not in again.failed, judge(samples, *span))
        for test, span in first.failed.items()
    ]


def summary(first: SuiteRun, verdicts: Sequence[SuiteVerdict], took_s: float) -> str:
    """The last line: all tests of the run, once each."""
    counts = Counter(first.counts)
    excused = sum(not verdict.fails for verdict in verdicts)
    flaky = sum(verdict.fails and verdict.passed_alone for verdict in verdicts)
    counts.update(passed=excused, failed=-excused)
    named = {"flaky among them": flaky, "excused": excused}
    told = [f"{counts['passed']} passed, {counts['failed']} failed"]
    told += [f"{counts[how]} {how}" for how in ("skipped", "xfailed") if counts[how]]
    told += [f"{count} {name}" for name, count in named.items() if count]
    minutes, seconds = divmod(round(took_s), 60)
    return f"{', '.join(told)} in {minutes} min {seconds} s"


def used(samples: Sequence[Sample]) -> str:
    """CPU time of the run and idle time of the cores: while they are idle, more workers would make it shorter."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    idle = sum(one.idle for one in samples) / max(1, len(samples))
    return f"the run used {spent.ru_utime + spent.ru_stime:.1f} s of CPU; the cores were idle {idle:.0%} of its time"


def workers() -> int:
    """Twice as many as there are cores: a test that starts processes waits for more than half of its time."""
    return int(os.environ.get(WORKERS, "0")) or 2 * len(os.sched_getaffinity(0))


def pytest(*arguments: str, folder: Path) -> SuiteRun:
    """One run to its end."""
    record = folder / f"{time.monotonic_ns()}.json"
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", "-q", "-p", "tools.suite", *arguments],
        env={**os.environ, RECORD: str(record)},
    )
    code = _wait(process)
    if not record.exists():
        return SuiteRun(code or 1)
    told = json.loads(record.read_text("utf-8"))
    return SuiteRun(code, told["counts"], {test: (span[0], span[1]) for test, span in told["failed"].items()})


def _wait(process: subprocess.Popen[bytes]) -> int:
    # Orphans of the run are ours by now (see `starvation.adopt_orphans`): they are waited for as they end.
    while process.returncode is None:
        try:
            pid, status = os.wait()
        except KeyboardInterrupt:
            continue  # pytest hears Ctrl-C too, and tells what it has; its end is ours.
        if pid == process.pid:
            process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode


def main(arguments: Sequence[str]) -> int:
    """Zero when every test passed, or is excused."""
    begun = time.monotonic()
    adopt_orphans()
    watch_over()
    # One order of sets in all workers: they must collect the same tests in the same order.
    os.environ.setdefault("PYTHONHASHSEED", str(time.time_ns() % 4_000_000_000))
    with tempfile.TemporaryDirectory() as name, Watch(Path(name)) as watch:
        folder = Path(name)
        first = pytest("-n", str(workers()), "--durations=15", *arguments, folder=folder)
        verdicts: list[SuiteVerdict] = []
        if first.worth_another:
            _tell(f"\nfailed, now run again alone: {len(first.failed)}")
            again = pytest(*first.failed, folder=folder)
            verdicts = judged(first, again, watch.samples)
        for verdict in verdicts:
            _tell(f"  {verdict}")
        whole = judge(watch.samples, watch.samples[0].at, time.time()) if watch.samples else Starvation()
        _tell(f"the machine at its worst: {whole}")
        _tell(used(watch.samples))
        _tell(summary(first, verdicts, time.monotonic() - begun))
        if verdicts:
            return int(any(verdict.fails for verdict in verdicts))
        return first.code


def _tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
