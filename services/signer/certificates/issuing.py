"""Issues certificates that were decided on elsewhere, and knows which were issued.

Never issues what it has not written down, nor for an identity that is barred, nor to a certificate while that one is
being revoked, nor more to one identity or tenant than its part: a thief's renewals must not use up everybody's room.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass

import structlog
from cryptography.hazmat.primitives.asymmetric import ec

from services.signer.certificates.issue_order import IssueOrder
from snavio.clock import Clock
from snavio.domain.identity import Identity, IdentityKind, parse_identity
from snavio.domain.lineage import Lineage, inherited, tenant_of_spiffe
from snavio.errors import NotAllowed, Saturated
from snavio.pki import (
    CertificateAuthority,
    certificate_pem,
    issue_leaf,
    not_after_unix_ns,
    public_key_of_csr,
    serial_of,
)
from snavio.ports.certificates import CertificateLedger, IssuedCertificate
from snavio.rpc.certificate_gate import CertificateGate
from snavio.rpc.peer import Peer
from snavio.rpc.renewal import Certified, Certify
from snavio.rpc.throttle import Rate, Rates

MAX_LISTED = 1_000
MAX_ASSUMED_S = 3600
# Those that are looked at when there is no room, for some that are dead.
LOOKED_AT = 256
TENANT_RATE = 4


@dataclass(frozen=True, slots=True)
class Issued:
    """A fresh certificate."""

    certificate_pem: str
    ca_pem: str
    serial: str
    not_after_ns: int


@dataclass(frozen=True, slots=True)
class CertificateRequest:
    """A requested certificate, and the right behind the request."""

    public_key: ec.EllipticCurvePublicKey
    identity: Identity
    ttl_s: int
    actor: str
    parent: Peer | None = None
    """The certificate of the call."""
    delegate: str = ""
    """The principal whose right is used."""


async def _nothing() -> None:
    return


class CertificateIssuer:
    """The installation's CA at work."""

    def __init__(
        self,
        *,
        ca: CertificateAuthority,
        ledger: CertificateLedger,
        gate: CertificateGate,
        clock: Clock,
        trust_domain: str,
        ttl_s: Callable[[IdentityKind], int],
        turn: asyncio.Lock,
        order: IssueOrder,
        rate: Rate,
    ) -> None:
        self._ca = ca
        self._ledger = ledger
        self._gate = gate
        self._clock = clock
        self._trust_domain = trust_domain
        self._ttl_s = ttl_s
        # Issuing and revoking take turns. Otherwise a thief who renews at the moment of the revocation would get a
        # certificate that is written down just after the revocation has looked for it.
        self._turn = turn
        self._order = order
        self._by_identity = Rates(rate, clock=clock)
        self._by_tenant = Rates(Rate(rate.burst * TENANT_RATE, rate.per_s * TENANT_RATE), clock=clock)
        self._log = structlog.get_logger()

    async def certify(
        self,
        application: CertificateRequest,
        *,
        require: Callable[[], Awaitable[None]] = _nothing,
        rated: bool = False,
    ) -> Issued:
        """Issue, unless the identity or one behind the request is barred; `require` is called under the same lock.

        With `rated` the caller has asked `require_rate` already.
        """
        if not rated:
            self.require_rate(application.identity)
        async with self._turn:
            await require()
            await self.require_not_barred(application.identity, application.actor, application.delegate)
            parent = application.parent
            if parent is not None:
                self._gate.require(parent)
            now = self._clock.unix_ns()
            lineage = await self._lineage(application)
            leaf = issue_leaf(
                self._ca,
                public_key=application.public_key,
                identity=application.identity,
                ttl_s=application.ttl_s,
                now_unix_ns=now,
                lineage=lineage,
            )
            issued = Issued(
                certificate_pem(leaf).decode(),
                self._ca.certificate_pem.decode(),
                serial_of(leaf),
                not_after_unix_ns(leaf),
            )
            await self._record(
                IssuedCertificate(
                    serial=issued.serial,
                    spiffe_id=application.identity.spiffe_id,
                    issued_to=application.actor,
                    parent=parent.cert_serial
                    if parent is not None and _inherits(parent, application)
                    else "",
                    delegate=application.delegate,
                    issued_ns=lineage.issued_ns,
                    not_after_ns=issued.not_after_ns,
                    root=lineage.root or issued.serial,
                    via=lineage.via,
                ),
                now_ns=now,
            )
        self._log.info(
            "certificate issued",
            identity=application.identity.spiffe_id,
            serial=issued.serial,
            actor=application.actor,
            not_after_ns=issued.not_after_ns,
        )
        return issued

    def require_rate(self, identity: Identity) -> None:
        """Saturated when an identity or its tenant requests too often; the mesh always gets its own."""
        if identity.kind is IdentityKind.MESH:
            return
        wait_s = self._by_identity.take(identity.spiffe_id)
        if not wait_s and identity.tenant:
            wait_s = self._by_tenant.take(identity.tenant)
        if wait_s:
            raise Saturated(
                f"{identity} asks for certificates too often.",
                retry_after_ms=max(1, round(wait_s * 1000)),
                reason="renewal-rate",
            )

    async def _lineage(self, application: CertificateRequest) -> Lineage:
        parent = application.parent
        root = via = ""
        # What an operator makes for others is not his own certificate renewed: revoking his would else take every
        # tenant down with him.
        if parent is not None and _inherits(parent, application):
            descent = parent.lineage
            if not descent.issued_ns:
                # A certificate of before says nothing of its chain; the ledger may.
                known = await self._ledger.find(parent.cert_serial)
                descent = Lineage(root=known.root, via=known.via) if known is not None else descent
            renewal = parent.identity == application.identity
            root, via = inherited(descent, parent.cert_serial, renewal=renewal)
        return Lineage(self._order.next(), root, via, application.delegate)

    async def _record(self, issued: IssuedCertificate, *, now_ns: int) -> None:
        try:
            await self._ledger.record(issued, now_ns=now_ns)
        except Saturated:
            if not await self._let_go_of_the_dead(issued, now_ns=now_ns):
                raise
            await self._ledger.record(issued, now_ns=now_ns)

    async def _let_go_of_the_dead(self, issued: IssuedCertificate, *, now_ns: int) -> bool:
        """Forget some that have expired or were revoked, which count as long as they are known."""
        tenant = tenant_of_spiffe(issued.spiffe_id)
        looked_at = [
            *await self._ledger.oldest(spiffe_id=issued.spiffe_id, limit=LOOKED_AT),
            *(await self._ledger.oldest(tenant=tenant, limit=LOOKED_AT) if tenant else ()),
            *await self._ledger.oldest(limit=LOOKED_AT),
        ]
        dead = {entry.serial for entry in looked_at if entry.not_after_ns <= now_ns or self.revoked(entry)}
        await self._ledger.forget(dead)
        return bool(dead)

    def revoked(self, entry: IssuedCertificate) -> bool:
        """True for a certificate that is on the denylist."""
        identity = parse_identity(entry.spiffe_id, trust_domain=self._trust_domain)
        # As services see it: one without marks shows them nothing but its serial and its name.
        lineage = (
            Lineage(entry.issued_ns, entry.root, entry.via, entry.delegate) if entry.marked else Lineage()
        )
        return self._gate.covers(lineage.subjects(entry.serial, identity), lineage.issued_ns)

    def renew_own(self, service: str) -> Certify:
        """The renewal of Signer's own certificate, without a call over the network."""
        identity = Identity(self._trust_domain, IdentityKind.MESH, service)

        async def certify(csr_pem: bytes) -> Certified:
            issued = await self.certify(
                CertificateRequest(
                    public_key_of_csr(csr_pem),
                    identity,
                    self._ttl_s(IdentityKind.MESH),
                    actor=identity.spiffe_id,
                )
            )
            return Certified(issued.certificate_pem.encode(), issued.ca_pem.encode())

        return certify

    async def require_not_barred(self, identity: Identity, *others: str) -> None:
        """NotAllowed when the identity, or one behind the request, is barred."""
        barred = await self._ledger.barred({identity.spiffe_id, *filter(None, others)})
        if barred:
            raise NotAllowed(
                f"{min(barred)} was revoked and may have no certificate until an operator restores it.",
                reason="identity-barred",
            )

    async def listed(
        self, *, spiffe_id: str, after: str, limit: int, prefix: str = ""
    ) -> tuple[IssuedCertificate, ...]:
        """Living certificates, oldest first."""
        if spiffe_id:
            parse_identity(spiffe_id, trust_domain=self._trust_domain)
        return await self._ledger.living(
            now_ns=self._clock.unix_ns(), spiffe_id=spiffe_id, prefix=prefix, after=after, limit=limit
        )

    async def barred(self, spiffe_ids: Collection[str]) -> frozenset[str]:
        """Those of the given identities that are barred."""
        return await self._ledger.barred(spiffe_ids)

    async def ever_known(self, identity: Identity) -> bool:
        """True for a principal that ever had a certificate."""
        return await self._ledger.ever_known(identity.spiffe_id)

    async def known(self, identity: Identity) -> bool:
        """True for an identity that has a certificate, or a principal that ever had one."""
        return bool(
            await self._ledger.oldest(spiffe_id=identity.spiffe_id, limit=1)
        ) or await self.ever_known(identity)

    async def find(self, serial: str) -> IssuedCertificate | None:
        """The entry of a certificate in the ledger."""
        return await self._ledger.find(serial)


def require_known(known: IssuedCertificate | None, service: Identity) -> IssuedCertificate:
    """The ledger's entry of a service's certificate; NotAllowed when there is none.

    There is none after a backup was restored. Taken for an operator's, such a certificate could be renewed for ever,
    even after its principal has lost the right.
    """
    if known is None:
        raise NotAllowed(
            f"Nobody knows through whom this certificate of {service.source} was had; "
            "a principal has to act as it anew.",
            reason="not-delegated",
        )
    return known


def _inherits(parent: Peer, application: CertificateRequest) -> bool:
    return parent.identity == application.identity or parent.identity.kind is not IdentityKind.OPERATOR
