"""Runs every test; those that fail run once more, alone, and are named either way.

The suite starts whole meshes of processes, and a machine that is busy with something else can be too slow for one of
them. A test that fails twice fails; one that passes alone is told as such, so that nobody takes it for a steady one.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

MOST = 4
"""More failures than this are no accident of a busy machine: something is wrong that a second try would hide."""


def pytest(*arguments: str, failures: Path) -> int:
    """One run; the ids of what failed are in `failures` afterwards."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tools.failures", *arguments]
    return subprocess.run(
        command, env={**os.environ, "SNAVIO_FAILURES": str(failures)}, check=False
    ).returncode


def main() -> int:
    """The exit code of the last run."""
    with tempfile.TemporaryDirectory() as folder:
        first, second = Path(folder) / "first", Path(folder) / "second"
        code = pytest(*sys.argv[1:], failures=first)
        failed = first.read_text("utf-8").splitlines() if first.exists() else []
        if code != 1 or not 0 < len(failed) <= MOST:
            return code
        sys.stdout.write(f"\nfailed, now run again alone: {len(failed)}\n")
        again = pytest(*failed, failures=second)
        still = set(second.read_text("utf-8").splitlines()) if second.exists() else set()
        for test in failed:
            sys.stdout.write(f"  {'failed twice' if test in still else 'passed alone'}: {test}\n")
        return again


if __name__ == "__main__":
    sys.exit(main())
