"""A send queue that is fair by tenant and, within a tenant, by source: the one served least is served next.

Start-time fair queueing on both levels, counted in commands. Bounded in bytes and, where asked for, per tenant and per
source: one whose share is full is refused while the others are not. Never lets a flood of one tenant, whatever number
of sources and connections it comes from, keep another's next batch waiting behind it; the same holds for sources of one
tenant.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Container

from snavio.errors import Saturated
from snavio.ports.queue import BatchPart

RETRY_AFTER_MS = 250
# Turns after which those who have nothing waiting are forgotten. Forgiving them their last part is cheaper than
# remembering everybody who ever came.
REMEMBERED_TURNS = 4096


class _Turns:
    """Turns between names on one scale of commands: a name's next turn starts where its last one ended."""

    __slots__ = ("_clock", "_ends", "_heap", "_number")

    def __init__(self) -> None:
        self._clock = 0
        self._number = 0
        self._heap: list[tuple[int, int, str]] = []
        # Kept for names with nothing waiting, too: one that always comes with a single large part would otherwise
        # start at the clock each time, and be served as often as another that brings small ones.
        self._ends: dict[str, int] = {}

    def __bool__(self) -> bool:
        return bool(self._heap)

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def remembered(self) -> int:
        """Names whose last turn is known."""
        return len(self._ends)

    def enter(self, name: str) -> None:
        """Give `name` a turn."""
        self._push(max(self._clock, self._ends.get(name, 0)), name)

    def next(self) -> str:
        """The name whose turn it is."""
        return self._heap[0][2]

    def served(self, count: int, *, again: bool) -> None:
        """End the turn of `next` after so many commands, and give it another one."""
        start, _, name = heapq.heappop(self._heap)
        self._clock = start
        self._ends[name] = start + count
        if again:
            self._push(start + count, name)

    def keep(self, names: Container[str]) -> None:
        """Take the turns of all others away."""
        self._heap = [turn for turn in self._heap if turn[2] in names]
        heapq.heapify(self._heap)

    def _push(self, start: int, name: str) -> None:
        self._number += 1
        heapq.heappush(self._heap, (start, self._number, name))
        if self._number % REMEMBERED_TURNS == 0:
            self._ends = {name: self._ends[name] for _, _, name in self._heap if name in self._ends}


class _Source:
    """Waiting parts of one source."""

    __slots__ = ("commands", "parts", "size")

    def __init__(self) -> None:
        self.parts: deque[BatchPart] = deque()
        self.size = 0
        self.commands = 0

    def count(self, batch_part: BatchPart, sign: int) -> None:
        self.size += sign * len(batch_part.buffer)
        self.commands += sign * batch_part.count


class _Tenant:
    """Sources of one tenant that have parts waiting."""

    __slots__ = ("size", "sources", "turns")

    def __init__(self) -> None:
        self.size = 0
        self.sources: dict[str, _Source] = {}
        self.turns = _Turns()


class FairSendQueue:
    """A `SendQueue`; a holder of room is a tenant. Without bounds for a source, its tenant's and the whole hold."""

    def __init__(
        self,
        *,
        max_bytes: int,
        what: str,
        crowded_bytes: int | None = None,
        max_tenant_bytes: int | None = None,
        max_source_bytes: int | None = None,
        max_source_commands: int | None = None,
    ) -> None:
        self.size = 0
        self.commands = 0
        self.max_bytes = max_bytes
        self.crowded_bytes = max_bytes // 2 if crowded_bytes is None else crowded_bytes
        self.max_held = self.crowded_bytes // 2
        self.refused = 0
        """Commands that were refused because the queue, or their tenant's or source's share of it, was full."""
        self._max_tenant_bytes = max_bytes if max_tenant_bytes is None else max_tenant_bytes
        self._max_source_bytes = max_bytes if max_source_bytes is None else max_source_bytes
        self._max_source_commands = max_source_commands
        self._what = what
        # A part that waits alone needs no turn: on a mesh that keeps up, that is nearly every batch.
        self._alone: BatchPart | None = None
        self._tenants: dict[str, _Tenant] = {}
        self._turns = _Turns()

    def __bool__(self) -> bool:
        return self._alone is not None or bool(self._turns)

    @property
    def sources(self) -> int:
        """Sources that have parts waiting."""
        return (self._alone is not None) + sum(len(tenant.turns) for tenant in self._tenants.values())

    def held(self, holder: str) -> int:
        """Bytes that a tenant has waiting; of a source, its tenant's."""
        name = _tenant_of(holder)
        tenant = self._tenants.get(name)
        size = tenant.size if tenant is not None else 0
        alone = self._alone
        if alone is not None and _tenant_of(alone.source) == name:
            size += len(alone.buffer)
        return size

    def put(self, batch_part: BatchPart) -> None:
        """Append to the source's own queue; Saturated when that, its tenant's share, or everything is full."""
        size = self.size + len(batch_part.buffer)
        if size > self.max_bytes:
            raise self._saturated(batch_part, f"{self.size} of {self.max_bytes} bytes of all tenants")
        if self._alone is None and not self._turns:
            self._alone = batch_part
        else:
            alone, self._alone = self._alone, None
            if alone is not None:
                self._enter(alone)
            self._enter(batch_part)
        self.size = size
        self.commands += batch_part.count

    def head(self) -> BatchPart:
        """The first part of the source served least of the tenant served least."""
        if self._alone is not None:
            return self._alone
        tenant = self._tenants[self._turns.next()]
        return tenant.sources[tenant.turns.next()].parts[0]

    def take(self) -> BatchPart:
        """Remove and return the head."""
        taken = self._alone
        if taken is not None:
            self._alone = None
        else:
            name = self._turns.next()
            tenant = self._tenants[name]
            taken = self._take_of(tenant)
            if not tenant.turns:
                del self._tenants[name]
            self._turns.served(taken.count, again=bool(tenant.turns))
            self._rest()
        self.size -= len(taken.buffer)
        self.commands -= taken.count
        return taken

    def overdue(self, now_mono_ns: int) -> list[BatchPart]:
        """Remove and return every part whose deadline has passed; the others keep their turns."""
        alone = self._alone
        if alone is not None:
            return [] if alone.deadline_mono_ns > now_mono_ns else [self.take()]
        late: list[BatchPart] = []
        for name, tenant in list(self._tenants.items()):
            gone = _overdue_of(tenant, now_mono_ns)
            late += gone
            if gone and not tenant.turns:
                del self._tenants[name]
        if late:
            self._turns.keep(self._tenants)
            self.size -= sum(len(each.buffer) for each in late)
            self.commands -= sum(each.count for each in late)
            self._rest()
        return late

    def _enter(self, batch_part: BatchPart) -> None:
        source_name = batch_part.source
        name = _tenant_of(source_name)
        tenant = self._tenants.get(name)
        source = None if tenant is None else tenant.sources.get(source_name)
        # A first one always fits: a share that is smaller than one batch would refuse its owner for ever.
        if tenant is not None and tenant.size + len(batch_part.buffer) > self._max_tenant_bytes:
            full = f"{tenant.size} of {self._max_tenant_bytes} bytes of tenant {name or 'mesh'}"
            raise self._saturated(batch_part, full)
        if source is not None and self._over(source, batch_part):
            raise self._saturated(batch_part, f"the share of the source {source_name}")
        if tenant is None:
            tenant = self._tenants[name] = _Tenant()
            self._turns.enter(name)
        if source is None:
            source = tenant.sources[source_name] = _Source()
            tenant.turns.enter(source_name)
        source.parts.append(batch_part)
        source.count(batch_part, +1)
        tenant.size += len(batch_part.buffer)

    def _over(self, source: _Source, batch_part: BatchPart) -> bool:
        if source.size + len(batch_part.buffer) > self._max_source_bytes:
            return True
        most = self._max_source_commands
        return most is not None and source.commands + batch_part.count > most

    def _take_of(self, tenant: _Tenant) -> BatchPart:
        name = tenant.turns.next()
        source = tenant.sources[name]
        taken = source.parts.popleft()
        source.count(taken, -1)
        tenant.size -= len(taken.buffer)
        if not source.parts:
            del tenant.sources[name]
        tenant.turns.served(taken.count, again=bool(source.parts))
        return taken

    def _rest(self) -> None:
        if not self._turns:
            # Nothing waits, so nobody can have been served too much.
            self._turns = _Turns()

    def _saturated(self, batch_part: BatchPart, full: str) -> Saturated:
        self.refused += batch_part.count
        return Saturated(f"{self._what}: too much is waiting, {full}.", retry_after_ms=RETRY_AFTER_MS)


def _overdue_of(tenant: _Tenant, now_mono_ns: int) -> list[BatchPart]:
    late: list[BatchPart] = []
    for name, source in list(tenant.sources.items()):
        gone = [each for each in source.parts if each.deadline_mono_ns <= now_mono_ns]
        if not gone:
            continue
        late += gone
        source.parts = deque(each for each in source.parts if each.deadline_mono_ns > now_mono_ns)
        for each in gone:
            source.count(each, -1)
        if not source.parts:
            del tenant.sources[name]
    if late:
        tenant.size -= sum(len(each.buffer) for each in late)
        tenant.turns.keep(tenant.sources)
    return late


def _tenant_of(source: str) -> str:
    return source.partition("/")[0]
