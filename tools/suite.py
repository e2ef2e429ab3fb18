"""A plugin of pytest for the whole suite: what runs first, what runs together, and a record of how each test ended.

Never drops a test: order and grouping are all that it changes.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any, Final

import pytest
from xdist.scheduler import LoadScopeScheduling

RECORD: Final = "SNAVIO_TEST_RECORD"
FOLDERS: Final = (
    "unit",
    "spark",
    "conformance",
    "containers",
    "fault",
    "journey",
    "integration",
    "security",
    "contract",
)
"""Quick ones first, so that a mistake shows early; then those with the longest files, so that no worker is left
with one of them while the others have nothing to do."""
TOGETHER: Final = ("tests/spark/",)
"""Folders that share what only one worker should start: one Spark session."""


def scope(nodeid: str) -> str:
    """Tests with the same scope run in one worker, one after the other: a file, or a folder of `TOGETHER`."""
    return next((folder for folder in TOGETHER if nodeid.startswith(folder)), nodeid.partition("::")[0])


def rank(nodeid: str) -> int:
    """Position of a test's folder in the order; folders without a place come last."""
    folder = nodeid.split("/")[1] if nodeid.count("/") > 1 else ""
    return FOLDERS.index(folder) if folder in FOLDERS else len(FOLDERS)


class ByScope(LoadScopeScheduling):  # type: ignore[misc] # xdist has no types
    """Hands one scope after the other to whichever worker is free."""

    def _split_scope(self, nodeid: str) -> str:
        return scope(nodeid)


class Record:
    """Outcomes of one run, by test; a test that fails in any phase has failed."""

    def __init__(self) -> None:
        self.outcomes: dict[str, str] = {}
        self.spans: dict[str, tuple[float, float]] = {}

    def add(self, report: Any) -> None:
        """Called for set-up, test and tear-down of each."""
        test = report.nodeid
        start, stop = getattr(report, "start", 0.0), getattr(report, "stop", 0.0)
        begun, ended = self.spans.get(test, (start, stop))
        self.spans[test] = (min(begun, start), max(ended, stop))
        if report.failed:
            self.outcomes[test] = "failed"
        elif report.skipped:
            self.outcomes.setdefault(test, "xfailed" if hasattr(report, "wasxfail") else "skipped")
        elif report.when == "call":
            self.outcomes.setdefault(test, "passed")

    def told(self) -> dict[str, Any]:
        """For a file."""
        failed = {test: self.spans[test] for test, how in self.outcomes.items() if how == "failed"}
        return {"counts": dict(Counter(self.outcomes.values())), "failed": failed}


_record = Record()


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByScope:
    """Only in the process that hands out the tests."""
    config.option.loadscopereorder = False
    return ByScope(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Stable: within a folder the order stays."""
    items.sort(key=lambda item: rank(item.nodeid))


class Telling:
    """Names a failure when it happens, not only at the end of the run."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: Any) -> None:
        """After the letter that pytest shows for it."""
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        if report.failed and terminal is not None:
            terminal.write_line(f"\nfailed: {report.nodeid} ({report.when})")


def pytest_configure(config: pytest.Config) -> None:
    """Only in the process with a terminal: workers report to the process that started them."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Telling(config))


def pytest_runtest_logreport(report: Any) -> None:
    """In a worker too, where the record is not asked for."""
    _record.add(report)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Written once, by the process that has heard of all."""
    if not hasattr(session.config, "workerinput") and RECORD in os.environ:
        Path(os.environ[RECORD]).write_text(json.dumps(_record.told()), "utf-8")
