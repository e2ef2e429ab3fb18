"""The way of envelopes into their tenant's queue: in order, under their ids, and none is lost without a word."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from services.relay.queueing import QueueFeed
from services.relay.stream_tails import StreamTails
from services.relay.undelivered import MOST_OF_A_TENANT, Undelivered
from snavio.clock import ManualClock
from snavio.domain.verdict import Verdict
from snavio.errors import BadRequest, SnavioError, Unavailable
from snavio.ports.archive import Archive
from snavio.ports.tenant_streams import StreamEntry, TenantStreams
from snavio.telemetry.events import Event
from snavio.v1.mailbox_pb2 import SendRequest, SendResponse
from snavio.wiring import open_archive, open_tenant_streams

NOW = 1_794_794_400_000_000_000


class Queues:
    """A mailbox that refuses what a test tells it to."""

    def __init__(self) -> None:
        self.stored: dict[str, list[str]] = {}
        self.poison: dict[str, Verdict | SnavioError] = {}
        self.full: set[str] = set()
        self.away = False

    async def call(
        self, _method: str, request: SendRequest, _answer: Any, *, timeout_s: float
    ) -> SendResponse:
        assert timeout_s > 0
        if self.away:
            raise Unavailable("away")
        found = [self.poison.get(one.idem_key) for one in request.message]
        for fault in found:
            if isinstance(fault, SnavioError):
                raise fault
        topic = self.stored.setdefault(request.topic, [])
        codes = []
        for one, fault in zip(request.message, found, strict=True):
            if request.topic in self.full:
                codes.append(Verdict.SATURATED)
            elif isinstance(fault, Verdict):
                codes.append(fault)
            elif one.idem_key in topic:
                codes.append(Verdict.DUPLICATE)
            else:
                topic.append(one.idem_key)
                codes.append(Verdict.DELIVERED)
        return SendResponse(codes=bytes(codes))


class FeedTable:
    """A feed with real stores behind it."""

    def __init__(self, streams: TenantStreams, archive: Archive) -> None:
        self.streams, self.archive = streams, archive
        self.clock = ManualClock(NOW)
        self.queues = Queues()
        self.told: list[Event] = []
        self.tails = StreamTails(streams)
        self.feed = QueueFeed(
            streams=streams,
            tails=self.tails,
            mailbox=self.queues,  # type: ignore[arg-type]
            tell=self._tell,
            undelivered=Undelivered(archive=archive, tell=self._tell),
            clock=self.clock,
        )

    async def _tell(self, events: Sequence[Event]) -> None:
        self.told += events

    async def append(self, tenant: str, count: int, *, family: str = "command") -> list[str]:
        window = await self.tails.position(tenant)
        entries = [
            StreamEntry(seq, f"{tenant}-{seq}", f"{tenant}/shop", family, 2, NOW, f"b3:{seq}", b"{}")
            for seq in range(window.next_seq, window.next_seq + count)
        ]
        moved = await self.streams.append(tenant, expected=window, fence=1, drafts=[], entries=entries)
        self.tails.appended(tenant, entries, moved)
        return [entry.envelope_id for entry in entries]

    def reasons(self) -> list[tuple[str, Any]]:
        return [(event.name, event.fields()["reason"]) for event in self.told]


@pytest.fixture
async def table(tmp_path: Path) -> AsyncIterator[FeedTable]:
    streams = await open_tenant_streams(tmp_path / "streams.db", clock=ManualClock(NOW))
    archive = open_archive(tmp_path / "archive")
    yield FeedTable(streams, archive)
    await archive.close()
    await streams.close()


@pytest.mark.parametrize(
    ("fault", "reason"),
    [(Verdict.CONFLICT, "other-content"), (BadRequest("too large", reason="oversized"), "oversized")],
)
async def test_an_envelope_that_is_refused_for_good_goes_to_the_dlq_and_holds_up_no_other(
    table: FeedTable, fault: Verdict | SnavioError, reason: str
) -> None:
    ids = await table.append("acme", 5)
    table.queues.poison[ids[2]] = fault
    await table.feed.feed()
    assert table.queues.stored["acme/snavio.telemetry"] == [*ids[:2], *ids[3:]]
    (kept,) = await table.archive.names("undelivered/acme")
    assert kept.name.endswith(f"/{ids[2].removeprefix('acme-')}.json")
    assert table.reasons() == [
        ("snavio.telemetry.publish_failed", reason),
        ("snavio.telemetry.dropped", "queue_refused"),
    ]
    assert table.told[1].fields()["dropped_events"] == 2
    assert table.feed.counters()["refused"] == table.feed.counters()["undelivered"] == 1
    # It is told once, and what comes later goes on.
    later = await table.append("acme", 1)
    await table.feed.feed()
    assert table.queues.stored["acme/snavio.telemetry"][-1:] == later and len(table.told) == 2


async def test_a_refused_statement_makes_no_further_statement(table: FeedTable) -> None:
    (lost,) = await table.append("acme", 1, family="telemetry")
    table.queues.poison[lost] = Verdict.CONFLICT
    await table.feed.feed()
    assert table.reasons() == [("snavio.telemetry.publish_failed", "other-content")]


async def test_the_dlq_of_a_tenant_is_bounded_and_each_refusal_is_told(table: FeedTable) -> None:
    ids = await table.append("acme", MOST_OF_A_TENANT + 3)
    table.queues.poison |= dict.fromkeys(ids, Verdict.CONFLICT)
    await table.feed.feed()
    assert len(await table.archive.names("undelivered/acme")) == MOST_OF_A_TENANT
    assert table.feed.counters()["refused"] == MOST_OF_A_TENANT + 3
    assert len(table.told) == 2 * (MOST_OF_A_TENANT + 3)


async def test_a_queue_that_takes_nothing_holds_up_neither_relay_nor_another_tenant(table: FeedTable) -> None:
    first = await table.append("acme", 3)
    second = await table.append("globex", 3)
    table.queues.full.add("acme/snavio.telemetry")
    await table.feed.feed()
    assert table.queues.stored["globex/snavio.telemetry"] == second
    assert table.feed.gauges()["paused"] == 1 and table.told == []
    table.queues.full.clear()
    await table.feed.feed()
    assert table.queues.stored["acme/snavio.telemetry"] == [], "it is left alone for a while"
    table.clock.advance(seconds=6)
    await table.feed.feed()
    assert table.queues.stored["acme/snavio.telemetry"] == first


async def test_what_the_stream_no_longer_keeps_is_skipped_and_told(table: FeedTable) -> None:
    await table.append("acme", 5)
    table.queues.away = True
    with pytest.raises(Unavailable):
        await table.feed.feed()
    await table.streams.queued("acme", (await table.tails.position("acme")).low)
    table.feed._through = dict(await table.streams.queued_through())
    await table.streams.prune(issued_before_unix_ns=NOW + 1, max_bytes_per_tenant=1 << 30)
    await table.tails.refresh()
    table.queues.away = False
    (left,) = await table.append("acme", 1)
    await table.feed.feed()
    assert table.queues.stored["acme/snavio.telemetry"] == [left]
    assert table.reasons() == [("snavio.telemetry.dropped", "queue_unreachable")]
    assert table.told[0].fields()["dropped_events"] == 5
