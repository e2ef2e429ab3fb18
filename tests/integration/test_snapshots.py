"""Snapshots between real services: Registry publishes, Signer signs, Fast and Shield begin with them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from services.fast.directory import CachedDirectory
from services.registry.settings import RegistrySettings
from services.registry.snapshots import PublishOutcome
from services.shield.suspension_cache import SuspensionCache
from snavio.errors import Unavailable
from snavio.native import Admission, Dispatch
from snavio.rpc.channel import MeshChannel
from snavio.rpc.credentials import CertificateFiles
from snavio.signed.platform_keys import PlatformKeys
from snavio.signed.snapshot_reader import FAILURES, LOADED, SnapshotReader
from snavio.v1 import registry_pb2 as reg
from snavio.wiring import open_archive, open_watermark
from tests.support.control import ADMIN, Control, control_plane
from tests.support.frames import command
from tests.support.neighbours import eventually
from tests.support.wire import mesh_batch, run

SOURCE = "acme/billing"
CRITICAL, LOW = "delete-user", "ping"


@pytest.fixture
async def control(tmp_path: Path) -> AsyncIterator[Control]:
    settings = RegistrySettings(write_snapshots=False)
    async with control_plane(tmp_path, registry=True, registry_settings=settings) as running:
        await _fill(running)
        yield running


async def _fill(control: Control) -> None:
    async def write(method: str, request: Any) -> None:
        await control.write(ADMIN, method, request)

    await write("CreateTenant", reg.CreateTenantRequest(tenant=reg.Tenant(tenant="acme")))
    for name in ("billing", "evil"):
        service = reg.Service(tenant="acme", service=name)
        await write("RegisterService", reg.RegisterServiceRequest(service=service))
    await write("ClaimTarget", reg.ClaimTargetRequest(target=reg.Target(target="bot", tenant="acme")))
    for name, profile in ((CRITICAL, reg.PROFILE_CRITICAL), (LOW, reg.PROFILE_LOW)):
        route = reg.Route(target="bot", name=name, profile=profile)
        await write("PutRoute", reg.PutRouteRequest(route=route))
        acl = reg.AclEntry(source=SOURCE, target="bot", name=name)
        await write("GrantAccess", reg.GrantAccessRequest(acl=acl))
    await _suspend(control, suspended=True)


async def _suspend(control: Control, *, suspended: bool) -> None:
    suspension = reg.Suspension(source="acme/evil", reason="loud")
    request = reg.SetSuspensionRequest(suspension=suspension, suspended=suspended)
    await control.write(ADMIN, "SetSuspension", request)


async def _publish(control: Control) -> PublishOutcome:
    assert control.registry is not None
    return await control.registry.snapshots.write_once()


def _channel(control: Control, service: str, caller: str) -> MeshChannel:
    return MeshChannel(
        getattr(control.mesh, service),
        files=CertificateFiles.in_folder(control.mesh.certificates(caller)),
        service=service,
    )


@asynccontextmanager
async def reading(
    control: Control, caller: str
) -> AsyncIterator[tuple[SnapshotReader, MeshChannel, MeshChannel]]:
    """The snapshot reader of a service called `caller`, and its channels to Signer and Registry."""
    signer, registry = _channel(control, "signer", caller), _channel(control, "registry", caller)
    archive = open_archive(control.mesh.snapshots())
    reader = SnapshotReader(
        archive=archive,
        keys=PlatformKeys(signer).verifying,
        watermark=open_watermark(control.mesh.state_dir / caller / "mark"),
        clock=control.clock,
    )
    try:
        yield reader, signer, registry
    finally:
        await archive.close()
        await signer.close()
        await registry.close()


def _sent(dispatch: Dispatch, control: Control, name: str) -> bool:
    frame = mesh_batch([run(SOURCE, [command(target="bot", name=name)])])
    return len(dispatch.plan(frame, now_mono_ns=control.clock.mono_ns()).sends) == 1


@asynccontextmanager
async def fast(control: Control) -> AsyncIterator[tuple[Dispatch, CachedDirectory, SnapshotReader]]:
    async with reading(control, "fast") as (reader, _signer, registry):
        dispatch = Dispatch()
        directory = CachedDirectory(
            dispatch=dispatch, registry=registry, clock=control.clock, interval_s=0.05, snapshots=reader
        )
        try:
            yield dispatch, directory, reader
        finally:
            await directory.stop()


async def test_fast_begins_with_a_snapshot_whose_critical_rights_wait_for_the_first_answer(
    control: Control,
) -> None:
    assert await _publish(control) is PublishOutcome.WRITTEN
    control.clock.advance(seconds=5)
    async with fast(control) as (dispatch, directory, reader):
        await directory.start(within_s=5)
        # Nothing has been awaited since the load, so Registry has not been asked yet.
        assert _sent(dispatch, control, LOW)
        assert not _sent(dispatch, control, CRITICAL)
        assert reader.counters() == {LOADED: 1}
        await eventually(lambda: _sent(dispatch, control, CRITICAL))


async def test_fast_begins_with_a_snapshot_while_registry_is_away_and_learns_later_what_was_revoked(
    control: Control,
) -> None:
    await _publish(control)
    acl = reg.AclEntry(source=SOURCE, target="bot", name=LOW)
    await control.write(ADMIN, "RevokeAccess", reg.RevokeAccessRequest(acl=acl))
    address = control.mesh.registry
    await control.stop_registry()
    async with fast(control) as (dispatch, directory, _reader):
        await directory.start(within_s=5)
        assert _sent(dispatch, control, LOW)
        control.mesh = control.mesh.model_copy(update={"registry": address})
        await control.start_registry()
        await eventually(lambda: not _sent(dispatch, control, LOW))
        await eventually(lambda: _sent(dispatch, control, CRITICAL))


async def test_fast_reads_everything_from_registry_when_the_snapshot_is_bad(control: Control) -> None:
    await _publish(control)
    for part in control.mesh.snapshots().glob("registry/acl/*.bin"):
        part.write_bytes(part.read_bytes()[:-1])
    async with fast(control) as (dispatch, directory, reader):
        await directory.start(within_s=5)
        assert _sent(dispatch, control, LOW)
        assert _sent(dispatch, control, CRITICAL)
        assert reader.counters() == {FAILURES: 1, f"{FAILURES}.part-truncated": 1}


async def test_without_snapshot_and_registry_fast_does_not_start_and_allows_nothing(control: Control) -> None:
    await control.stop_registry()
    async with fast(control) as (dispatch, directory, _reader):
        with pytest.raises(Unavailable):
            await directory.start(within_s=0.2)
        assert not _sent(dispatch, control, LOW)


async def test_a_directory_with_another_epoch_replaces_what_the_snapshot_said(control: Control) -> None:
    await _publish(control)
    acl = reg.AclEntry(source=SOURCE, target="bot", name=LOW)
    await control.write(ADMIN, "RevokeAccess", reg.RevokeAccessRequest(acl=acl))
    assert control.registry is not None
    await control.registry.directory.renew_epoch()
    async with fast(control) as (dispatch, directory, _reader):
        await directory.start(within_s=5)
        await eventually(lambda: not _sent(dispatch, control, LOW) and _sent(dispatch, control, CRITICAL))


async def test_shield_takes_suspensions_from_a_snapshot_and_then_what_changed_since(control: Control) -> None:
    await _publish(control)
    async with reading(control, "shield") as (reader, _signer, registry):
        held = SuspensionCache(
            admission=Admission(audience="shield-0:1"),
            registry=registry,
            clock=control.clock,
            interval_s=0.05,
            snapshots=reader,
        )
        await held.start(within_s=5)
        try:
            assert reader.counters() == {LOADED: 1}
            assert held.sources == {"acme/evil"}
            await _suspend(control, suspended=False)
            await eventually(lambda: held.sources == set())
        finally:
            await held.stop()


async def test_registry_publishes_by_itself_and_signer_signs(tmp_path: Path) -> None:
    async with control_plane(tmp_path, registry=True) as control:
        manifest = control.mesh.snapshots() / "registry" / "snapshot" / "latest.json"
        await eventually(manifest.exists)
        async with reading(control, "fast") as (reader, _signer, _registry):
            verified = await reader.verify()
            assert getattr(verified, "kind", verified) == "snapshot"
