"""Lets a principal act as a service: a certificate of at most an hour, for principals that the registration names.

Needs no operator, and never relies on a right that was there an hour ago: each renewal is checked again.
"""

from __future__ import annotations

from services.signer.certificates.issuing import (
    MAX_ASSUMED_S,
    CertificateIssuer,
    CertificateRequest,
    Issued,
    require_known,
)
from services.signer.certificates.revocation import CertificateRevocation
from snavio.domain.delegation import Delegation, require_delegated
from snavio.domain.directory import require_source
from snavio.domain.identity import Identity, IdentityKind, parse_identity
from snavio.errors import NotAllowed
from snavio.pki import public_key_of_csr, require_csr_names
from snavio.ports.keystore import KeyStore
from snavio.rpc.peer import Peer


class ServiceAssumption:
    """The rights to act as services, and their use."""

    def __init__(
        self,
        *,
        store: KeyStore,
        certificates: CertificateIssuer,
        revoking: CertificateRevocation,
        trust_domain: str,
        ttl_s: int,
    ) -> None:
        self._store = store
        self._revoking = revoking
        self._certificates = certificates
        self._trust_domain = trust_domain
        self._ttl_s = min(ttl_s, MAX_ASSUMED_S)

    async def assume(self, *, source: str, csr_pem: str, ttl_s: int, caller: Peer) -> Issued:
        """A certificate for `source`, if the caller is named by its registration or is the service itself."""
        service = self._identity(source)
        delegate = await self._delegate(service, caller)

        async def require() -> None:
            require_delegated(await self._store.delegation(source), source, delegate)

        # Once before the request's signature is checked, which costs more, and once at the moment of issuing.
        await require()
        public_key = public_key_of_csr(csr_pem)
        require_csr_names(csr_pem, service)
        return await self._certificates.certify(
            CertificateRequest(
                public_key,
                service,
                min(ttl_s or self._ttl_s, self._ttl_s),
                str(caller.identity),
                caller,
                str(delegate) if delegate is not None else "",
            ),
            require=require,
        )

    async def set_principals(
        self, *, source: str, principals: tuple[str, ...], suspended: bool, removed: bool, actor: Identity
    ) -> tuple[str, ...]:
        """Replace the principals of a service; returns the serials of certificates that were revoked for it."""
        service = self._identity(source)
        after = None if removed else Delegation(source, tuple(sorted(set(principals))), suspended)
        async with self._revoking.taking_turns():
            before = await self._store.delegation(source)
            kept = set(after.principals) if after is not None else set()
            gone = [name for name in (before.principals if before is not None else ()) if name not in kept]
            # Revoked first: had the right been written and the revocation failed, nobody would know any more, at the
            # next attempt, whose certificates were to end.
            if removed:
                # Also those that an operator made, which no principal's right stands behind.
                revoked = await self._revoking.revoke_service(service.spiffe_id, caller=actor)
            else:
                revoked = await self._revoking.revoke_delegates(
                    service.spiffe_id,
                    [
                        Identity(self._trust_domain, IdentityKind.PRINCIPAL, name, service.tenant).spiffe_id
                        for name in gone
                    ],
                    caller=actor,
                )
            await self._store.put_delegation(source, after)
            return revoked

    async def _delegate(self, service: Identity, caller: Peer) -> Identity | None:
        """The principal whose right is used: the caller, or for a service the one that first assumed it."""
        if caller.identity.kind is IdentityKind.PRINCIPAL:
            return caller.identity
        if caller.identity != service:
            raise NotAllowed(f"{caller.identity} may not act as {service.source}.", reason="not-delegated")
        known = require_known(await self._certificates.find(caller.cert_serial), service)
        if not known.delegate:
            return None
        return parse_identity(known.delegate, trust_domain=self._trust_domain)

    def _identity(self, source: str) -> Identity:
        service = require_source(source, "source")
        return Identity(self._trust_domain, IdentityKind.SERVICE, service.service, service.tenant)
