"""A service's own certificate, kept from ending: had through a principal that may act as it, or renewed by itself.
The principal's own is then renewed too.

Never keeps a connection open between two renewals, and never takes a certificate for another service.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from snavio.clock import Clock
from snavio.domain.identity import Identity, IdentityKind, parse_identity, valid_name
from snavio.errors import BadRequest, SnavioError, StateError, Unavailable
from snavio.rpc.channel import MeshChannel
from snavio.rpc.credentials import CertificateFiles
from snavio.rpc.renewal import Certified, Leaf, Renewal, replace_certificate
from snavio.sdk.principal import principal_renewal
from snavio.sdk.retry_forever import persist
from snavio.v1.signer_pb2 import AssumeServiceRequest, IssueCertificateResponse

METHOD = "/snavio.v1.Signer/AssumeService"
CALL_SECONDS = 5.0


class ServiceCertificate:
    """The certificate in `folder`. With `principal`, a folder of a principal's certificate, it is asked for with
    that, and need not be there at the start if `source` says whose it is; without, it renews itself."""

    def __init__(
        self,
        folder: str | Path,
        *,
        signer: str,
        clock: Clock,
        trust_domain: str,
        source: str = "",
        principal: str | Path | None = None,
        ttl_s: int = 0,
    ) -> None:
        self._folder = Path(folder)
        self._signer = signer
        self._clock = clock
        self._trust_domain = trust_domain
        self._principal = None if principal is None else Path(principal)
        self._ttl_s = ttl_s
        self._wanted = _service(source, trust_domain) if source else None
        self._renewal = Renewal(self._folder, self._certify, clock=clock)
        # A process that renews a service for months must not lose it because the principal's own certificate ended.
        self._principal_renewal = (
            principal_renewal(self._principal, signer=signer, clock=clock, trust_domain=trust_domain)
            if self._principal is not None
            else None
        )

    async def start(self, *, within_s: float) -> None:
        """Have a certificate that is good, then keep it so in the background; raises when there is none in time."""
        if self._principal is not None:
            try:
                async with asyncio.timeout(within_s):
                    await self._begin()
            except TimeoutError:
                raise Unavailable(f"Signer could not be reached within {within_s:.0f} s.") from None
        self._renewal.start()
        if self._principal_renewal is not None:
            self._principal_renewal.start()

    async def stop(self) -> None:
        """End the background work."""
        await self._renewal.stop()
        if self._principal_renewal is not None:
            await self._principal_renewal.stop()

    async def _begin(self) -> None:
        leaf = await asyncio.to_thread(self._present)
        if leaf is not None:
            try:
                await self._renewal.renew_if_due()
            except SnavioError:
                # It is good for a while; the background goes on trying.
                if leaf.not_after_ns <= self._clock.unix_ns():
                    raise
            return
        async for attempt in persist(Unavailable, first_pause_s=0.1):
            with attempt:
                await replace_certificate(self._folder, self._certify, spiffe_id=self._identity().spiffe_id)

    def _present(self) -> Leaf | None:
        """The certificate that is there, if it is the one that is wanted."""
        try:
            leaf = Leaf.in_folder(self._folder)
        except StateError:
            if self._wanted is None:
                raise BadRequest(
                    f"{self._folder} has no certificate yet: say `source`, such as acme/billing.",
                    reason="no-source",
                ) from None
            return None
        if self._wanted is not None and leaf.spiffe_id != self._wanted.spiffe_id:
            raise BadRequest(
                f"{self._folder} holds a certificate of {leaf.spiffe_id}, not of {self._wanted.source}.",
                reason="wrong-source",
            )
        return leaf

    def _identity(self) -> Identity:
        if self._wanted is None:
            leaf = Leaf.in_folder(self._folder)
            self._wanted = parse_identity(leaf.spiffe_id, trust_domain=self._trust_domain)
        return self._wanted

    async def _certify(self, csr_pem: bytes) -> Certified:
        identity = await asyncio.to_thread(self._identity)
        channel = MeshChannel(
            self._signer,
            files=CertificateFiles.in_folder(self._principal or self._folder),
            service="signer",
            trust_domain=self._trust_domain,
        )
        try:
            issued = await channel.call(
                METHOD,
                AssumeServiceRequest(
                    source=identity.source, csr_pem=csr_pem.decode(), ttl_seconds=self._ttl_s
                ),
                IssueCertificateResponse,
                timeout_s=CALL_SECONDS,
            )
        finally:
            await channel.close()
        return Certified(issued.certificate_pem.encode(), issued.ca_pem.encode())


def _service(source: str, trust_domain: str) -> Identity:
    tenant, _, name = source.partition("/")
    if not valid_name(tenant) or not valid_name(name):
        raise BadRequest("source: must be <tenant>/<service>, such as acme/billing.", reason="bad-field")
    return Identity(trust_domain, IdentityKind.SERVICE, name, tenant)
