"""A log that cannot be written loses its lines, and nothing else: failing background work is still supervised."""

from __future__ import annotations

import errno
import io
import subprocess
import sys
from pathlib import Path

import pytest

from snavio.cli.up import spared
from snavio.telemetry.logs import LossyFile

FULL_DISK = Path("/dev/full")
PROGRAM = """
import asyncio, sys
from snavio.errors import Unavailable
from snavio.host.background import Background
from snavio.telemetry.logs import configure

async def main():
    configure(service="trial")
    faults = [Unavailable("no room"), OSError("no room"), RuntimeError("no room")]

    def body():
        if faults:
            raise faults.pop()

    thread = Background().thread("trial", body)
    await asyncio.to_thread(thread.join, 20)
    sys.stdout.write(f"{len(faults)} left")

asyncio.run(main())
"""


@pytest.mark.skipif(not FULL_DISK.exists(), reason="there is no /dev/full here")
def test_supervised_thread_lives_on_when_its_failures_cannot_be_logged() -> None:
    with FULL_DISK.open("w") as log:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.stdout == "0 left"


class Disk(io.StringIO):
    """Takes nothing while it is full."""

    full = False

    def write(self, text: str) -> int:
        if self.full:
            raise OSError(28, "No space left on device")
        return super().write(text)


def test_lines_that_were_lost_are_counted_in_the_log_once_there_is_room() -> None:
    disk = Disk()
    log = LossyFile(disk)
    log.write("one\n")
    disk.full = True
    log.write("two\n")
    log.write("three\n")
    disk.full = False
    log.write("four\n")
    lines = [line for line in disk.getvalue().splitlines() if line]
    assert lines[0] == "one" and lines[-1] == "four"
    assert '"lines":2' in lines[1] and len(lines) == 3


def test_mesh_goes_on_when_what_up_tells_cannot_be_written() -> None:
    told: list[str] = []

    def tell(sentence: str) -> None:
        told.append(sentence)
        raise OSError(errno.ENOSPC if sentence == "full" else errno.EPIPE, sentence)

    spared(tell)("full")
    # A terminal that is gone still ends it.
    with pytest.raises(BrokenPipeError):
        spared(tell)("gone")
    assert told == ["full", "gone"]
