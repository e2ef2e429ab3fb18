"""Ends a task of the background and waits for it.

Never takes the cancellation of whoever waits for that of the task: `await task` raises the same exception for both, so
whoever suppresses it goes on after being told to end.
"""

from __future__ import annotations

import asyncio
from typing import Any

import structlog

from snavio.tracebacks import trace_of


async def ended(task: asyncio.Task[Any] | None) -> None:
    """Cancel `task` and wait until it is over; a failure that it ended with is logged, since nobody else will ask."""
    if task is None:
        return
    task.cancel()
    await asyncio.wait({task})
    if not task.cancelled() and (failure := task.exception()) is not None:
        structlog.get_logger().error("a task had failed", task=task.get_name(), stack=trace_of(failure))
