"""Fixtures for every folder: a running mesh, a certificate authority, a clock, figures; and a log that stays as it was.

A test file that asks for `mesh` or `control` may define `SETTINGS`, its settings by section, and `async def
furnish(mesh)`, which registers whatever the file needs beyond the demo tenant. Settings that are known only when
something else runs come from a fixture `mesh_settings` of the file.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio
import structlog

from snavio.clock import ManualClock
from tests.support.reaper import watch_over

# A run of unit tests does not pay for the imports of a mesh.
if TYPE_CHECKING:
    from tests.support.mesh import DemoMesh
    from tests.support.pki import Authority

FIGURE = "figure"
NO_CONTEXTS = "/nonexistent/snavio-tests"
Figure = Callable[[str], None]
MeshSections = dict[str, dict[str, object]]


def pytest_configure() -> None:
    """Processes that a test starts end with the run, also when it is killed; contexts of the person are not seen."""
    os.environ["SNAVIO_CONFIG_DIR"] = NO_CONTEXTS
    os.environ.pop("SNAVIO_CONTEXT", None)
    watch_over()


@contextmanager
def _logs_restored() -> Iterator[None]:
    before = structlog.get_config() if structlog.is_configured() else None
    yield
    if before is None:
        structlog.reset_defaults()
    else:
        structlog.configure(**before)


@pytest.fixture(autouse=True)
def logs_as_they_were() -> Iterator[None]:
    """Restore the logging setup: a CLI command that ran in this process would silence the log for later tests."""
    with _logs_restored():
        yield


@pytest.fixture(autouse=True, scope="module")
def logs_as_the_file_found_them() -> Iterator[None]:
    """The same after each file: a fixture of the file may run a command before its first test."""
    with _logs_restored():
        yield


@pytest.fixture
def figure(record_property: Callable[[str, object], None]) -> Figure:
    """Keeps one sentence for the end of the run; `--junit-xml` writes it too."""
    return lambda sentence: record_property(FIGURE, sentence)


@pytest.fixture(scope="module")
def mesh_settings(request: pytest.FixtureRequest) -> MeshSections | None:
    """The settings of the file's mesh."""
    return getattr(request.module, "SETTINGS", None)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def mesh(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    mesh_settings: MeshSections | None,
) -> AsyncIterator[DemoMesh]:
    """A mesh of real processes with the demo tenant, one for all tests of a file."""
    from tests.support.mesh import demo_mesh

    async with demo_mesh(tmp_path_factory.mktemp("mesh") / "mesh", settings=mesh_settings) as running:
        if (furnish := getattr(request.module, "furnish", None)) is not None:
            await furnish(running)
        yield running


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    """A CA for certificates of any identity."""
    from tests.support.pki import Authority

    return Authority(tmp_path)


@pytest.fixture
def clock() -> ManualClock:
    """A clock that stands still until the test moves it."""
    return ManualClock()


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
