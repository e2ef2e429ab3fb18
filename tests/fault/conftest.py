"""Figures of the fault tests, printed together at the end of a run, with or without captured output."""

from __future__ import annotations

from collections.abc import Callable

import pytest

FIGURE = "figure"
Figure = Callable[[str], None]


@pytest.fixture
def figure(record_property: Callable[[str, object], None]) -> Figure:
    """Keep one sentence; also in the file of `--junit-xml`."""
    return lambda sentence: record_property(FIGURE, sentence)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    told = [
        f"{report.nodeid.rpartition('/')[2].partition('::')[0]}: {value}"
        for reports in terminalreporter.stats.values()
        for report in reports
        if isinstance(report, pytest.TestReport) and report.when == "call"
        for name, value in report.user_properties
        if name == FIGURE
    ]
    if told:
        terminalreporter.section("what the faults cost")
        for line in told:
            terminalreporter.line(line)
