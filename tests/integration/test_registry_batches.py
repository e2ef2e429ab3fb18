"""Batches over the wire: all or nothing, owners only, and nothing half-applied whatever goes wrong."""

from __future__ import annotations

import asyncio

import pytest

from snavio.domain.directory import (
    AclEntry,
    AlertChannel,
    ChannelKind,
    Limit,
    Principal,
    Profile,
    QueueKind,
    Route,
    Service,
    SourceQuota,
    Suspension,
    Target,
    Tenant,
)
from snavio.errors import BadRequest, Conflict, NotAllowed, NotFound, SnavioError, Unavailable
from snavio.v1 import registry_pb2 as wire
from snavio.v1 import signer_pb2 as signer_wire
from tests.support.acme import ACME, apply, settle, version
from tests.support.control import ADMIN, Control

WITH_REGISTRY = True


async def test_batch_sees_its_own_writes_and_is_idempotent(control: Control) -> None:
    first = await apply(control, *ACME, reason="go live")
    assert (first.version, first.changed, len(first.difference)) == (5, True, 5)
    again = await apply(control, *ACME)
    assert (again.version, again.changed, len(again.difference)) == (5, False, 0)
    page = await control.ask("fast", "Changes", wire.ChangesRequest(), wire.ChangesResponse)
    assert {change.reason for change in page.change} == {"go live"}
    keysets = await control.sign(
        "shield", "KeysetChanges", signer_wire.KeysetChangesRequest(), signer_wire.KeysetChangesResponse
    )
    assert [keyset.source for keyset in keysets.keyset] == ["acme/billing"]


async def test_dry_run_tells_the_difference_and_writes_nothing(control: Control) -> None:
    check = [wire.CheckRequest(source="acme/billing", target="bot", name="Ping")]
    told = await apply(control, *ACME, dry_run=True, check=check)
    assert (told.version, told.changed, len(told.difference)) == (0, False, 5)
    assert told.check[0].passes
    assert await version(control) == 0
    keysets = await control.sign(
        "shield", "KeysetChanges", signer_wire.KeysetChangesRequest(), signer_wire.KeysetChangesResponse
    )
    assert not keysets.keyset


async def test_difference_has_before_and_after(control: Control) -> None:
    await apply(control, *ACME)
    answer = await apply(control, Route("bot", "Ping", profile=Profile.CRITICAL, limit=Limit(10, 60)))
    (difference,) = answer.difference
    assert difference.version == 4
    assert difference.before.route.profile == wire.PROFILE_LOW
    assert not difference.before.route.HasField("limit")
    assert difference.after.route.limit.max == 10
    assert difference.after.route.dlq == "dlq/acme/bot"


async def test_one_wrong_write_undoes_the_whole_batch(control: Control) -> None:
    await settle(control)
    before = await version(control)
    for wrong, reason in (
        (AclEntry("acme/billing", "bot", "NoSuchRoute"), "unknown-route"),
        (AclEntry("acme/nobody", "bot", "Ping"), "unknown-source"),
        (Target("bot", "rival"), "name-taken"),
        (Route("unclaimed", "Ping"), "unknown-target"),
        (Route("bot", "Pong", queue_kind=QueueKind.SQS), "queue-kind-not-available"),
        (Route("bot", "Pong", queue_kind=QueueKind.REDIS), "queue-kind-not-available"),
        (Route("bot", "Pong", dlq="dlq/rival/bot"), "bad-field"),
        (SourceQuota("acme/billing", "bot", "NoSuchRoute", 1, 1), "unknown-route"),
        (Suspension("rival/shop"), "bad-kind"),
    ):
        with pytest.raises(SnavioError) as refusal:
            await apply(control, Service("acme", "extra"), Target("extra", "acme"), wrong)
        assert refusal.value.reason == reason
    assert await version(control) == before
    keysets = await control.sign(
        "shield", "KeysetChanges", signer_wire.KeysetChangesRequest(), signer_wire.KeysetChangesResponse
    )
    assert "acme/extra" not in [keyset.source for keyset in keysets.keyset]


async def test_principal_applies_for_his_own_tenant_and_no_other(control: Control) -> None:
    await settle(control)
    mine = (
        Tenant("acme"),
        Principal("acme", "ci"),
        AlertChannel("acme", "oncall", ChannelKind.DASHBOARD),
        Route("bot", "Pong"),
        SourceQuota("rival/shop", "bot", "Pong", 5, 60),
    )
    assert (await apply(control, *mine, by="acme")).changed
    before = await version(control)
    for value in (*mine, *ACME[1:]):
        with pytest.raises((NotAllowed, Conflict)) as refusal:
            await apply(control, value, by="rival")
        assert refusal.value.reason in ("not-owner", "name-taken")
    with pytest.raises(NotAllowed):
        await apply(control, Tenant("brand-new"), by="rival")
    assert await version(control) == before


async def test_entries_go_and_leave_their_last_words(control: Control) -> None:
    await apply(control, *ACME)
    await apply(control, SourceQuota("acme/billing", "bot", "Ping", 7, 60))
    with pytest.raises(Conflict) as refusal:
        await apply(control, deleted=[Target("bot", "acme")])
    assert refusal.value.reason == "in-use"
    request = wire.ApplyRequest(
        write=[
            wire.Write(delete=True, entry=wire.Entry(**{kind: message}))
            for kind, message in (
                ("source_quota", wire.SourceQuota(source="acme/billing", target="bot", name="Ping")),
                ("acl", wire.AclEntry(source="acme/billing", target="bot", name="Ping")),
                ("route", wire.Route(target="bot", name="Ping")),
                ("target", wire.Target(target="bot", tenant="acme")),
            )
        ]
    )
    done = await control.ask(ADMIN, "Apply", request, wire.ApplyResponse)
    assert [difference.HasField("after") for difference in done.difference] == [False] * 4
    assert done.difference[0].before.source_quota.max == 7
    with pytest.raises(BadRequest) as kind_refusal:
        await apply(control, deleted=[Service("acme", "billing")])
    assert kind_refusal.value.reason == "bad-kind"


@pytest.mark.parametrize("name", ["a\nb", "a\x00", "x" * 10_000, "\u202e", "Ping\x1b[2J"])
async def test_strange_names_are_refused_and_not_repeated(control: Control, name: str) -> None:
    await apply(control, *ACME)
    for entry in (
        wire.Entry(tenant=wire.Tenant(tenant=name)),
        wire.Entry(principal=wire.Principal(tenant="acme", principal=name)),
        wire.Entry(service=wire.Service(tenant="acme", service=name)),
        wire.Entry(service=wire.Service(tenant="acme", service="x", principal=[name])),
        wire.Entry(target=wire.Target(target=name, tenant="acme")),
        wire.Entry(route=wire.Route(target="bot", name=name)),
        wire.Entry(acl=wire.AclEntry(source=name, target="bot", name="Ping")),
        wire.Entry(source_quota=wire.SourceQuota(source="acme/billing", target="bot", name=name, max=1)),
        wire.Entry(
            alert_channel=wire.AlertChannel(tenant="acme", name=name, channel=wire.CHANNEL_KIND_DASHBOARD)
        ),
        wire.Entry(
            alert_channel=wire.AlertChannel(
                tenant="acme", name="x", channel="CHANNEL_KIND_EMAIL", address=name
            )
        ),
        wire.Entry(),
    ):
        request = wire.ApplyRequest(write=[wire.Write(entry=entry)])
        with pytest.raises(BadRequest) as refusal:
            await control.ask(ADMIN, "Apply", request, wire.ApplyResponse)
        assert "must be" in str(refusal.value) or "must have" in str(refusal.value)
        assert name not in str(refusal.value)
    with pytest.raises(BadRequest) as reason_refusal:
        await apply(control, Tenant("acme"), reason="r" * 257 + name)
    assert str(reason_refusal.value).startswith("reason: ")
    assert await version(control) == 5


async def test_two_writers_with_the_same_expected_version_do_not_both_win(control: Control) -> None:
    await apply(control, *ACME)

    def put(profile: wire.Profile) -> wire.PutRouteRequest:
        return wire.PutRouteRequest(
            route=wire.Route(target="bot", name="Ping", profile=profile),
            options=wire.WriteOptions(expected_version=4, reason="tuning"),
        )

    profiles = (wire.PROFILE_CRITICAL, wire.PROFILE_MODERATE, wire.PROFILE_SYNC)
    outcomes = await asyncio.gather(
        *(control.write(ADMIN, "PutRoute", put(profile)) for profile in profiles), return_exceptions=True
    )
    lost = [outcome for outcome in outcomes if isinstance(outcome, Conflict)]
    assert len(lost) == 2
    assert {error.reason for error in lost} == {"version-mismatch"}
    assert "at version 6" in str(lost[0])
    assert "expected version 4" in str(lost[0])


async def test_expected_version_zero_means_that_there_must_be_none(control: Control) -> None:
    await apply(control, *ACME)
    options = wire.WriteOptions(expected_version=0)
    acl = wire.AclEntry(source="acme/billing", target="bot", name="Ping")
    with pytest.raises(Conflict):
        await control.write(ADMIN, "GrantAccess", wire.GrantAccessRequest(acl=acl, options=options))
    request = wire.RevokeAccessRequest(acl=acl, options=wire.WriteOptions(expected_version=5, reason="bye"))
    assert (await control.write(ADMIN, "RevokeAccess", request)).changed
    assert (
        await control.write(ADMIN, "GrantAccess", wire.GrantAccessRequest(acl=acl, options=options))
    ).changed


async def test_full_disk_refuses_and_leaves_everything_as_it_was(control: Control) -> None:
    await apply(control, *ACME)
    assert control.registry is not None
    connection = control.registry.directory._connection  # type: ignore[attr-defined]
    connection.pragma("max_page_count", connection.pragma("page_count"))
    batch = [Route("bot", f"Command{number}") for number in range(300)]
    with pytest.raises(Unavailable):
        await apply(control, *batch)
    assert await version(control) == 5
    assert (await apply(control, *batch, dry_run=True)).difference[0].version == 0
    connection.pragma("max_page_count", 1 << 30)
    assert (await apply(control, *batch)).version == 305


async def test_too_much_at_once_is_refused(control: Control) -> None:
    request = wire.ApplyRequest(write=[wire.Write(entry=wire.Entry(tenant=wire.Tenant(tenant="a")))] * 1001)
    with pytest.raises(BadRequest) as refusal:
        await control.ask(ADMIN, "Apply", request, wire.ApplyResponse)
    assert refusal.value.reason == "too-many-writes"


async def test_right_for_a_route_that_does_not_exist_is_refused(control: Control) -> None:
    await apply(control, *ACME)
    acl = wire.AclEntry(source="acme/billing", target="bot", name="Nothing")
    with pytest.raises(NotFound) as refusal:
        await control.write(ADMIN, "GrantAccess", wire.GrantAccessRequest(acl=acl))
    assert refusal.value.reason == "unknown-route"


async def test_dump_pages_stay_at_one_version_over_the_wire(control: Control) -> None:
    await settle(control)
    first = await control.ask("fast", "Dump", wire.DumpRequest(limit=3), wire.DumpResponse)
    assert first.version == 7
    await apply(control, Route("bot", "Later"))
    seen, token = list(first.entry), first.next_page_token
    while token:
        request = wire.DumpRequest(
            version=first.version, page_token=token, limit=3, directory_epoch=first.directory_epoch
        )
        page = await control.ask("fast", "Dump", request, wire.DumpResponse)
        assert page.version == 7
        seen += page.entry
        token = page.next_page_token
    assert sorted(entry.WhichOneof("value") for entry in seen) == [
        "acl", "route", "service", "service", "target", "tenant", "tenant",
    ]  # fmt: skip
    with pytest.raises(Conflict) as refusal:
        await control.ask("fast", "Dump", wire.DumpRequest(directory_epoch=1), wire.DumpResponse)
    assert refusal.value.reason == "epoch-changed"
    with pytest.raises(NotFound):
        await control.ask("fast", "Dump", wire.DumpRequest(version=99), wire.DumpResponse)
    with pytest.raises(BadRequest) as refused:
        await control.ask("fast", "Dump", wire.DumpRequest(kind="suspensions"), wire.DumpResponse)
    assert "suspension" in str(refused.value)
    only = await control.ask("fast", "Dump", wire.DumpRequest(kind="tenant"), wire.DumpResponse)
    assert [entry.tenant.tenant for entry in only.entry] == ["acme", "rival"]
