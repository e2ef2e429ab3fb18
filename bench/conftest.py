"""Fixtures of the benchmarks: one running mesh per module, and the report."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator

import pytest
import structlog
import uvloop

from bench.meters import touch_memory, write_report
from tests.support.mesh import DemoMesh, demo_mesh
from tests.support.reaper import watch_over

ROOMY: dict[str, dict[str, object]] = {
    "mesh": {"pull_interval_ms": 1000},
    "mailbox": {"max_topic_messages": 1_000_000_000, "max_replay_keys": 20_000_000},
}
"""Bounds wide enough for a long run's backlog."""


@pytest.fixture(scope="session", autouse=True)
def touched_memory() -> None:
    touch_memory()


@pytest.fixture(scope="session")
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as running:
        yield running


@pytest.fixture(scope="module")
def mesh(runner: asyncio.Runner, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DemoMesh]:
    """One mesh per module, with everything on."""
    context = demo_mesh(tmp_path_factory.mktemp("bench"), settings=ROOMY)
    running = runner.run(context.__aenter__())
    yield running
    runner.run(context.__aexit__(None, None, None))


def pytest_configure() -> None:
    watch_over()
    # Figures are printed, and must not be lost between log lines of services in this process.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))


def pytest_sessionfinish() -> None:
    write_report()
