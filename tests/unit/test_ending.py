"""Ending a background task: both cancellations, and a failure that no caller awaited."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from snavio.tasks import ended


async def test_a_task_is_over_when_it_is_said_to_have_ended() -> None:
    unwound = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            unwound.append(True)

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    await ended(task)
    assert task.cancelled()
    assert unwound == [True]


async def test_whoever_is_cancelled_while_waiting_for_a_task_ends_too() -> None:
    release, past = asyncio.Event(), []

    async def stubborn() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await release.wait()

    async def stop(task: asyncio.Task[None]) -> None:
        await ended(task)
        past.append("went on")

    task = asyncio.create_task(stubborn())
    await asyncio.sleep(0)
    stopping = asyncio.create_task(stop(task))
    await asyncio.sleep(0)
    stopping.cancel()
    await asyncio.wait({stopping}, timeout=10)
    assert stopping.cancelled()
    assert past == []
    release.set()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_task_that_had_failed_is_told_and_keeps_nobody_from_ending() -> None:
    async def fail() -> None:
        raise RuntimeError("on its own")

    task = asyncio.create_task(fail(), name="chore")
    await asyncio.sleep(0)
    with capture_logs() as logs:
        await ended(task)
        await ended(None)
    assert [(line["event"], line["task"]) for line in logs] == [("a task had failed", "chore")]
