"""A queue is judged by consecutive looks, and the judgement has its evidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from services.registry.health.route_watch import TOLD_PER_TENANT, RouteWatch
from snavio.clock import ManualClock
from snavio.domain.directory import QueueKind, Route
from snavio.domain.route_health import QueueLook, RouteStatus, judge
from snavio.telemetry.events import RouteHealthChanged

S = 1_000_000_000
DRAIN = 300
IDLE = QueueLook(0, settled_total=0, dead=0)


def looks(*changes: Mapping[str, Any]) -> list[QueueLook]:
    return [replace(IDLE, at_unix_ns=(100 + 15 * at) * S, **dict(each)) for at, each in enumerate(changes)]


def waiting(depth: int, **more: Any) -> dict[str, Any]:
    return {"depth": depth, "oldest_s": 400.0, **more}


@pytest.mark.parametrize(
    ("seen", "status", "words"),
    [
        ([], RouteStatus.UNKNOWN, ""),
        ([{}], RouteStatus.HEALTHY, ""),
        ([{}] * 9, RouteStatus.HEALTHY, ""),
        ([waiting(5)], RouteStatus.HEALTHY, ""),
        ([waiting(5, oldest_s=601.0)], RouteStatus.SLOW, "601 s; twice the expected 300 s"),
        ([waiting(5, oldest_s=599.0)], RouteStatus.HEALTHY, ""),
        ([waiting(5, oldest_s=700.0, oldest_estimated=True)], RouteStatus.SLOW, "estimated"),
        ([waiting(5)] * 4, RouteStatus.UNPOLLED, "nobody received any in 45 s"),
        ([waiting(5)] * 3, RouteStatus.HEALTHY, ""),
        ([waiting(5, oldest_s=299.0)] * 4, RouteStatus.HEALTHY, ""),
        # Somebody settles, works under a lease, or the queue was empty between.
        ([waiting(5, settled_total=at) for at in range(4)], RouteStatus.HEALTHY, ""),
        ([waiting(5, inflight=1)] * 4, RouteStatus.HEALTHY, ""),
        ([waiting(5), waiting(5), {}, waiting(5)], RouteStatus.HEALTHY, ""),
        (
            [waiting(5, last_received_unix_ns=50 * S, last_receiver="acme/bot")] * 4,
            RouteStatus.STALLED,
            "acme/bot last received 95 s ago",
        ),
        (
            [
                waiting(5, last_received_unix_ns=(100 + 15 * at) * S, last_receiver="acme/bot")
                for at in range(4)
            ],
            RouteStatus.STALLED,
            "acme/bot receives, and nothing was settled in 45 s",
        ),
        (
            [waiting(10 * at, settled_total=at) for at in range(1, 5)],
            RouteStatus.GROWING,
            "depth 10 → 20 → 30 → 40",
        ),
        ([waiting(at, settled_total=at) for at in range(1, 5)], RouteStatus.HEALTHY, ""),
        ([{"dead": at} for at in range(4)], RouteStatus.GROWING, "dead letters 0 → 1 → 2 → 3"),
        ([{"dead": 3}] * 4, RouteStatus.HEALTHY, ""),
        ([{}, {"failure": "away"}], RouteStatus.HEALTHY, ""),
        ([{}, {"failure": "away"}, {"failure": "away"}], RouteStatus.UNREACHABLE, "away"),
        ([{}, {"failure": "gone", "certain": True}], RouteStatus.UNREACHABLE, "gone"),
        ([{"failure": "away"}], RouteStatus.UNKNOWN, ""),
        ([{"failure": "away"}, {"failure": "away"}, {}], RouteStatus.HEALTHY, ""),
        # SQS counts neither what is settled nor who receives.
        ([waiting(5, settled_total=None)] * 4, RouteStatus.UNPOLLED, "nobody"),
        ([waiting(5 - at, settled_total=None) for at in range(4)], RouteStatus.HEALTHY, ""),
        ([waiting(5, settled_total=None, inflight=1)] * 4, RouteStatus.HEALTHY, ""),
    ],
)
def test_a_queue_is_what_its_looks_say(
    seen: Sequence[Mapping[str, Any]], status: RouteStatus, words: str
) -> None:
    found = judge(looks(*seen), drain_s=DRAIN)
    assert found.status is status, found
    assert words in "; ".join(found.evidence)


def test_the_worst_is_told_first_and_all_of_it() -> None:
    found = judge(looks(*[waiting(10 * at, oldest_s=900.0) for at in range(1, 5)]), drain_s=DRAIN)
    assert found.status is RouteStatus.UNPOLLED
    assert len(found.evidence) == 3


class Directory:
    """Routes that a test changes."""

    def __init__(self) -> None:
        self.version = 1
        self.routes: list[Route] = []
        self.reads = 0

    async def read(self, question: Any) -> tuple[int, Any]:
        return self.version, question(self)

    def beginning(self, _kind: type[Route], *, limit: int, after: tuple[str, ...] = ()) -> list[Route]:
        self.reads += 1
        return sorted((each for each in self.routes if each.key > after), key=lambda each: each.key)[:limit]


class Looks:
    """A queue kind of which a test says everything."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.told: dict[str, dict[str, Any]] = {}
        self.away = False
        self.asked: list[int] = []

    async def look(self, topics: Sequence[str]) -> dict[str, QueueLook]:
        self.asked.append(len(topics))
        now = self.clock.unix_ns()
        if self.away:
            return {topic: QueueLook(now, failure="away") for topic in topics}
        return {topic: replace(IDLE, at_unix_ns=now, **self.told.get(topic, {})) for topic in topics}

    async def close(self) -> None:
        pass


class Table:
    """A watch over a directory and a queue kind, with what it told."""

    def __init__(self, targets: int = 1, tenant: str = "acme") -> None:
        self.clock = ManualClock()
        self.directory, self.looks = Directory(), Looks(self.clock)
        self.events: list[RouteHealthChanged] = []
        self.directory.routes = [Route(f"bot-{at:05}", "say").addressed_to(tenant) for at in range(targets)]
        self.watch = RouteWatch(
            directory=self.directory,  # type: ignore[arg-type]
            looks={QueueKind.MAILBOX: self.looks},
            record=lambda event, _at: self.events.append(event),  # type: ignore[arg-type]
            clock=self.clock,
        )

    async def look(self, times: int = 1) -> None:
        for _ in range(times):
            self.clock.advance(seconds=15)
            await self.watch.look()


async def test_a_change_of_health_is_one_event_and_health_is_told_too() -> None:
    table = Table()
    await table.look(5)
    assert table.events == []
    table.looks.told["acme/bot-00000"] = {"depth": 3, "oldest_s": 305.0}
    await table.look(8)
    (event,) = table.events
    assert (event.tenant, event.target, event.reason) == ("acme", "bot-00000", "unpolled")
    assert "nobody received any" in event.detail and "before: healthy" in event.detail
    table.looks.told.clear()
    await table.look(2)
    assert [each.reason for each in table.events] == ["unpolled", "healthy"]


async def test_an_outage_of_everything_is_few_events_and_a_short_one_is_none() -> None:
    table = Table(targets=1000)
    await table.look(2)
    table.looks.away = True
    await table.look()
    table.looks.away = False
    await table.look()
    assert table.events == [], "a restart of the mailbox is no outage"
    table.looks.away = True
    await table.look(4)
    assert len(table.events) == TOLD_PER_TENANT + 1
    assert sum(event.count for event in table.events) == 1000
    assert table.watch.gauges()['route_queues{health="unreachable"}'] == 1000


async def test_routes_of_one_target_are_one_look_and_the_directory_is_read_when_it_changes() -> None:
    table = Table()
    first = table.directory.routes[0]
    table.directory.routes.append(replace(first, name="hum", expected_drain_seconds=5))
    await table.look(3)
    assert (table.looks.asked, table.directory.reads) == ([1, 1, 1], 1)
    table.looks.told[first.topic] = {"depth": 1, "oldest_s": 11.0, "settled_total": 1}
    await table.look()
    (queue,) = table.watch.of(tenant="acme")
    assert (queue.names, queue.drain_s, queue.health.status) == (("hum", "say"), 5, RouteStatus.SLOW)
    assert table.watch.of(tenant="globex") == [] and table.watch.of(tenant=None, unhealthy=True) == [queue]
    table.directory.routes, table.directory.version = [], 2
    await table.look()
    assert table.watch.of(tenant=None) == []


async def test_a_route_whose_kind_is_not_set_up_is_unreachable() -> None:
    table = Table()
    table.directory.routes = [replace(table.directory.routes[0], queue_kind=QueueKind.SQS)]
    await table.look(2)
    (queue,) = table.watch.of(tenant="acme")
    assert queue.health.status is RouteStatus.UNREACHABLE and "no sqs" in queue.health.evidence[0]
