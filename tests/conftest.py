"""Fixtures for every test: the state of the process is restored afterwards."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import structlog

from tests.support.reaper import watch_over


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
