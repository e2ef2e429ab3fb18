"""Every kind of entry names the field and the rule that a bad value breaks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict

import pytest

from snavio.domain.directory import (
    KINDS,
    AccessRequest,
    AlertChannel,
    Ban,
    BanList,
    ChannelKind,
    Fairness,
    Limit,
    Principal,
    QueueKind,
    Route,
    Service,
    SourceQuota,
    Suspension,
    Value,
    expiry_of,
    is_over,
    revive,
)
from snavio.errors import BadRequest
from snavio.replication.directory_wire import entry_from_wire, entry_to_wire
from snavio.v1 import registry_pb2 as wire

NAN = float("nan")
STRANGE = ["", "a\nb", "a\x00b", "x" * 10_000, "\u202eevil", "a b"]


@pytest.mark.parametrize(
    ("build", "field"),
    [
        (lambda: Principal("acme", "C I"), "principal.principal"),
        (lambda: Service("acme", "a", ("Bad",)), "service.principal"),
        (lambda: Service("acme", "a", tuple(f"p{n}" for n in range(65))), "service.principal"),
        (lambda: Limit(0, 60), "route.limit.max"),
        (lambda: Limit(10, 0), "route.limit.interval_seconds"),
        (lambda: Limit(10, 86_401), "route.limit.interval_seconds"),
        (lambda: Limit(10, 60, burst=11), "route.limit.burst"),
        (lambda: Limit(10, 60, cooldown_seconds=-1), "route.limit.cooldown_seconds"),
        (lambda: Fairness(window_seconds=0), "route.fairness.window_seconds"),
        (lambda: Fairness(dominant_share=0.4), "route.fairness.dominant_share"),
        (lambda: Fairness(dominant_share=NAN), "route.fairness.dominant_share"),
        (lambda: Fairness(competing_share=0.0), "route.fairness.competing_share"),
        (lambda: Fairness(competing_share=NAN), "route.fairness.competing_share"),
        (lambda: Fairness(competitors=0), "route.fairness.competitors"),
        (lambda: Fairness(minimum_volume=0), "route.fairness.minimum_volume"),
        (lambda: Fairness(ban_seconds=0), "route.fairness.ban_seconds"),
        (lambda: Route("bot", "Ping", expected_drain_seconds=0), "route.expected_drain_seconds"),
        (lambda: Route("bot", "Ping", ttl_seconds=-1), "route.ttl_seconds"),
        (lambda: Route("bot", "Ping", dlq="elsewhere").addressed_to("acme"), "route.dlq"),
        (lambda: AccessRequest("acme", "bot", "Ping", "x"), "access_request.source"),
        (lambda: AccessRequest("acme/a", "bot", "Ping", " "), "access_request.reason"),
        (lambda: SourceQuota("acme/a", "bot", "Ping", 0, 1), "source_quota.max"),
        (lambda: SourceQuota("acme/a", "bot", "Ping", 1, 0), "source_quota.interval_seconds"),
        (lambda: Ban(BanList.WARM_BAN, "acme/a", name="Ping", until_unix_ns=1), "ban.target"),
        (lambda: Ban(BanList.FROZEN, "acme/a", "bot"), "ban.source"),
        (lambda: Ban(BanList.FROZEN, ""), "ban.target"),
        (lambda: Ban(BanList.FROZEN, "", "bot", "a b"), "ban.name"),
        (lambda: Ban(BanList.WARM_BAN, "acme/a", "bot", "Ping"), "ban.until_unix_ns"),
        (lambda: Ban(BanList.COLD_ONLY, "acme/a", "bot"), "ban.name"),
        (lambda: Ban(BanList.COLD_ONLY, "acme/a", until_unix_ns=-1), "ban.until_unix_ns"),
        (lambda: Suspension("acme/a", until_unix_ns=-1), "suspension.until_unix_ns"),
        (lambda: Suspension("acme/a", evidence="e" * 2049), "suspension.evidence"),
    ],
)
def test_bad_value_is_refused_with_its_field_and_rule(build: Callable[[], object], field: str) -> None:
    with pytest.raises(BadRequest) as refusal:
        build()
    assert str(refusal.value).startswith(f"{field}: must be ")
    assert refusal.value.reason == "bad-field"


@pytest.mark.parametrize("name", STRANGE)
def test_strange_names_are_refused_and_not_repeated(name: str) -> None:
    for build in (
        lambda: Principal("acme", name),
        lambda: Route("bot", name),
        lambda: Route(name, "Ping"),
        lambda: SourceQuota(name, "bot", "Ping", 1, 1),
        lambda: AlertChannel("acme", name, ChannelKind.DASHBOARD),
        lambda: AccessRequest("acme/a", "bot", name, "why"),
    ):
        with pytest.raises(BadRequest) as refusal:
            build()
        assert len(str(refusal.value)) < 200
        assert not name or name not in str(refusal.value)


@pytest.mark.parametrize(
    ("channel", "address"),
    [
        (ChannelKind.DASHBOARD, "x"),
        (ChannelKind.EMAIL, ""),
        (ChannelKind.EMAIL, "ops"),
        (ChannelKind.EMAIL, "ops@acme"),
        (ChannelKind.EMAIL, "ops@acme.example\nBcc: all@acme.example"),
        (ChannelKind.WEBHOOK, ""),
        (ChannelKind.WEBHOOK, "http://acme.example/hook"),
        (ChannelKind.WEBHOOK, "https:///hook"),
        (ChannelKind.WEBHOOK, "https://user:password@acme.example/hook"),
        (ChannelKind.WEBHOOK, "https://acme.example/a b"),
        (ChannelKind.WEBHOOK, "https://[::1/hook"),
        (ChannelKind.WEBHOOK, "https://acme.example/" + "x" * 600),
        (ChannelKind.WEBHOOK, "file:///etc/passwd"),
    ],
)
def test_alert_address_must_fit_its_kind(channel: ChannelKind, address: str) -> None:
    with pytest.raises(BadRequest, match=r"^alert_channel\.address: must be "):
        AlertChannel("acme", "oncall", channel, address)


def test_good_alert_addresses_are_good() -> None:
    AlertChannel("acme", "a", ChannelKind.DASHBOARD)
    AlertChannel("acme", "b", ChannelKind.EMAIL, "ops+alerts@mail.acme.example")
    AlertChannel("acme", "c", ChannelKind.WEBHOOK, "https://acme.example:8443/hook?team=a")


def test_principals_in_another_order_are_the_same_service() -> None:
    assert Service("acme", "a", ("b", "a", "b")) == Service("acme", "a", ("a", "b"))


def test_dlq_is_derived_from_the_topic_and_may_be_said_only_so() -> None:
    assert Route("bot", "Ping").addressed_to("acme").dlq == "dlq/acme/bot"
    assert Route("bot", "Ping", dlq="dlq/acme/bot").addressed_to("acme").dlq == "dlq/acme/bot"


def test_a_kind_of_queue_that_is_not_set_up_is_refused_by_name() -> None:
    only_mailbox = frozenset({QueueKind.MAILBOX})
    for kind in (QueueKind.REDIS, QueueKind.SQS):
        route = Route("bot", "Ping", queue_kind=kind)
        with pytest.raises(BadRequest, match=f"no {kind.name.lower()} queues .available: mailbox") as refusal:
            route.require_available(only_mailbox)
        assert refusal.value.reason == "queue-kind-not-available"
        route.require_available(only_mailbox | {kind})
    Route("bot", "Ping").require_available(only_mailbox)


def test_entry_ends_at_its_time_and_not_before() -> None:
    route = Route("bot", "Ping", ttl_seconds=10).beginning(1_000)
    assert expiry_of(route) == 10_000_001_000
    assert not is_over(route, 10_000_000_999)
    assert is_over(route, 10_000_001_000)
    assert not is_over(Route("bot", "Ping"), 1 << 62)


FULL: tuple[Value, ...] = (
    Service("acme", "a", ("ci",)),
    Route("bot", "Ping", limit=Limit(5, 1, 2, 3, shadow=True), fairness=Fairness(60, 0.75, 0.25, 3, 9, 12)),
    Route("bot", "Ping", queue_kind=QueueKind.SQS, expected_drain_seconds=7, ttl_seconds=9),
    Ban(BanList.WARM_BAN, "acme/a", "bot", "Ping", 5, "why", "how"),
    Suspension("acme/a", "why", 5, "how"),
    AlertChannel("acme", "b", ChannelKind.EMAIL, "ops@mail.acme.example"),
    SourceQuota("acme/a", "bot", "Ping", 5, 6),
)


@pytest.mark.parametrize("value", FULL, ids=lambda value: value.kind)
def test_value_survives_the_wire_and_the_store(value: Value) -> None:
    assert entry_from_wire(entry_to_wire(value), "entry") == value
    assert revive(value.kind, asdict(value)) == value


def test_every_kind_has_a_place_on_the_wire() -> None:
    entry = {field.name for field in wire.Entry.DESCRIPTOR.fields}
    change = {field.name for field in wire.Change.DESCRIPTOR.oneofs_by_name["value"].fields}
    assert entry == change == set(KINDS)


def test_what_registry_derives_is_not_taken_from_the_wire() -> None:
    entry = wire.Entry(route=wire.Route(target="bot", name="Ping", topic="victim/queue", expires_unix_ns=5))
    assert entry_from_wire(entry, "entry") == Route("bot", "Ping")
    asked = wire.AccessRequest(
        source="a/b",
        target="bot",
        name="Ping",
        reason="x",
        state="REQUEST_STATE_GRANTED",
        requested_by="me",
        answer="yes",
    )
    assert entry_from_wire(wire.Entry(access_request=asked), "entry") == AccessRequest(
        "a/b", "bot", "Ping", "x"
    )
