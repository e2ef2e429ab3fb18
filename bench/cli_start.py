"""CPU that the command line needs before it does anything: `python bench/cli_start.py`.

Prints the median of user and system time of ten runs of `snavio --help` and `snavio version`, and of `snavio send` up
to its call. Never a gate by time: `tests/unit/test_cli_imports.py` holds the imports that make the time.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
from pathlib import Path

RUNS = 10
ROOT = Path(__file__).resolve().parents[1]
CLI = [sys.executable, "-m", "snavio.cli"]
# Ends the process where the producer would send, so that only what leads there is counted.
SEND = """
import os, sys
import snavio.sdk.producer
async def send(*_words, **_named):
    os._exit(0)
snavio.sdk.producer.Producer.send = send
from snavio.cli import main
main()
"""


def cpu_seconds(words: list[str]) -> float:
    """Median user and system time of the runs of a command line."""
    taken = []
    for _ in range(RUNS):
        started = subprocess.Popen(
            words, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.DEVNULL
        )
        _, status, used = os.wait4(started.pid, 0)
        if status:
            raise SystemExit(f"{words[-1]} ended with {os.waitstatus_to_exitcode(status)}.")
        taken.append(used.ru_utime + used.ru_stime)
    return statistics.median(taken)


def told(what: str, words: list[str], most: float) -> None:
    """One line of the table."""
    sys.stdout.write(f"{what:<22} {cpu_seconds(words):.3f} s of CPU, to be at most {most:.1f} s\n")


async def main() -> None:
    """Measure, with a mesh of its own for `send`."""
    from snavio.clock import SystemClock
    from snavio.launch.temporary import temporary_mesh

    told("snavio --help", [*CLI, "--help"], 0.2)
    told("snavio version", [*CLI, "version"], 0.2)
    async with temporary_mesh(clock=SystemClock(), healthy=lambda _: None, say=lambda _: None) as running:
        words = [
            "send",
            "discord-bot",
            "notify-user",
            "-p",
            "hello",
            "--config",
            str(running.processes.config),
        ]
        await asyncio.to_thread(told, "snavio send, up to it", [sys.executable, "-c", SEND, *words], 0.5)


if __name__ == "__main__":
    asyncio.run(main())
