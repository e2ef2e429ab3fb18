"""A plugin of pytest that writes down the ids of failed tests, for `run_tests.py`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

_failed: list[str] = []


def pytest_runtest_logreport(report: Any) -> None:
    """Called for set-up, test and tear-down of each."""
    if report.failed and report.nodeid not in _failed:
        _failed.append(report.nodeid)


def pytest_sessionfinish() -> None:
    """At the end."""
    if _failed:
        Path(os.environ["SNAVIO_FAILURES"]).write_text("".join(f"{test}\n" for test in _failed), "utf-8")
