"""Issues certificates that somebody else has decided on, and knows which were issued.

Never issues what it has not written down, nor for an identity that is barred, nor to a certificate while that one is
being revoked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass

import structlog
from cryptography.hazmat.primitives.asymmetric import ec

from snavio.clock import Clock
from snavio.domain.identity import Identity, Kind, parse_identity
from snavio.errors import NotAllowed
from snavio.pki import (
    CertificateAuthority,
    certificate_pem,
    issue_leaf,
    not_after_unix_ns,
    public_key_of_csr,
    serial_of,
)
from snavio.ports.certificates import CertificateLedger, IssuedCertificate
from snavio.transport.gate import Gate
from snavio.transport.peer import Peer
from snavio.transport.renewal import Certified, Certify

MAX_LISTED = 1_000
MAX_ASSUMED_S = 3600


@dataclass(frozen=True, slots=True)
class Issued:
    """A fresh certificate."""

    certificate_pem: str
    ca_pem: str
    serial: str
    not_after_ns: int


@dataclass(frozen=True, slots=True)
class Application:
    """A certificate that somebody wants, with what is known of how he came to it."""

    public_key: ec.EllipticCurvePublicKey
    identity: Identity
    ttl_s: int
    actor: str
    parent: Peer | None = None
    """The certificate with which it is asked for."""
    delegate: str = ""
    """The principal through whose right it is had."""


async def _nothing() -> None:
    return


class Certificates:
    """The installation's CA at work."""

    def __init__(
        self,
        *,
        ca: CertificateAuthority,
        ledger: CertificateLedger,
        gate: Gate,
        clock: Clock,
        trust_domain: str,
        ttl_s: Callable[[Kind], int],
        turn: asyncio.Lock,
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
        self._log = structlog.get_logger()

    async def certify(
        self, application: Application, *, require: Callable[[], Awaitable[None]] = _nothing
    ) -> Issued:
        """Issue, unless the identity or anybody on the way to it is barred; `require` is asked at that moment."""
        async with self._turn:
            await require()
            await self.require_not_barred(application.identity, application.actor, application.delegate)
            parent = application.parent
            if parent is not None:
                self._gate.require(parent)
            now = self._clock.unix_ns()
            leaf = issue_leaf(
                self._ca,
                public_key=application.public_key,
                identity=application.identity,
                ttl_s=application.ttl_s,
                now_unix_ns=now,
            )
            issued = Issued(
                certificate_pem(leaf).decode(),
                self._ca.certificate_pem.decode(),
                serial_of(leaf),
                not_after_unix_ns(leaf),
            )
            await self._ledger.record(
                IssuedCertificate(
                    serial=issued.serial,
                    spiffe_id=application.identity.spiffe_id,
                    issued_to=application.actor,
                    # What an operator makes for others is not his own certificate renewed: revoking his would else
                    # take every tenant down with him.
                    parent=parent.cert_serial
                    if parent is not None and _inherits(parent, application)
                    else "",
                    delegate=application.delegate,
                    issued_ns=now,
                    not_after_ns=issued.not_after_ns,
                )
            )
        self._log.info(
            "certificate issued",
            identity=application.identity.spiffe_id,
            serial=issued.serial,
            actor=application.actor,
            not_after_ns=issued.not_after_ns,
        )
        return issued

    def renew_own(self, service: str) -> Certify:
        """How Signer renews its own certificate, without asking itself over the network."""
        identity = Identity(self._trust_domain, Kind.MESH, service)

        async def certify(csr_pem: bytes) -> Certified:
            issued = await self.certify(
                Application(
                    public_key_of_csr(csr_pem), identity, self._ttl_s(Kind.MESH), actor=identity.spiffe_id
                )
            )
            return Certified(issued.certificate_pem.encode(), issued.ca_pem.encode())

        return certify

    async def require_not_barred(self, identity: Identity, *others: str) -> None:
        """NotAllowed when the identity, or anybody on the way to it, may have no certificate."""
        barred = await self._ledger.barred({identity.spiffe_id, *filter(None, others)})
        if barred:
            raise NotAllowed(
                f"{min(barred)} was revoked and may have no certificate until an operator restores it.",
                reason="identity-barred",
            )

    async def listed(self, *, spiffe_id: str, after: str, limit: int) -> tuple[IssuedCertificate, ...]:
        """Living certificates, oldest first."""
        if spiffe_id:
            parse_identity(spiffe_id, trust_domain=self._trust_domain)
        return await self._ledger.living(
            now_ns=self._clock.unix_ns(), spiffe_id=spiffe_id, after=after, limit=limit
        )

    async def barred(self, spiffe_ids: Collection[str]) -> frozenset[str]:
        """Those of the given identities that are barred."""
        return await self._ledger.barred(spiffe_ids)

    async def find(self, serial: str) -> IssuedCertificate | None:
        """What is known of a certificate."""
        return await self._ledger.find(serial)


def require_known(known: IssuedCertificate | None, service: Identity) -> IssuedCertificate:
    """What the ledger says of a service's certificate; NotAllowed when it does not know it.

    A ledger from a backup does not. Taken for an operator's, such a certificate would outlive the right of the
    principal through whom it was had, for ever.
    """
    if known is None:
        raise NotAllowed(
            f"Nobody knows through whom this certificate of {service.source} was had; "
            "a principal has to act as it anew.",
            reason="not-delegated",
        )
    return known


def _inherits(parent: Peer, application: Application) -> bool:
    return parent.identity == application.identity or parent.identity.kind is not Kind.OPERATOR
