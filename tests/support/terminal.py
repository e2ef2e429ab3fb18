"""`snavio` as a user runs it: real processes, and a real terminal where the screen matters."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from snavio.launch.processes import free_addresses

SNAVIO = [sys.executable, "-m", "snavio.cli"]
ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 60.0
_ESCAPES = re.compile(r"\x1b(?:\[[0-9;?]*[A-Za-z]|[()][A-Z0-9])")


def environment(**more: str) -> dict[str, str]:
    """The environment of a user: nothing of the test runner's terminal."""
    kept = {name: text for name, text in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    return {**kept, "PYTHONPATH": str(ROOT), "TERM": "xterm-256color", **more}


def configured(folder: Path) -> Path:
    """A snavio.toml with free ports."""
    config = folder / "snavio.toml"
    free = free_addresses("enrolment")
    enrolment = free.pop("enrolment")
    lines = ["[mesh]", *(f'{name} = "{address}"' for name, address in free.items())]
    signer = ["[signer]", f'enrol_listen = "{enrolment}"']
    config.write_text("\n".join([*lines, "pull_interval_ms = 200", *signer, ""]), "utf-8")
    return config


def snavio(*words: str, folder: Path, given: bytes = b"", **more: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, in `folder`."""
    ran = subprocess.run(
        [*SNAVIO, *words],
        cwd=folder,
        input=given,
        capture_output=True,
        timeout=PATIENCE_S,
        env=environment(**more),
        check=False,
    )
    return subprocess.CompletedProcess(ran.args, ran.returncode, ran.stdout.decode(), ran.stderr.decode())


def told(*words: str, folder: Path, code: int = 0) -> Any:
    """The same with --json: what it said."""
    ran = snavio(*words, "--json", folder=folder)
    assert ran.returncode == code, (ran.stdout, ran.stderr)
    return orjson.loads(ran.stdout)


class Up:
    """A `snavio up --json` that runs."""

    def __init__(self, folder: Path, *words: str) -> None:
        self.folder = folder
        self._errors = (folder / "up.err").open("w+", encoding="utf-8")
        self.process = subprocess.Popen(
            [*SNAVIO, "up", "--json", *words],
            cwd=folder,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )

    def until(self, event: str, containing: str = "") -> dict[str, Any]:
        """Read what it says up to this event."""
        assert self.process.stdout is not None
        for text in self.process.stdout:
            heard: dict[str, Any] = orjson.loads(text)
            if heard.get("event") == event and containing in text:
                return heard
        self._errors.seek(0)
        raise AssertionError(f"it ended without {event!r}: {self._errors.read()}")

    def drain(self) -> None:
        """Read what it says from now on and keep none of it: a full pipe would hold it up after a minute or so."""
        assert self.process.stdout is not None
        threading.Thread(target=deque, args=(self.process.stdout, 0), daemon=True).start()

    def services(self) -> dict[str, int]:
        """Process ids of its services."""
        reading = told("status", folder=self.folder)
        return {service["name"]: service["pid"] for service in reading["services"]}

    def end(self, number: signal.Signals = signal.SIGINT) -> int:
        """Send a signal and wait for the end; the exit code."""
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_S)

    def close(self) -> None:
        """Leave nothing behind, whatever the test did."""
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        self.process.wait(PATIENCE_S)
        assert self.process.stdout is not None
        self.process.stdout.close()
        self._errors.close()


@contextlib.contextmanager
def running(folder: Path, *words: str) -> Iterator[Up]:
    """A mesh that is ready."""
    up = Up(folder, *words)
    try:
        up.until("ready")
        yield up
    finally:
        if up.process.poll() is None:
            up.end()
        up.close()


def alive(pid: int) -> bool:
    """True if a process still runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def children(pid: int) -> list[int]:
    """Processes that a process has started from its main thread."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def all_end(pids: dict[str, int], *, within_s: float = 20.0) -> bool:
    """Wait for processes that are not our children."""
    end = time.monotonic() + within_s
    while any(alive(pid) for pid in pids.values()):
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


class Terminal:
    """A command in a terminal of `columns`."""

    def __init__(self, *words: str, folder: Path, columns: int, rows: int = 40, **more: str) -> None:
        self.text = ""
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.process = subprocess.Popen(
            [*SNAVIO, *words],
            cwd=folder,
            env=environment(**more),
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            # Its own terminal, so that Ctrl-C reaches what a person's would.
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509
        )
        os.close(slave)

    def until(self, words: str) -> str:
        """Read until the screen has shown `words`; everything so far, without escape sequences."""
        end = time.monotonic() + PATIENCE_S
        while words not in plain(self.text):
            assert time.monotonic() < end, self.text
            if not select.select([self._master], [], [], 1.0)[0]:
                continue
            try:
                piece = os.read(self._master, 65536)
            except OSError:
                piece = b""
            if not piece:
                raise AssertionError(f"it ended without {words!r}: {self.text}")
            self.text += piece.decode("utf-8", "replace")
        return plain(self.text)

    def type(self, words: str) -> None:
        """As a person would."""
        os.write(self._master, words.encode())

    def press_ctrl_c(self) -> None:
        """As a person would."""
        os.write(self._master, b"\x03")

    def close(self) -> None:
        """End it, and let go of the terminal."""
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        self.process.wait(PATIENCE_S)
        os.close(self._master)


def plain(text: str) -> str:
    """Without escape sequences."""
    return _ESCAPES.sub("", text)
