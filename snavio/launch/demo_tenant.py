"""The tenant that a newcomer finds in every mesh on this machine: `demo`, whose `billing` may notify `bot`.

Never changes what is there already: registering again is the same as registering once.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

import structlog
from cryptography import x509

from snavio.admin.operator import Operator
from snavio.clock import Clock
from snavio.config import MeshSettings
from snavio.domain.identity import Identity, IdentityKind
from snavio.errors import SnavioError
from snavio.pki import CERTIFICATE_FILE, not_after_unix_ns

TENANT: Final = "demo"
PRODUCER: Final = "billing"
CONSUMER: Final = "bot"
TARGET: Final = "discord-bot"
NAME: Final = "notify-user"
LIFETIME_S: Final = 3600
LOOK_SECONDS: Final = 60.0
PULL_SECONDS: Final = 0.1
"""The longest time of a pull itself, on a machine that is not overloaded."""


def folder_name(service: str) -> str:
    """Name of the certificate folder of one of the tenant's services."""
    return f"{TENANT}-{service}"


class DemoTenant:
    """Registers the tenant, and keeps the certificates of its services valid."""

    def __init__(self, mesh: MeshSettings, *, operator_certificates: Path, clock: Clock) -> None:
        self._mesh = mesh
        self._certificates = operator_certificates
        self._clock = clock
        self._log = structlog.get_logger()

    async def register(self) -> None:
        """Tenant, services, target, route and right; certificates where they end soon.

        Returns when the mesh has heard of it, so that the first command does not come too early.
        """
        new = not self._mesh.certificates(folder_name(PRODUCER)).exists()
        async with self._operator() as operator:
            await operator.create_tenant(TENANT)
            for service in (PRODUCER, CONSUMER):
                await operator.register_service(TENANT, service)
            await self.open_target(operator, TARGET, NAME)
            await self._certify(operator)
        if new:
            await self._heard()

    async def register_target(self, target: str, name: str) -> None:
        """One more target of the tenant, which its producer may send to."""
        async with self._operator() as operator:
            await self.open_target(operator, target, name)
        await self._heard()

    async def renew(self) -> None:
        """Renew certificates before they end, for ever; while Signer is away, again soon."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                async with self._operator() as operator:
                    await self._certify(operator)
            except SnavioError as error:
                self._log.warning("demo certificates not renewed", reason=error.reason)

    @staticmethod
    async def open_target(operator: Operator, target: str, name: str) -> None:
        """A target with one route, and the producer's right to use it."""
        await operator.claim_target(target, TENANT)
        await operator.put_route(target, name)
        await operator.grant(f"{TENANT}/{PRODUCER}", target, name)

    async def _certify(self, operator: Operator) -> None:
        for service in (PRODUCER, CONSUMER):
            folder = self._mesh.certificates(folder_name(service))
            if self._left_s(folder) < LIFETIME_S / 2:
                identity = Identity(self._mesh.trust_domain, IdentityKind.SERVICE, service, TENANT)
                await operator.certify(identity, folder)

    async def _heard(self) -> None:
        """Wait for the next pull of Shield and Fast; jitter only makes it come sooner."""
        await asyncio.sleep(self._mesh.pull_interval_ms / 1000 + PULL_SECONDS)

    def _left_s(self, folder: Path) -> float:
        try:
            leaf = x509.load_pem_x509_certificate((folder / CERTIFICATE_FILE).read_bytes())
        except (OSError, ValueError):
            return 0.0
        return (not_after_unix_ns(leaf) - self._clock.unix_ns()) / 1e9

    def _operator(self) -> Operator:
        return Operator(
            signer_address=self._mesh.signer,
            registry_address=self._mesh.registry,
            certificates=self._certificates,
            trust_domain=self._mesh.trust_domain,
        )
