"""A service's own telemetry: native column blocks in memory, bounded, every event numbered.

Never waits and never grows: when full, the oldest block is dropped. Relay finds the loss by the gap in the numbers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import orjson

from snavio.native import telemetry_rows
from snavio.ports.journal_mark import JournalMark
from snavio.telemetry.dropped_events import DroppedEvents
from snavio.telemetry.events import Event
from snavio.v1.telemetry_pb2 import TelemetryBlock

MAX_BYTES: Final = 32 << 20
MAX_EVENTS: Final = 2_000_000


@dataclass(frozen=True, slots=True)
class Block:
    """One serialised TelemetryBlock with the numbers of its events."""

    first_seq: int
    last_seq: int
    columns: bytes


class Journal:
    """The events of one process that Relay does not have yet. Used on one thread."""

    def __init__(
        self,
        *,
        service: str = "",
        mark: JournalMark | None = None,
        on: bool = True,
        max_bytes: int = MAX_BYTES,
        max_events: int = MAX_EVENTS,
    ) -> None:
        self._service = service
        self._mark = mark
        self.on = on
        """False when telemetry is off; then events are not even made."""
        self._max_bytes = max_bytes
        self._max_events = max_events
        # Taken for Relay and not acknowledged yet; and those behind them.
        self._taken: deque[Block] = deque()
        self._ready: deque[Block] = deque()
        self._ready_bytes = 0
        self._bytes = 0
        self._events = 0
        self._last_seq = 0
        self._dropped = 0
        self._losses = DroppedEvents()
        self.full_enough: Callable[[int], None] = lambda _bytes: None
        """Called with the bytes not taken yet, after every append."""
        self.seen: Callable[[bytes], None] = lambda _columns: None
        """Called with every block of commands."""
        self.counted: Callable[[bytes], None] = lambda _columns: None
        """The same, to count them."""

    def append(self, columns: bytes) -> None:
        """Add a block; an empty one is ignored."""
        if columns and self.on:
            self.seen(columns)
            self.counted(columns)
            self._add(columns, telemetry_rows(columns))

    def record(self, event: Event, *, at_unix_ns: int, durable: bool = False) -> None:
        """Add a rare event; with `durable` it survives a crash and a power cut from now on.

        Unavailable or Saturated when it cannot be made durable; it is then not added.
        """
        if not self.on:
            return
        entry = TelemetryBlock.Event(
            at_unix_ns=at_unix_ns, name=event.name, fields=orjson.dumps(dict(event.fields()))
        )
        columns = TelemetryBlock(service=self._service, event=[entry]).SerializeToString()
        if durable and self._mark is not None:
            self._mark.keep(self._last_seq + 1, columns)
        self._add(columns, 1)

    def take(self, *, max_bytes: int, max_blocks: int = 10_000) -> list[Block]:
        """The next blocks, oldest first, with consecutive numbers: at least one, if there is one."""
        found: list[Block] = []
        size = 0
        while self._ready and len(found) < max_blocks:
            size += len(self._ready[0].columns)
            if found and size > max_bytes:
                break
            block = self._ready.popleft()
            self._ready_bytes -= len(block.columns)
            self._taken.append(block)
            found.append(block)
        return found

    def give_back(self) -> None:
        """Return blocks that were taken and not acknowledged; they are taken again."""
        while self._taken:
            block = self._taken.pop()
            self._ready.appendleft(block)
            self._ready_bytes += len(block.columns)

    def acknowledge(self, seq: int) -> None:
        """Relay has stored everything up to `seq`."""
        while (oldest := self._oldest()) is not None and oldest.last_seq <= seq:
            self._forget_oldest()

    @property
    def last_seq(self) -> int:
        """The number of the newest event; 0 before the first."""
        return self._last_seq

    @property
    def ready_bytes(self) -> int:
        """Bytes that are not taken yet."""
        return self._ready_bytes

    def tell_losses(self, *, now_unix_ns: int, received_unix_ns: int) -> None:
        """Add dropped counts as events of their own; not while there is little room, or they would drop others."""
        if self._losses and 2 * self._bytes < self._max_bytes and 2 * self._events < self._max_events:
            for event in self._losses.told(now_unix_ns=now_unix_ns, received_unix_ns=received_unix_ns):
                self.record(event, at_unix_ns=now_unix_ns)

    def counters(self) -> dict[str, int]:
        """Totals so far; dropped events were not acknowledged when they were dropped."""
        return {"rows": self._last_seq, "dropped_rows": self._dropped}

    def gauges(self) -> dict[str, float]:
        """Events and bytes that wait for Relay."""
        return {"waiting_bytes": float(self._bytes), "waiting_rows": float(self._events)}

    def _add(self, columns: bytes, events: int) -> None:
        first = self._last_seq + 1
        self._last_seq += events
        self._ready.append(Block(first, self._last_seq, columns))
        self._ready_bytes += len(columns)
        self._bytes += len(columns)
        self._events += events
        if self._mark is not None:
            self._mark.reached(self._last_seq)
        while self._bytes > self._max_bytes or self._events > self._max_events:
            oldest = self._oldest()
            assert oldest is not None
            self._losses.add(oldest.columns)
            self._dropped += self._forget_oldest()
        self.full_enough(self._ready_bytes)

    def _oldest(self) -> Block | None:
        return self._taken[0] if self._taken else self._ready[0] if self._ready else None

    def _forget_oldest(self) -> int:
        if self._taken:
            oldest = self._taken.popleft()
        else:
            oldest = self._ready.popleft()
            self._ready_bytes -= len(oldest.columns)
        events = oldest.last_seq - oldest.first_seq + 1
        self._bytes -= len(oldest.columns)
        self._events -= events
        return events
