"""Writes that touch both the directory and Signer, done to their end whatever becomes of the caller.

Never leaves Signer with what the directory did not take: a caller that goes away between the two would. Never does more
of it for one tenant than its share: its calls end when it goes away, and what they began at Signer, in Registry's name
and from the reserve of the mesh, does not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

import structlog

from snavio.errors import Saturated
from snavio.host.shares import Shares, default_share

T = TypeVar("T")

MOST: Final = 256
"""Writes at once; Signer does them one by one."""


class JointWrites:
    """Work that goes on when its caller is cancelled."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()
        self.shares = Shares("calls", default_share("calls", MOST))
        self._log = structlog.get_logger()

    async def whole(self, work: Coroutine[Any, Any, T], *, tenant: str) -> T:
        """Run `work` to its end and return its answer. Each of its steps has a deadline, so it ends.

        Saturated, with nothing begun, when too much is under way for the tenant or for all.
        """
        try:
            self.shares.take(tenant)
        except Saturated:
            work.close()
            raise
        task = asyncio.create_task(work, name="write of directory and Signer")
        self._tasks.add(task)
        task.add_done_callback(lambda ended: self._ended(ended, tenant))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            # Nobody else hears what becomes of it.
            task.add_done_callback(self._tell)
            raise

    async def finish(self, within_s: float) -> None:
        """Wait for writes under way, and cancel those that are not done by then."""
        if not self._tasks:
            return
        _, late = await asyncio.wait(set(self._tasks), timeout=within_s)
        for task in late:
            task.cancel()

    def _ended(self, task: asyncio.Task[Any], tenant: str) -> None:
        self._tasks.discard(task)
        self.shares.give_back(tenant)

    def _tell(self, task: asyncio.Task[Any]) -> None:
        if not task.cancelled() and (failure := task.exception()) is not None:
            self._log.warning("a write whose caller was gone has failed", message=str(failure))
