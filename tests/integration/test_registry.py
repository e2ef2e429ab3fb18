from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from services.registry.reads.changes import DirectoryReader
from services.registry.settings import RegistrySettings
from snavio.clock import ManualClock
from snavio.domain.directory import Draft, Tenant
from snavio.domain.identity import Identity, IdentityKind
from snavio.errors import BadRequest, Conflict, NotAllowed, NotFound, Saturated, Unauthenticated, Unavailable
from snavio.v1 import registry_pb2 as wire
from snavio.v1 import signer_pb2 as signer_wire
from tests.support.control import ADMIN, Control, control_plane
from tests.support.decisions import always
from tests.support.memory_directory import MemoryDirectory

ACL = wire.AclEntry(source="acme/billing", target="bot", name="Ping")


WITH_REGISTRY = True


async def tenant(control: Control, name: str) -> wire.WriteResponse:
    request = wire.CreateTenantRequest(tenant=wire.Tenant(tenant=name))
    return await control.write(ADMIN, "CreateTenant", request)


async def service(control: Control, tenant_name: str, name: str, *, by: str = ADMIN) -> wire.WriteResponse:
    request = wire.RegisterServiceRequest(service=wire.Service(tenant=tenant_name, service=name))
    return await control.write(by, "RegisterService", request)


async def claim(control: Control, target: str, owner: str, *, by: str = ADMIN) -> wire.WriteResponse:
    request = wire.ClaimTargetRequest(target=wire.Target(target=target, tenant=owner))
    return await control.write(by, "ClaimTarget", request)


async def route(control: Control, *, by: str = ADMIN, **fields: Any) -> wire.WriteResponse:
    request = wire.PutRouteRequest(route=wire.Route(**{"target": "bot", "name": "Ping", **fields}))
    return await control.write(by, "PutRoute", request)


async def grant(control: Control, acl: wire.AclEntry = ACL, *, by: str = ADMIN) -> wire.WriteResponse:
    return await control.write(by, "GrantAccess", wire.GrantAccessRequest(acl=acl))


async def revoke(control: Control, acl: wire.AclEntry = ACL, *, by: str = ADMIN) -> wire.WriteResponse:
    return await control.write(by, "RevokeAccess", wire.RevokeAccessRequest(acl=acl))


async def suspend(control: Control, suspended: bool, reason: str = "") -> wire.WriteResponse:
    value = wire.Suspension(source="acme/billing", reason=reason)
    request = wire.SetSuspensionRequest(suspension=value, suspended=suspended)
    return await control.write(ADMIN, "SetSuspension", request)


async def changes(
    control: Control, since: int = 0, epoch: int = 0, *, limit: int = 0, caller: str = "fast"
) -> wire.ChangesResponse:
    request = wire.ChangesRequest(since_version=since, directory_epoch=epoch, limit=limit)
    return await control.ask(caller, "Changes", request, wire.ChangesResponse)


async def resolve(control: Control, *keys: wire.ResolveKey) -> wire.ResolveResponse:
    return await control.ask("slow", "Resolve", wire.ResolveRequest(key=keys), wire.ResolveResponse)


async def acme(control: Control) -> None:
    """Tenant acme with two services, the target bot, a route and an ACL entry: versions 1 to 6."""
    await tenant(control, "acme")
    await service(control, "acme", "billing")
    await service(control, "acme", "bot")
    await claim(control, "bot", "acme")
    await route(control)
    await grant(control)


async def test_every_write_is_a_change_in_order_with_time_and_author(control: Control) -> None:
    await acme(control)
    page = await changes(control)
    assert [change.version for change in page.change] == [1, 2, 3, 4, 5, 6]
    assert [change.WhichOneof("value") for change in page.change] == [
        "tenant", "service", "service", "target", "route", "acl",
    ]  # fmt: skip
    assert {change.at_unix_ns for change in page.change} == {control.clock.unix_ns()}
    assert {change.actor for change in page.change} == {"spiffe://snavio.local/operator/admin"}
    assert (page.version, page.more) == (6, False)
    assert page.directory_epoch != 0


async def test_route_gets_its_defaults_and_a_topic_of_its_owner(control: Control) -> None:
    await acme(control)
    await route(control, name="Pong", topic="victim/queue", profile=wire.PROFILE_CRITICAL)
    default, critical = [
        change.route for change in (await changes(control)).change if change.HasField("route")
    ]
    assert default.topic == critical.topic == "acme/bot"
    assert default.queue_kind == wire.QUEUE_KIND_MAILBOX
    assert (default.profile, critical.profile) == (wire.PROFILE_LOW, wire.PROFILE_CRITICAL)
    assert default.dedupe_mode == wire.DEDUPE_MODE_NONE
    assert default.expected_drain_seconds == 300


async def test_registered_service_has_a_keyset(control: Control) -> None:
    await acme(control)
    page = await control.sign(
        "shield", "KeysetChanges", signer_wire.KeysetChangesRequest(), signer_wire.KeysetChangesResponse
    )
    assert [keyset.source for keyset in page.keyset] == ["acme/billing", "acme/bot"]


async def test_same_write_again_changes_nothing(control: Control) -> None:
    await acme(control)
    for again in (
        await tenant(control, "acme"),
        await service(control, "acme", "billing"),
        await claim(control, "bot", "acme"),
        await route(control),
        await grant(control),
    ):
        assert (again.version, again.changed) == (6, False)
    different = await route(control, expected_drain_seconds=60)
    assert (different.version, different.changed) == (7, True)


async def test_name_belongs_to_whoever_claimed_it_first(control: Control) -> None:
    await acme(control)
    await tenant(control, "rival")
    with pytest.raises(Conflict) as refusal:
        await claim(control, "bot", "rival")
    assert refusal.value.reason == "name-taken"


async def test_principal_writes_for_his_own_tenant_and_no_other(control: Control) -> None:
    await tenant(control, "acme")
    await tenant(control, "rival")
    for name in ("acme", "rival"):
        await control.certify(f"tenant/{name}/principal/ci", name)
    await service(control, "acme", "billing", by="acme")
    await claim(control, "bot", "acme", by="acme")
    await route(control, by="acme")
    await grant(control, by="acme")
    before = (await changes(control)).version
    attempts = (
        service(control, "acme", "evil", by="rival"),
        claim(control, "other", "acme", by="rival"),
        route(control, name="Evil", by="rival"),
        control.write("rival", "DeleteRoute", wire.DeleteRouteRequest(target="bot", name="Ping")),
        grant(control, wire.AclEntry(source="acme/billing", target="bot", name="Evil"), by="rival"),
        revoke(control, by="rival"),
    )
    for attempt in attempts:
        with pytest.raises(NotAllowed) as refusal:
            await attempt
        assert refusal.value.reason == "not-owner"
    for attempt in (
        control.write("acme", "CreateTenant", wire.CreateTenantRequest(tenant=wire.Tenant(tenant="more"))),
        control.write("acme", "SetSuspension", wire.SetSuspensionRequest()),
    ):
        with pytest.raises(NotAllowed):
            await attempt
    assert (await changes(control)).version == before
    # A refused registration leaves no key set behind either.
    keysets = await control.sign(
        "shield", "KeysetChanges", signer_wire.KeysetChangesRequest(), signer_wire.KeysetChangesResponse
    )
    assert [keyset.source for keyset in keysets.keyset] == ["acme/billing"]


async def test_service_certificate_writes_nothing(control: Control) -> None:
    await acme(control)
    await control.certify("tenant/acme/service/billing", "billing")
    with pytest.raises(NotAllowed):
        await route(control, by="billing")
    with pytest.raises(NotAllowed):
        await changes(control, caller="billing")


async def test_writes_need_what_they_refer_to(control: Control) -> None:
    await tenant(control, "acme")
    expected = (
        (service(control, "nobody", "billing"), "unknown-tenant"),
        (claim(control, "bot", "nobody"), "unknown-tenant"),
        (route(control), "unknown-target"),
        (grant(control), "unknown-target"),
        (revoke(control), "unknown-target"),
        (suspend(control, True), "unknown-source"),
    )
    for attempt, reason in expected:
        with pytest.raises(NotFound) as refusal:
            await attempt
        assert refusal.value.reason == reason
    await claim(control, "bot", "acme")
    with pytest.raises(NotFound) as refusal:
        await grant(control)
    assert refusal.value.reason == "unknown-source"


async def test_bad_fields_are_named(control: Control) -> None:
    await acme(control)
    for attempt, field in (
        (tenant(control, "Acme"), "tenant: "),
        (claim(control, "Bot!", "acme"), "target.target: "),
        (route(control, name="no spaces"), "route.name: "),
        (route(control, profile=77), "route.profile: "),
        (grant(control, wire.AclEntry(source="acme", target="bot", name="Ping")), "acl.source: "),
        (suspend(control, True, reason="two\nlines"), "suspension.reason: "),
    ):
        with pytest.raises(BadRequest) as refusal:
            await attempt
        assert str(refusal.value).startswith(field)


async def test_a_strict_route_is_kept_and_told_to_slow(control: Control) -> None:
    await acme(control)
    await route(control, dedupe_mode=wire.DEDUPE_MODE_STRICT)
    told = [change.route for change in (await changes(control)).change if change.HasField("route")]
    assert told[-1].dedupe_mode == wire.DEDUPE_MODE_STRICT


async def test_revoked_access_leaves_a_tombstone_with_its_time(control: Control) -> None:
    await acme(control)
    epoch = (await changes(control)).directory_epoch
    control.clock.advance(seconds=5)
    assert (await revoke(control)).changed
    assert not (await revoke(control)).changed
    (tombstone,) = (await changes(control, 6, epoch)).change
    assert tombstone.deleted
    assert tombstone.acl == ACL
    assert tombstone.at_unix_ns == control.clock.unix_ns()


async def test_deleted_route_is_gone(control: Control) -> None:
    await acme(control)
    request = wire.DeleteRouteRequest(target="bot", name="Ping")
    assert (await control.write(ADMIN, "DeleteRoute", request)).changed
    assert not (await control.write(ADMIN, "DeleteRoute", request)).changed
    key = wire.ResolveKey(source="acme/billing", target="bot", name="Ping")
    assert not (await resolve(control, key)).resolution[0].HasField("route")


async def test_resolve_answers_every_key_from_one_moment(control: Control) -> None:
    await acme(control)
    answer = await resolve(
        control,
        wire.ResolveKey(source="acme/billing", target="bot", name="Ping"),
        wire.ResolveKey(source="acme/bot", target="bot", name="Ping"),
        wire.ResolveKey(source="acme/billing", target="bot", name="Nothing"),
        wire.ResolveKey(source="acme/billing\nbot", target="Ping", name=""),
        wire.ResolveKey(),
    )
    assert answer.version == 6
    assert [(entry.HasField("route"), entry.allowed) for entry in answer.resolution] == [
        (True, True), (True, False), (False, False), (False, False), (False, False),
    ]  # fmt: skip
    assert answer.resolution[0].route.topic == "acme/bot"
    with pytest.raises(BadRequest) as refusal:
        await resolve(control, *[wire.ResolveKey()] * 1001)
    assert refusal.value.reason == "too-many-keys"


async def test_suspension_is_seen_and_ends(control: Control) -> None:
    await acme(control)
    key = wire.ResolveKey(source="acme/billing", target="bot", name="Ping")
    assert (await suspend(control, True, "flood")).changed
    assert (await resolve(control, key)).resolution[0].suspended
    assert (await suspend(control, False)).changed
    assert not (await suspend(control, False)).changed
    assert not (await resolve(control, key)).resolution[0].suspended
    beginning, end = [c for c in (await changes(control)).change if c.HasField("suspension")]
    assert (beginning.deleted, beginning.suspension.reason) == (False, "flood")
    assert (end.deleted, end.suspension.source) == (True, "acme/billing")


async def test_changes_come_in_pages_and_from_the_start_for_another_epoch(control: Control) -> None:
    await acme(control)
    epoch = (await changes(control)).directory_epoch
    seen, since, more = [], 0, True
    while more:
        page = await changes(control, since, epoch, limit=4)
        seen += [change.version for change in page.change]
        since, more = page.version, page.more
    assert seen == [1, 2, 3, 4, 5, 6]
    assert len((await changes(control, 6, epoch)).change) == 0
    assert len((await changes(control, 6, epoch + 1)).change) == 6
    ahead = await changes(control, 1000, epoch)
    assert ahead.directory_epoch != epoch
    assert len(ahead.change) == 6


async def test_page_that_would_not_fit_into_a_message_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    directory = MemoryDirectory(clock=ManualClock())
    for number in range(10):
        await directory.write(always(Draft(Tenant(f"tenant-{number}"))), actor="author" * 10)
    monkeypatch.setattr("services.registry.reads.changes.MAX_PAGE_BYTES", 300)
    reader = Identity("snavio.local", IdentityKind.MESH, "fast")
    seen, since, epoch, more = [], 0, 0, True
    while more:
        page = await DirectoryReader(directory, ManualClock()).changes(
            since=since, epoch=epoch, limit=0, reader=reader
        )
        assert 0 < len(page.change) < 10
        seen += [change.version for change in page.change]
        since, epoch, more = page.version, page.directory_epoch, page.more
    assert seen == list(range(1, 11))


@pytest.mark.parametrize("page_bytes", [300, 20_000, 1 << 20])
async def test_dump_that_would_not_fit_into_a_message_is_cut(
    monkeypatch: pytest.MonkeyPatch, page_bytes: int
) -> None:
    directory = MemoryDirectory(clock=ManualClock())
    names = [f"tenant-{number:03}" for number in range(400)]
    await directory.write(lambda _view: [Draft(Tenant(name)) for name in names], actor="author" * 10)
    monkeypatch.setattr("services.registry.reads.changes.MAX_PAGE_BYTES", page_bytes)
    reader = DirectoryReader(directory, ManualClock())
    seen, after = [], ""
    while True:
        page = await reader.dump(version=400, epoch=0, after=after, limit=300)
        seen += [entry.tenant.tenant for entry in page.entry]
        after = page.next_page_token
        if not after:
            break
    assert seen == names


async def test_author_is_hidden_from_readers_who_may_not_know() -> None:
    directory = MemoryDirectory(clock=ManualClock())
    await directory.write(lambda _view: Draft(Tenant("acme")), actor="author")
    for kind, actor in (
        (IdentityKind.OPERATOR, "author"),
        (IdentityKind.MESH, "author"),
        (IdentityKind.PRINCIPAL, ""),
        (IdentityKind.SERVICE, ""),
    ):
        reader = Identity("snavio.local", kind, "x", "acme")
        page = await DirectoryReader(directory, ManualClock()).changes(
            since=0, epoch=0, limit=0, reader=reader
        )
        assert page.change[0].actor == actor


async def test_registration_without_signer_writes_nothing_and_works_again_later(control: Control) -> None:
    await tenant(control, "acme")
    await control.stop_signer()
    with pytest.raises(Unavailable):
        await service(control, "acme", "billing")
    assert (await changes(control)).version == 1
    # At the address that Registry knows.
    await control.start_signer()
    async with asyncio.timeout(10):
        while True:
            try:
                assert (await service(control, "acme", "billing")).changed
                break
            except Unavailable:
                await asyncio.sleep(0.05)


async def test_directory_survives_a_restart(control: Control) -> None:
    await acme(control)
    before = await changes(control)
    await control.stop_registry()
    await control.start_registry()
    assert await changes(control) == before
    assert not (await grant(control)).changed


async def test_revoked_operator_is_refused_soon(control: Control) -> None:
    serial = await control.certify("operator/night", "night")
    request = wire.CreateTenantRequest(tenant=wire.Tenant(tenant="acme"))
    await control.write("night", "CreateTenant", request)
    revocation = signer_wire.RevokeCertificateRequest(serial=serial, reason="left the company")
    await control.sign(ADMIN, "RevokeCertificate", revocation, signer_wire.RevokeCertificateResponse)
    with pytest.raises(Unauthenticated) as refusal:
        async with asyncio.timeout(30):
            while True:
                await control.write("night", "CreateTenant", request)
                await asyncio.sleep(0.01)
    assert refusal.value.reason == "certificate-revoked"


async def test_bounds_hold_and_existing_entries_can_still_be_written(tmp_path: Path) -> None:
    settings = RegistrySettings(max_services_per_tenant=1, max_routes_per_target=1)
    async with control_plane(tmp_path, registry=True, registry_settings=settings) as control:
        await tenant(control, "acme")
        await service(control, "acme", "billing")
        await claim(control, "bot", "acme")
        await route(control)
        for attempt in (service(control, "acme", "second"), route(control, name="Second")):
            with pytest.raises(Saturated) as refusal:
                await attempt
            assert refusal.value.reason == "limit-reached"
        assert (await route(control, profile=wire.PROFILE_SYNC)).changed


async def test_resolve_tells_slow_the_limit_the_quota_and_the_ban_as_long_as_they_hold(
    control: Control,
) -> None:
    await acme(control)
    triple: dict[str, Any] = {"source": "acme/billing", "target": "bot", "name": "Ping"}
    key = wire.ResolveKey(**triple)
    await route(control, limit=wire.Limit(max=7, interval_seconds=60))
    quota = wire.SourceQuota(**triple, max=3, interval_seconds=60)
    write = wire.Write(entry=wire.Entry(source_quota=quota))
    await control.ask(ADMIN, "Apply", wire.ApplyRequest(write=[write]), wire.ApplyResponse)
    end = control.clock.unix_ns() + 10_000_000_000
    ban = wire.Ban(list=wire.BAN_LIST_WARM_BAN, until_unix_ns=end, **triple)
    await control.write("slow", "SetBan", wire.SetBanRequest(ban=ban))
    [told] = (await resolve(control, key)).resolution
    assert (told.route.limit.max, told.source_quota.max, told.warm_banned) == (7, 3, True)
    [another] = (await resolve(control, wire.ResolveKey(source="", target="bot", name="Ping"))).resolution
    assert (another.route.limit.max, another.HasField("source_quota")) == (7, False)
    assert (another.warm_banned, another.allowed) == (False, False)
    control.clock.advance(seconds=10)
    assert not (await resolve(control, key)).resolution[0].warm_banned
