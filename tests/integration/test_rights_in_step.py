"""Rights held by two stores, Registry's and Signer's: neither a failure nor a cancelled call makes them differ."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from snavio.errors import SnavioError, Unauthenticated, Unavailable
from snavio.v1 import registry_pb2 as reg
from snavio.v1 import signer_pb2 as sig
from tests.support.control import ADMIN, Control
from tests.support.enrolling import assume, principals

SOURCE = "acme/billing"


WITH_REGISTRY = True


async def furnish(control: Control) -> None:
    await control.ask(
        ADMIN,
        "CreateTenant",
        reg.CreateTenantRequest(tenant=reg.Tenant(tenant="acme")),
        reg.CreateTenantResponse,
    )
    await control.certify("tenant/acme/principal/ci", "ci")
    await control.write("ci", "RegisterService", registration("ci"))


def registration(*names: str) -> reg.RegisterServiceRequest:
    service = reg.Service(tenant="acme", service="billing", principal=names)
    return reg.RegisterServiceRequest(service=service)


async def works(control: Control, folder: str) -> bool:
    try:
        await control.sign(folder, "TenantConfig", sig.TenantConfigRequest(), sig.TenantConfigResponse)
    except Unauthenticated:
        return False
    return True


async def test_right_whose_certificates_could_not_be_revoked_is_not_taken_away_and_can_be_again(
    control: Control,
) -> None:
    await assume(control, "ci", SOURCE, folder="billing")
    assert control.signer is not None
    store: Any = control.signer.store
    revoke_all = store.revoke_all

    async def fails(*_: Any, **__: Any) -> int:
        raise Unavailable("The disk is full.")

    store.revoke_all = fails
    with pytest.raises(SnavioError):
        await principals(control, SOURCE)
    store.revoke_all = revoke_all
    assert await works(control, "billing")
    # The identities whose certificates are to end are still known.
    assert len(await principals(control, SOURCE)) == 1
    assert not await works(control, "billing")


async def test_caller_that_goes_away_between_signer_and_directory_leaves_them_in_step(
    control: Control,
) -> None:
    assert control.registry is not None and control.signer is not None
    directory: Any = control.registry.directory
    write, begun, go_on = directory.write, asyncio.Event(), asyncio.Event()

    async def slowly(*given: Any, **more: Any) -> Any:
        begun.set()
        await go_on.wait()
        return await write(*given, **more)

    directory.write = slowly
    call = asyncio.create_task(control.write("ci", "RegisterService", registration()))
    await begun.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    # Until the cancellation has come to Registry.
    await asyncio.sleep(0.2)
    go_on.set()
    directory.write = write
    store: Any = control.signer.store

    async def in_step() -> bool:
        answer = await control.ask("fast", "Dump", reg.DumpRequest(limit=1000), reg.DumpResponse)
        (service,) = [each.service for each in answer.entry if each.WhichOneof("value") == "service"]
        delegation = await store.delegation(SOURCE)
        return tuple(service.principal) == delegation.principals == ()

    async with asyncio.timeout(10):
        while not await in_step():
            await asyncio.sleep(0.02)


async def test_registration_that_is_refused_after_the_caller_has_gone_is_taken_back_at_signer(
    control: Control,
) -> None:
    assert control.registry is not None and control.signer is not None
    directory: Any = control.registry.directory
    write, begun, go_on = directory.write, asyncio.Event(), asyncio.Event()

    async def fails(*_: Any, **__: Any) -> Any:
        begun.set()
        await go_on.wait()
        raise Unavailable("The disk is full.")

    directory.write = fails
    call = asyncio.create_task(control.write("ci", "RegisterService", registration()))
    await begun.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await asyncio.sleep(0.2)
    go_on.set()
    store: Any = control.signer.store
    async with asyncio.timeout(10):
        while (await store.delegation(SOURCE)).principals != ("ci",):
            await asyncio.sleep(0.02)
    directory.write = write
