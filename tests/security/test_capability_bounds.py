"""One principal that revokes capabilities without end, and bars that are not the tenant's to lift."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from snavio.errors import NotAllowed, NotFound, Saturated
from snavio.v1 import signer_pb2 as sig
from tests.support.control import ADMIN, Control, control_plane

TD = "spiffe://snavio.local/"
ALICE, BOT = TD + "tenant/acme/principal/alice", TD + "tenant/acme/service/bot"


@pytest.fixture
async def control(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Control]:
    monkeypatch.setattr("services.signer.capabilities.composition.MAX_CAPABILITY_REVOCATIONS", 40)
    async with control_plane(tmp_path) as running:
        for name in ("acme/principal/alice", "acme/principal/bob", "acme/service/bot", "rival/principal/eve"):
            await running.certify(f"tenant/{name}", name.rpartition("/")[2])
        yield running


async def issue(control: Control, caller: str, realm: str = "acme/orders", **wish: Any) -> str:
    request = sig.IssueCapabilityRequest(**{"realm": realm, "operation": ["recv"], **wish})
    answer = await control.sign(caller, "IssueCapability", request, sig.IssueCapabilityResponse)
    cap_id: str = answer.id
    return cap_id


async def revoke(control: Control, caller: str = ADMIN, **what: Any) -> None:
    request = sig.RevokeCapabilityRequest(reason="drill", **what)
    await control.sign(caller, "RevokeCapability", request, sig.RevokeCapabilityResponse)


async def rotate(control: Control, caller: str, realm: str) -> None:
    request = sig.RotateCapabilityRootRequest(realm=realm)
    await control.sign(caller, "RotateCapabilityRoot", request, sig.RotateCapabilityRootResponse)


async def refusal(attempt: Any) -> str:
    with pytest.raises(NotAllowed) as refused:
        await attempt
    return refused.value.reason


async def test_tenant_does_not_lift_the_operators_bar_on_itself(control: Control) -> None:
    for holder in ("tenant:acme", ALICE):
        await revoke(control, holder=holder, bar=True)
        assert await refusal(revoke(control, "alice", holder=holder, restore=True)) == "operators-bar"
        # Not by barring and restoring either.
        await revoke(control, "alice", holder=holder, bar=True)
        assert await refusal(revoke(control, "alice", holder=holder, restore=True)) == "operators-bar"
        assert await refusal(issue(control, "alice")) == "holder-barred"
        await revoke(control, holder=holder, restore=True)
    await issue(control, "alice")


async def test_tenant_lifts_its_own_bars(control: Control) -> None:
    await revoke(control, "alice", holder=BOT, bar=True)
    assert await refusal(issue(control, "bot")) == "holder-barred"
    await revoke(control, "alice", holder=BOT, restore=True)
    await issue(control, "bot")


async def test_barred_principal_has_nothing_made_for_its_tenant(control: Control) -> None:
    await revoke(control, holder=ALICE, bar=True)
    for holder in ("tenant:acme", BOT, ""):
        assert await refusal(issue(control, "alice", holder=holder)) == "holder-barred"
    await issue(control, "bob", holder="tenant:acme")


async def test_realms_and_holders_that_do_not_exist_are_not_remembered(control: Control) -> None:
    for number in range(5):
        with pytest.raises(NotFound):
            await revoke(control, "alice", holder=f"{TD}tenant/acme/service/s{number}")
        with pytest.raises(NotFound):
            await rotate(control, "alice", f"acme/t{number}")
        with pytest.raises(NotFound):
            await revoke(control, "alice", root=sig.RootVersion(realm=f"acme/t{number}", version=1))
    # An operator may, before anything is there.
    await revoke(control, holder=f"{TD}tenant/acme/service/s1", bar=True)


async def test_one_tenant_uses_up_its_share_and_neither_anothers_nor_the_operators(control: Control) -> None:
    for kind in ("id", "root"):
        with pytest.raises(Saturated) as refused:
            for number in range(40):
                cap_id = await issue(control, "alice", f"acme/{kind}{number}")
                if kind == "id":
                    await revoke(control, "alice", id=cap_id)
                else:
                    await rotate(control, "alice", f"acme/{kind}{number}")
        assert refused.value.retry_after_ms
    await revoke(control, "eve", id=await issue(control, "eve", "rival/orders"))
    await revoke(control, holder=BOT, bar=True)
    await revoke(control, id=cap_id)
    # Counted anew at start.
    await control.stop_signer()
    await control.start_signer()
    with pytest.raises(Saturated):
        await revoke(control, "alice", holder=ALICE)
    await revoke(control, "eve", holder="tenant:rival")


async def test_an_operators_revocation_does_not_wait_for_all_that_a_tenant_asks_for(control: Control) -> None:
    flood = [asyncio.create_task(issue(control, "eve", "rival/orders")) for _ in range(200)]
    while not any(each.done() for each in flood):
        await asyncio.sleep(0)
    before = sum(each.done() for each in flood)
    await revoke(control, holder=BOT, bar=True)
    # One of them may stand before it, and some are answered while it is on its way.
    assert sum(each.done() for each in flood) - before < 100
    await asyncio.gather(*flood)
