"""Measures during a test run how much of the machine others took, and judges whether a test was starved by them.

Never counts what the run itself uses: a suite that starves its own tests has tests that are too tight. Never guesses:
where a figure cannot be read it is zero, and zero excuses nothing.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

EVERY_S: Final = 1.0
BEAT_S: Final = 0.1
STRETCH: Final = 3
"""Samples that are judged together: one busy second is ordinary."""
MOST_TAKEN: Final = 0.25
"""A share of all cores. More than this, with nothing left idle, and a test had less than it was written for."""
LEAST_IDLE: Final = 0.10
MOST_LATE_S: Final = 0.5
"""A thread that only sleeps is woken within a few hundredths, also beside a suite that uses every core."""
MOST_SYNC_S: Final = 2.0
MOST_SAMPLES: Final = 20_000
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_DEEPEST: Final = 64
_PR_SET_CHILD_SUBREAPER: Final = 36


@dataclass(frozen=True, slots=True)
class LoadReading:
    """Seconds of CPU since the machine started; `ours` since the run began."""

    total: float = 0.0
    idle: float = 0.0
    stolen: float = 0.0
    ours: float = 0.0


@dataclass(frozen=True, slots=True)
class Sample:
    """Shares of all cores during the second that ended at `at` (seconds since 1970), and the longest delays in it."""

    at: float
    idle: float
    stolen: float
    others: float
    late_s: float
    sync_s: float


@dataclass(frozen=True, slots=True)
class Starvation:
    """The worst stretch of a test, for print."""

    idle: float = 1.0
    stolen: float = 0.0
    others: float = 0.0
    late_s: float = 0.0
    sync_s: float = 0.0

    @property
    def starved(self) -> bool:
        """True if the machine gave the test less than a machine of its own would have."""
        busy = self.stolen + self.others >= MOST_TAKEN and self.idle <= LEAST_IDLE
        return busy or self.late_s >= MOST_LATE_S or self.sync_s >= MOST_SYNC_S

    def __str__(self) -> str:
        return (
            f"others {self.others:.0%}, stolen {self.stolen:.0%}, idle {self.idle:.0%} of the cores; "
            f"a sleeper woke {self.late_s:.2f} s late; a sync took {self.sync_s:.2f} s"
        )


def judge(samples: Sequence[Sample], start: float, stop: float) -> Starvation:
    """The worst of the samples that a test from `start` to `stop` overlaps; nothing known excuses nothing."""
    within = [one for one in samples if start <= one.at and one.at - EVERY_S <= stop]
    if start <= 0 or not within:
        return Starvation()
    size = min(STRETCH, len(within))
    stretches = [within[begin : begin + size] for begin in range(len(within) - size + 1)]
    # A starved stretch before a merely busy one; among equals, the one of which others took the most.
    worst = max((_mean(each) for each in stretches), key=lambda one: (one.starved, one.stolen + one.others))
    return Starvation(
        worst.idle,
        worst.stolen,
        worst.others,
        max(one.late_s for one in within),
        max(one.sync_s for one in within),
    )


def _mean(stretch: Sequence[Sample]) -> Starvation:
    count = len(stretch)
    return Starvation(
        sum(one.idle for one in stretch) / count,
        sum(one.stolen for one in stretch) / count,
        sum(one.others for one in stretch) / count,
    )


def sample(before: LoadReading, after: LoadReading, *, at: float, late_s: float, sync_s: float) -> Sample:
    """Shares of what passed between two readings."""
    passed = after.total - before.total
    if passed <= 0:
        return Sample(at, 1.0, 0.0, 0.0, late_s, sync_s)
    idle = max(0.0, after.idle - before.idle)
    stolen = max(0.0, after.stolen - before.stolen)
    ours = max(0.0, after.ours - before.ours)
    others = max(0.0, passed - idle - stolen - ours)
    return Sample(at, idle / passed, stolen / passed, others / passed, late_s, sync_s)


class Watch:
    """Samples the machine on a thread of its own from `with` to its end."""

    def __init__(self, folder: Path, *, read: Callable[[], LoadReading] | None = None) -> None:
        self.samples: list[Sample] = []
        self._folder = folder
        self._read = read or (lambda: reading(os.getpid()))
        self._end = threading.Event()
        self._sync_s = 0.0
        self._syncing_since: float | None = None
        self._threads = [threading.Thread(target=each, daemon=True) for each in (self._beat, self._syncs)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        for thread in self._threads:
            thread.join(5.0)

    def _beat(self) -> None:
        before, due, late_s = self._read(), time.monotonic() + EVERY_S, 0.0
        while not self._end.is_set():
            slept = time.monotonic()
            time.sleep(BEAT_S)
            late_s = max(late_s, time.monotonic() - slept - BEAT_S)
            if time.monotonic() < due:
                continue
            after, due = self._read(), time.monotonic() + EVERY_S
            self.samples.append(
                sample(before, after, at=time.time(), late_s=late_s, sync_s=self._longest_sync())
            )
            del self.samples[:-MOST_SAMPLES]
            before, late_s = after, 0.0

    def _syncs(self) -> None:
        with (self._folder / "sync").open("wb") as file:
            while not self._end.wait(EVERY_S):
                file.write(b"x")
                file.flush()
                begun = self._syncing_since = time.monotonic()
                os.fsync(file.fileno())
                self._sync_s, self._syncing_since = time.monotonic() - begun, None

    def _longest_sync(self) -> float:
        since = self._syncing_since
        return max(self._sync_s, time.monotonic() - since if since is not None else 0.0)


def adopt_orphans() -> None:
    """Become the parent of descendants whose parents end, so that their CPU stays counted as the run's."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def reading(root: int, proc: Path = Path("/proc")) -> LoadReading:
    """CPU of the machine, and of process `root` with all its descendants, living and waited for."""
    try:
        first = (proc / "stat").read_text("ascii").splitlines()[0].split()[1:9]
    except (OSError, IndexError):
        return LoadReading()
    user, nice, system, idle, waiting, irq, soft, stolen = (int(one) / _TICKS for one in first)
    total = user + nice + system + idle + waiting + irq + soft + stolen
    return LoadReading(total, idle + waiting, stolen, _tree(root, proc))


def _tree(root: int, proc: Path) -> float:
    parents: dict[int, int] = {}
    used: dict[int, int] = {}
    for folder in proc.iterdir():
        if not folder.name.isdigit():
            continue
        with suppress(OSError, ValueError, IndexError):
            fields = (folder / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()
            parents[int(folder.name)] = int(fields[1])
            used[int(folder.name)] = sum(map(int, fields[11:15]))
    ours = 0
    for pid, ticks in used.items():
        ancestor = pid
        # Bounded: ids that were given anew while we read could make a circle.
        for _ in range(_DEEPEST):
            if ancestor == root or ancestor not in parents:
                break
            ancestor = parents[ancestor]
        ours += ticks if ancestor == root else 0
    return ours / _TICKS
