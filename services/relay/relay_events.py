"""Relay's own events, numbered as those of other services and stored in the same step as their cause.

Never uses a number that was not stored: a step that fails gives its numbers back, so that Relay itself has no gaps.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final

import orjson

from snavio.clock import Clock
from snavio.ports.outbox import JournalLife, NewPage
from snavio.telemetry.events import Event
from snavio.v1.relay_pb2 import JournalPage
from snavio.v1.telemetry_pb2 import TelemetryBlock

SERVICE: Final = "relay"
Store = Callable[[Sequence[NewPage], Sequence[JournalLife]], Awaitable[None]]


class RelayEvents:
    """The journal of one life of Relay."""

    def __init__(self, *, instance: str, epoch: int, clock: Clock) -> None:
        self._clock = clock
        self._turn = asyncio.Lock()
        self.life = JournalLife(instance, epoch, SERVICE, 0)

    @asynccontextmanager
    async def stored_with(
        self, events: Sequence[Event]
    ) -> AsyncIterator[tuple[list[NewPage], list[JournalLife]]]:
        """Pages and lives to store for `events` within the block; their numbers are taken if it ends without error."""
        async with self._turn:
            if not events:
                yield [], []
                return
            now = self._clock.unix_ns()
            entries = [
                TelemetryBlock.Event(
                    at_unix_ns=now, name=event.name, fields=orjson.dumps(dict(event.fields()))
                )
                for event in events
            ]
            body = JournalPage(block=[TelemetryBlock(service=SERVICE, event=entries)]).SerializeToString()
            first, last = self.life.durable_seq + 1, self.life.durable_seq + len(events)
            life = JournalLife(self.life.instance, self.life.epoch, SERVICE, last, heard_unix_ns=now)
            yield [NewPage(life.instance, life.epoch, first, last, now, body)], [life]
            self.life = life
