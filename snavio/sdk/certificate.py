"""A service's own certificate, kept from ending: had through a principal that may act as it, or renewed by itself.
The principal's own is then renewed too.

Never keeps a connection open between two renewals, and never takes a certificate for another service.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import structlog

from snavio.clock import Clock
from snavio.domain.identity import Identity, IdentityKind, parse_identity, valid_name
from snavio.errors import BadRequest, SnavioError, StateError, Unavailable
from snavio.rpc.credentials import CertificateFiles
from snavio.rpc.renewal import Certified, Leaf, Renewal, replace_certificate
from snavio.sdk.principal import ask_certificate, principal_renewal
from snavio.sdk.retry_forever import persist
from snavio.v1.signer_pb2 import AssumeServiceRequest

METHOD = "/snavio.v1.Signer/AssumeService"
REFUSED = frozenset({"certificate-revoked", "certificate-expired"})
"""Reasons for which another certificate helps."""
FIRST_PAUSE_S = 0.25
LONGEST_PAUSE_S = 10.0
SETTLE_S = 2.0


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
        self._replacing = asyncio.Lock()
        # Everything that is under way is refused at once, and the connections follow the files within a second: one
        # certificate is enough for all of it.
        self._replaced_mono_ns = -(1 << 62)
        self._log = structlog.get_logger().bind(certificates=str(self._folder))
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
        await self.obtain(within_s=within_s)
        self._renewal.start()
        if self._principal_renewal is not None:
            self._principal_renewal.start()

    async def obtain(self, *, within_s: float) -> None:
        """Have a certificate that is good now; without a principal, nothing can be done about one that is not."""
        if self._principal is None:
            return
        try:
            async with asyncio.timeout(within_s):
                await self._begin()
        except TimeoutError:
            raise Unavailable(f"Signer could not be reached within {within_s:.0f} s.") from None

    async def replaced(self, error: Exception | None) -> bool:
        """Get another certificate through the principal, if `error` says that this one is good no more.

        Passes on the refusal of the principal; false where there is nothing to replace it with.
        """
        if self._principal is None or getattr(error, "reason", "") not in REFUSED:
            return False
        async with self._replacing:
            now = self._clock.mono_ns()
            if now - self._replaced_mono_ns >= SETTLE_S * 1e9:
                await self._assume()
                self._replaced_mono_ns = self._clock.mono_ns()
        return True

    async def keep_accepted(self, refusal: Callable[[], Exception | None]) -> None:
        """Replace the certificate whenever `refusal` tells that the mesh refuses it; until cancelled.

        An identity that was revoked as a whole gets none until it is restored: this goes on asking, ever more rarely.
        """
        pause_s = FIRST_PAUSE_S
        while True:
            await asyncio.sleep(pause_s)
            try:
                done = await self.replaced(refusal())
            except SnavioError as error:
                self._log.warning("revoked certificate not replaced", reason=error.reason)
                pause_s = min(LONGEST_PAUSE_S, 2 * pause_s)
            else:
                # The connections follow the files within a second, and only then tell whether it is accepted.
                pause_s = SETTLE_S if done else FIRST_PAUSE_S

    async def stop(self) -> None:
        """End the background work."""
        await self._renewal.stop()
        if self._principal_renewal is not None:
            await self._principal_renewal.stop()

    async def _begin(self) -> None:
        leaf = await asyncio.to_thread(self._present)
        if leaf is None:
            async for attempt in persist(Unavailable, first_pause_s=0.1):
                with attempt:
                    await self._assume()
        else:
            try:
                await self._renewal.renew_if_due()
            except SnavioError:
                # It is good for a while; the background goes on trying.
                if leaf.not_after_ns <= self._clock.unix_ns():
                    raise

    async def _assume(self) -> None:
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
        request = AssumeServiceRequest(
            source=identity.source, csr_pem=csr_pem.decode(), ttl_seconds=self._ttl_s
        )
        files = CertificateFiles.in_folder(self._principal or self._folder)
        return await ask_certificate(
            self._signer, METHOD, request, files=files, trust_domain=self._trust_domain
        )


def _service(source: str, trust_domain: str) -> Identity:
    tenant, _, name = source.partition("/")
    if not valid_name(tenant) or not valid_name(name):
        raise BadRequest("source: must be <tenant>/<service>, such as acme/billing.", reason="bad-field")
    return Identity(trust_domain, IdentityKind.SERVICE, name, tenant)
