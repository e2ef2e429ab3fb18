"""Decides which caller may have a certificate made for which identity, and for how long.

Never issues a mesh identity to any other caller: it could then act as every service of the mesh.
"""

from __future__ import annotations

from collections.abc import Callable

from services.signer.certificates.issuing import (
    MAX_ASSUMED_S,
    CertificateIssuer,
    CertificateRequest,
    Issued,
    require_known,
)
from snavio.domain.delegation import require_delegated
from snavio.domain.identity import Identity, IdentityKind, parse_identity
from snavio.errors import NotAllowed
from snavio.pki import public_key_of_csr
from snavio.ports.keystore import KeyStore
from snavio.rpc.peer import Peer


class IssuancePolicy:
    """Decides about requests of callers that have a certificate already."""

    def __init__(
        self,
        *,
        certificates: CertificateIssuer,
        store: KeyStore,
        trust_domain: str,
        ttl_s: Callable[[IdentityKind], int],
    ) -> None:
        self._certificates = certificates
        self._store = store
        self._trust_domain = trust_domain
        self._ttl_s = ttl_s

    async def issue(self, *, csr_pem: str, spiffe_id: str, ttl_s: int, caller: Peer) -> Issued:
        """A certificate for the key in the request and for that identity; its other wishes are ignored."""
        identity = parse_identity(spiffe_id, trust_domain=self._trust_domain)
        _require_may_certify(caller.identity, identity)
        public_key = public_key_of_csr(csr_pem)
        cap = self._ttl_s(identity.kind)
        renewal = identity == caller.identity
        known = await self._certificates.find(caller.cert_serial) if renewal else None
        if renewal and identity.kind is IdentityKind.SERVICE:
            known = require_known(known, identity)
        delegate = known.delegate if known is not None else ""
        if delegate:
            # No way around AssumeService to a longer life.
            cap = min(cap, MAX_ASSUMED_S)
        return await self._certificates.certify(
            CertificateRequest(
                public_key, identity, min(ttl_s or cap, cap), str(caller.identity), caller, delegate
            ),
            require=lambda: self._require_still_delegated(identity, delegate, renewal=renewal),
        )

    async def _require_still_delegated(self, identity: Identity, delegate: str, *, renewal: bool) -> None:
        """A service that renews itself needs the right of the principal that first assumed it."""
        if not renewal or identity.kind is not IdentityKind.SERVICE:
            return
        known = await self._store.delegation(identity.source)
        if delegate:
            principal = parse_identity(delegate, trust_domain=self._trust_domain)
            require_delegated(known, identity.source, principal)
        elif known is not None:
            # An operator made it, so it needs no principal; suspended it is all the same.
            require_delegated(known, identity.source, None)


def _require_may_certify(caller: Identity, identity: Identity) -> None:
    # A principal that renews itself goes on the chain of its first certificate: revoking any of them ends all later.
    renews_itself = identity == caller and caller.kind is not IdentityKind.JOB
    names_another = caller.kind is IdentityKind.OPERATOR and identity.kind is not IdentityKind.MESH
    if not renews_itself and not names_another:
        raise NotAllowed(
            f"{caller} may not have a certificate made for {identity}.", reason="not-your-identity"
        )
