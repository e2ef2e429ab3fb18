"""Cutting: every event reaches the tenant that it is about, and nobody else."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pytest

from services.relay.cutting import DRAFT_BYTES, Cutting
from snavio.clock import ManualClock
from snavio.domain.verdict import Verdict
from snavio.native import canonical_json
from snavio.ports.outbox import JournalLife, NewPage, Outbox
from snavio.ports.tenant_streams import TenantStreams
from snavio.telemetry import schema
from snavio.v1.relay_pb2 import JournalPage
from snavio.v1.telemetry_pb2 import TelemetryBlock
from snavio.wiring import open_outbox, open_tenant_streams
from tests.support.telemetry import NAME, NOW, SOURCE, TARGET, block

OWNERS = {"bot": "globex", TARGET: "acme"}
REVOKED = {
    "source": "acme/shop",
    "target": "bot",
    "command.name": "say",
    "stale_duration_seconds": 0.5,
    "acl_revocation_timestamp": "2026-11-16T02:00:00.000000000Z",
    "count": 2,
}


@dataclass
class CuttingTable:
    """A cutter over real stores."""

    folder: Path
    outbox: Outbox
    streams: TenantStreams
    cutting: Cutting
    seq: int = 0

    async def store(self, *blocks: TelemetryBlock, instance: str = "fast-0") -> list[int]:
        pages = []
        for one in blocks:
            events = len(one.verdict) + len(one.event)
            body = JournalPage(block=[one]).SerializeToString()
            pages.append(NewPage(instance, 7, self.seq + 1, self.seq + events, NOW, body))
            self.seq += events
        return await self.outbox.store(pages, [JournalLife(instance, 7, "fast", self.seq)])

    async def told(self, tenant: str) -> list[dict[str, Any]]:
        drafts = await self.streams.drafts(tenant, limit=10_000, max_bytes=1 << 30)
        assert all(canonical_json(draft.new.body) == draft.new.body for draft in drafts)
        return [event for draft in drafts for event in orjson.loads(draft.new.body)]


async def opened(folder: Path) -> CuttingTable:
    clock = ManualClock(NOW)
    outbox = await open_outbox(folder / "outbox.db", max_bytes=1 << 30)
    streams = await open_tenant_streams(folder / "streams.db", clock=clock)
    cutting = Cutting(
        outbox=outbox,
        streams=streams,
        owner=lambda target: OWNERS.get(target, ""),
        clock=clock,
        told_per_s=1000,
    )
    await cutting.load()
    return CuttingTable(folder, outbox, streams, cutting)


@pytest.fixture
async def table(tmp_path: Path) -> AsyncIterator[CuttingTable]:
    made = await opened(tmp_path)
    yield made
    await made.outbox.close()
    await made.streams.close()


def rare(*events: tuple[str, dict[str, Any]]) -> TelemetryBlock:
    return block([], service="relay", events=events)


async def test_every_row_reaches_its_tenant_with_the_fields_of_the_catalogue(table: CuttingTable) -> None:
    details = [{"row": 2, "retry_after_ms": 7, "throttle_until_unix_ns": NOW, "source_share": 0.5}]
    verdicts = [
        Verdict.DELIVERED,
        Verdict.DUPLICATE,
        Verdict.RATE_LIMIT_EXCEEDED,
        Verdict.TIMESTAMP_OUTSIDE_WINDOW,
        0,
        0,
        0,
    ]
    await table.store(block(verdicts, kinds=[0, 0, 0, 0, 1, 2, 3], details=details))
    await table.cutting.cut_once()
    events = await table.told("acme")
    assert sorted(event["event"] for event in events) == sorted(
        [
            schema.DELIVERED,
            schema.DUPLICATE,
            schema.FAILED,
            schema.INVALID,
            schema.SKEW_NEAR_LIMIT,
            schema.SKEW_SAMPLE,
            schema.WARM_PATH_BAN,
        ]
    )
    for event in events:
        kind = schema.BY_NAME[event["event"]]
        named = {*kind.fields, *kind.beyond, "event", "at", "count"}
        assert set(event) <= named, "a field that the catalogue does not name"
        missing = set(kind.fields) - set(kind.optional) - set(event)
        # Only where the row says nothing of them.
        assert missing <= {"throttle_until", "retry_after_ms", "competing_share", "source_share"}, missing
    delivered = next(event for event in events if event["event"] == schema.DELIVERED)
    assert delivered | {"path": "fast", "source": SOURCE, "target": TARGET, "command.name": NAME} == delivered


async def test_a_page_is_cut_once_and_kept_until_it_is_archived(table: CuttingTable) -> None:
    ids = await table.store(block([Verdict.DELIVERED]), block([Verdict.DELIVERED]))
    await table.cutting.cut_once()
    await table.cutting.cut_once()
    assert len(await table.told("acme")) == 2
    assert [page.page_id for page in await table.outbox.pages()] == ids
    export = await table.outbox.plan(1, "f", ids)
    await table.outbox.finish(export.number, newest_unix_ns=0, pages=[], lives=[])
    assert await table.outbox.uncut(0, max_bytes=1 << 20) == []


async def test_another_life_goes_on_where_the_last_one_ended(table: CuttingTable, tmp_path: Path) -> None:
    await table.store(block([Verdict.DELIVERED]))
    await table.cutting.cut_once()
    await table.outbox.close()
    await table.streams.close()
    again = await opened(tmp_path)
    again.seq = 1
    await again.store(block([Verdict.DUPLICATE]))
    await again.cutting.cut_once()
    assert [event["event"] for event in await again.told("acme")] == [schema.DELIVERED, schema.DUPLICATE]
    await again.outbox.close()
    await again.streams.close()


async def test_the_pages_of_an_outbox_that_began_anew_are_cut(table: CuttingTable, tmp_path: Path) -> None:
    await table.store(*[block([Verdict.DELIVERED])] * 5)
    await table.cutting.cut_once()
    await table.outbox.close()
    await table.streams.close()
    for path in tmp_path.glob("outbox.db*"):
        path.unlink()
    again = await opened(tmp_path)
    await again.store(block([Verdict.DUPLICATE]))
    await again.cutting.cut_once()
    assert [event["event"] for event in await again.told("acme")][-1] == schema.DUPLICATE
    await again.outbox.close()
    await again.streams.close()


async def test_a_right_used_after_its_end_is_told_to_the_source_and_to_the_owner(table: CuttingTable) -> None:
    await table.store(rare((schema.EXECUTED_AFTER_REVOCATION, REVOKED)))
    await table.cutting.cut_once()
    for tenant in ("acme", "globex"):
        (event,) = await table.told(tenant)
        assert (event["event"], event["count"]) == (schema.EXECUTED_AFTER_REVOCATION, 2)
    await table.store(rare((schema.EXECUTED_AFTER_REVOCATION, {**REVOKED, "target": "nobodys"})))
    await table.cutting.cut_once()
    assert (len(await table.told("acme")), len(await table.told("globex"))) == (2, 1)
    assert table.cutting.counters()["owner_unknown"] == 1


async def test_the_rotation_of_a_key_reaches_the_tenant_whose_key_it_is(table: CuttingTable) -> None:
    fields = dict.fromkeys(
        (
            "event_id",
            "occurred_at",
            "domain_id",
            "old_key_id",
            "new_key_id",
            "new_public_key",
            "valid_from",
            "opened_at",
            "closes_at",
        ),
        "x",
    )
    await table.store(
        rare(
            (schema.SIGNING_KEY_ROTATED, {**fields, "scope_kind": "tenant", "scope_id": "globex"}),
            (schema.SIGNING_KEY_ROTATED, {**fields, "scope_kind": "platform", "scope_id": ""}),
        )
    )
    await table.cutting.cut_once()
    assert await table.streams.waiting() == {"globex": 1}
    (event,) = await table.told("globex")
    assert len(event) == 11 + len(["event", "at"]), "eleven fields, the name and the time"
    (draft,) = await table.streams.drafts("globex", limit=9, max_bytes=9999)
    assert (draft.new.family, draft.new.source) == ("audit", "")


@pytest.mark.parametrize(
    "event",
    [
        (schema.CACHE_REFRESHED, {"source": "acme/shop", "detail": "x"}),
        (schema.CERTIFICATE_REFUSED, {"source": "acme/shop", "tenant": "acme", "reason": "x"}),
        ("snavio.of.a.newer.version", {"source": "acme/shop"}),
        (schema.LEGACY_KEY_USED, {"source": "acme"}),
        (schema.LEGACY_KEY_USED, {"source": "../x/shop"}),
        (schema.LEGACY_KEY_USED, {}),
    ],
)
async def test_what_is_the_operators_or_nobodys_reaches_no_tenant(
    table: CuttingTable, event: tuple[str, dict[str, Any]]
) -> None:
    await table.store(rare(event))
    await table.cutting.cut_once()
    assert await table.streams.waiting() == {}


async def test_a_field_that_the_catalogue_does_not_name_stays_inside(table: CuttingTable) -> None:
    fields = {"source": "acme/shop", "version_id": "hmac-v1", "secret": "no"}
    await table.store(rare((schema.LEGACY_KEY_USED, fields)))
    await table.cutting.cut_once()
    (event,) = await table.told("acme")
    assert set(event) == {"event", "at", "source", "version_id"}


async def test_a_gap_is_told_to_those_that_the_process_had_spoken_of(table: CuttingTable) -> None:
    gap = {"dropped_events": 12, "reason": "crash", "detail": "fast-0 epoch 7: 5 to 16"}
    await table.store(block([Verdict.DELIVERED]))
    await table.cutting.cut_once()
    await table.store(rare((schema.JOURNAL_GAP, gap)), instance="relay-0")
    await table.cutting.cut_once()
    assert (await table.told("acme"))[-1] | {
        "event": schema.DROPPED,
        "tenant": "acme",
        "dropped_events": 12,
        "reason": "journal_gap",
    } == (await table.told("acme"))[-1]
    await table.store(rare((schema.JOURNAL_GAP, {**gap, "detail": "slow-0 epoch 7: 5 to 16"})))
    await table.cutting.cut_once()
    assert len(await table.told("acme")) == 2, "it never spoke of this tenant"


async def test_a_loud_tenant_gets_counts_and_its_refusals_one_by_one(table: CuttingTable) -> None:
    flood = [block([Verdict.DELIVERED] * 900 + [Verdict.MALFORMED] * 10)] * 5
    await table.store(*flood)
    await table.cutting.cut_once()
    events = await table.told("acme")

    def of(name: str, counted: bool) -> list[dict[str, Any]]:
        return [event for event in events if event["event"] == name and ("count" in event) == counted]

    assert len(of(schema.DELIVERED, counted=False)) == 1000
    (counted,) = of(schema.DELIVERED, counted=True)
    assert (counted["count"], counted["command.name"]) == (5 * 900 - 1000, NAME)
    assert len(counted["sample"]) == 36
    assert len(of(schema.INVALID, counted=False)) == 50 and not of(schema.INVALID, counted=True)
    drafts = await table.streams.drafts("acme", limit=100, max_bytes=1 << 30)
    assert all(len(draft.new.body) <= DRAFT_BYTES for draft in drafts)


async def test_a_page_that_cannot_be_read_keeps_back_no_other(table: CuttingTable) -> None:
    good = block([Verdict.DELIVERED])
    await table.store(good)
    await table.outbox.store([NewPage("fast-1", 7, 1, 1, NOW, b"not blocks")], [])
    await table.store(good)
    await table.cutting.cut_once()
    assert (len(await table.told("acme")), table.cutting.counters()["damaged"]) == (2, 1)


def test_the_families_are_those_of_the_contract() -> None:
    from services.relay.tenant_events import family_of
    from snavio.domain.stream import FAMILIES

    found: Sequence[str] = [family_of(event.name) for event in schema.EVENTS if not event.internal]
    assert {*found, "audit"} == set(FAMILIES)
