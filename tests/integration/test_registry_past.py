"""Queries on the past, entries that expire, and the lists of banned and suspended sources."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from services.registry.settings import RegistrySettings
from snavio.domain.directory import AclEntry, Route, Target
from snavio.errors import BadRequest, NotAllowed, NotFound
from snavio.v1 import registry_pb2 as wire
from tests.support.acme import apply, settle, version
from tests.support.control import ADMIN, Control, control_plane

ACL = AclEntry("rival/shop", "bot", "Ping")
SECOND = 1_000_000_000


@pytest.fixture
async def control(tmp_path: Path) -> AsyncIterator[Control]:
    settings = RegistrySettings(sweep_interval_s=0.02)
    async with control_plane(tmp_path, registry=True, registry_settings=settings) as running:
        await settle(running)
        yield running


async def history(control: Control, kind: str, *key: str, by: str = ADMIN) -> list[wire.Change]:
    request = wire.HistoryRequest(kind=kind, key=key)
    return list((await control.ask(by, "History", request, wire.HistoryResponse)).change)


async def access_at(control: Control, at_ns: int = 0, *, by: str = ADMIN) -> wire.AccessAtResponse:
    request = wire.AccessAtRequest(target="bot", name="Ping", at_unix_ns=at_ns)
    answer: wire.AccessAtResponse = await control.ask(by, "AccessAt", request, wire.AccessAtResponse)
    return answer


async def acl_diff(control: Control, start: int, end: int = 0, **more: Any) -> list[tuple[str, bool]]:
    by = more.pop("by", ADMIN)
    request = wire.AclDiffRequest(from_unix_ns=start, to_unix_ns=end, **more)
    answer = await control.ask(by, "AclDiff", request, wire.AclDiffResponse)
    return [(moved.acl.source, moved.granted) for moved in answer.difference]


async def resolved(control: Control, name: str) -> wire.Resolution:
    request = wire.ResolveRequest(key=[wire.ResolveKey(source="acme/billing", target="bot", name=name)])
    answer = await control.ask("slow", "Resolve", request, wire.ResolveResponse)
    return answer.resolution[0]


async def reached(control: Control, wanted: int) -> None:
    async with asyncio.timeout(30):
        while await version(control) < wanted:
            await asyncio.sleep(0.01)


async def test_history_says_who_when_what_why_and_what_stood_there(control: Control) -> None:
    control.clock.advance(seconds=5)
    await apply(control, Route("bot", "Ping", expected_drain_seconds=60), by="acme", reason="faster now")
    first, second = await history(control, "route", "bot", "Ping")
    assert not first.HasField("before")
    assert second.actor == "spiffe://snavio.local/tenant/acme/principal/ci"
    assert (second.reason, second.at_unix_ns) == ("faster now", control.clock.unix_ns())
    assert second.before.route == first.route
    assert second.route.expected_drain_seconds == 60


async def test_tenant_reads_the_history_of_its_own_and_knows_its_own_people(control: Control) -> None:
    await apply(control, ACL, by="acme", reason="our secret reason")
    (seen,) = await history(control, "acl", *ACL.key, by="acme")
    assert (seen.actor, seen.reason) == (
        "spiffe://snavio.local/tenant/acme/principal/ci",
        "our secret reason",
    )
    # The source's tenant sees the right, but neither its author nor its reason.
    (seen,) = await history(control, "acl", *ACL.key, by="rival")
    assert (seen.actor, seen.reason) == ("", "")
    for kind, key in (
        ("route", ("bot", "Ping")),
        ("route", ("bot", "NoSuchRoute")),
        ("target", ("nobody-has-this",)),
        ("service", ("acme", "billing")),
        ("acl", ("acme/billing", "bot", "Ping")),
    ):
        with pytest.raises(NotAllowed) as refusal:
            await history(control, kind, *key, by="rival")
        assert refusal.value.reason == "not-owner"
    wrong: list[tuple[str, tuple[str, ...]]] = [
        ("rout", ("a",)),
        ("route", ("bot",)),
        ("acl", ("a", "b", "c", "d")),
    ]
    for kind, wrong_key in wrong:
        with pytest.raises(BadRequest):
            await history(control, kind, *wrong_key)


async def test_who_could_call_at_a_time_is_answered_from_the_log(control: Control) -> None:
    start = control.clock.unix_ns()
    control.clock.advance(seconds=10)
    await apply(control, ACL, reason="let them in")
    control.clock.advance(seconds=10)
    await apply(control, deleted=[ACL])
    control.clock.advance(seconds=10)
    suspension = wire.Suspension(source="acme/billing", reason="flood")
    await control.write(
        ADMIN, "SetSuspension", wire.SetSuspensionRequest(suspension=suspension, suspended=True)
    )

    async def sources(at_ns: int) -> list[tuple[str, bool]]:
        return [(a.acl.source, a.suspended) for a in (await access_at(control, at_ns, by="acme")).access]

    assert await sources(start - 1) == []
    assert await sources(start) == [("acme/billing", False)]
    assert await sources(start + 10 * SECOND) == [("acme/billing", False), ("rival/shop", False)]
    assert await sources(start + 20 * SECOND) == [("acme/billing", False)]
    assert await sources(0) == [("acme/billing", True)]
    then = await access_at(control, start + 15 * SECOND)
    assert then.routed
    assert (then.access[1].reason, then.access[1].since_unix_ns) == ("let them in", start + 10 * SECOND)
    assert not (await access_at(control, start - 1)).routed
    with pytest.raises(NotAllowed):
        await access_at(control, by="rival")


async def test_rights_that_came_and_went_between_two_times(control: Control) -> None:
    start = control.clock.unix_ns()
    control.clock.advance(seconds=10)
    await apply(control, ACL, Route("bot", "Pong"), AclEntry("rival/shop", "bot", "Pong"))
    control.clock.advance(seconds=10)
    await apply(
        control, deleted=[AclEntry("rival/shop", "bot", "Pong"), AclEntry("acme/billing", "bot", "Ping")]
    )
    everything = [("acme/billing", False), ("rival/shop", True)]
    assert await acl_diff(control, start) == everything
    assert await acl_diff(control, start, target="bot", by="acme") == everything
    assert await acl_diff(control, start, by="acme") == everything
    assert await acl_diff(control, start, by="rival") == [("rival/shop", True)]
    assert await acl_diff(control, start + 10 * SECOND) == [("acme/billing", False), ("rival/shop", False)]
    assert await acl_diff(control, start, start) == []
    with pytest.raises(BadRequest):
        await acl_diff(control, start, start - 1)
    with pytest.raises(NotAllowed):
        await acl_diff(control, start, target="bot", by="rival")


async def test_next_owner_of_a_name_learns_nothing_of_the_one_before(control: Control) -> None:
    start = control.clock.unix_ns()
    control.clock.advance(seconds=10)
    await apply(control, deleted=[AclEntry("acme/billing", "bot", "Ping"), Route("bot", "Ping")])
    await apply(control, deleted=[Target("bot", "acme")])
    control.clock.advance(seconds=10)
    await apply(control, Target("bot", "rival"), Route("bot", "Ping"), ACL, by="rival")
    assert [a.acl.source for a in (await access_at(control, by="rival")).access] == ["rival/shop"]
    earlier = await access_at(control, start, by="rival")
    assert (earlier.routed, len(earlier.access)) == (False, 0)
    assert await acl_diff(control, start, by="rival") == [("rival/shop", True)]
    assert await acl_diff(control, start, target="bot", by="rival") == [("rival/shop", True)]
    (claimed,) = await history(control, "target", "bot", by="rival")
    assert claimed.target.tenant == "rival"
    assert len(await history(control, "route", "bot", "Ping", by="rival")) == 1
    assert [a.acl.source for a in (await access_at(control, start)).access] == ["acme/billing"]


async def test_ephemeral_route_vanishes_at_its_end_and_leaves_a_tombstone(control: Control) -> None:
    await apply(control, Route("bot", "Brief", ttl_seconds=30))
    before = await version(control)
    assert (await resolved(control, "Brief")).HasField("route")
    control.clock.advance(seconds=29)
    assert (await resolved(control, "Brief")).HasField("route")
    control.clock.advance(seconds=1)
    assert not (await resolved(control, "Brief")).HasField("route")
    dump = await control.ask("fast", "Dump", wire.DumpRequest(), wire.DumpResponse)
    assert "Brief" not in [entry.route.name for entry in dump.entry]
    with pytest.raises(NotFound) as refusal:
        await apply(control, AclEntry("acme/billing", "bot", "Brief"))
    assert refusal.value.reason == "unknown-route"
    await reached(control, before + 1)
    tombstone = (await history(control, "route", "bot", "Brief"))[-1]
    assert tombstone.deleted
    assert tombstone.actor == "spiffe://snavio.local/mesh/registry"
    assert tombstone.reason == "its time was over"


async def test_ephemeral_route_that_is_written_again_lives_on(control: Control) -> None:
    await apply(control, Route("bot", "Brief", ttl_seconds=30))
    control.clock.advance(seconds=20)
    assert (await apply(control, Route("bot", "Brief", ttl_seconds=30))).changed
    control.clock.advance(seconds=20)
    assert (await resolved(control, "Brief")).HasField("route")


def ban(control: Control, **fields: Any) -> wire.SetBanRequest:
    defaults = {"list": wire.BAN_LIST_WARM_BAN, "source": "rival/shop", "target": "bot", "name": "Ping"}
    until = {"until_unix_ns": control.clock.unix_ns() + 60 * SECOND}
    return wire.SetBanRequest(ban=wire.Ban(**{**defaults, **until, **fields}))


async def test_bans_are_written_by_those_who_see_the_traffic_and_end(control: Control) -> None:
    request = ban(control, reason="took it all", evidence="0.93 of 6000")
    assert (await control.write("slow", "SetBan", request)).changed
    before = await version(control)
    for caller in ("acme", "rival", "fast"):
        with pytest.raises(NotAllowed):
            await control.write(caller, "SetBan", request)
    # The banned may know why, not by which evidence; the evidence is for operators.
    key = ("rival/shop", "warm_ban", "bot", "Ping")
    (seen,) = await history(control, "ban", *key, by="rival")
    assert (seen.ban.reason, seen.ban.evidence) == ("took it all", "")
    (seen,) = await history(control, "ban", *key)
    assert seen.ban.evidence == "0.93 of 6000"
    control.clock.advance(seconds=60)
    await reached(control, before + 1)
    assert (await history(control, "ban", *key))[-1].deleted


async def test_ban_is_lifted_by_its_key(control: Control) -> None:
    cold = ban(control, list=wire.BAN_LIST_COLD_ONLY, target="", name="", until_unix_ns=0)
    assert (await control.write(ADMIN, "SetBan", cold)).changed
    assert (await control.write(ADMIN, "SetBan", ban(control))).changed
    for request in (cold, ban(control, until_unix_ns=0)):
        request.lifted = True
        assert (await control.write(ADMIN, "SetBan", request)).changed
        assert not (await control.write(ADMIN, "SetBan", request)).changed


async def test_bad_bans_are_refused(control: Control) -> None:
    for fields in (
        {"list": 0},
        {"list": 9},
        {"until_unix_ns": 0},
        {"until_unix_ns": 1},
        {"target": ""},
        {"name": ""},
        {"source": "rival"},
        {"reason": "two\nlines"},
        {"evidence": "e" * 2049},
    ):
        with pytest.raises(BadRequest):
            await control.write(ADMIN, "SetBan", ban(control, **fields))
    for fields, reason in (
        ({"source": "rival/nobody"}, "unknown-source"),
        ({"name": "Nope"}, "unknown-route"),
    ):
        with pytest.raises(NotFound) as refusal:
            await control.write(ADMIN, "SetBan", ban(control, **fields))
        assert refusal.value.reason == reason


async def test_suspension_with_an_end_ends(control: Control) -> None:
    until = control.clock.unix_ns() + 60 * SECOND
    suspension = wire.Suspension(source="acme/billing", reason="flood", until_unix_ns=until)
    request = wire.SetSuspensionRequest(suspension=suspension, suspended=True)
    assert (await control.write(ADMIN, "SetSuspension", request)).changed
    before = await version(control)
    assert (await resolved(control, "Ping")).suspended
    control.clock.advance(seconds=60)
    assert not (await resolved(control, "Ping")).suspended
    await reached(control, before + 1)
    with pytest.raises(BadRequest):
        await control.write(ADMIN, "SetSuspension", request)


async def test_without_signer_an_ended_suspension_waits_and_other_ends_do_not(control: Control) -> None:
    until = control.clock.unix_ns() + 60 * SECOND
    suspension = wire.Suspension(source="acme/billing", until_unix_ns=until)
    request = wire.SetSuspensionRequest(suspension=suspension, suspended=True)
    await control.write(ADMIN, "SetSuspension", request)
    await apply(control, Route("bot", "Brief", ttl_seconds=60))
    await control.stop_signer()
    before = await version(control)
    control.clock.advance(seconds=60)
    await reached(control, before + 1)
    assert (await history(control, "route", "bot", "Brief"))[-1].deleted
    assert not (await history(control, "suspension", "acme/billing"))[-1].deleted
