"""Workers that want messages of one topic: they share the mailbox's calls, and those who wait share one.

Never leases for nobody: what comes for a worker that left goes to the next one, or back to the mailbox as unseen. Two
hundred idle workers cost the mailbox one waiting call.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from snavio.errors import SnavioError, Unavailable
from snavio.host.background import background
from snavio.native import Received

SLICE_SECONDS = 2.0
"""Of one waiting call: it is never cut off, because a response may be under way."""
MOST_MESSAGES: Final = 1000
CALLS_AT_ONCE: Final = 2


@dataclass(frozen=True, slots=True)
class HandedMessages:
    """Messages of one response."""

    boot_epoch: int
    messages: list[Received] = field(default_factory=list)


NOTHING: Final = HandedMessages(0)
Receive = Callable[[int, float], Awaitable[HandedMessages]]
"""Leases up to so many messages, waiting so many seconds for the first."""
GiveBack = Callable[[HandedMessages], None]


@dataclass(slots=True)
class _Wanting:
    batch: int
    answer: asyncio.Future[HandedMessages]


class TopicWaiters:
    """Of one topic and one duration of leases. Lives on one event loop."""

    def __init__(self, receive: Receive, give_back: GiveBack) -> None:
        self._receive = receive
        self._give_back = give_back
        self._asking: OrderedDict[int, _Wanting] = OrderedDict()
        """Those that want to know what is there now."""
        self._idle: OrderedDict[int, _Wanting] = OrderedDict()
        """Those that wait for what comes."""
        self._numbers = 0
        self._calls: set[asyncio.Task[None]] = set()
        self._waiter: asyncio.Task[None] | None = None

    @property
    def unused(self) -> bool:
        """Nobody wants anything, and nothing is under way."""
        return not (self._asking or self._idle or self._calls or self._waiter)

    async def take(self, batch: int, wait_s: float) -> HandedMessages:
        """Up to `batch` messages; nothing when the time is over. Raises what the mailbox answers."""
        found = await self._wait(self._asking, batch, None)
        if found.messages or wait_s <= 0:
            return found
        return await self._wait(self._idle, batch, wait_s)

    async def _wait(
        self, line: OrderedDict[int, _Wanting], batch: int, wait_s: float | None
    ) -> HandedMessages:
        self._numbers += 1
        number = self._numbers
        wanting = line[number] = _Wanting(batch, asyncio.get_running_loop().create_future())
        self._go()
        try:
            done, _ = await asyncio.wait((wanting.answer,), timeout=wait_s)
            return wanting.answer.result() if done else NOTHING
        except asyncio.CancelledError:
            # In the very step in which it was answered, perhaps: then it is another one's.
            if wanting.answer.done() and wanting.answer.exception() is None:
                self._hand_out(wanting.answer.result())
            raise
        finally:
            line.pop(number, None)
            if not wanting.answer.done():
                wanting.answer.cancel()

    def left(self, leased: HandedMessages) -> None:
        """A worker left before it was given these: they are the next one's, or go back."""
        self._hand_out(leased)

    def wake(self) -> None:
        """Answer everybody who waits with nothing: the gateway stops."""
        for wanting in list(self._idle.values()):
            if not wanting.answer.done():
                wanting.answer.set_result(NOTHING)

    async def close(self, within_s: float) -> None:
        """Wait for the calls under way; what they bring goes back."""
        self.wake()
        calls = {*self._calls, *((self._waiter,) if self._waiter else ())}
        if calls:
            _, late = await asyncio.wait(calls, timeout=within_s)
            for call in late:
                call.cancel()

    def _go(self) -> None:
        loop = asyncio.get_running_loop()
        if self._asking and len(self._calls) < CALLS_AT_ONCE:
            call = loop.create_task(self._ask_now(), name="pull")
            self._calls.add(call)
            call.add_done_callback(self._asked)
        if self._idle and self._waiter is None:
            self._waiter = loop.create_task(self._wait_for_all(), name="wait to pull")
            self._waiter.add_done_callback(self._waited)

    def _asked(self, call: asyncio.Task[None]) -> None:
        self._calls.discard(call)
        self._go()

    def _waited(self, _call: asyncio.Task[None]) -> None:
        self._waiter = None
        self._go()

    async def _ask_now(self) -> None:
        # Taken out of the line at once: a second call asks for others, and for nobody there is none, because the
        # mailbox takes "no messages" for "as many as you like".
        asking = list(self._asking.values())
        self._asking.clear()
        if not asking:
            return
        try:
            leased = await self._receive(_wanted(asking), 0.0)
        except Exception as error:
            _fail(asking, _told(error))
            return
        rest = _serve(asking, leased)
        if rest.messages:
            self._hand_out(rest)
        for one in asking:
            if not one.answer.done():
                one.answer.set_result(NOTHING)

    async def _wait_for_all(self) -> None:
        if not self._idle:
            return
        try:
            leased = await self._receive(_wanted(list(self._idle.values())), SLICE_SECONDS)
        except Exception as error:
            _fail(list(self._idle.values()), _told(error))
            return
        self._hand_out(leased)

    def _hand_out(self, leased: HandedMessages) -> None:
        rest = _serve(list(self._idle.values()), leased)
        if rest.messages:
            self._give_back(rest)


def _wanted(wanting: list[_Wanting]) -> int:
    return max(1, min(MOST_MESSAGES, sum(one.batch for one in wanting)))


def _serve(wanting: list[_Wanting], leased: HandedMessages) -> HandedMessages:
    """Answer those who still wait, the longest waiting first; what is left."""
    messages = leased.messages
    for one in wanting:
        if not messages:
            break
        if not one.answer.done():
            one.answer.set_result(HandedMessages(leased.boot_epoch, messages[: one.batch]))
            messages = messages[one.batch :]
    return HandedMessages(leased.boot_epoch, messages)


def _fail(wanting: list[_Wanting], error: SnavioError) -> None:
    for one in wanting:
        if not one.answer.done():
            one.answer.set_exception(error)
            one.answer.exception()  # its worker may be gone


def _told(error: Exception) -> SnavioError:
    """The refusal that workers hear; a fault of the program is logged here, for they all would wait for ever."""
    if isinstance(error, SnavioError):
        return error
    background().failed("pull", error)
    return Unavailable("The mailbox could not be asked.", reason="internal")
