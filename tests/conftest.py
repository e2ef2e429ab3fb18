"""What every test leaves as it found it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import structlog

from tests.support.reaper import watch_over


def pytest_configure() -> None:
    """Whatever a test starts ends with the run, also when that is killed."""
    watch_over()


@pytest.fixture(autouse=True)
def logs_as_they_were() -> Iterator[None]:
    """A command of the CLI that ran in this process would quiet the log for good, and hide lines from later tests."""
    before = structlog.get_config() if structlog.is_configured() else None
    yield
    if before is None:
        structlog.reset_defaults()
    else:
        structlog.configure(**before)
