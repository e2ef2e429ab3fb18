"""Certificates and denylist filled to their bounds: an operator's revocation still reaches every service.

The full counts, a million certificates and 50,000 revocations, are for `SNAVIO_FULL=1`.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse

from services.signer.bootstrap import prepare
from services.signer.settings import SignerSettings
from snavio.adapters.embedded.checksums import connect
from snavio.adapters.embedded.store_file import checksum
from snavio.admin.operator import Operator
from snavio.clock import SystemClock
from snavio.domain.identity import Identity, IdentityKind
from snavio.errors import Saturated, SnavioError, Unauthenticated
from snavio.host.shares import MESH
from snavio.launch.processes import MeshProcesses
from snavio.pki import make_key_and_csr
from snavio.ports.keystore import Revocation
from snavio.rpc.channel import MeshChannel
from snavio.rpc.credentials import CertificateFiles
from snavio.v1 import signer_pb2 as sig
from snavio.wiring import open_key_store
from tests.support.mesh import DemoMesh

FULL = os.environ.get("SNAVIO_FULL") == "1"
BOUNDS: dict[str, object] = (
    {} if FULL else {"max_certificates": 4_000, "certificates_per_identity": 800, "max_revocations": 500}
)
FELT_WITHIN_S = 5.0
HOUR_NS = 3600 * 10**9
CERTIFY = "/snavio.v1.Signer/IssueCertificate"


def service(tenant: str, name: str) -> Identity:
    return Identity("snavio.local", IdentityKind.SERVICE, name, tenant)


@asynccontextmanager
async def full_mesh(folder: Path) -> AsyncIterator[DemoMesh]:
    processes = MeshProcesses.temporary(folder, settings={"signer": BOUNDS})
    settings = SignerSettings.model_validate(BOUNDS)
    await prepare(processes.mesh, settings, clock=SystemClock())
    share = processes.mesh.share("certificates", settings.max_certificates)
    # All that tenants may have but for a little; `acme` has its own share but for three.
    fill_certificates(settings.ledger_path(processes.mesh), "acme", share.per_tenant - 3)
    others = share.total - share.reserve - share.per_tenant
    for number in range(6):
        fill_certificates(settings.ledger_path(processes.mesh), f"t{number}", others // 6 - 4)
    await fill_denylist(processes, settings)
    processes.begin()
    try:
        yield DemoMesh(processes)
    finally:
        processes.stop()


def fill_certificates(path: Path, tenant: str, count: int) -> None:
    """Rows as Signer writes them, many at once."""
    now = time.time_ns()

    def rows() -> Iterable[tuple[object, ...]]:
        for number in range(count):
            serial = f"{abs(hash((tenant, number))):x}{number:x}"
            spiffe_id = service(tenant, f"s{number % 200}").spiffe_id
            fields = (serial, spiffe_id, "", "", "", now, now + HOUR_NS, serial, "", True)
            yield (*fields, checksum(fields), tenant)

    connection = connect(path)
    with connection:
        connection.executemany(
            "INSERT INTO issued (serial, spiffe_id, issued_to, parent, delegate, issued_ns, not_after_ns, root, via,"
            " marked, checksum, tenant) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            rows(),
        )
    connection.close()


async def fill_denylist(processes: MeshProcesses, settings: SignerSettings) -> None:
    """To the last entry: tenants up to the reserve, operators the rest."""
    mesh, now = processes.mesh, time.time_ns()
    limit = mesh.share("revocations", settings.max_revocations)
    holders = ["acme"] * limit.per_tenant
    holders += [f"t{number}" for number in range(limit.total - limit.reserve - limit.per_tenant)]
    holders += [MESH] * limit.reserve
    entries = [
        Revocation(
            f"f{number:x}",
            now,
            now + HOUR_NS,
            actor="",
            reason="",
            before_ns=now,
            identity=service(holder or f"u{number}", f"s{number}").spiffe_id,
            holder=holder,
        )
        for number, holder in enumerate(holders)
    ]
    store = await open_key_store(
        settings.store_path(mesh), sealing_key=settings.sealing_key_path(mesh), kms=None
    )
    await store.revoke_all(entries, now_ns=now, limit=limit)
    assert sum((await store.revocation_holders()).values()) == limit.total
    await store.close()


def channel_to(mesh: DemoMesh, name: str, folder: str) -> MeshChannel:
    return MeshChannel(
        mesh.addresses[name], files=CertificateFiles.in_folder(mesh.certificates(folder)), service=name
    )


async def refused_by(mesh: DemoMesh, name: str, folder: str) -> float:
    """The time at which a service begins to refuse the certificate in `folder`; before that it must serve it."""
    channel = channel_to(mesh, name, folder)
    try:
        while True:
            try:
                await channel.call(
                    "/grpc.health.v1.Health/Check", HealthCheckRequest(), HealthCheckResponse, timeout_s=5.0
                )
            except Unauthenticated as refusal:
                assert refusal.reason == "certificate-revoked"
                return time.monotonic()
            except SnavioError:
                pass
            await asyncio.sleep(0.05)
    finally:
        await channel.close()


async def renew(mesh: DemoMesh, folder: str, identity: Identity) -> None:
    channel = channel_to(mesh, "signer", folder)
    request = sig.IssueCertificateRequest(
        csr_pem=make_key_and_csr()[1].decode(), spiffe_id=identity.spiffe_id
    )
    try:
        await channel.call(CERTIFY, request, sig.IssueCertificateResponse, timeout_s=10.0)
    finally:
        await channel.close()


async def test_operators_revocation_is_felt_everywhere_with_everything_full(tmp_path: Path) -> None:
    thief, rival = service("acme", "thief"), service("rival", "billing")
    async with full_mesh(tmp_path / "mesh") as mesh:
        operator: Operator
        async with mesh.operator() as operator:
            serial = await operator.certify(thief, mesh.certificates("thief"))
            await operator.certify(rival, mesh.certificates("rival"))
            with pytest.raises(Saturated) as refusal:
                for _ in range(5):
                    await renew(mesh, "thief", thief)
            assert refusal.value.reason == "tenant-share"
            assert refusal.value.retry_after_ms
            await renew(mesh, "rival", rival)
            felt = [asyncio.create_task(refused_by(mesh, name, "thief")) for name in mesh.addresses]
            await asyncio.sleep(0.5)
            assert not any(task.done() for task in felt)
            await operator.revoke_certificate(serial, reason="stolen")
            # From the operator's acknowledgement, as `snavio meter revocation` counts.
            begun = time.monotonic()
            async with asyncio.timeout(30):
                last = max(await asyncio.gather(*felt))
            print(f"felt by {len(felt)} services within {last - begun:.2f} s")
            assert last - begun < FELT_WITHIN_S
            await renew(mesh, "rival", rival)
