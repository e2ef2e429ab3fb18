"""The names that Relay knows of the directory: read when it can be, and again when one is unknown."""

from __future__ import annotations

import asyncio
from pathlib import Path

from services.relay.directory_names import DirectoryNames
from snavio.rpc.channel import MeshChannel
from snavio.rpc.credentials import CertificateFiles
from snavio.v1.registry_pb2 import (
    Change,
    ClaimTargetRequest,
    CreateTenantRequest,
    Target,
    Tenant,
)
from tests.support.control import ADMIN, control_plane

PATIENCE_S = 60.0


async def test_a_name_that_no_change_told_of_is_found_by_reading_again(tmp_path: Path) -> None:
    async with control_plane(tmp_path / "state", registry=True) as control:
        files = CertificateFiles.in_folder(control.mesh.certificates("relay"))
        registry = MeshChannel(control.mesh.registry, files=files, service="registry")
        names = DirectoryNames(registry)
        await names.read()
        assert not names.knows("acme")
        await names.start()
        await control.write(ADMIN, "CreateTenant", CreateTenantRequest(tenant=Tenant(tenant="acme")))
        claim = ClaimTargetRequest(target=Target(target="bot", tenant="acme"))
        await control.write(ADMIN, "ClaimTarget", claim)
        async with asyncio.timeout(PATIENCE_S):
            while not names.knows("acme") or names.owner("bot") != "acme":
                await asyncio.sleep(0.05)
        names.take(Change(target=Target(target="bot"), deleted=True))
        names.take(Change(tenant=Tenant(tenant="globex")))
        assert names.knows("globex") and names._owners == {}
        await names.stop()
        await registry.close()
