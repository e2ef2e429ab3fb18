"""A send queue that is fair by tenant and, within a tenant, by source: the one served least is served next.

Start-time fair queueing on both levels. Bounded in bytes. Never lets a flood of one tenant, whatever number of sources
and connections it comes from, keep another's next batch waiting behind it; the same holds for sources of one tenant.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable

from snavio.errors import Saturated
from snavio.ports.queue import BatchPart

RETRY_AFTER_MS = 250


class _SourceQueue:
    """Waiting parts of one source; `start` is its turn on its tenant's scale of commands."""

    __slots__ = ("start", "waiting")

    def __init__(self, start: int) -> None:
        self.start = start
        self.waiting: deque[BatchPart] = deque()


class _Tenant:
    """The lines of one tenant's sources; `start` is its turn on the scale of all."""

    __slots__ = ("clock", "lines", "size", "start", "turns")

    def __init__(self, start: int) -> None:
        self.start = start
        self.clock = 0
        self.size = 0
        self.lines: dict[str, _SourceQueue] = {}
        self.turns: list[tuple[int, int, str]] = []


class TenantFairQueue:
    """See `snavio.hop.send_queue.Waiting`. `source_of` gives `<tenant>/<service>`."""

    def __init__(
        self, *, max_bytes: int, crowded_bytes: int, source_of: Callable[[BatchPart], str], what: str
    ) -> None:
        self.size = 0
        self.commands = 0
        self.max_bytes = max_bytes
        self.crowded_bytes = crowded_bytes
        self.max_held = crowded_bytes // 2
        self._source_of = source_of
        self._what = what
        # Whoever waits alone needs no turn: on a mesh that keeps up, that is nearly every batch.
        self._alone: BatchPart | None = None
        self._tenants: dict[str, _Tenant] = {}
        self._turns: list[tuple[int, int, str]] = []
        self._clock = 0
        self._number = 0

    def __bool__(self) -> bool:
        return self._alone is not None or bool(self._turns)

    def held(self, holder: str) -> int:
        """Bytes that a tenant has waiting; of a source, its tenant's."""
        tenant = holder.partition("/")[0]
        found = self._tenants.get(tenant)
        size = found.size if found is not None else 0
        alone = self._alone
        if alone is not None and self._source_of(alone).partition("/")[0] == tenant:
            size += len(alone.freight)
        return size

    def put(self, batch_part: BatchPart) -> None:
        """Join the source's own line; Saturated when there is no room at all."""
        size = self.size + len(batch_part.freight)
        if size > self.max_bytes:
            raise Saturated(f"{self._what}: too much is waiting.", retry_after_ms=RETRY_AFTER_MS)
        self.size = size
        self.commands += batch_part.count
        if self._alone is None and not self._turns:
            self._alone = batch_part
            return
        self._spread()
        self._enter(batch_part)

    def head(self) -> BatchPart:
        """Of the source served least of the tenant served least."""
        if self._alone is not None:
            return self._alone
        tenant = self._tenants[self._turns[0][2]]
        return tenant.lines[tenant.turns[0][2]].waiting[0]

    def take(self) -> BatchPart:
        """Of the source served least of the tenant served least."""
        taken = self._alone
        if taken is not None:
            self._alone = None
        else:
            start, _, name = heapq.heappop(self._turns)
            self._clock = start
            tenant = self._tenants[name]
            taken = self._take_of(tenant)
            if tenant.turns:
                tenant.start = start + taken.count
                heapq.heappush(self._turns, (tenant.start, self._next(), name))
            else:
                del self._tenants[name]
        self.size -= len(taken.freight)
        self.commands -= taken.count
        return taken

    def overdue(self, now_mono_ns: int) -> list[BatchPart]:
        """Everybody whose time is over."""
        alone = self._alone
        if alone is not None:
            if alone.deadline_mono_ns > now_mono_ns:
                return []
            return [self.take()]
        late: list[BatchPart] = []
        for name, tenant in list(self._tenants.items()):
            before = len(late)
            for source, line in list(tenant.lines.items()):
                gone = [each for each in line.waiting if each.deadline_mono_ns <= now_mono_ns]
                if not gone:
                    continue
                late += gone
                line.waiting = deque(each for each in line.waiting if each.deadline_mono_ns > now_mono_ns)
                if not line.waiting:
                    del tenant.lines[source]
            if len(late) == before:
                continue
            tenant.size -= sum(len(each.freight) for each in late[before:])
            tenant.turns = [turn for turn in tenant.turns if turn[2] in tenant.lines]
            heapq.heapify(tenant.turns)
            if not tenant.turns:
                del self._tenants[name]
        if late:
            self._turns = [turn for turn in self._turns if turn[2] in self._tenants]
            heapq.heapify(self._turns)
            self.size -= sum(len(each.freight) for each in late)
            self.commands -= sum(each.count for each in late)
        return late

    def _spread(self) -> None:
        alone, self._alone = self._alone, None
        if alone is not None:
            self._enter(alone)

    def _enter(self, batch_part: BatchPart) -> None:
        source = self._source_of(batch_part)
        name = source.partition("/")[0]
        tenant = self._tenants.get(name)
        if tenant is None:
            tenant = self._tenants[name] = _Tenant(self._clock)
            heapq.heappush(self._turns, (tenant.start, self._next(), name))
        line = tenant.lines.get(source)
        if line is None:
            line = tenant.lines[source] = _SourceQueue(tenant.clock)
            heapq.heappush(tenant.turns, (line.start, self._next(), source))
        line.waiting.append(batch_part)
        tenant.size += len(batch_part.freight)

    def _take_of(self, tenant: _Tenant) -> BatchPart:
        start, _, source = heapq.heappop(tenant.turns)
        tenant.clock = start
        line = tenant.lines[source]
        taken = line.waiting.popleft()
        tenant.size -= len(taken.freight)
        if line.waiting:
            line.start = start + taken.count
            heapq.heappush(tenant.turns, (line.start, self._next(), source))
        else:
            del tenant.lines[source]
        return taken

    def _next(self) -> int:
        self._number += 1
        return self._number
