"""Every `Directory` there is, for tests of what all promise; a test file names these fixtures to have them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from snavio.adapters.embedded.sqlite_directory import SqliteDirectory
from snavio.clock import ManualClock
from snavio.ports.directory import Directory
from tests.support.memory_directory import MemoryDirectory

ACTOR = "spiffe://snavio.local/operator/admin"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Path of the one that is on disk."""
    return tmp_path / "registry" / "directory.db"


@pytest.fixture(params=["sqlite", "memory"])
async def directory(
    request: pytest.FixtureRequest, path: Path, clock: ManualClock
) -> AsyncIterator[Directory]:
    opened: Directory = (
        await SqliteDirectory.open(path, clock=clock)
        if request.param == "sqlite"
        else MemoryDirectory(clock=clock)
    )
    yield opened
    await opened.close()
