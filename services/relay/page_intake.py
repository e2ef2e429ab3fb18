"""Takes journal pages in: many of them to one commit, each answered once it is durable.

Never answers before that, and never holds more than its bound: writers that are faster than the disk wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import structlog

from services.relay.gaps import Addition, Arrival, add
from services.relay.pending_pages import PendingPages
from services.relay.relay_events import SERVICE, RelayEvents
from snavio.clock import Clock
from snavio.errors import BadRequest, Conflict, Saturated
from snavio.host.background import background
from snavio.ports.outbox import JournalLife, Outbox
from snavio.telemetry.events import Event

MAX_PENDING_BYTES: Final = 32 << 20
FULL_PAUSE_S: Final = 0.5
KEEP_LIVES_NS: Final = 30 * 86_400 * 1_000_000_000
"""Far longer than a writer keeps pages of an earlier life, and longer than any pause between two pages."""
FORGET_NS: Final = 3600 * 1_000_000_000


@dataclass(slots=True)
class _Pending:
    arrival: Arrival
    size: int
    answer: asyncio.Future[int]


class PageIntake:
    """Lives on one event loop."""

    def __init__(self, *, outbox: Outbox, waiting: PendingPages, own: RelayEvents, clock: Clock) -> None:
        self._outbox = outbox
        self._waiting = waiting
        self._own = own
        self._clock = clock
        self._lives: dict[tuple[str, int], JournalLife] = {}
        self._pending: list[_Pending] = []
        self._pending_bytes = 0
        self._arrived = asyncio.Event()
        self._room = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._forgot_unix_ns = 0
        self._counts = dict.fromkeys(
            ("pages", "events", "commits", "gaps", "missed_events", "full", "lives_forgotten"), 0
        )
        self._log = structlog.get_logger()

    async def start(self) -> None:
        """Load what was received before, then commit until `stop`."""
        self._lives = {(life.instance, life.epoch): life for life in await self._outbox.lives()}
        before = [life for life in self._lives.values() if life.service == SERVICE and not life.closed]
        now = self._clock.unix_ns()
        closed = [replace(life, closed=True, heard_unix_ns=now) for life in before]
        if closed:
            # Relay numbers what it stores as it stores it, so an earlier life of it has no gap to tell.
            await self._outbox.store([], closed)
            self._lives |= {(life.instance, life.epoch): life for life in closed}
        await self._forget_lives()
        self._task = background().keep("intake", self._run)

    async def stop(self) -> None:
        """End; pages that were not committed are not answered, so their writers send them again."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        for pending in self._pending:
            pending.answer.cancel()

    def counters(self) -> dict[str, int]:
        """Counters of received and of missing events."""
        return dict(self._counts)

    def require_owner(self, instance: str, service: str) -> None:
        """Conflict when the journal of that name is another service's."""
        if instance == self._own.life.instance or any(
            life.service != service for life in self._lives.values() if life.instance == instance
        ):
            raise Conflict(f"{instance} is the journal of another service.", reason="instance-taken")

    async def record(self, events: Sequence[Event]) -> None:
        """Store events of Relay itself. Saturated when the outbox is full."""
        if not events:
            return
        async with self._own.stored_with(events) as (pages, lives):
            ids = await self._outbox.store(pages, lives)
            self._waiting.add(ids, pages, [SERVICE] * len(ids))

    async def take(self, arrival: Arrival) -> int:
        """Store what is new in `arrival`; the number up to which its life is durable."""
        size = sum(len(raw) for _, raw in arrival.blocks)
        while self._pending_bytes > MAX_PENDING_BYTES:
            self._room.clear()
            await self._room.wait()
        pending = _Pending(arrival, size, asyncio.get_running_loop().create_future())
        self._pending.append(pending)
        self._pending_bytes += size
        self._arrived.set()
        return await pending.answer

    async def _run(self) -> None:
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            batch, self._pending = self._pending, []
            try:
                await self._commit(batch)
                if self._clock.unix_ns() - self._forgot_unix_ns > FORGET_NS:
                    await self._forget_lives()
            except Exception as error:
                # One commit that fails must not end the others; the writers send it again.
                background().failed("intake", error)
                for pending in batch:
                    if not pending.answer.done():
                        pending.answer.set_exception(error)
            except BaseException:
                for pending in batch:
                    pending.answer.cancel()
                raise
            finally:
                self._pending_bytes -= sum(pending.size for pending in batch)
                self._room.set()

    async def _forget_lives(self) -> None:
        """Forget lives that ended long ago; runs on the committing task, which alone changes them."""
        now = self._forgot_unix_ns = self._clock.unix_ns()
        self._counts["lives_forgotten"] += await self._outbox.forget_lives(before_unix_ns=now - KEEP_LIVES_NS)
        self._lives = {(life.instance, life.epoch): life for life in await self._outbox.lives()}

    async def _commit(self, batch: list[_Pending]) -> None:
        total = Addition()
        lives = dict(self._lives)
        for pending in batch:
            try:
                addition = add(pending.arrival, lives, now_unix_ns=self._clock.unix_ns())
            except BadRequest as error:
                pending.answer.set_exception(error)
                continue
            lives |= addition.lives
            total.pages += addition.pages
            total.lives |= addition.lives
            total.gaps += addition.gaps
        if total.pages or total.lives:
            await self._store(total, lives)
        self._lives = lives
        for pending in batch:
            if not pending.answer.done():
                life = lives.get((pending.arrival.instance, pending.arrival.epoch))
                pending.answer.set_result(0 if life is None else life.durable_seq)

    async def _store(self, total: Addition, lives: dict[tuple[str, int], JournalLife]) -> None:
        services = [lives[page.instance, page.epoch].service for page in total.pages]
        gaps: list[Event] = list(total.gaps)
        while True:
            try:
                # Let go of between two attempts: an export, which makes room, has events of its own to store.
                async with self._own.stored_with(gaps) as (own_pages, own_lives):
                    pages = [*total.pages, *own_pages]
                    ids = await self._outbox.store(pages, [*total.lives.values(), *own_lives])
                    self._waiting.add(ids, pages, [*services, *(life.service for life in own_lives)])
                break
            except Saturated:
                # Writers keep their pages meanwhile, each within its bound.
                self._counts["full"] += 1
                await asyncio.sleep(FULL_PAUSE_S)
        self._counts["commits"] += 1
        self._counts["pages"] += len(total.pages)
        self._counts["events"] += sum(page.last_seq - page.first_seq + 1 for page in total.pages)
        self._counts["gaps"] += len(total.gaps)
        self._counts["missed_events"] += sum(gap.dropped_events or 0 for gap in total.gaps)
        for gap in total.gaps:
            self._log.warning(
                "events are missing", count=gap.dropped_events, reason=gap.reason, of=gap.detail
            )
