"""Ends every process of a test run once the run itself has ended, in order or killed.

Processes are known by a mark in their environment, which children of children and detached ones carry too. Never ends
what does not carry the mark of the run it was started for.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

MARK: Final = "SNAVIO_TEST_RUN"
PATIENCE_S: Final = 10.0
_PAUSE_S: Final = 0.05
_reapers: list[subprocess.Popen[bytes]] = []


def watch_over() -> str:
    """Mark what this process starts from now on, and start a reaper for it; the mark. Linux only: else nothing."""
    if sys.platform != "linux" or not hasattr(os, "pidfd_open"):
        return ""
    mark = f"{os.getpid()}.{time.monotonic_ns()}"
    # Of the runs around this one too: a worker's children end with the worker, and with whoever started it.
    os.environ[MARK] = "/".join(filter(None, (os.environ.get(MARK), mark)))
    _reapers.append(
        subprocess.Popen(
            [sys.executable, "-I", "-S", __file__, str(os.getpid()), mark],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
    )
    return mark


def marked(mark: str) -> list[int]:
    """Living processes that were started under `mark`, without this one."""
    found = []
    wanted = mark.encode()
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit() or int(folder.name) == os.getpid():
            continue
        try:
            environment = (folder / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        for entry in environment:
            name, _, marks = entry.partition(b"=")
            if name == MARK.encode() and wanted in marks.split(b"/"):
                found.append(int(folder.name))
    return found


def reap(mark: str) -> None:
    """Kill them until none is left: one may have started another meanwhile."""
    end = time.monotonic() + PATIENCE_S
    while (left := marked(mark)) and time.monotonic() < end:
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                continue
        time.sleep(_PAUSE_S)


def main() -> None:
    """Wait for the end of the run, then reap."""
    run, mark = int(sys.argv[1]), sys.argv[2]
    # Not what a terminal's Ctrl-C or a polite end of everything would end first.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with contextlib.suppress(OSError):  # It has ended already.
        select.select([os.pidfd_open(run)], [], [])
    reap(mark)


if __name__ == "__main__":
    main()
