"""Looks at the queue of every route on a schedule, judges it, and tells what changed.

Never holds more than a few looks per queue, never reads the directory anew while it has not changed, and never makes an
event per route of an outage that has them all.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import structlog

from snavio.clock import Clock
from snavio.domain.directory import DirectoryView, QueueKind, Route
from snavio.domain.route_health import LOOKS, QueueLook, RouteHealth, RouteStatus, judge
from snavio.ports.directory import Directory
from snavio.ports.queue_looks import QueueLooks
from snavio.telemetry.events import Event, RouteHealthChanged

PAGE: Final = 1000
TOLD_PER_TENANT: Final = 20
"""Events of one look, status and tenant; the rest of an outage is one event with their number."""
_QUIET: Final = (RouteStatus.HEALTHY, RouteStatus.UNKNOWN)

NOT_LOOKED_AT: Final = RouteHealth(RouteStatus.UNKNOWN)
QueueKey = tuple[QueueKind, str]


@dataclass(slots=True)
class WatchedQueue:
    """One queue with the routes that lead to it."""

    kind: QueueKind
    topic: str
    target: str
    names: tuple[str, ...]
    drain_s: int
    looks: deque[QueueLook] = field(default_factory=lambda: deque(maxlen=LOOKS))
    health: RouteHealth = NOT_LOOKED_AT
    since_unix_ns: int = 0

    @property
    def tenant(self) -> str:
        """The owner of the target."""
        return self.topic.partition("/")[0]


class RouteWatch:
    """Lives on one event loop; one look at a time."""

    def __init__(
        self,
        *,
        directory: Directory,
        looks: Mapping[QueueKind, QueueLooks],
        record: Callable[[Event, int], None],
        clock: Clock,
    ) -> None:
        self._directory = directory
        self._looks = looks
        self._record = record
        self._clock = clock
        self._version = -1
        self._queues: dict[QueueKey, WatchedQueue] = {}
        self._counts = {"looks": 0, "failed_looks": 0, "changes": 0}
        self._log = structlog.get_logger()

    async def look(self) -> None:
        """Look at every queue once."""
        await self._read_routes()
        changed: list[tuple[WatchedQueue, RouteStatus]] = []
        for kind, queues in self._by_kind().items():
            looker = self._looks.get(kind)
            now = self._clock.unix_ns()
            found = (
                await looker.look([each.topic for each in queues])
                if looker is not None
                else dict.fromkeys(
                    (each.topic for each in queues),
                    QueueLook(now, failure=f"this installation has set up no {kind.name.lower()}"),
                )
            )
            for queue in queues:
                was = queue.health.status
                if self._judged(queue, found[queue.topic]) and not {was, queue.health.status} <= set(_QUIET):
                    changed.append((queue, was))
        self._tell(changed)

    def of(
        self,
        *,
        tenant: str | None,
        target: str = "",
        unhealthy: bool = False,
        kind: QueueKind | None = None,
    ) -> list[WatchedQueue]:
        """Watched queues of a tenant, or of all, by topic."""
        found = [
            each
            for each in self._queues.values()
            if (tenant is None or each.tenant == tenant)
            and (not target or each.target == target)
            and (kind is None or each.kind is kind)
            and (not unhealthy or each.health.status not in _QUIET)
        ]
        return sorted(found, key=lambda each: (each.topic, each.kind))

    def gauges(self) -> dict[str, float]:
        """Number of queues by health."""
        counts = Counter(each.health.status for each in self._queues.values())
        return {f'route_queues{{health="{status}"}}': float(counts[status]) for status in RouteStatus}

    def counters(self) -> dict[str, int]:
        """Looks, those that failed, and changes of a queue's health."""
        return dict(self._counts)

    async def close(self) -> None:
        """Release connections."""
        for looker in self._looks.values():
            await looker.close()

    def _judged(self, queue: WatchedQueue, look: QueueLook) -> bool:
        """Judge a queue anew; True if its status changed."""
        queue.looks.append(look)
        self._counts["looks"] += 1
        self._counts["failed_looks"] += bool(look.failure)
        before = queue.health
        queue.health = judge(tuple(queue.looks), drain_s=queue.drain_s)
        if before.status is queue.health.status:
            return False
        queue.since_unix_ns = look.at_unix_ns
        self._counts["changes"] += 1
        return True

    def _tell(self, changed: Iterable[tuple[WatchedQueue, RouteStatus]]) -> None:
        groups: dict[tuple[str, RouteStatus], list[tuple[WatchedQueue, RouteStatus]]] = {}
        for queue, was in changed:
            groups.setdefault((queue.tenant, queue.health.status), []).append((queue, was))
        now = self._clock.unix_ns()
        for several in groups.values():
            for queue, was in several[:TOLD_PER_TENANT]:
                self._record(_event(queue, was), now)
            if rest := several[TOLD_PER_TENANT:]:
                queue, was = rest[0]
                self._record(_event(queue, was, count=len(rest)), now)

    def _by_kind(self) -> dict[QueueKind, list[WatchedQueue]]:
        found: dict[QueueKind, list[WatchedQueue]] = {}
        for queue in self._queues.values():
            found.setdefault(queue.kind, []).append(queue)
        return found

    async def _read_routes(self) -> None:
        version, _ = await self._directory.read(lambda _view: None)
        if version == self._version:
            return
        routes: list[Route] = []
        after: tuple[str, ...] = ()
        while True:
            version, page = await self._directory.read(_paged(after))
            routes += page
            if len(page) < PAGE:
                break
            after = page[-1].key
        grouped: dict[QueueKey, list[Route]] = {}
        for route in routes:
            grouped.setdefault((route.queue_kind, route.topic), []).append(route)
        queues: dict[QueueKey, WatchedQueue] = {}
        for key, several in grouped.items():
            queue = self._queues.get(key) or WatchedQueue(*key, several[0].target, (), 0)
            queue.names = tuple(sorted(route.name for route in several))
            # One queue serves all commands of its target: the most impatient of them sets the bound.
            queue.drain_s = min(route.expected_drain_seconds for route in several)
            queues[key] = queue
        self._queues, self._version = queues, version


def _paged(after: tuple[str, ...]) -> Callable[[DirectoryView], Sequence[Route]]:
    return lambda view: view.beginning(Route, limit=PAGE, after=after)


def _event(queue: WatchedQueue, was: RouteStatus, *, count: int = 1) -> RouteHealthChanged:
    more = f"; {count} queues of {queue.tenant}" if count > 1 else ""
    return RouteHealthChanged(
        tenant=queue.tenant,
        target=queue.target,
        topic=queue.topic,
        reason=queue.health.status.value,
        detail=f"before: {was.value}. {'; '.join(queue.health.evidence)}{more}"[:500],
        count=count,
    )
