"""Ends a background task and waits for it.

Never mistakes the cancellation of the waiting task for that of the awaited one: `await task` raises the same exception
for both, and suppressing it would let a cancelled waiter go on.
"""

from __future__ import annotations

import asyncio
from typing import Any

import structlog

from snavio.tracebacks import trace_of


async def ended(task: asyncio.Task[Any] | None) -> None:
    """Cancel `task` and wait until it is over; its failure is logged, since no one else awaits it."""
    if task is None:
        return
    task.cancel()
    await asyncio.wait({task})
    if not task.cancelled() and (failure := task.exception()) is not None:
        structlog.get_logger().error("a task had failed", task=task.get_name(), stack=trace_of(failure))
