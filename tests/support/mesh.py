"""A whole mesh of real processes for tests and benchmarks, with a demo tenant registered."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from services.signer.bootstrap import prepare
from services.signer.settings import SignerSettings
from snavio.admin.operator import Operator
from snavio.clock import SystemClock
from snavio.domain.identity import DEFAULT_TRUST_DOMAIN, Identity, IdentityKind
from snavio.host.introspection import METHOD
from snavio.launch.processes import MeshProcesses
from snavio.rpc.channel import MeshChannel
from snavio.rpc.credentials import CertificateFiles
from snavio.sdk import Consumer, Producer
from snavio.v1.introspection_pb2 import StatusRequest, StatusResponse

TENANT = "acme"
TARGET = "discord-bot"
NAME = "notify-user"
TOPIC = f"{TENANT}/{TARGET}"
SOURCE = f"{TENANT}/billing"


@dataclass(frozen=True, slots=True)
class DemoMesh:
    """A running mesh; `acme/billing` may send `notify-user` to `discord-bot`, which `acme/bot` consumes."""

    processes: MeshProcesses

    @property
    def addresses(self) -> dict[str, str]:
        return self.processes.addresses

    def certificates(self, name: str) -> Path:
        return self.processes.state_dir / "certs" / name

    def operator(self) -> Operator:
        return Operator(
            signer_address=self.addresses["signer"],
            registry_address=self.addresses["registry"],
            certificates=self.certificates("operator-admin"),
        )

    def producer(self, service: str = "billing") -> Producer:
        return Producer(
            shield=self.addresses["shield"],
            signer=self.addresses["signer"],
            certificates=self.certificates(f"{TENANT}-{service}"),
        )

    def consumer(self, service: str = "bot", *, topic: str = TOPIC, visibility_s: float = 30.0) -> Consumer:
        return Consumer(
            mailbox=self.addresses["mailbox"],
            topic=topic,
            certificates=self.certificates(f"{TENANT}-{service}"),
            visibility_s=visibility_s,
        )

    async def counters(self, service: str) -> dict[str, int]:
        """Counters of a service, as an operator reads them."""
        files = CertificateFiles.in_folder(self.certificates("operator-admin"))
        channel = MeshChannel(self.addresses[service], files=files, service=service)
        try:
            told = await channel.call(METHOD, StatusRequest(), StatusResponse, timeout_s=10)
        finally:
            await channel.close()
        return {each.name: each.value for each in told.counter}

    async def another(self, service: str, instance: str, **settings: str) -> str:
        """One more instance of a service, ready; its address. See `MeshProcesses.spawn_another`."""
        # Not on another thread: the process ends with the thread that started it.
        address = self.processes.spawn_another(service, instance, **settings)
        await asyncio.to_thread(self.processes.wait_ready, instance)
        return address

    async def register_service(self, operator: Operator, service: str) -> None:
        """A service of the demo tenant, with a certificate folder."""
        await operator.register_service(TENANT, service)
        identity = Identity(DEFAULT_TRUST_DOMAIN, IdentityKind.SERVICE, service, TENANT)
        await operator.certify(identity, self.certificates(f"{TENANT}-{service}"))

    async def register(self) -> None:
        """The demo tenant."""
        async with self.operator() as operator:
            await operator.create_tenant(TENANT)
            for service in ("billing", "bot"):
                await self.register_service(operator, service)
            await operator.claim_target(TARGET, TENANT)
            await operator.put_route(TARGET, NAME)
            await operator.grant(SOURCE, TARGET, NAME)


@asynccontextmanager
async def demo_mesh(
    folder: Path, *, settings: dict[str, dict[str, object]] | None = None
) -> AsyncIterator[DemoMesh]:
    """Start a mesh in `folder`, register the demo tenant, and stop everything at the end."""
    # Four times in a second: the caches of eight services that pull more often take a sixth of a core all the time.
    fast_pulls: dict[str, dict[str, object]] = {"mesh": {"pull_interval_ms": 250}}
    processes = MeshProcesses.temporary(folder, settings={**fast_pulls, **(settings or {})})
    # In this process: a Python that starts for it alone costs more than all that it does.
    signer = SignerSettings.model_validate((settings or {}).get("signer", {}))
    await prepare(processes.mesh, signer, clock=SystemClock())
    processes.begin()
    try:
        mesh = DemoMesh(processes)
        await mesh.register()
        yield mesh
    finally:
        processes.stop()
