"""Suspensions and bans as a tenant's signed state tells them: its own, in force, and nothing before they are known."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from services.relay.tenant_restrictions import TenantRestrictions
from snavio.clock import ManualClock, SystemClock
from snavio.replication import directory_dump
from snavio.rpc.channel import MeshChannel
from snavio.rpc.credentials import CertificateFiles
from snavio.v1.registry_pb2 import (
    BAN_LIST_COLD_ONLY,
    BAN_LIST_FROZEN,
    Ban,
    Change,
    ClaimTargetRequest,
    CreateTenantRequest,
    RegisterServiceRequest,
    Service,
    SetBanRequest,
    SetSuspensionRequest,
    Suspension,
    Target,
    Tenant,
    WriteOptions,
)
from tests.support.control import ADMIN, Control, control_plane

WHY = WriteOptions(reason="a test")


@pytest.fixture
async def control(tmp_path: Path) -> AsyncIterator[Control]:
    async with control_plane(tmp_path / "state", registry=True) as control:
        for tenant in ("acme", "globex"):
            await control.write(ADMIN, "CreateTenant", CreateTenantRequest(tenant=Tenant(tenant=tenant)))
        service = RegisterServiceRequest(service=Service(tenant="acme", service="billing"))
        await control.write(ADMIN, "RegisterService", service)
        claim = ClaimTargetRequest(target=Target(target="bot", tenant="acme"))
        await control.write(ADMIN, "ClaimTarget", claim)
        yield control


async def test_a_tenant_hears_of_its_own_and_not_of_the_evidence(control: Control) -> None:
    files = CertificateFiles.in_folder(control.mesh.certificates("relay"))
    registry = MeshChannel(control.mesh.registry, files=files, service="registry")
    clock = ManualClock(SystemClock().unix_ns())
    held = TenantRestrictions(registry, owner=lambda target: {"bot": "acme"}.get(target, ""), clock=clock)
    assert held.members("acme") is None
    end = clock.unix_ns() + 10**12
    for source, until in (("acme/*", 0), ("globex/*", end)):
        suspension = Suspension(source=source, reason="floods", until_unix_ns=until, evidence="secret")
        request = SetSuspensionRequest(suspension=suspension, suspended=True, options=WHY)
        await control.write(ADMIN, "SetSuspension", request)
    for ban in (
        Ban(list=BAN_LIST_FROZEN, target="bot", reason="an incident"),
        Ban(list=BAN_LIST_COLD_ONLY, source="acme/billing", reason="odd", evidence="secret"),
    ):
        await control.write(ADMIN, "SetBan", SetBanRequest(ban=ban, options=WHY))
    await held.read()
    acme, globex = held.members("acme"), held.members("globex")
    assert acme is not None and globex is not None
    assert [(each["source"], each["until"]) for each in acme["suspensions"]] == [("acme/*", None)]
    assert [(each["list"], each["source"], each["target"]) for each in acme["bans"]] == [
        ("cold_only", "acme/billing", None),
        ("frozen", None, "bot"),
    ]
    assert [each["source"] for each in globex["suspensions"]] == ["globex/*"] and globex["bans"] == []
    assert "secret" not in str(acme)
    # Of a tenant whose name begins alike, nothing.
    assert held.members("acm") == {"suspensions": [], "bans": []}
    clock.advance(ns=10**12)
    assert held.members("globex") == {"suspensions": [], "bans": []}
    held.take(Change(suspension=Suspension(source="acme/*"), deleted=True))
    held.take(Change(ban=Ban(list=BAN_LIST_FROZEN, target="bot"), deleted=True))
    after = held.members("acme")
    assert after is not None
    assert after["suspensions"] == [] and [each["list"] for each in after["bans"]] == ["cold_only"]
    await registry.close()


async def test_a_change_that_comes_while_all_are_read_is_not_lost(
    control: Control, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = CertificateFiles.in_folder(control.mesh.certificates("relay"))
    registry = MeshChannel(control.mesh.registry, files=files, service="registry")
    held = TenantRestrictions(registry, owner=lambda _: "", clock=ManualClock())
    entries = directory_dump.DumpReading.entries

    async def read_then_changed(self: directory_dump.DumpReading) -> AsyncIterator[Change]:
        async for entry in entries(self):
            yield entry
        held.take(Change(suspension=Suspension(source="acme/billing", reason="now")))

    monkeypatch.setattr(directory_dump.DumpReading, "entries", read_then_changed)
    await held.read()
    found = held.members("acme")
    assert found is not None and [each["source"] for each in found["suspensions"]] == ["acme/billing"]
    await registry.close()
