"""A flood becomes few messages, and their counts are those of the flood."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.relay.alerts.conditions import of_event, of_troubles
from snavio.domain import alerts
from snavio.domain.alerts import (
    FIRST_WINDOW_NS,
    OTHER,
    TENANT_EVENTS,
    WINDOW_NS,
    AlertGroup,
    Occurrence,
    RoutedChannel,
    channels_for,
    due,
    noted,
    retry_at,
    told,
)
from snavio.domain.directory import AlertChannel, ChannelKind
from snavio.errors import BadRequest
from snavio.telemetry import schema
from tests.support.alert_desk import INVALID, alert_desk

S = 1_000_000_000


async def test_a_minute_of_ten_thousand_invalid_commands_a_second_is_two_messages(tmp_path: Path) -> None:
    async with alert_desk(tmp_path) as desk:
        for _ in range(60):
            await desk.note(10_000)
            await desk.turn(seconds=1)
        await desk.turn(seconds=15 * 60)
        messages = await desk.messages()
        assert sum(message.count for message in messages) == 600_000
        assert 2 <= len(messages) <= 3
        assert messages[0].count == 10_000, "the first is told at once"
        assert [message.update for message in messages] == list(range(len(messages)))
        assert messages[-1].total == 600_000


async def test_a_group_that_falls_silent_begins_anew(tmp_path: Path) -> None:
    async with alert_desk(tmp_path) as desk:
        desk.channel(ChannelKind.DASHBOARD)
        await desk.note()
        await desk.turn(seconds=61)
        assert (await desk.store.counts()).groups == 0
        await desk.note()
        assert [message.update for message in await desk.messages()] == [0, 0]


async def test_events_reasons_and_tenants_have_groups_of_their_own(tmp_path: Path) -> None:
    async with alert_desk(tmp_path) as desk:
        await desk.note(reason="malformed")
        await desk.note(reason="oversized")
        await desk.note(tenant="globex")
        await desk.note(event="snavio.command.conflict")
        assert len(await desk.messages(None)) == 4


async def test_a_tenant_with_too_many_reasons_gets_a_group_for_the_rest(tmp_path: Path) -> None:
    async with alert_desk(tmp_path) as desk:
        for number in range(300):
            await desk.note(reason=f"reason-{number}")
        await desk.note(tenant="globex")
        await desk.turn(seconds=61)
        messages = await desk.messages()
        assert sum(message.count for message in messages) == 300
        assert len({message.reason for message in messages}) == 201
        assert OTHER in {message.reason for message in messages}
        assert len(await desk.messages("globex")) == 1


async def test_a_page_is_noted_once_however_often_it_is_cut(tmp_path: Path) -> None:
    async with alert_desk(tmp_path) as desk:
        one = [Occurrence("acme", INVALID, "malformed", 5, desk.clock.unix_ns())]
        for _ in range(3):
            await desk.alerting.note(one, page_id=7)
        await desk.alerting.note(one, page_id=8)
        await desk.turn(seconds=61)
        assert sum(message.count for message in await desk.messages()) == 10
        await desk.alerting.rewind()
        await desk.alerting.note(one, page_id=1)
        await desk.turn(seconds=3600)
        assert sum(message.count for message in await desk.messages()) == 15


@given(st.lists(st.tuples(st.integers(1, 10**6), st.integers(0, 20 * 60 * S)), max_size=60))
def test_counts_of_messages_sum_to_what_happened_and_windows_bound_their_number(
    steps: list[tuple[int, int]],
) -> None:
    group: AlertGroup | None = None
    now, sent, messages = 1_000 * S, 0, []
    for count, pause in steps:
        group = noted(group, Occurrence("acme", INVALID, "malformed", count, now), now)
        if due(group, now):
            messages.append((now, group.pending))
            group = told(group, now)
        sent += count
        now += pause
    left = group.pending if group is not None else 0
    assert sum(count for _, count in messages) + left == sent
    gaps = [later - earlier for (earlier, _), (later, _) in itertools.pairwise(messages)]
    assert all(gap >= (FIRST_WINDOW_NS if at == 0 else WINDOW_NS) for at, gap in enumerate(gaps))


@pytest.mark.parametrize("event", TENANT_EVENTS)
def test_a_critical_alert_reaches_every_channel_where_none_names_it(event: str) -> None:
    other = next(each for each in TENANT_EVENTS if each != event)
    named, silent, whole = (
        RoutedChannel("named", (event,)),
        RoutedChannel("silent", (other,)),
        RoutedChannel("whole"),
    )
    assert channels_for(event, [named, silent, whole]) == ["named", "whole"]
    critical = event in alerts.CRITICAL
    assert channels_for(event, [silent]) == (["silent"] if critical else [])
    assert channels_for(event, []) == []


def test_the_three_critical_events_are_those_that_cannot_be_disabled() -> None:
    assert {schema.INVALID, schema.DROPPED, schema.KEY_EXPIRY_IMMINENT} == alerts.CRITICAL


def test_every_event_of_the_catalogue_that_raises_an_alert_is_spelled_as_there() -> None:
    own = {
        alerts.ROUTE_HEALTH,
        alerts.UNROUTED,
        alerts.TEST,
        alerts.SERVICE_AWAY,
        alerts.BOUND_NEAR,
        alerts.CERTIFICATE_ENDING,
        "snavio.fairness.violation",
    }
    assert {kind.event for kind in alerts.KINDS} - own <= set(schema.BY_NAME)


def test_retries_grow_up_to_an_hour_and_spread() -> None:
    pauses = [retry_at(attempts, 0, 0.5) / S for attempts in range(1, 40)]
    assert pauses[0] == 5.0 and max(pauses) == 3600.0 and pauses == sorted(pauses)
    assert retry_at(5, 0, 0.0) < retry_at(5, 0, 0.99)


def test_refusals_become_occurrences_of_their_sources_tenant() -> None:
    row = ("acme/shop", schema.INVALID, "hmac-mismatch", 7, 5, "bot", "say", bytes(15) + b"\1")
    (found,) = of_troubles([row])
    assert (found.tenant, found.event, found.reason, found.count) == ("acme", INVALID, "hmac-mismatch", 7)
    assert found.sample["command_id"] == "00000000-0000-0000-0000-000000000001"
    # A restart of Shield is nobody's fault, and a full queue is told by its route's health.
    silent = [
        (*row[:2], "wrong-audience", *row[3:]),
        (row[0], schema.FAILED, "saturated", *row[3:]),
        ("nobody", *row[1:]),
        ("/shop", *row[1:]),
    ]
    assert list(of_troubles(silent)) == []
    (violation,) = of_troubles([(row[0], schema.FAILED, "fairness-violation", *row[3:])])
    assert violation.event == "snavio.fairness.violation"


def test_rare_events_become_occurrences_of_those_whom_they_concern() -> None:
    def tenants(name: str, **fields: object) -> list[tuple[str, str, int]]:
        import orjson

        found = of_event(
            name, 5, orjson.dumps(fields), owner=lambda target: {"bot": "globex"}.get(target, "")
        )
        return [(each.tenant, each.reason, each.count) for each in found]

    assert tenants(schema.DROPPED, tenant="acme", dropped_events=9, reason="queue_unconsumed") == [
        ("acme", "queue_unconsumed", 9)
    ]
    assert tenants(schema.EXECUTED_AFTER_REVOCATION, source="acme/shop", target="bot", count=2) == [
        ("acme", "executed_after_acl_revoked", 2),
        ("globex", "executed_after_acl_revoked", 2),
    ]
    assert tenants(schema.KEY_EXPIRY_IMMINENT, source="acme/shop", version_id="hmac-v1") == [
        ("acme", "key_expiry_imminent", 1)
    ]
    assert tenants(schema.DLQ_PRUNED, topic="dlq/acme/bot", cause="depth", messages=40) == [
        ("acme", "depth", 40)
    ]
    assert tenants(schema.JOURNAL_GAP, reason="crash", dropped_events=3) == [("", "crash", 1)]
    assert tenants(schema.SKEW_SAMPLE, source="acme/shop") == []
    assert tenants(schema.DROPPED, tenant="../etc", reason="x") == []


@pytest.mark.parametrize("events", [("snavio.command.delivered",), (INVALID, INVALID), ("",)])
def test_a_channel_names_events_that_raise_alerts(events: tuple[str, ...]) -> None:
    with pytest.raises(BadRequest, match=r"alert_channel\.events"):
        AlertChannel("acme", "oncall", ChannelKind.DASHBOARD, "", events)
