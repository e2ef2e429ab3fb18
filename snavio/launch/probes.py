"""Asks every service of a mesh whether it serves, and for a reading of itself.

Never waits longer than a short deadline; only `health` raises because a service is away.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from grpc_health.v1 import health_pb2

from snavio.config import MeshSettings
from snavio.errors import SnavioError
from snavio.launch.processes import SERVICES
from snavio.rpc.channel import MeshChannel
from snavio.rpc.credentials import CertificateFiles
from snavio.sdk.lifetime import Closable
from snavio.v1.introspection_pb2 import StatusRequest, StatusResponse

CALL_SECONDS: Final = 1.0


class Probes(Closable):
    """One channel per service, under an operator's certificate."""

    def __init__(self, mesh: MeshSettings, *, certificates: Path, services: Sequence[str] = SERVICES) -> None:
        files = CertificateFiles.in_folder(certificates)
        self._channels = {
            name: MeshChannel(
                str(getattr(mesh, name)), files=files, service=name, trust_domain=mesh.trust_domain
            )
            for name in services
        }

    async def close(self) -> None:
        """Let go of every connection."""
        for channel in self._channels.values():
            await channel.close()

    async def serving(self, name: str) -> bool:
        """True when the service's health is SERVING now."""
        try:
            return await self.health(name)
        except SnavioError:
            return False

    async def health(self, name: str) -> bool:
        """The same; raises the service's refusal, or that it is away."""
        answer = await self._channels[name].call(
            "/grpc.health.v1.Health/Check",
            health_pb2.HealthCheckRequest(),
            health_pb2.HealthCheckResponse,
            timeout_s=CALL_SECONDS,
        )
        return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)

    async def status(self, name: str, *, tenant: str = "") -> StatusResponse | None:
        """The service's reading of itself, with all that `tenant` holds; None when it is away."""
        try:
            return await self._channels[name].call(
                "/snavio.v1.Introspection/Status",
                StatusRequest(tenant=tenant),
                StatusResponse,
                timeout_s=CALL_SECONDS,
            )
        except SnavioError:
            return None

    async def statuses(self, *, tenant: str = "") -> dict[str, StatusResponse | None]:
        """The same for all of them at once."""
        answers = await asyncio.gather(*(self.status(name, tenant=tenant) for name in self._channels))
        return dict(zip(self._channels, answers, strict=True))
