"""CPU of processes, percentiles, and the table of docs/performance.md. Never prints a figure that is not recorded."""

from __future__ import annotations

import mmap
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import orjson

FIGURES = Path(__file__).parent / "figures.json"
REPORT = Path(__file__).parent.parent / "docs" / "performance.md"
_TICK = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICK


def resident_mb(pid: int) -> float:
    """Resident memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def touch_memory() -> None:
    """Use most of the free memory once.

    A virtual machine's memory costs its host a fault at the first touch. Right after a boot that cost falls on file
    writes, through the page cache, and looks like a mailbox that becomes slower by half within seconds.
    """
    free_kb = next(
        int(line.split()[1])
        for line in Path("/proc/meminfo").read_text().splitlines()
        if line.startswith("MemFree")
    )
    size = max(0, free_kb * 1024 - (3 << 30))
    if size:
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE
        mmap.mmap(-1, size, flags=flags).close()


@dataclass(frozen=True, slots=True)
class Sample:
    """One repeat: number of items, duration, and the CPU of each process."""

    count: int
    seconds: float
    cpu: Mapping[str, float]

    @property
    def rate(self) -> float:
        return self.count / self.seconds

    @property
    def cpu_us(self) -> float:
        """CPU microseconds per item, all processes together."""
        return sum(self.cpu.values()) / self.count * 1e6

    def cpu_us_of(self, name: str) -> float:
        return self.cpu[name] / self.count * 1e6


class Stopwatch:
    """Measures wall time and CPU of named processes between `start` and `stop`."""

    def __init__(self, pids: Mapping[str, int]) -> None:
        self._pids = dict(pids)

    def start(self) -> None:
        self._cpu = {name: cpu_seconds(pid) for name, pid in self._pids.items()}
        self._began = time.perf_counter()

    def stop(self, count: int) -> Sample:
        seconds = time.perf_counter() - self._began
        cpu = {name: cpu_seconds(pid) - self._cpu[name] for name, pid in self._pids.items()}
        return Sample(count, seconds, cpu)


def median_and_range(values: Iterable[float]) -> tuple[float, float, float]:
    """Median, least and most."""
    ordered = sorted(values)
    return statistics.median(ordered), ordered[0], ordered[-1]


def percentile(values: Iterable[float], share: float) -> float:
    """The value that `share` of all do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def _commit() -> str:
    """The measured commit: a figure says nothing about code that came after it."""
    asked = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=FIGURES.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    return asked.stdout.strip() or "unknown"


SHORT = bool(os.environ.get("SNAVIO_BENCH_SHORT"))
"""Runs each benchmark briefly to check that it works; such figures are not kept."""


def record(name: str, *, values: Iterable[float], unit: str, target: str, note: str = "") -> float:
    """Keep a figure (median and range of `values`) for the report; returns its median."""
    middle, least, most = median_and_range(values)
    if not SHORT:
        known = orjson.loads(FIGURES.read_bytes()) if FIGURES.exists() else {}
        known[name] = {
            "median": round(middle, 3),
            "least": round(least, 3),
            "most": round(most, 3),
            "unit": unit,
            "target": target,
            "note": note,
            "commit": _commit(),
        }
        FIGURES.write_bytes(orjson.dumps(known, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS) + b"\n")
    print(f"\n  {name}: {middle:,.2f} {unit} (range {least:,.2f} to {most:,.2f}; target {target}) {note}")
    return middle


def write_report() -> None:
    """Write docs/performance.md from the recorded figures; nothing in it is typed by hand."""
    if not FIGURES.exists():
        return
    rows = orjson.loads(FIGURES.read_bytes())
    lines = [
        "# Performance, as measured",
        "",
        "Written by `make bench` from `bench/figures.json`; do not edit. Medians of the repeats (six, three for",
        "Spark), with their range. The last column is the commit that was measured: `-dirty` where figures of the",
        "same run were already written; a row without one is from older code and is to be read so.",
        "",
        f"Machine: {os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}; load generator",
        "and all services share them, over loopback with mTLS. Commands are 400 bytes encoded. The mailbox answers",
        "after its syncs (payload log, and SQLite's WAL with `synchronous=FULL`). Throughput on a shared",
        "machine is noisy; CPU per command is the figure to compare.",
        "",
        "## By turns",
        "",
        "Two commits are compared by turns: `make bench-turns BASE=<commit> PAIRS=20`. It builds the other commit in a",
        "worktree of its own, which is gone afterwards, and measures pairs: each side starts a mesh, rests a second,",
        "makes 1,500 unary calls (`Shield/Greet`, which only answers) and sends streams of 1000 for three seconds. Who",
        "goes first alternates. What is compared is the change within each pair, so a machine that slows down over the",
        "run does not count; its median, and the interval that holds the true median with 95 %, come from the order of",
        "the values alone (for 20 pairs: the 6th and the 15th). `holds` is `yes` or `no` when the whole interval is on",
        "one side of the limit, and `perhaps` when more pairs are needed. Fewer than 20 pairs are only a look.",
        "",
        "## Figures",
        "",
        "| what | median | range | target | note | commit |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {name} | {row['median']:,} {row['unit']} | {row['least']:,} to {row['most']:,} "
        f"| {row['target']} | {row['note']} | {row.get('commit', 'older')} |"
        for name, row in sorted(rows.items())
    ]
    REPORT.write_text("\n".join(lines) + "\n", "utf-8")
