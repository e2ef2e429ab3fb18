"""Fixtures for every test: the state of the process is restored afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import structlog

from tests.support.reaper import watch_over

FIGURE = "figure"
Figure = Callable[[str], None]


def pytest_configure() -> None:
    """Processes that a test starts end with the run, also when the run is killed."""
    watch_over()


@pytest.fixture(autouse=True)
def logs_as_they_were() -> Iterator[None]:
    """Restore the logging setup: a CLI command that ran in this process would silence the log for later tests."""
    before = structlog.get_config() if structlog.is_configured() else None
    yield
    if before is None:
        structlog.reset_defaults()
    else:
        structlog.configure(**before)


@pytest.fixture
def figure(record_property: Callable[[str, object], None]) -> Figure:
    """Keeps one sentence for the end of the run; `--junit-xml` writes it too."""
    return lambda sentence: record_property(FIGURE, sentence)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """All figures together, shown or not shown before."""
    told = [
        f"{report.nodeid.rpartition('/')[2].partition('::')[0]}: {value}"
        for reports in terminalreporter.stats.values()
        for report in reports
        if isinstance(report, pytest.TestReport) and report.when == "call"
        for name, value in report.user_properties
        if name == FIGURE
    ]
    if told:
        terminalreporter.section("figures of the tests")
        for line in told:
            terminalreporter.line(line)
