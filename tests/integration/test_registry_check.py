"""`Check` predicts the verdict on a command; its callers; and access requests to owners."""

from __future__ import annotations

from typing import Any

import pytest

from snavio.domain.directory import AclEntry, Limit, Profile, Route
from snavio.errors import BadRequest, Conflict, NotAllowed, NotFound
from snavio.v1 import registry_pb2 as wire
from tests.support.acme import apply, settle, version
from tests.support.control import ADMIN, Control

WITH_REGISTRY = True


async def furnish(control: Control) -> None:
    await settle(control)


async def check(
    control: Control, source: str = "rival/shop", target: str = "bot", name: str = "Ping", by: str = ADMIN
) -> wire.CheckResponse:
    request = wire.CheckRequest(source=source, target=target, name=name)
    answer: wire.CheckResponse = await control.ask(by, "Check", request, wire.CheckResponse)
    return answer


def states(answer: wire.CheckResponse) -> dict[str, str]:
    return {gate.gate: wire.GateState.Name(gate.state).removeprefix("GATE_STATE_") for gate in answer.gate}


async def test_command_that_may_go_passes_every_gate_in_order(control: Control) -> None:
    answer = await check(control, "acme/billing")
    assert (answer.passes, answer.verdict, answer.failing_gate) == (True, "delivered", "")
    assert answer.acl_version == 5
    assert list(states(answer)) == [
        "registered", "standing", "keyset", "route", "acl", "profile", "limit", "lists", "permits", "queue",
    ]  # fmt: skip
    found = states(answer)
    # There is no Slow here: what only it knows is unknown, and keeps nobody from the rest of the answer.
    assert [found.pop(gate) for gate in ("permits", "queue")] == ["UNKNOWN", "UNKNOWN"]
    assert set(found.values()) == {"PASSES"}


async def test_first_failing_gate_is_named_with_what_to_do(control: Control) -> None:
    for question, gate, verdict in (
        (("rival/nobody",), "registered", "unknown-key-version"),
        (("rival/shop", "nothing"), "route", "route-missing"),
        (("rival/shop", "bot", "Nothing"), "route", "route-missing"),
        (("rival/shop",), "acl", "acl-deny"),
    ):
        answer = await check(control, *question)
        assert (answer.passes, answer.failing_gate, answer.verdict) == (False, gate, verdict)
        (failing,) = [report for report in answer.gate if report.gate == gate]
        assert failing.advice


async def test_check_changes_nothing(control: Control) -> None:
    before = await version(control)
    for _ in range(3):
        await check(control)
    assert await version(control) == before


async def test_suspended_source_is_told_why_and_others_only_that(control: Control) -> None:
    await apply(control, AclEntry("rival/shop", "bot", "Ping"))
    suspension = wire.Suspension(source="rival/shop", reason="stole a key", evidence="serial 17")
    await control.write(
        ADMIN, "SetSuspension", wire.SetSuspensionRequest(suspension=suspension, suspended=True)
    )
    for caller, knows in ((ADMIN, True), ("rival", True), ("acme", False)):
        answer = await check(control, by=caller)
        assert (answer.failing_gate, answer.verdict) == ("standing", "suspended")
        assert ("stole a key" in answer.gate[1].detail) is knows
        assert "serial 17" not in str(answer)


async def test_strangers_may_not_ask_and_cannot_tell_what_exists(control: Control) -> None:
    for target, name in (("bot", "Ping"), ("bot", "Nothing"), ("nothing", "Nothing")):
        with pytest.raises(NotAllowed) as refusal:
            await check(control, "acme/billing", target, name, by="rival")
        assert refusal.value.reason == "not-concerned"
    await control.certify("tenant/acme/service/billing", "billing")
    with pytest.raises(NotAllowed):
        await check(control, "acme/billing", by="billing")


async def test_sender_without_the_right_does_not_see_how_the_route_is_run(control: Control) -> None:
    await apply(control, Route("bot", "Ping", profile=Profile.SYNC, limit=Limit(7, 60, burst=2, shadow=True)))
    seen = await check(control, by="rival")
    assert (states(seen)["profile"], states(seen)["limit"]) == ("HIDDEN", "HIDDEN")
    assert "7" not in seen.gate[6].detail
    await apply(control, AclEntry("rival/shop", "bot", "Ping"))
    seen = await check(control, by="rival")
    assert (seen.passes, states(seen)["profile"], states(seen)["limit"]) == (True, "NOTE", "NOTE")
    assert seen.gate[6].detail.startswith("7 in 60 s")


async def test_listed_source_is_told_that_it_goes_by_slow(control: Control) -> None:
    await apply(control, AclEntry("rival/shop", "bot", "Ping"))
    ban = wire.Ban(list=wire.BAN_LIST_COLD_ONLY, source="rival/shop", reason="new here", evidence="e1")
    await control.write(ADMIN, "SetBan", wire.SetBanRequest(ban=ban))
    answer = await check(control, by="rival")
    assert (answer.passes, states(answer)["lists"]) == (True, "NOTE")
    assert "cold-only (new here)" in answer.gate[7].detail
    assert "e1" not in str(answer)


async def test_check_without_signer_says_that_keys_are_unknown(control: Control) -> None:
    await control.stop_signer()
    answer = await check(control, "acme/billing")
    assert (answer.passes, states(answer)["keyset"]) == (True, "UNKNOWN")


async def test_names_that_cannot_be_any_are_refused(control: Control) -> None:
    for question, field in (
        (("rival",), "check.source: "),
        (("rival/shop", "B o t"), "check.target: "),
        (("rival/shop", "bot", "x" * 10_000), "check.name: "),
    ):
        with pytest.raises(BadRequest) as refusal:
            await check(control, *question)
        assert str(refusal.value).startswith(field)


async def ask(
    control: Control, by: str = "rival", reason: str = "receipts", **names: str
) -> wire.WriteResponse:
    fields: dict[str, Any] = {
        "source": "rival/shop",
        "target": "bot",
        "name": "Ping",
        "reason": reason,
        **names,
    }
    request = wire.RequestAccessRequest(access_request=wire.AccessRequest(**fields))
    return await control.write(by, "RequestAccess", request)


async def answer(control: Control, grant: bool, by: str = "acme", reason: str = "") -> wire.WriteResponse:
    request = wire.AnswerAccessRequest(
        source="rival/shop", target="bot", name="Ping", grant=grant, options=wire.WriteOptions(reason=reason)
    )
    return await control.write(by, "AnswerAccess", request)


async def requests(control: Control, by: str, tenant: str = "") -> wire.ListAccessRequestsResponse:
    request = wire.ListAccessRequestsRequest(tenant=tenant)
    listed: wire.ListAccessRequestsResponse = await control.ask(
        by, "ListAccessRequests", request, wire.ListAccessRequestsResponse
    )
    return listed


async def test_granting_a_request_writes_the_right_in_the_same_step(control: Control) -> None:
    assert (await ask(control)).changed
    assert not (await ask(control)).changed
    (asked,) = (await requests(control, "acme")).incoming
    assert (asked.state, asked.reason) == (wire.REQUEST_STATE_PENDING, "receipts")
    assert asked.requested_by == "spiffe://snavio.local/tenant/rival/principal/ci"
    before = await version(control)
    assert not (await check(control)).passes
    assert (await answer(control, True, reason="welcome")).version == before + 2
    assert (await check(control)).passes
    (asked,) = (await requests(control, "rival")).outgoing
    assert (asked.state, asked.answer) == (wire.REQUEST_STATE_GRANTED, "welcome")
    assert not (await answer(control, True)).changed
    with pytest.raises(Conflict) as refusal:
        await ask(control)
    assert refusal.value.reason == "already-granted"


async def test_declined_request_gives_nothing_and_can_be_asked_again(control: Control) -> None:
    await ask(control)
    assert (await answer(control, False, reason="use the digest")).changed
    assert not (await answer(control, False)).changed
    assert not (await check(control)).passes
    with pytest.raises(Conflict) as refusal:
        await answer(control, True)
    assert refusal.value.reason == "already-answered"
    assert (await ask(control, reason="the digest is too slow")).changed
    assert (await answer(control, True)).changed
    assert (await check(control)).passes


async def test_only_principals_ask_for_their_own_and_only_owners_answer(control: Control) -> None:
    with pytest.raises(NotAllowed):
        await ask(control, by="acme")
    await ask(control)
    with pytest.raises(NotAllowed) as refusal:
        await answer(control, True, by="rival")
    assert refusal.value.reason == "not-owner"
    with pytest.raises(NotAllowed):
        await requests(control, "rival", "acme")
    assert not (await requests(control, "rival")).incoming


async def test_requests_need_what_they_refer_to_and_a_reason(control: Control) -> None:
    for names, reason in (
        ({"source": "rival/nobody"}, "unknown-source"),
        ({"target": "nothing"}, "unknown-target"),
        ({"name": "Nothing"}, "unknown-route"),
    ):
        with pytest.raises(NotFound) as refusal:
            await ask(control, **names)
        assert refusal.value.reason == reason
    for words in ("", "  ", "two\nlines", "r" * 257):
        with pytest.raises(BadRequest, match=r"^access_request\.reason: "):
            await ask(control, reason=words)
    with pytest.raises(NotFound) as missing:
        await answer(control, True)
    assert missing.value.reason == "unknown-request"


async def test_rights_are_listed_for_owner_source_and_operator(control: Control) -> None:
    await apply(control, AclEntry("rival/shop", "bot", "Ping"))

    async def listed(by: str, **names: str) -> list[str]:
        request = wire.ListAccessRequest(**names)
        found = await control.ask(by, "ListAccess", request, wire.ListAccessResponse)
        return [entry.source for entry in found.acl]

    assert await listed("acme", target="bot") == ["acme/billing", "rival/shop"]
    assert await listed("rival", source="rival/shop") == ["rival/shop"]
    assert await listed("rival", source="rival/shop", target="bot") == ["rival/shop"]
    assert await listed(ADMIN, source="acme/billing") == ["acme/billing"]
    for names in ({"target": "bot"}, {"source": "acme/billing"}, {"target": "nothing"}):
        with pytest.raises(NotAllowed):
            await listed("rival", **names)
    with pytest.raises(BadRequest):
        await listed(ADMIN)
