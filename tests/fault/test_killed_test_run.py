"""A test run that is killed leaves nothing behind: no JVM, no redis-server, no mesh."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.support.reaper import MARK, marked, reap, watch_over
from tests.support.terminal import alive

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 90.0
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc")


@contextmanager
def running(folder: Path, *options: str) -> Iterator[tuple[int, list[int]]]:
    """A test run in the middle of a test: its process, and all that it has started."""
    ready, mark = folder / "ready", f"outer-{os.getpid()}-{time.monotonic_ns()}"
    run = subprocess.Popen(
        [sys.executable, "-m", "pytest", "-q", *options, "tests/support/left_behind.py"],
        cwd=ROOT,
        env={**os.environ, "LEFT_BEHIND_READY": str(ready), MARK: f"{os.environ[MARK]}/{mark}"},
        stdout=(folder / "run.log").open("wb"),
        stderr=subprocess.STDOUT,
    )
    try:
        wait_for(lambda: ready.exists() or run.poll() is not None)
        assert run.poll() is None, (folder / "run.log").read_text()
        wait_for(lambda: len(commands(mark)) > 0 and "Master" in " ".join(commands(mark)))
        yield run.pid, [pid for pid in marked(mark) if pid != run.pid]
    finally:
        with suppress(ProcessLookupError):
            run.kill()
        run.wait(30)
        reap(mark)


def commands(mark: str) -> list[str]:
    return [command_of(pid) for pid in marked(mark)]


def command_of(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    return ""


def wait_for(condition: object) -> None:
    assert callable(condition)
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.parametrize("options", [(), ("-n", "1")], ids=["one process", "a worker"])
def test_whatever_a_test_started_ends_with_a_run_that_is_killed(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    with running(tmp_path, *options) as (run, started):
        # A shell or JVM, redis-server, moto, a mailbox, a detached child and its own: at least these.
        assert len(started) >= 6
        assert any("redis-server" in command_of(pid) for pid in started)
        os.kill(run, signal.SIGKILL)
        wait_for(lambda: not any(alive(pid) for pid in started))


def test_processes_without_the_mark_of_the_run_are_left_alone() -> None:
    other = subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env={**os.environ, MARK: "12.345"}
    )
    try:
        wait_for(lambda: other.pid in marked("12.345"))
        reap("12.34")
        reap("2.345")
        assert other.poll() is None
    finally:
        other.communicate(timeout=30)


def test_marks_of_runs_inside_of_runs_are_all_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MARK, "1.1")
    mark = watch_over()
    assert os.environ[MARK] == f"1.1/{mark}"
