"""Receives that wait for a topic's next message: each transition to ready wakes one of them, the longest waiting first.

Never loses a wake-up: a receive that was woken and ends without a look at the topic passes it on, and so does one that
left something behind. Never lets the waiting receives of one tenant keep out another's.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from types import TracebackType
from typing import Final, Self

from snavio.host.shares import Shares, default_share

MAX_WAITERS: Final = 4096
_Line = OrderedDict[asyncio.Future[bool], None]


def _time_is_over(future: asyncio.Future[bool]) -> None:
    if not future.done():
        future.set_result(False)


class Waiters:
    """The lines of all topics. Lives on one event loop."""

    def __init__(self, shares: Shares | None = None) -> None:
        self.shares = shares or Shares("waiters", default_share("waiters", MAX_WAITERS))
        self.woken = 0
        """Wake-ups since the start."""
        self._lines: dict[str, _Line] = {}

    def wake(self, topic: str) -> None:
        """Something may be ready: wake one."""
        line = self._lines.get(topic)
        while line:
            future, _ = line.popitem(last=False)
            if not future.done():
                future.set_result(True)
                self.woken += 1
                break
        if line is not None and not line:
            self._lines.pop(topic, None)

    def wake_all(self) -> None:
        """The mailbox stops."""
        while self._lines:
            self.wake(next(iter(self._lines)))

    def waiting(self, topic: str) -> int:
        """Receives that wait for this topic."""
        return len(self._lines.get(topic, ()))

    def place(self, topic: str) -> WaitingReceive:
        """A place for one receive, to be used with `with`; it counts from its first wait on."""
        return WaitingReceive(self, topic)

    def join(self, topic: str, future: asyncio.Future[bool], *, first: bool) -> None:
        """Stand in line; at its head after a look in vain."""
        line = self._lines.setdefault(topic, OrderedDict())
        line[future] = None
        if first:
            line.move_to_end(future, last=False)

    def leave(self, topic: str, future: asyncio.Future[bool]) -> None:
        """Stand there no longer."""
        line = self._lines.get(topic)
        if line is not None:
            line.pop(future, None)
            if not line:
                del self._lines[topic]


class WaitingReceive:
    """One receive's place in the line of its topic, over all its waits."""

    __slots__ = ("_holds", "_tenant", "_topic", "_waiters", "_woken")

    def __init__(self, waiters: Waiters, topic: str) -> None:
        self._waiters = waiters
        self._topic = topic
        self._tenant = topic.partition("/")[0]
        self._holds = False
        self._woken = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._holds:
            self._waiters.shares.give_back(self._tenant)
        if self._woken:
            # This waiter did not look at the topic: the messages that it was woken for are still there.
            self._waiters.wake(self._topic)

    def looked(self) -> None:
        """The topic was looked at since the last wake-up, up to this very step of the event loop."""
        self._woken = False

    async def wait(self, seconds: float) -> None:
        """Until woken or the time is over. Saturated when too many wait."""
        again = self._holds
        if not again:
            self._waiters.shares.take(self._tenant)
            self._holds = True
        loop = asyncio.get_running_loop()
        future: asyncio.Future[bool] = loop.create_future()
        timer = loop.call_later(seconds, _time_is_over, future)
        self._waiters.join(self._topic, future, first=again)
        try:
            await future
        finally:
            timer.cancel()
            self._waiters.leave(self._topic, future)
            # Also when cancelled in the same step: the wake-up has left the line already.
            self._woken = future.done() and not future.cancelled() and future.result()
