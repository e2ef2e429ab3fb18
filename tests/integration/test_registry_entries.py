"""Self-service at Registry: listing, deleting, suspending and the log, for owners, neighbours and operators."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from snavio.domain.directory import (
    AclEntry,
    Principal,
    Route,
    Service,
    SourceQuota,
    Target,
    Tenant,
    Value,
)
from snavio.errors import BadRequest, Conflict, NotAllowed, NotFound, SnavioError, Unauthenticated
from snavio.v1 import registry_pb2 as wire
from snavio.v1 import signer_pb2 as signer_wire
from tests.support.acme import apply
from tests.support.control import ADMIN, Control
from tests.support.enrolling import assume

WITH_REGISTRY = True
SECOND = 1_000_000_000
ACME: tuple[Value, ...] = (
    Tenant("acme"),
    Principal("acme", "ci"),
    Service("acme", "billing", ("ci",)),
    Service("acme", "bot"),
    Target("bot", "acme"),
    Target("cat", "acme"),
    *(Route("bot", name) for name in ("A", "B", "C")),
    *(Route("cat", name) for name in ("D", "E")),
    AclEntry("acme/billing", "bot", "A"),
    SourceQuota("acme/billing", "bot", "A", 5, 60),
)
RIVAL: tuple[Value, ...] = (
    Tenant("rival"),
    Service("rival", "shop"),
    Target("dog", "rival"),
    Route("dog", "F"),
    AclEntry("acme/billing", "dog", "F"),
)


async def furnish(control: Control) -> None:
    await apply(control, *ACME, reason="acme comes")
    await apply(control, *RIVAL, reason="rival comes")
    for tenant in ("acme", "rival"):
        await control.certify(f"tenant/{tenant}/principal/ci", tenant)


async def pages(control: Control, caller: str, kind: str, **more: Any) -> AsyncIterator[wire.StandingEntry]:
    request = wire.ListEntriesRequest(kind=kind, **more)
    while True:
        answer = await control.ask(caller, "ListEntries", request, wire.ListEntriesResponse)
        for each in answer.entry:
            yield each
        if not answer.next_page_token:
            return
        request.page_token = answer.next_page_token


async def listed(control: Control, caller: str, kind: str, **more: Any) -> list[Any]:
    return [getattr(each.entry, kind) async for each in pages(control, caller, kind, **more)]


async def routes(control: Control, caller: str, **more: Any) -> list[str]:
    return [f"{route.target} {route.name}" for route in await listed(control, caller, "route", **more)]


async def delete(
    control: Control, caller: str, kind: str, *key: str, dry_run: bool = False, whole: bool = False
) -> wire.DeleteEntryResponse:
    request = wire.DeleteEntryRequest(kind=kind, key=key, dry_run=dry_run, with_dependents=whole)
    return await control.ask(caller, "DeleteEntry", request, wire.DeleteEntryResponse)


async def refused(kind: type[SnavioError], attempt: Any) -> str:
    with pytest.raises(kind) as refusal:
        await attempt
    return refusal.value.reason


async def suspend(control: Control, source: str, *, until: int = 0, on: bool = True) -> wire.WriteResponse:
    value = wire.Suspension(source=source, reason="test", until_unix_ns=until)
    return await control.write(
        ADMIN, "SetSuspension", wire.SetSuspensionRequest(suspension=value, suspended=on)
    )


async def suspended(control: Control, source: str) -> bool:
    key = wire.ResolveKey(source=source, target="bot", name="A")
    answer = await control.ask("slow", "Resolve", wire.ResolveRequest(key=[key]), wire.ResolveResponse)
    return bool(answer.resolution[0].suspended)


async def log(control: Control, caller: str, **more: Any) -> list[wire.Change]:
    request, found = wire.ReadLogRequest(**more), []
    while True:
        answer = await control.ask(caller, "ReadLog", request, wire.ReadLogResponse)
        found += answer.change
        if not answer.more:
            return found
        request.since_version = answer.version


async def test_a_tenant_lists_its_own_and_nothing_of_a_neighbour(control: Control) -> None:
    own = ["bot A", "bot B", "bot C", "cat D", "cat E"]
    assert await routes(control, "acme") == await routes(control, "acme", tenant="acme") == own
    assert await routes(control, "rival") == ["dog F"]
    assert await routes(control, ADMIN) == [*own, "dog F"]
    assert await routes(control, ADMIN, tenant="rival") == ["dog F"]
    assert [each.tenant for each in await listed(control, "rival", "tenant")] == ["rival"]
    assert [each.service for each in await listed(control, "acme", "service")] == ["billing", "bot"]
    assert [each.target for each in await listed(control, "acme", "target")] == ["bot", "cat"]
    assert [each.max for each in await listed(control, "acme", "source_quota")] == [5]
    assert [each.source for each in await listed(control, "rival", "acl")] == ["acme/billing"]
    assert await routes(control, "acme", target="dog") == []
    for kind in ("route", "target", "suspension"):
        assert await refused(NotAllowed, listed(control, "acme", kind, tenant="rival")) == "not-owner"


async def test_pages_of_every_size_have_each_entry_once_and_in_order(control: Control) -> None:
    for caller in ("acme", ADMIN):
        whole = await routes(control, caller)
        for size in range(1, len(whole) + 2):
            assert await routes(control, caller, limit=size) == whole


@pytest.mark.parametrize("token", ["dog\n", "dog\ndog\nA", "~dog\n", "\n", "\x00\n\U0010ffff", "cat"])
async def test_no_page_token_leads_to_a_neighbour(control: Control, token: str) -> None:
    freeze = wire.Ban(list=wire.BAN_LIST_FROZEN, target="dog")
    await control.write(ADMIN, "SetBan", wire.SetBanRequest(ban=freeze))
    for kind in ("route", "target", "service", "ban", "suspension", "acl"):
        for entry in await listed(control, "acme", kind, page_token=token):
            assert "dog" not in (getattr(entry, "target", ""), getattr(entry, "source", ""))


async def test_lists_show_bans_freezes_and_suspensions_of_what_is_ones_own(control: Control) -> None:
    for ban in (
        wire.Ban(list=wire.BAN_LIST_COLD_ONLY, source="acme/billing", evidence="secret"),
        wire.Ban(list=wire.BAN_LIST_FROZEN, target="bot", name="A"),
        wire.Ban(list=wire.BAN_LIST_COLD_ONLY, source="rival/shop"),
        wire.Ban(list=wire.BAN_LIST_FROZEN, target="dog"),
    ):
        await control.write(ADMIN, "SetBan", wire.SetBanRequest(ban=ban))
    await suspend(control, "rival/shop")
    await suspend(control, "acme/*")
    for size in (1, 2, 10):
        found = await listed(control, "acme", "ban", limit=size)
        assert [(ban.source, ban.target, ban.evidence) for ban in found] == [
            ("acme/billing", "", ""),
            ("", "bot", ""),
        ]
        assert [each.source for each in await listed(control, "acme", "suspension", limit=size)] == ["acme/*"]
        assert len(await listed(control, ADMIN, "suspension", limit=size)) == 2


async def test_words_that_are_no_kind_are_refused(control: Control) -> None:
    for kind in ("", "routes", "ban_proposal"):
        request = wire.ListEntriesRequest(kind=kind)
        assert (
            await refused(BadRequest, control.ask(ADMIN, "ListEntries", request, wire.ListEntriesResponse))
            == "bad-field"
        )
    for key in (("bot",), ("bot", "A", "B"), ()):
        assert await refused(BadRequest, delete(control, ADMIN, "route", *key)) == "bad-field"
    assert await refused(BadRequest, delete(control, ADMIN, "tenant", "acme")) == "bad-field"


async def test_only_the_owner_or_an_operator_deletes(control: Control) -> None:
    for key in (
        ("route", "bot", "A"),
        ("target", "cat"),
        ("service", "acme", "billing"),
        ("principal", "acme", "ci"),
    ):
        for dry_run in (True, False):
            attempt = delete(control, "rival", *key, dry_run=dry_run, whole=True)
            assert await refused(NotAllowed, attempt) == "not-owner"
    assert await routes(control, "acme", target="bot") == ["bot A", "bot B", "bot C"]
    assert (await delete(control, "acme", "route", "bot", "B")).changed
    assert (await delete(control, ADMIN, "route", "bot", "C")).changed
    assert await refused(NotFound, delete(control, "acme", "route", "bot", "C")) == "unknown-route"
    assert await routes(control, "acme", target="bot") == ["bot A"]


async def test_a_deleted_route_leaves_its_rights_unless_they_go_with_it(control: Control) -> None:
    told = await delete(control, "acme", "route", "bot", "A")
    assert {each.kind: each.count for each in told.dependent} == {"acl": 1, "source_quota": 1}
    assert [(each.kind, each.address) for each in told.queue] == [(wire.QUEUE_KIND_MAILBOX, "acme/bot")]
    assert len(await listed(control, "acme", "acl")) == 1
    await apply(control, Route("bot", "A"))
    await delete(control, "acme", "route", "bot", "A", whole=True)
    assert await listed(control, "acme", "acl") == await listed(control, "acme", "source_quota") == []


async def test_a_target_with_routes_goes_only_with_them(control: Control) -> None:
    assert await refused(Conflict, delete(control, "acme", "target", "bot")) == "in-use"
    told = await delete(control, "acme", "target", "bot", dry_run=True)
    assert (told.changed, {each.kind: each.count for each in told.dependent}) == (
        False,
        {"acl": 1, "route": 3, "source_quota": 1},
    )
    assert await routes(control, "acme", target="bot") == ["bot A", "bot B", "bot C"]
    before = (await log(control, ADMIN))[-1].version
    assert (await delete(control, "acme", "target", "bot", whole=True)).changed
    gone = await log(control, ADMIN, since_version=before)
    assert all(change.deleted for change in gone)
    assert len({change.at_unix_ns for change in gone}) == 1
    assert [each.target for each in await listed(control, "acme", "target")] == ["cat"]
    # The name is free, and its next owner finds nothing of the first.
    await apply(control, Target("bot", "rival"), by="rival")
    assert await routes(control, "rival", target="bot") == []


async def test_a_frozen_target_is_not_given_up_to_be_free_of_the_freeze(control: Control) -> None:
    freeze = wire.Ban(list=wire.BAN_LIST_FROZEN, target="cat", name="D")
    await control.write(ADMIN, "SetBan", wire.SetBanRequest(ban=freeze))
    assert await refused(Conflict, delete(control, "acme", "target", "cat", whole=True)) == "frozen"
    await delete(control, "acme", "route", "cat", "D")
    await delete(control, "acme", "route", "cat", "E")
    assert await refused(Conflict, apply(control, deleted=[Target("cat", "acme")], by="acme")) == "frozen"
    await control.write(ADMIN, "SetBan", wire.SetBanRequest(ban=freeze, lifted=True))
    assert (await delete(control, "acme", "target", "cat")).changed


async def test_a_deleted_service_is_nobodys_until_it_is_registered_again(control: Control) -> None:
    await assume(control, "acme", "acme/billing", folder="billing")
    await control.certify("tenant/acme/service/billing", "made")
    assert await refused(Conflict, delete(control, "acme", "service", "acme", "billing")) == "in-use"
    await control.sign(
        "billing", "TenantConfig", signer_wire.TenantConfigRequest(), signer_wire.TenantConfigResponse
    )
    told = await delete(control, "acme", "service", "acme", "billing", whole=True)
    assert {each.kind: each.count for each in told.dependent} == {"acl": 2}
    assert await refused(NotAllowed, assume(control, "acme", "acme/billing")) == "unregistered-service"
    for folder in ("billing", "made"):
        poll = control.sign(
            folder, "TenantConfig", signer_wire.TenantConfigRequest(), signer_wire.TenantConfigResponse
        )
        assert await refused(Unauthenticated, poll) == "certificate-revoked"
    # Rights were given back, the owner's quota was not: registered again, the source meets it again.
    assert await listed(control, "rival", "acl") == []
    assert len(await listed(control, "acme", "source_quota")) == 1
    await apply(control, Service("acme", "billing", ("ci",)), by="acme")
    await assume(control, "acme", "acme/billing", folder="again")
    await control.sign(
        "again", "TenantConfig", signer_wire.TenantConfigRequest(), signer_wire.TenantConfigResponse
    )


async def test_a_deletion_that_signer_did_not_hear_of_did_not_happen(control: Control) -> None:
    await control.stop_signer()
    with pytest.raises(SnavioError):
        await delete(control, ADMIN, "service", "acme", "bot")
    assert [each.service for each in await listed(control, ADMIN, "service", tenant="acme")] == [
        "billing",
        "bot",
    ]


async def test_a_deleted_principal_is_named_by_no_service(control: Control) -> None:
    await delete(control, ADMIN, "principal", "acme", "ci")
    assert [list(each.principal) for each in await listed(control, ADMIN, "service", tenant="acme")] == [
        [],
        [],
    ]
    assert await refused(Unauthenticated, assume(control, "acme", "acme/bot")) == "certificate-revoked"


async def test_a_suspension_outlives_its_service_and_can_be_lifted_all_the_same(control: Control) -> None:
    await suspend(control, "acme/bot")
    await delete(control, "acme", "service", "acme", "bot")
    await apply(control, Service("acme", "bot"), by="acme")
    assert await suspended(control, "acme/bot")
    await delete(control, "acme", "service", "acme", "bot")
    assert (await suspend(control, "acme/bot", on=False)).changed


async def test_a_suspended_tenant_has_no_source_that_is_not(control: Control) -> None:
    now = control.clock.unix_ns()
    await suspend(control, "acme/*", until=now + 60 * SECOND)
    assert await refused(NotFound, suspend(control, "nobody/*")) == "unknown-tenant"
    await apply(control, Service("acme", "late", ("ci",)))
    for source, out in (("acme/billing", True), ("acme/late", True), ("rival/shop", False)):
        assert await suspended(control, source) is out
    for source in ("acme/billing", "acme/late"):
        assert await refused(NotAllowed, assume(control, "acme", source)) == "suspended"
    check = wire.CheckRequest(source="acme/billing", target="bot", name="A")
    told = await control.ask(ADMIN, "Check", check, wire.CheckResponse)
    assert (told.failing_gate, told.verdict) == ("standing", "suspended")
    assert "Tenant acme is suspended" in told.gate[1].detail
    at = await control.ask(
        ADMIN, "AccessAt", wire.AccessAtRequest(target="bot", name="A"), wire.AccessAtResponse
    )
    assert [each.suspended for each in at.access] == [True]


async def test_the_end_of_a_suspension_needs_nobody(control: Control) -> None:
    now = control.clock.unix_ns()
    await suspend(control, "acme/bot")
    await suspend(control, "acme/*", until=now + 60 * SECOND)
    control.clock.advance(seconds=61)
    assert not await suspended(control, "acme/billing")
    # Its own suspension has no end, and the tenant's does not lift it.
    assert await suspended(control, "acme/bot")
    # Signer hears of it from the sweep, which may be a moment later.
    async with asyncio.timeout(20):
        while True:
            try:
                await assume(control, "acme", "acme/billing")
                break
            except NotAllowed as error:
                assert error.reason == "suspended"
                await asyncio.sleep(0.05)
    assert [each.source for each in await listed(control, "acme", "suspension")] == ["acme/bot"]


async def test_the_log_tells_each_reader_what_is_theirs(control: Control) -> None:
    await apply(control, Route("bot", "A", ttl_seconds=60), by="acme", reason="shorter")
    await delete(control, "acme", "target", "bot", whole=True)
    every = await log(control, ADMIN)
    assert [change.version for change in every] == list(range(1, every[-1].version + 1))
    assert {change.actor for change in every if change.reason == "acme comes"} == {
        "spiffe://snavio.local/operator/admin"
    }
    acme, rival = await log(control, "acme"), await log(control, "rival")
    kinds = {change.WhichOneof("value") for change in acme}
    assert kinds == {"tenant", "principal", "service", "target", "route", "acl", "source_quota"}
    # Its own target is gone, and that it was deleted still concerns it.
    assert [change.target.target for change in acme if change.deleted and change.HasField("target")] == [
        "bot"
    ]
    assert {change.actor for change in acme if change.deleted} == {
        "spiffe://snavio.local/tenant/acme/principal/ci"
    }
    shorter = next(change for change in acme if change.reason == "shorter")
    assert (shorter.before.route.ttl_seconds, shorter.route.ttl_seconds) == (0, 60)
    assert {change.route.name for change in rival if change.HasField("route")} == {"F"}
    # An operator's name and reason are not a tenant's to see.
    assert {(change.actor, change.reason) for change in rival} == {("", "")}
    assert [c.version for c in await log(control, ADMIN, tenant="rival")] == [c.version for c in rival]
    assert await refused(NotAllowed, log(control, "acme", tenant="rival")) == "not-owner"


async def test_the_log_is_searched_by_kind_version_and_time_in_pages(control: Control) -> None:
    every = await log(control, ADMIN)
    middle = every[4].version
    assert [c.version for c in await log(control, ADMIN, since_version=middle)] == [
        c.version for c in every if c.version > middle
    ]
    for size in (1, 3):
        assert [c.version for c in await log(control, ADMIN, limit=size)] == [c.version for c in every]
    assert {c.WhichOneof("value") for c in await log(control, ADMIN, kind=["acl", "target"])} == {
        "acl",
        "target",
    }
    control.clock.advance(seconds=60)
    later = control.clock.unix_ns()
    await apply(control, Route("bot", "Late"))
    assert [c.route.name for c in await log(control, ADMIN, from_unix_ns=later)] == ["Late"]
    assert [c.version for c in await log(control, ADMIN, to_unix_ns=later)] == [c.version for c in every]
    ahead = wire.ReadLogRequest(since_version=2**63)
    epoch = (
        await control.ask("fast", "Changes", wire.ChangesRequest(), wire.ChangesResponse)
    ).directory_epoch
    answer = await control.ask("acme", "ReadLog", ahead, wire.ReadLogResponse)
    assert (list(answer.change), answer.more) == ([], False)
    again = await control.ask("fast", "Changes", wire.ChangesRequest(), wire.ChangesResponse)
    assert again.directory_epoch == epoch
    assert await refused(BadRequest, log(control, ADMIN, kind=["acls"])) == "bad-field"
