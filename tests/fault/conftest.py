"""Faults tell a figure each; all of them stand together at the end of a run, whether or not output is shown."""

from __future__ import annotations

from collections.abc import Callable

import pytest

FIGURE = "figure"
Figure = Callable[[str], None]


@pytest.fixture
def figure(record_property: Callable[[str, object], None]) -> Figure:
    """Keeps one sentence; also where `--junit-xml` writes."""
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
