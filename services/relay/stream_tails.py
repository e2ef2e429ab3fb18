"""The newest envelopes of each stream in memory, so that readers who follow do not reach the disk.

Never holds more than its bounds, and never answers from memory what the store would refuse.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from snavio.domain.stream import OutsideReplayWindow, Position
from snavio.ports.tenant_streams import StreamEntry, StreamPart, TenantStreams

TENANT_BYTES: Final = 1 << 20
ALL_BYTES: Final = 64 << 20


@dataclass(slots=True)
class StreamTail:
    """Consecutive entries up to the end of a stream."""

    entries: deque[StreamEntry] = field(default_factory=deque)
    size: int = 0


class StreamTails:
    """Lives on one event loop."""

    def __init__(
        self, streams: TenantStreams, *, tenant_bytes: int = TENANT_BYTES, all_bytes: int = ALL_BYTES
    ) -> None:
        self._streams = streams
        self._tenant_bytes = tenant_bytes
        self._all_bytes = all_bytes
        # The tenant that was written to last is the last one.
        self._tails: OrderedDict[str, StreamTail] = OrderedDict()
        self._size = 0
        self._positions: dict[str, Position] = {}
        self._waiting: dict[str, set[asyncio.Future[None]]] = {}
        self._counts = {"from_memory": 0, "from_disk": 0}

    def appended(self, tenant: str, entries: Sequence[StreamEntry], position: Position) -> None:
        """Take what was appended just now; without entries the stream began anew."""
        before = self._positions.get(tenant)
        self._positions[tenant] = position
        if not entries or before is None or before.high + 1 != entries[0].seq:
            self._drop(tenant)
        tail = self._tails.setdefault(tenant, StreamTail())
        self._tails.move_to_end(tenant)
        for entry in entries:
            tail.entries.append(entry)
            tail.size += len(entry.body)
            self._size += len(entry.body)
        while tail.size > self._tenant_bytes:
            gone = len(tail.entries.popleft().body)
            tail.size -= gone
            self._size -= gone
        while self._size > self._all_bytes:
            self._drop(next(iter(self._tails)))
        for waiting in self._waiting.pop(tenant, ()):
            if not waiting.done():
                waiting.set_result(None)

    async def refresh(self) -> None:
        """Learn what was pruned."""
        for tenant in list(self._positions):
            known = self._positions[tenant]
            found = await self._streams.window(tenant)
            # Something may have been appended meanwhile, and its position is the newer one.
            if self._positions.get(tenant) == known:
                self._positions[tenant] = found

    async def position(self, tenant: str) -> Position:
        """The readable part of a stream."""
        known = self._positions.get(tenant)
        if known is None:
            found = await self._streams.window(tenant)
            known = self._positions.setdefault(tenant, found)
        return known

    async def after(
        self,
        tenant: str,
        seq: int,
        *,
        sources: frozenset[str],
        families: frozenset[str],
        limit: int,
        max_bytes: int,
    ) -> tuple[StreamPart, Position]:
        """Entries after a number, as the store's `read`, and the readable part at that moment."""
        position = await self.position(tenant)
        if seq < position.low:
            raise OutsideReplayWindow(position.low)
        if seq >= position.high:
            return StreamPart((), seq), position
        tail = self._tails.get(tenant)
        if tail is not None and tail.entries and tail.entries[0].seq <= seq + 1:
            self._counts["from_memory"] += 1
            chosen = _chosen(tail, seq, sources, families, limit=limit, max_bytes=max_bytes)
            return chosen, position
        self._counts["from_disk"] += 1
        part = await self._streams.read(
            tenant, after=seq, sources=sources, families=families, limit=limit, max_bytes=max_bytes
        )
        return part, position

    async def moved(self, tenant: str, seq: int, *, within_s: float) -> None:
        """Wait until the stream has something after `seq`, or begins anew, or the time is over."""
        position = self._positions.get(tenant)
        if position is not None and (position.high > seq or position.low > seq):
            return
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(tenant, set()).add(waiting)
        try:
            async with asyncio.timeout(within_s):
                await waiting
        except TimeoutError:
            return
        finally:
            waiters = self._waiting.get(tenant)
            if waiters is not None:
                waiters.discard(waiting)
                if not waiters:
                    del self._waiting[tenant]

    def wake(self) -> None:
        """Let everybody look again, as when the process ends."""
        for waiters in self._waiting.values():
            for waiting in waiters:
                if not waiting.done():
                    waiting.set_result(None)

    def counters(self) -> dict[str, int]:
        """Counters of reads, by memory and disk."""
        return dict(self._counts)

    def gauges(self) -> dict[str, float]:
        """Bytes in memory, and readers that wait."""
        readers = sum(len(waiters) for waiters in self._waiting.values())
        return {"bytes": float(self._size), "tenants": float(len(self._tails)), "waiting": float(readers)}

    def _drop(self, tenant: str) -> None:
        tail = self._tails.pop(tenant, None)
        if tail is not None:
            self._size -= tail.size


def _chosen(
    tail: StreamTail,
    seq: int,
    sources: frozenset[str],
    families: frozenset[str],
    *,
    limit: int,
    max_bytes: int,
) -> StreamPart:
    found: list[StreamEntry] = []
    size = 0
    # Numbers are consecutive, so the place of a number is known.
    for place in range(seq + 1 - tail.entries[0].seq, len(tail.entries)):
        entry = tail.entries[place]
        if (sources and entry.source not in sources) or (families and entry.family not in families):
            continue
        if found and (len(found) >= limit or size + len(entry.body) > max_bytes):
            return StreamPart(tuple(found), found[-1].seq)
        size += len(entry.body)
        found.append(entry)
    return StreamPart(tuple(found), tail.entries[-1].seq)
