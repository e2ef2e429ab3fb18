"""The caller of a request, and the part of a tenant that it may read.

Never tells a stranger whether a tenant exists: another tenant's name and one that nobody has get the same answer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from starlette.requests import Request

from services.gateway.tenants import TenantNames
from snavio.domain.identity import IdentityKind
from snavio.errors import BadRequest, NotAllowed, NotFound
from snavio.http.protocol import PEER
from snavio.rpc.authorisation import authorise, refusal
from snavio.rpc.certificate_gate import CertificateGate
from snavio.rpc.peer import Peer, Peers

CAPABILITY_HEADER: Final = "snavio-capability"


@dataclass(frozen=True, slots=True)
class StreamScope:
    """The part of a tenant's stream that somebody may read; empty sets are everything."""

    sources: frozenset[str] = frozenset()
    families: frozenset[str] = frozenset()

    def narrowed(self, sources: frozenset[str], families: frozenset[str]) -> StreamScope:
        """The scope of a request within this one; NotAllowed where that leaves nothing."""
        return StreamScope(_within(self.sources, sources, "source"), _within(self.families, families, "type"))


EVERYTHING: Final = StreamScope()
CheckCapability = Callable[[str, Peer, str], Awaitable[StreamScope]]
"""The scope of a capability in a peer's hands for a tenant's stream; NotAllowed or Unauthenticated otherwise."""


@dataclass(frozen=True, slots=True)
class Reader:
    """One caller with the right to read of one tenant."""

    peer: Peer
    tenant: str
    scope: StreamScope
    capability: str = ""


class Callers:
    """Judges requests by certificate, authorisation table, tenant and capability, in this order."""

    def __init__(
        self, *, peers: Peers, gate: CertificateGate, tenants: TenantNames, check_capability: CheckCapability
    ) -> None:
        self._peers = peers
        self._gate = gate
        self._tenants = tenants
        self._check_capability = check_capability

    async def admit(self, request: Request, operation: str) -> Reader:
        """The caller of `operation` on the tenant in the path; raises what speaks against it."""
        peer = self.identify(request)
        tenant = request.path_params["tenant"]
        if not authorise(operation, peer.identity):
            raise NotAllowed(refusal(operation, peer.identity))
        caller = await self._with_right(request, peer, tenant)
        if tenant not in self._tenants:
            raise NotFound(f"There is no tenant {tenant[:80]!r}.", reason="unknown-tenant")
        return caller

    def identify(self, request: Request) -> Peer:
        """The verified peer of a request; Unauthenticated without a valid certificate."""
        peer = self._peers.of_certificate(request.scope.get(PEER))
        self._gate.require(peer)
        return peer

    async def _with_right(self, request: Request, peer: Peer, tenant: str) -> Reader:
        identity = peer.identity
        if identity.kind is IdentityKind.OPERATOR:
            return Reader(peer, tenant, EVERYTHING)
        if identity.kind is IdentityKind.PRINCIPAL and identity.tenant == tenant:
            return Reader(peer, tenant, EVERYTHING)
        presented = request.headers.getlist(CAPABILITY_HEADER)
        if len(presented) > 1:
            raise BadRequest(f"{CAPABILITY_HEADER}: more than one.", reason="bad-header")
        if not presented:
            raise NotAllowed(
                f"{identity} may read the stream of {tenant[:80]!r} only with a capability for it.",
                reason="not-your-tenant" if identity.tenant != tenant else "cap-required",
            )
        scope = await self._check_capability(presented[0], peer, tenant)
        return Reader(peer, tenant, scope, presented[0])


def _within(allowed: frozenset[str], asked: frozenset[str], what: str) -> frozenset[str]:
    if not allowed or not asked:
        return allowed or asked
    if refused := sorted(asked - allowed):
        raise NotAllowed(f"The capability is not for {what} {refused[0]!r}.", reason="cap-scope")
    return asked
